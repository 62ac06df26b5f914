"""A PyTorch Lightning callback that watches for collapse. Needs the extra `lightning`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from uncollapse._base.check import InputError, check_int
from uncollapse._base.extras import import_extra
from uncollapse.health.monitor import CollapseMonitor

__all__ = ["CollapseCallback"]

# Without the package the module still imports; making the callback says what to install.
_PACKAGES = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}
_installed = [module for name, module in _PACKAGES.items() if find_spec(name)]
_Callback: Any = import_module(_installed[0]).Callback if _installed else object


class CollapseCallback(_Callback):  # type: ignore[misc]
    """Feeds a `CollapseMonitor` from what `training_step` returns, and logs its scalars.

    `training_step` returns a dict with `loss`, and the batch's `embeddings` and `labels` (other
    names: `embeddings`, `labels`). With several processes the batches are gathered first. The
    monitor is saved in, and restored from, Lightning's checkpoints. Set the monitor's `on_change`
    to act on a verdict.

        trainer = Trainer(callbacks=[CollapseCallback(CollapseMonitor(loss_fn))])
    """

    def __init__(
        self,
        monitor: CollapseMonitor | None = None,
        *,
        embeddings: str = "embeddings",
        labels: str = "labels",
        log_every: int = 50,
        prefix: str = "collapse",
    ) -> None:
        if not _installed:
            import_extra("lightning", "lightning")
        self.monitor = monitor or CollapseMonitor()
        self.embeddings, self.labels, self.prefix = embeddings, labels, prefix
        self.log_every = check_int("log_every", log_every)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Lightning's hook after each batch."""
        if not isinstance(outputs, Mapping) or self.embeddings not in outputs:
            given = list(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__
            allowed = f"a dict from training_step with 'loss', {self.embeddings!r}, {self.labels!r}"
            raise InputError("outputs", given, allowed)
        z, y = outputs[self.embeddings], outputs.get(self.labels)
        if trainer.world_size > 1:
            z = pl_module.all_gather(z).flatten(0, 1)
            y = None if y is None else pl_module.all_gather(y).flatten(0, 1)
        health = self.monitor.update(z, y, outputs.get("loss"), trainer.global_step)
        if trainer.global_step % self.log_every == 0 or batch_idx == 0:
            scalars = {f"{self.prefix}/{k}": v for k, v in health.scalars().items()}
            pl_module.log_dict(scalars, batch_size=len(z), rank_zero_only=True)

    def state_dict(self) -> dict[str, Any]:
        """What Lightning saves in its checkpoints."""
        return self.monitor.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What Lightning found in its checkpoint."""
        self.monitor.load_state_dict(state_dict)
