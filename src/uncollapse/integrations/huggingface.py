"""Callbacks for the trainers of Hugging Face and sentence-transformers; our losses in the latter.

Needs the extra `huggingface`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from uncollapse._base.check import InputError, check_choice
from uncollapse._base.extras import import_extra
from uncollapse._base.files import written_aside
from uncollapse.health.guard import ACTIONS, Guard, GuardEvent
from uncollapse.health.monitor import CollapseMonitor
from uncollapse.health.strategy import RunSettings
from uncollapse.health.watching import Logger, Watch
from uncollapse.losses.columns import ColumnLoss, join_columns

_FILE = "uncollapse.pt"  # in a checkpoint of the trainer
_log = logging.getLogger("uncollapse")

# Without the package the module still imports; making the callback says what to install.
_installed = find_spec("transformers") is not None
_Callback: Any = import_module("transformers").TrainerCallback if _installed else object


class _Handle(_Callback):  # type: ignore[misc]
    """What both callbacks share: a watch, whose figures go into the trainer's logs."""

    watch: Watch | None = None
    prefix: str

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **known: Any
    ) -> None:
        """Add the scalars to the trainer's line and history."""
        health = None if self.watch is None else self.watch.health
        if logs is None or health is None:
            return
        scalars = {f"{self.prefix}/{name}": value for name, value in health.scalars().items()}
        for line in (logs, *state.log_history[-1:]):
            line.update(scalars)

    def on_step_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """End the training where the watch asks for it."""
        control.should_training_stop |= self.watch is not None and self.watch.stopped

    def on_train_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Stop watching; the watch stays to be looked at."""
        if self.watch is not None:
            self.watch.close()


class CollapseCallback(_Handle):
    """A `Watch` of a trainer's run, whose scalars are added to the logs.

    **`transformers.Trainer`:** the model is called with `labels` and gives a dict (or ModelOutput)
    with its `loss` and `embeddings`; for any other model, name a `layer`. If its loss is ours,
    pass that part of it as `loss`: then a rescue can change the strategy.

        Trainer(model, args, callbacks=[CollapseCallback()], ...)

    **sentence-transformers:** pass the `loss` module too. Its labels are used where there is one
    text per sample; with several (pairs, triplets) the first two form a class of their own, as in
    those losses.

        SentenceTransformerTrainer(model, args, loss=loss, callbacks=[CollapseCallback(loss=loss)])

    The batches of an accumulated step are judged together. A loss of ours can be rescued in a
    `SentenceLoss`. The trainer's own `report_to` gets each line before callbacks do, and so
    without the scalars: use `loggers` for those. `options` are those of `Watch`.
    """

    def __init__(
        self,
        monitor: CollapseMonitor | None = None,
        *,
        loss: nn.Module | None = None,
        prefix: str = "collapse",
        **options: Any,
    ) -> None:
        if not _installed:
            import_extra("transformers", "huggingface")
        self.loss, self.prefix, self.options = loss, prefix, options
        self.monitor = monitor or CollapseMonitor(loss)

    def on_train_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Start to watch."""
        criterion = known["model"] if self.loss is None else self.loss
        parts, options = (known["model"], criterion, known["optimizer"]), self.options
        if state.max_steps > 0:
            options = {"steps": state.max_steps, **options}
        self.watch = Watch(*parts, monitor=self.monitor, prefix=self.prefix, **options)
        self.watch.step = state.global_step


class SentenceLoss(nn.Module, _Handle):
    """One of our losses for `SentenceTransformerTrainer`, and its guard against collapse.

        loss = SentenceLoss(model, TripletLoss(miner=Miner("hard", "hard")), action="rescue")
        SentenceTransformerTrainer(model, args, train_dataset=ds, loss=loss, callbacks=[loss])

    **Datasets.** One column of texts and a `label`: the loss sees the labels. Two columns or more:
    anchors, positives and any number of negatives; the loss is a `ColumnLoss` then. Scores of pairs
    are refused: our losses have no use for them. So are several datasets in one run, whose labels
    would be mixed up.

    **As a callback** it watches what it computes in training (not in evaluation) and acts, once a
    step of the optimizer: see `Guard`. `warn` logs what it sees (logger `uncollapse`); `stop` ends
    the training; `rescue` restores model and optimiser and goes on with a better strategy. A rate
    it changes stays changed under the trainer's schedule. If it is not among `callbacks`, it is
    only a loss. The micro-batches of an accumulated step are judged together; a race trains on them
    one by one. With several processes it only warns, each about its own batches.

    **Checkpoints.** What the loss learns, monitor and guard, which the trainer does not save, are
    written into its checkpoints as `uncollapse.pt`; with `rescue` that is as large as two copies of
    model and optimizer. A resumed run goes on with them.

    Args:
        model: the `SentenceTransformer`.
        loss: one of ours; for texts with labels also PML's, or any module of embeddings and labels.
        action: `"warn"`, `"stop"` or `"rescue"`.
        monitor: by default a `CollapseMonitor` of the loss.
        race: whether a rescue chooses by a short race.
        on_event: called with each event; by default it is logged.
        loggers: these get the figures of each look of the watch. The trainer's own `report_to` gets
            each line before callbacks do, and so without them.
        prefix: of the scalars' names.

    >>> from uncollapse.losses import MultipleNegativesRankingLoss
    >>> class Model(nn.Linear):
    ...     def forward(self, features):
    ...         return {"sentence_embedding": super().forward(features["input_ids"])}
    >>> loss = SentenceLoss(Model(3, 2), MultipleNegativesRankingLoss())
    >>> pairs = [{"input_ids": torch.eye(3)}, {"input_ids": torch.eye(3)}]
    >>> loss(pairs).ndim, loss.guard
    (0, None)
    """

    def __init__(
        self,
        model: nn.Module,
        loss: nn.Module,
        *,
        action: str = "warn",
        monitor: CollapseMonitor | None = None,
        race: bool = True,
        on_event: Callable[[GuardEvent], None] | None = None,
        loggers: Sequence[Logger] = (),
        prefix: str = "collapse",
    ) -> None:
        super().__init__()
        check_choice("action", action, ACTIONS)
        if not isinstance(loss, nn.Module):
            raise InputError("loss", type(loss).__name__, "a loss, after the model")
        self.rows, self.loss, self.monitor, self.prefix = _Rows(model), loss, monitor, prefix
        self._options: dict[str, Any] = {"action": action, "race": race}
        self._options |= {"on_event": on_event, "loggers": loggers}
        self._loss_fn: nn.Module = loss
        self._columns = 0
        self._count = 0  # pairs so far: each is a class of its own
        self._training: dict[str, Any] | None = None  # what the trainer passed on_train_begin

    @property
    def model(self) -> nn.Module:
        """The network, as the trainer wraps it."""
        return self.rows.model

    @property
    def guard(self) -> Guard | None:
        """The guard; None before training begins."""
        return None if self.watch is None else self.watch.guard

    def forward(self, sentence_features: Iterable[Mapping[str, Any]], labels: Any = None) -> Tensor:
        """The loss of a batch: one dict of tokens per column, and labels of a single one."""
        features = list(sentence_features)
        self._set_columns(len(features), labels)
        watched = self._training is not None and self.model.training and torch.is_grad_enabled()
        if watched and self.watch is None:
            self._begin()
        rows = self.rows(features)
        if self._columns > 1:
            first = self._count if watched else 0
            rows, labels = join_columns(*rows.chunk(self._columns), first=first)
            self._count += len(rows) if watched else 0
        rescued = self.watch is not None and watched and self._options["action"] == "rescue"
        if self.watch is not None and rescued and not bool(torch.isfinite(rows).all()):
            self.watch.after_step(rows.detach(), labels, None, self.watch.step)
            nothing: Tensor = rows.new_zeros(()).requires_grad_()
            return nothing
        loss: Tensor = self._loss_fn(rows, labels)
        return loss

    def on_train_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Start to watch."""
        dataset = getattr(known.get("train_dataloader"), "dataset", None)
        if isinstance(dataset, torch.utils.data.ConcatDataset):
            raise InputError("train_dataset", "several datasets", "one: labels would be mixed up")
        self._training = {"args": args, "state": state, **known}
        self.watch = None

    def on_save(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Save what the trainer does not, beside its checkpoint."""
        if not getattr(state, "is_world_process_zero", True):
            return
        watch = None if self.watch is None else self.watch.state_dict()
        kept = {"loss": self.loss.state_dict(), "watch": watch, "count": self._count}
        with written_aside(_checkpoint_file(args, state)) as aside:
            torch.save(kept, aside)

    def on_train_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Stop watching; `watch` and `guard` stay to be looked at."""
        super().on_train_end(args, state, control, **known)
        self._training = None

    def _set_columns(self, count: int, labels: Any) -> None:
        """Decide by the first batch whether there are labels or columns; refuse other batches."""
        if not self._columns:
            self._columns = count
            loss: Any = self.loss  # which ColumnLoss refuses if it is not ours
            self._loss_fn = loss if count == 1 else ColumnLoss(loss)
        if count != self._columns:
            raise InputError("columns", f"{count} after {self._columns}", "one dataset in a run")
        if count == 1 and labels is None:
            raise InputError("labels", None, "a column 'label' beside one column of texts")
        if count > 1 and labels is not None:
            allowed = "columns of texts alone: remove the labels or scores"
            raise InputError("labels", f"some, beside {count} columns", allowed)

    def _begin(self) -> None:
        """Create the watch at the first batch; in a resumed run, restore it."""
        training = self._training or {}
        args, state, optimizer = training["args"], training["state"], training["optimizer"]
        settings = RunSettings(lr=getattr(args, "learning_rate", None))
        self.watch = Watch(
            self.rows,
            self._loss_fn,
            optimizer,
            monitor=self.monitor or CollapseMonitor(self._loss_fn, settings=settings),
            steps=state.max_steps if state.max_steps > 0 else None,
            max_norm=getattr(args, "max_grad_norm", None) or None,
            prefix=self.prefix,
            **self._options,
        )
        self.monitor, self.watch.step = self.watch.guard.monitor, state.global_step
        if state.global_step == 0:
            return
        path = _checkpoint_file(args, state)
        if not path.is_file():
            _log.warning("no %s: monitor and guard begin anew at step %d", path, state.global_step)
            return
        kept = torch.load(path, map_location="cpu", weights_only=True)
        self.loss.load_state_dict(kept["loss"])
        self._count = kept["count"]
        if kept["watch"] is not None:
            self.watch.load_state_dict(kept["watch"])


class _Rows(nn.Module):
    """The network as a function from a batch's columns to rows, one column below the other."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Sequence[Mapping[str, Any]]) -> Tensor:
        # A copy: modules add what they compute to the dict they are given.
        outputs = [self.model(dict(column)) for column in features]
        return torch.cat([column["sentence_embedding"] for column in outputs])


def _checkpoint_file(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}" / _FILE
