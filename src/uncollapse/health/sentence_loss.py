"""Our losses in sentence-transformers' trainer, with the monitor and the guard at work inside it.

Imports neither package: the trainer calls it as a loss and, in `callbacks`, by its own events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from uncollapse._base.check import InputError, check_choice
from uncollapse._base.files import written_aside
from uncollapse.health.guard import ACTIONS, Guard, GuardEvent
from uncollapse.health.loggers import Logger, add_to_logs
from uncollapse.health.monitor import CollapseMonitor
from uncollapse.health.race import LoopTrial
from uncollapse.health.strategy import RunSettings, Strategy, strategy_of
from uncollapse.losses.columns import ColumnLoss, join_columns

__all__ = ["SentenceLoss"]

_FILE = "uncollapse.pt"  # in a checkpoint of the trainer
_log = logging.getLogger("uncollapse")


class SentenceLoss(nn.Module):
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
    it changes stays changed under the trainer's schedule. Left out of `callbacks` it is a loss and
    no more. The micro-batches of an accumulated step are judged together; a race trains on them one
    by one. With several processes it only warns, each of its own batches.

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
            `report_to` hears of a line before callbacks do, so it does not get them.
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
        self.on_event, self.loggers = on_event or _say, tuple(loggers)
        self.guard: Guard | None = None
        self._monitor = monitor
        self._charged: nn.Module = loss
        self._columns = 0
        self._count = 0  # pairs so far: each is a class of its own
        self._training: dict[str, Any] | None = None  # what the trainer has told
        self._trial: LoopTrial | None = None
        self._seen: list[tuple[Tensor, Tensor, Tensor | None]] = []

    @property
    def model(self) -> nn.Module:
        """The network, as the trainer wraps it."""
        return self.rows.model

    @property
    def monitor(self) -> CollapseMonitor | None:
        """What watches; None before training where none was given."""
        return self._monitor if self.guard is None else self.guard.monitor

    def forward(self, sentence_features: Iterable[Mapping[str, Any]], labels: Any = None) -> Tensor:
        """The loss of a batch: one dict of tokens a column, and labels where there is one."""
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
        loss: Tensor = rows.new_zeros(()).requires_grad_() if lost else self._charged(rows, labels)
        if watched:
            self._count += len(rows) if self._columns > 1 else 0
            z = rows.detach()
            self._seen.append((z, labels, None if lost else loss.detach()))
            if self._trial is not None:
                self._trial.add(z, labels)
        return loss

    # The trainer's events. Those that are not here do nothing, whichever it may have.

    def __getattr__(self, name: str) -> Any:
        return _nothing if name.startswith("on_") else super().__getattr__(name)

    def on_train_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Start to watch."""
        if _several_sets(known.get("train_dataloader")):
            raise InputError("train_dataset", "several datasets", "one: labels would be mixed up")
        if getattr(args, "world_size", 1) > 1 and self.action != "warn":
            given = f"{self.action!r} with {args.world_size} processes"
            raise InputError("action", given, "'warn': each process sees its own batches alone")
        self._training = {"args": args, "state": state, **known}
        self.guard, self._seen = None, []

    def on_step_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Let the guard look at everything seen since the last step."""
        if not self._seen or self.guard is None or self._training is None:
            return
        rows, labels, losses = zip(*self._seen, strict=True)
        self._seen = []
        numbers = [float(value) for value in losses if value is not None]
        loss = sum(numbers) / len(numbers) if numbers else None
        before = self.guard.lr_factor
        events = self.guard.after_step(torch.cat(rows), torch.cat(labels), loss, state.global_step)
        for event in events:
            self.on_event(event)
        if any(event.kind == "rescue" for event in events):
            known["optimizer"].zero_grad()
            _keep_rate(known.get("lr_scheduler"), known["optimizer"], self.guard.lr_factor / before)
        control.should_training_stop |= self.guard.stopped

    def on_log(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Add the scalars to the trainer's line and history, and give them to the loggers."""
        add_to_logs(self.monitor, self.prefix, state, known.get("logs"), self.loggers)

    def on_save(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Beside the trainer's checkpoint, what it does not know of."""
        if not getattr(state, "is_world_process_zero", True):
            return
        with written_aside(_checkpoint_file(args, state)) as aside:
            torch.save(self.training_state(), aside)

    def on_train_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Stop watching; `guard` and `monitor` stay to be looked at."""
        self._training, self._seen = None, []

    def training_state(self) -> dict[str, Any]:
        """What the loss has learned, monitor and guard, in tensors and plain values."""
        guard = None if self.guard is None else self.guard.state_dict()
        return {"loss": self.loss.state_dict(), "guard": guard, "count": self._count}

    def load_training_state(self, path: str | Path) -> None:
        """Go on with what `on_save` wrote, once training has begun."""
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.loss.load_state_dict(state["loss"])
        self._count = state["count"]
        if self.guard is not None and state["guard"] is not None:
            self.guard.load_state_dict(state["guard"])

    def _set_columns(self, count: int, labels: Any) -> None:
        """Once for all batches: labels or columns."""
        if count == self._columns:
            pass
        elif self._columns:
            raise InputError("columns", f"{count} after {self._columns}", "one dataset in a run")
        else:
            self._columns = count
            loss: Any = self.loss  # which ColumnLoss refuses if it is not ours
            self._charged = loss if count == 1 else ColumnLoss(loss)
        if count == 1 and labels is None:
            raise InputError("labels", None, "a column 'label' beside one column of texts")
        if count > 1 and labels is not None:
            allowed = "columns of texts alone: remove the labels or scores"
            raise InputError("labels", f"some, beside {count} columns", allowed)

    def _begin(self) -> None:
        """The guard, as soon as it is known what a batch is; of a resumed run, where it was."""
        assert self._training is not None
        args, state = self._training["args"], self._training["state"]
        optimizer = self._training["optimizer"]
        if self.race and self.action == "rescue" and strategy_of(self._charged) != Strategy():
            norm = getattr(args, "max_grad_norm", None) or None
            self._trial = LoopTrial(self.rows, optimizer, self._charged, max_norm=norm)
        settings = RunSettings(lr=getattr(args, "learning_rate", None))
        self.guard = Guard(
            self.rows,
            optimizer,
            self._charged,
            self._monitor or CollapseMonitor(self._charged, settings=settings),
            action=self.action,
            steps=state.max_steps if state.max_steps > 0 else None,
            race=self.race,
            trial=self._trial,
        )
        if state.global_step == 0:
            return
        path = _checkpoint_file(args, state)
        if path.is_file():
            self.load_training_state(path)
        else:
            _log.warning("no %s: monitor and guard begin anew at step %d", path, state.global_step)


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
    """Rates as the schedule has them, times what a rescue changed; also from now on."""
    inner = getattr(scheduler, "scheduler", scheduler)
    if not hasattr(inner, "base_lrs"):
        return
    inner.base_lrs = [rate * change for rate in inner.base_lrs]
    for group, rate in zip(optimizer.param_groups, inner.get_last_lr(), strict=True):
        group["lr"] = rate * change


def _checkpoint_file(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}" / _FILE


def _several_sets(loader: Any) -> bool:
    return isinstance(getattr(loader, "dataset", None), torch.utils.data.ConcatDataset)


def _nothing(*_: Any, **__: Any) -> None:
    """What an event does that is not ours."""


def _say(event: GuardEvent) -> None:
    _log.warning("%s", event)
