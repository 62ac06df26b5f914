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
from torch.utils.hooks import RemovableHandle

from uncollapse._base.check import InputError, check_choice
from uncollapse._base.extras import import_extra
from uncollapse._base.files import written_aside
from uncollapse.health.guard import ACTIONS, Guard, GuardEvent
from uncollapse.health.loggers import Logger, log_health
from uncollapse.health.monitor import CollapseMonitor
from uncollapse.health.race import LoopTrial
from uncollapse.health.strategy import RunSettings, Strategy, strategy_of
from uncollapse.losses.columns import ColumnLoss, join_columns

__all__ = ["CollapseCallback", "SentenceLoss"]

_FILE = "uncollapse.pt"  # in a checkpoint of the trainer
_log = logging.getLogger("uncollapse")

# Without the package the module still imports; making the callback says what to install.
_installed = find_spec("transformers") is not None
_Callback: Any = import_module("transformers").TrainerCallback if _installed else object

SeenBatch = tuple[Tensor, Tensor | None, Tensor | None]


class _Watcher(_Callback):  # type: ignore[misc]
    """What both callbacks share: the batches since the last step, and what they add to logs."""

    monitor: CollapseMonitor | None
    loggers: Sequence[Logger]
    prefix: str
    _seen: list[SeenBatch]

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **known: Any
    ) -> None:
        """Add the scalars to the trainer's line and history, and give them to the loggers."""
        if logs is None or self.monitor is None or self.monitor.health is None:
            return
        health = self.monitor.health
        scalars = {f"{self.prefix}/{name}": value for name, value in health.scalars().items()}
        logs.update(scalars)
        if state.log_history:
            state.log_history[-1].update(scalars)
        for logger in self.loggers:
            log_health(logger, health, state.global_step, prefix=self.prefix)

    def _take_seen(self) -> tuple[Tensor, Tensor | None, float | None]:
        """The batches of an accumulated step as one, with the mean of the losses known."""
        rows, labels, losses = zip(*self._seen, strict=True)
        self._seen = []
        numbers = [float(loss) for loss in losses if loss is not None]
        every = None if any(part is None for part in labels) else torch.cat(labels)
        return torch.cat(rows), every, sum(numbers) / len(numbers) if numbers else None


class CollapseCallback(_Watcher):
    """Feeds a `CollapseMonitor` from the model's forward passes, and adds its scalars to the logs.

    **`transformers.Trainer`:** the model is called with `labels` and gives a dict (or ModelOutput)
    with the embeddings under the name `embeddings`, and its `loss`.

        Trainer(model, args, callbacks=[CollapseCallback(CollapseMonitor())], ...)

    **sentence-transformers:** pass the `loss` module too. Its labels are used where there is one
    text per sample; with several (pairs, triplets) the first two form a class of their own, as in
    those losses.

        SentenceTransformerTrainer(model, args, loss=loss, callbacks=[CollapseCallback(loss=loss)])

    The batches of an accumulated step are judged together. Set the monitor's `on_change` to act;
    a loss of ours acts by itself in a `SentenceLoss`. The trainer's own `report_to` gets each
    line before callbacks do, and so without the scalars: use `loggers` for those.
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
        if not _installed:
            import_extra("transformers", "huggingface")
        self.monitor: CollapseMonitor = monitor or CollapseMonitor()
        self.loss, self.loggers, self.prefix = loss, tuple(loggers), prefix
        self.embeddings = embeddings or ("embeddings" if loss is None else "sentence_embedding")
        self._texts: list[Tensor] = []
        self._pairs = 0  # so far: each is a class of its own
        self._seen = []
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
        if self._seen:
            self.monitor.update(*self._take_seen(), state.global_step)

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
        loss = output.get("loss")
        self._seen.append((rows, kwargs.get("labels"), None if loss is None else loss.detach()))

    def _see_loss(self, module: nn.Module, args: Any, output: Any) -> None:
        texts, self._texts = self._texts, []
        if not texts or not module.training:
            return
        labels = args[1] if len(args) > 1 else None
        if len(texts) > 1:  # a sample is an anchor and its positive; negatives have no class
            rows, labels = join_columns(*texts[:2], first=self._pairs)
            self._pairs, texts = self._pairs + len(texts[0]), [rows]
        loss = output.detach() if isinstance(output, Tensor) else None
        self._seen.append((torch.cat(texts), labels, loss))


class SentenceLoss(nn.Module, _Watcher):
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
        loggers: these get the health's scalars whenever the trainer logs. The trainer's own
            `report_to` gets each line before callbacks do, and so without them.
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
        self.rows, self.loss = _Rows(model), loss
        self.action, self.race, self.prefix = action, race, prefix
        self.on_event, self.loggers = on_event or _log_event, tuple(loggers)
        self.guard: Guard | None = None
        self.monitor = self._given = monitor  # None until training begins, where none was given
        self._loss_fn: nn.Module = loss
        self._columns = 0
        self._count = 0  # pairs so far: each is a class of its own
        self._training: dict[str, Any] | None = None  # what the trainer passed on_train_begin
        self._trial: LoopTrial | None = None
        self._seen = []

    @property
    def model(self) -> nn.Module:
        """The network, as the trainer wraps it."""
        return self.rows.model

    def forward(self, sentence_features: Iterable[Mapping[str, Any]], labels: Any = None) -> Tensor:
        """The loss of a batch: one dict of tokens per column, and labels of a single one."""
        features = list(sentence_features)
        self._set_columns(len(features), labels)
        watched = self._training is not None and self.model.training and torch.is_grad_enabled()
        if watched and self.guard is None:
            self._begin()
        rows = self.rows(features)
        if self._columns > 1:
            first = self._count if watched else 0
            rows, labels = join_columns(*rows.chunk(self._columns), first=first)
        lost = watched and self.action == "rescue" and not bool(torch.isfinite(rows).all())
        loss: Tensor = rows.new_zeros(()).requires_grad_() if lost else self._loss_fn(rows, labels)
        if watched:
            self._count += len(rows) if self._columns > 1 else 0
            z = rows.detach()
            self._seen.append((z, labels, None if lost else loss.detach()))
            if self._trial is not None:
                self._trial.add(z, labels)
        return loss

    def on_train_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Start to watch."""
        dataset = getattr(known.get("train_dataloader"), "dataset", None)
        if isinstance(dataset, torch.utils.data.ConcatDataset):
            raise InputError("train_dataset", "several datasets", "one: labels would be mixed up")
        if getattr(args, "world_size", 1) > 1 and self.action != "warn":
            given = f"{self.action!r} with {args.world_size} processes"
            raise InputError("action", given, "'warn': each process sees its own batches alone")
        self._training = {"args": args, "state": state, **known}
        self.guard, self.monitor, self._seen = None, self._given, []

    def on_step_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Let the guard look at everything seen since the last step."""
        if not self._seen or self.guard is None or self._training is None:
            return
        before = self.guard.lr_factor
        events = self.guard.after_step(*self._take_seen(), state.global_step)
        for event in events:
            self.on_event(event)
        if any(event.kind == "rescue" for event in events):
            known["optimizer"].zero_grad()
            _keep_rate(known.get("lr_scheduler"), known["optimizer"], self.guard.lr_factor / before)
        control.should_training_stop |= self.guard.stopped

    def on_save(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Save what the trainer does not, beside its checkpoint."""
        if not getattr(state, "is_world_process_zero", True):
            return
        guard = None if self.guard is None else self.guard.state_dict()
        kept = {"loss": self.loss.state_dict(), "guard": guard, "count": self._count}
        with written_aside(_checkpoint_file(args, state)) as aside:
            torch.save(kept, aside)

    def on_train_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Stop watching; `guard` and `monitor` stay to be looked at."""
        self._training, self._seen = None, []

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
        """Create the guard at the first batch; in a resumed run, restore it."""
        assert self._training is not None
        args, state = self._training["args"], self._training["state"]
        optimizer = self._training["optimizer"]
        if self.race and self.action == "rescue" and strategy_of(self._loss_fn) != Strategy():
            norm = getattr(args, "max_grad_norm", None) or None
            self._trial = LoopTrial(self.rows, optimizer, self._loss_fn, max_norm=norm)
        settings = RunSettings(lr=getattr(args, "learning_rate", None))
        self.monitor = self._given or CollapseMonitor(self._loss_fn, settings=settings)
        self.guard = Guard(
            self.rows,
            optimizer,
            self._loss_fn,
            self.monitor,
            action=self.action,
            steps=state.max_steps if state.max_steps > 0 else None,
            race=self.race,
            trial=self._trial,
        )
        if state.global_step == 0:
            return
        path = _checkpoint_file(args, state)
        if not path.is_file():
            _log.warning("no %s: monitor and guard begin anew at step %d", path, state.global_step)
            return
        kept = torch.load(path, map_location="cpu", weights_only=True)
        self.loss.load_state_dict(kept["loss"])
        self._count = kept["count"]
        if kept["guard"] is not None:
            self.guard.load_state_dict(kept["guard"])


class _Rows(nn.Module):
    """The network as a function from a batch's columns to rows, one column below the other."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Sequence[Mapping[str, Any]]) -> Tensor:
        # A copy: modules add what they compute to the dict they are given.
        outputs = [self.model(dict(column)) for column in features]
        return torch.cat([column["sentence_embedding"] for column in outputs])


def _keep_rate(scheduler: Any, optimizer: Any, change: float) -> None:
    """Multiply the schedule's rates, now and later, by what a rescue changed."""
    inner = getattr(scheduler, "scheduler", scheduler)
    if not hasattr(inner, "base_lrs"):
        return
    inner.base_lrs = [rate * change for rate in inner.base_lrs]
    for group, rate in zip(optimizer.param_groups, inner.get_last_lr(), strict=True):
        group["lr"] = rate * change


def _checkpoint_file(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}" / _FILE


def _log_event(event: GuardEvent) -> None:
    _log.warning("%s", event)
