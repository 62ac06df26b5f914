"""A PyTorch Lightning callback that watches for collapse. Needs the extra `lightning`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from uncollapse._base.check import check_int
from uncollapse._base.extras import import_extra
from uncollapse.health.monitor import CollapseMonitor
from uncollapse.health.watching import Watch

# Without the package the module still imports; making the callback says what to install.
_PACKAGES = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}
_installed = [module for name, module in _PACKAGES.items() if find_spec(name)]
_Callback: Any = import_module(_installed[0]).Callback if _installed else object


class CollapseCallback(_Callback):  # type: ignore[misc]
    """A `Watch` of a Lightning run, whose scalars are logged. The module stays as it is.

    It watches the module's loss, the first part of it whose class is named `...Loss`, or the part
    named `criterion`, or a `layer`. Where there is none, `training_step` returns a dict with `loss`
    and the batch's `embeddings` and `labels`; with several processes these are gathered first.
    `action="stop"` ends the training. The watch is saved in, and restored from, Lightning's
    checkpoints. `options` are those of `Watch`.

        trainer = Trainer(callbacks=[CollapseCallback()])
    """

    def __init__(
        self,
        monitor: CollapseMonitor | None = None,
        *,
        criterion: str | None = None,
        log_every: int = 50,
        prefix: str = "collapse",
        **options: Any,
    ) -> None:
        if not _installed:
            import_extra("lightning", "lightning")
        self.monitor, self.criterion, self.options = monitor, criterion, options
        self.log_every, self.prefix = check_int("log_every", log_every), prefix
        self.watch: Watch | None = None
        self._restored: dict[str, Any] = {}

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start to watch."""
        named = pl_module.named_modules()
        losses = (name for name, part in named if type(part).__name__.endswith("Loss"))
        name = self.criterion or next(losses, None)
        criterion = None if name is None else pl_module.get_submodule(name)
        by_hand = criterion is None and "layer" not in self.options
        parts = (pl_module, criterion, trainer.optimizers)
        options = {**self.options, "prefix": self.prefix, "by_hand": by_hand}
        if 0 < (steps := trainer.estimated_stepping_batches) < math.inf:
            options = {"steps": int(steps), **options}
        self.watch = Watch(*parts, monitor=self.monitor, **options)
        self.monitor = self.watch.guard.monitor
        if self._restored:
            self.watch.load_state_dict(self._restored)
        self.watch.step = trainer.global_step

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Lightning's hook after each batch."""
        watch = self.watch
        if watch is None:
            return
        if watch.by_hand and isinstance(outputs, Mapping) and "embeddings" in outputs:
            z, y = outputs["embeddings"], outputs.get("labels")
            if trainer.world_size > 1:
                z = pl_module.all_gather(z).flatten(0, 1)
                y = None if y is None else pl_module.all_gather(y).flatten(0, 1)
            watch.after_step(z, y, outputs.get("loss"), trainer.global_step)
        trainer.should_stop |= watch.stopped
        if watch.health is not None and (batch_idx == 0 or batch_idx % self.log_every == 0):
            scalars = {f"{self.prefix}/{k}": v for k, v in watch.health.scalars().items()}
            pl_module.log_dict(scalars, batch_size=watch.health.n, rank_zero_only=True)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Stop watching; the watch stays to be looked at."""
        if self.watch is not None:
            self.watch.close()

    def state_dict(self) -> dict[str, Any]:
        """What Lightning saves in its checkpoints."""
        return {} if self.watch is None else self.watch.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What Lightning found in its checkpoint, before training starts."""
        self._restored = state_dict
