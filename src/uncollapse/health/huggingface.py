"""A callback for Hugging Face's `Trainer` and sentence-transformers' that watches for collapse.

Needs the extra `huggingface`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from uncollapse._base.check import InputError
from uncollapse._base.extras import import_extra
from uncollapse.health.loggers import Logger, add_to_logs
from uncollapse.health.monitor import CollapseMonitor
from uncollapse.losses.columns import join_columns

__all__ = ["CollapseCallback"]

if TYPE_CHECKING:

    class _Callback:
        """transformers.TrainerCallback."""

else:
    # Without the package the module still imports; making the callback says what to install.
    _found = find_spec("transformers")
    _Callback = import_module("transformers").TrainerCallback if _found else object


class CollapseCallback(_Callback):
    """Feeds a `CollapseMonitor` from the model's forward passes, and adds its scalars to the logs.

    **`transformers.Trainer`:** the model is called with `labels` and gives a dict (or ModelOutput)
    with the embeddings under the name `embeddings`, and its `loss`.

        Trainer(model, args, callbacks=[CollapseCallback(CollapseMonitor())], ...)

    **sentence-transformers:** pass the `loss` module too. Its labels are used where there is one
    text a sample; with several texts a sample (pairs, triplets) the first two are a class of their
    own, as those losses have it.

        SentenceTransformerTrainer(model, args, loss=loss, callbacks=[CollapseCallback(loss=loss)])

    The batches of an accumulated step are judged together. Set the monitor's `on_change` to act;
    a loss of ours acts by itself in a `SentenceLoss`. The trainer's own `report_to` hears of a line
    before callbacks do: `loggers` are for those who log elsewhere than in its history.
    """

    def __init__(
        self,
        monitor: CollapseMonitor | None = None,
        *,
        loss: nn.Module | None = None,
        embeddings: str | None = None,
        loggers: Sequence[Logger] = (),
        prefix: str = "collapse",
    ) -> None:
        if _Callback is object:
            import_extra("transformers", "huggingface")
        self.monitor = monitor or CollapseMonitor()
        self.loss, self.loggers, self.prefix = loss, tuple(loggers), prefix
        self.embeddings = embeddings or ("embeddings" if loss is None else "sentence_embedding")
        self._texts: list[Tensor] = []
        self._pairs = 0  # so far: each is a class of its own
        self._batches: list[tuple[Tensor, Tensor | None, float | None]] = []
        self._handles: list[RemovableHandle] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Start to listen."""
        model = known["model"]
        self._handles = [model.register_forward_hook(self._see_model, with_kwargs=True)]
        if self.loss is not None:
            self._handles.append(self.loss.register_forward_hook(self._see_loss))

    def on_train_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Stop listening."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def on_step_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Update the monitor with everything seen since the last step."""
        if not self._batches:
            return
        rows, labels, losses = zip(*self._batches, strict=True)
        self._batches = []
        known_labels = [y for y in labels if y is not None]
        joined = torch.cat(known_labels) if len(known_labels) == len(labels) else None
        numbers = [value for value in losses if value is not None]
        loss = sum(numbers) / len(numbers) if numbers else None
        self.monitor.update(torch.cat(rows), joined, loss, state.global_step)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **known: Any
    ) -> None:
        """Add the scalars to the trainer's line and history, and give them to the loggers."""
        add_to_logs(self.monitor, self.prefix, state, logs, self.loggers)

    def _see_model(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not module.training:
            return
        if not isinstance(output, Mapping) or self.embeddings not in output:
            given = list(output) if isinstance(output, Mapping) else type(output).__name__
            raise InputError("output", given, f"a model output with {self.embeddings!r}")
        rows = output[self.embeddings].detach()
        if self.loss is not None:
            self._texts.append(rows)
            return
        loss, labels = output.get("loss"), kwargs.get("labels")
        self._batches.append((rows, labels, None if loss is None else float(loss.detach())))

    def _see_loss(self, module: nn.Module, args: Any, output: Any) -> None:
        texts, self._texts = self._texts, []
        if not texts or not module.training:
            return
        labels = args[1] if len(args) > 1 else None
        if len(texts) > 1:  # a sample is an anchor and its positive; negatives have no class
            rows, labels = join_columns(*texts[:2], first=self._pairs)
            self._pairs, texts = self._pairs + len(texts[0]), [rows]
        loss = float(output.detach()) if isinstance(output, Tensor) else None
        self._batches.append((torch.cat(texts), labels, loss))
