"""Watch any training loop with one line: hooks see its batches, the guard judges and acts."""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from uncollapse._base.arrays import ArrayLike, label_array
from uncollapse._base.check import InputError, check_bool, check_int, did_you_mean, percent
from uncollapse._base.result import Card, Shown
from uncollapse.health.advice import advise_on
from uncollapse.health.batches import joined, layer_rows, loss_in, read_call, read_labels
from uncollapse.health.drifts import direction_rate, known_drift
from uncollapse.health.figures import spread
from uncollapse.health.guard import Guard, GuardEvent
from uncollapse.health.monitor import CollapseMonitor
from uncollapse.health.race import Listener, processes
from uncollapse.health.verdict import Health
from uncollapse.losses import Loss

__all__ = ["Logger", "Watch", "log_health", "watch"]

_CALLS = 16  # calls of an accumulated step that are judged together
_BLIND = 20  # steps without a call that could be read: then something is wrong
# Of docs/results/label-free: steps, shares of the directions' spread, and the drift between them.
_SETTLED, _LITTLE, _TOO_LITTLE, _PULLS = 60, 0.75, 0.5, 0.1
_HISTORY = 2000  # looks that are kept; beyond, every other one is dropped
_log = logging.getLogger("uncollapse")


class Logger(Protocol):
    """Takes numbers by step. With its `run_id` a resumed run continues the same log."""

    run_id: str | None

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        """Numbers by name."""

    def note(self, name: str, text: str, step: int) -> None:
        """A text by name."""

    def log_config(self, config: Mapping[str, Any]) -> None:
        """The run's settings, by dotted name."""

    def close(self) -> None:
        """Close the logger."""


class Watch(Shown):
    """Watches a training loop for collapse, without changing it: `uc.watch` is this class.

    The loop stays as it is: a hook on the criterion sees embeddings, labels and loss, a hook on the
    optimizer runs after each step. What is seen is logged (logger `uncollapse`). `health` is that
    of the last look, `events` what was reported or done, `history` the figures of each look.
    `state_dict` and `load_state_dict` continue a watch in a resumed run; `close`, or leaving the
    context, lets go of the loop.

    **It never breaks the loop.** Whatever fails inside is reported once, with its traceback in
    `error`, and watching ends. **It never changes a healthy run**: weights, buffers, optimizer and
    random streams stay those of the run without it, bit for bit.

    Args:
        model: the network that is trained.
        criterion: what the loop calls with embeddings and labels: a loss of ours, of
            pytorch-metric-learning, torch or sentence-transformers, your own module, or the head of
            an ArcFace loop. None, if only a layer is watched.
        optimizer: the optimizer that steps, or several in a list.
        action: `"warn"`; `"stop"` sets `stopped` too, for the loop to read; `"rescue"` restores the
            last healthy state and goes on with a better strategy (`Guard`).
        layer: the name of a part of `model` whose output is watched in place of what the criterion
            gets: a projector, pooled features, tokens `[N, tokens, dim]`. Labels are optional.
        every: steps between two looks, at most: `look_every` of the monitor.
        steps: steps of the whole run, of which a rescue's races may take a tenth.
        loggers: these get the figures of each look, under names that begin with `prefix`.
        miner: the miner, where it is not part of the criterion.
        monitor: by default a `CollapseMonitor` of the criterion.
        on_event: called with each event; by default it is logged.
        by_hand: nothing is hooked but the optimizer; the loop calls `after_step`.
        guarded: passed to `Guard`: `race`, `max_norm`, `tolerance`, `snapshot_every`.

    >>> model, criterion = nn.Linear(4, 2), nn.TripletMarginLoss()
    >>> optimizer = torch.optim.SGD(model.parameters(), 0.1)
    >>> with Watch(model, criterion, optimizer) as watch:
    ...     for _ in range(5):
    ...         a, p, n = model(torch.randn(3, 8, 4)).unbind()
    ...         criterion(a, p, n).backward()
    ...         optimizer.step()
    >>> watch.health.step, watch.health.n
    (5, 24)
    """

    _at_work = False  # of any watch: what a race calls is not the loop's

    def __init__(
        self,
        model: nn.Module,
        criterion: nn.Module | None,
        optimizer: Any,
        *,
        action: str = "warn",
        layer: str | None = None,
        every: int | None = None,
        steps: int | None = None,
        loggers: Sequence[Logger] = (),
        miner: object | None = None,
        monitor: CollapseMonitor | None = None,
        on_event: Callable[[GuardEvent], None] | None = None,
        prefix: str = "collapse",
        by_hand: bool = False,
        **guarded: Any,
    ) -> None:
        watched = None if layer is None else _submodule(model, layer)
        hooked = layer is None and not check_bool("by_hand", by_hand)
        if hooked and not isinstance(criterion, nn.Module):
            allowed = "the loss module that the loop calls (a function: as the forward of a module)"
            raise InputError("criterion", type(criterion).__name__, f"{allowed}, or a layer")
        monitor = monitor or CollapseMonitor(criterion, miner=miner)
        if action != "warn" and processes() > 1:
            _log.warning("with %d processes the watch only warns: each sees its own", processes())
            action = "warn"
        if every is not None:
            monitor.look_every = check_int("every", every)
        loss_fn = _no_loss if criterion is None else criterion
        guarded |= {"action": action, "steps": steps}
        self.guard = Guard(model, optimizer, loss_fn, monitor, **guarded)
        self.criterion, self.layer, self.by_hand = criterion, layer, by_hand
        self.prefix, self.loggers = prefix, tuple(loggers)
        self.on_event = on_event or partial(_log.warning, "uncollapse, %s")
        self.step = 0
        self.error: str | None = None
        self.history: list[dict[str, Any]] = []
        self._directions: float | None = None  # their spread at the first look, without labels
        self._pairs = 0  # columns of texts so far: each pair is a class of its own
        self._texts: list[Any] = []  # what a text model gave inside the criterion
        self._stepping = False
        self._unstepped = 0  # calls of the criterion since the last step
        self._calls: deque[_Seen] = deque(maxlen=_CALLS)
        self._rows: deque[_Seen] = deque(maxlen=_CALLS)  # of the layer, since the criterion's call
        self._handles = self._attach(criterion, watched)
        if action == "rescue":
            _log.warning("uncollapse keeps %s, to rescue this run", self.guard.memory)

    def _attach(self, criterion: object, layer: nn.Module | None) -> list[RemovableHandle]:
        def listen(function: Callable[..., None]) -> Listener:
            return Listener(partial(self._safely, function))

        handles = []
        if layer is not None:
            handles.append(layer.register_forward_hook(listen(self._see_layer)))
        if isinstance(criterion, nn.Module):
            see = listen(self._see_criterion)
            handles.append(criterion.register_forward_hook(see, with_kwargs=True))
            if isinstance(inner := getattr(criterion, "model", None), nn.Module):
                handles.append(inner.register_forward_hook(listen(self._see_texts)))
        for each in self.guard.optimizers:
            handles.append(each.register_step_pre_hook(listen(self._see_step_begin)))
        last = self.guard.optimizers[-1]
        handles.append(last.register_step_post_hook(listen(self._see_step)))
        return handles

    @property
    def health(self) -> Health | None:
        """The health at the last look; None before the first."""
        return self.guard.health

    @property
    def events(self) -> list[GuardEvent]:
        """What was reported or done, in order."""
        return self.guard.events

    @property
    def stopped(self) -> bool:
        """Whether the run should end: `action="stop"` saw a collapse."""
        return self.guard.stopped

    def close(self) -> None:
        """Let go of the loop; health, events and history stay."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._calls.clear()
        self._rows.clear()
        self.guard.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def after_step(
        self,
        embeddings: ArrayLike,
        labels: ArrayLike | None = None,
        loss: float | Tensor | None = None,
        step: int | None = None,
    ) -> None:
        """Look at a batch by hand, where no hook can see it; errors end the watching."""
        self.step = self.step + 1 if step is None else step
        self._safely(self._look, embeddings, labels, loss)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to go on with the same watch."""
        names = ("step", "_pairs", "_directions", "history")
        return {"guard": self.guard.state_dict()} | {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on as the watch that gave `state` would have."""
        self.guard.load_state_dict(state["guard"])
        for name, value in state.items():
            if name != "guard":
                setattr(self, name, value)

    def _safely(self, work: Callable[..., None], *args: Any) -> None:
        """Do a part of the watching; what fails ends it, not the loop."""
        if Watch._at_work or self.error is not None:
            return
        Watch._at_work = True
        try:
            with torch.no_grad():
                work(*args)
        except Exception as error:
            self.error = traceback.format_exc()
            what = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
            message = "uncollapse stopped watching at step %d; training goes on. %s%s "
            _log.warning(f"{message}(traceback: print(watch.error))", self.step, what, error)
            self.close()
        finally:
            Watch._at_work = False

    def _see_layer(self, module: nn.Module, args: Any, output: Any) -> None:
        trained = module.training or _has_graph(output) or _is_frozen(module, self.guard.model)
        if trained and self.guard.monitor.due(self.step + 1):
            rows = layer_rows(output)
            slope = _Slope([rows] if rows is output else [])
            # A copy: what follows the layer may work in place.
            self._rows.append(_Seen(rows.detach().clone(), None, None, [slope]))

    def _see_texts(self, module: nn.Module, args: Any, output: Any) -> None:
        rows = output.get("sentence_embedding") if isinstance(output, Mapping) else None
        if _has_graph(rows):  # not of an evaluation
            self._texts.append(rows)

    def _see_criterion(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        due = self.guard.monitor.due(self.step + 1)
        texts, self._texts = self._texts, []
        if not (due or self.guard.recording) or not _has_graph(output):
            return
        self._unstepped += 1
        if self._unstepped > _BLIND * _CALLS:
            seldom = f"no step in {self._unstepped} calls of the criterion"
            raise InputError("optimizer", seldom, "the optimizer whose step() the loop calls")
        if self.layer is None:
            given = {"sentence_embedding": texts} if texts else output
            call = read_call(module, args, kwargs, given, self._pairs)
            if not len(call.rows):
                return
            self._pairs += len(call.rows)
            asked_again = isinstance(module, Loss) and call.labels is not None  # by `drift`
            slope = _Slope([] if asked_again or not due else call.sources, output)
            seen = [_Seen(call.rows, call.labels, loss_in(output), [slope])]
        else:
            seen = [_together(list(self._rows))] if self._rows else []
            labels = read_labels(args, kwargs, sum(len(layer.rows) for layer in self._rows))
            seen = [each._replace(labels=labels, loss=loss_in(output)) for each in seen]
            self._rows.clear()
        again = self._stepping and len(self._calls) > 0
        if again:  # a closure is called again and again: its last call counts
            self._calls.clear()
        for each in seen:  # without labels a call is not kept: its batch is already
            self.guard.record(each.rows, None if again else each.labels)
        self._calls.extend(seen)

    def _see_step_begin(self, *_: object) -> None:
        self._stepping = True

    def _see_step(self, *_: object) -> None:
        self._stepping, self._unstepped = False, 0
        self.step += 1
        calls = list(self._calls or self._rows)
        # What was not trained on is none of the step's: a validation that kept its graph, say.
        calls = [call for call in calls if any(slope.caught for slope in call.slopes)] or calls
        self._calls.clear()
        self._rows.clear()
        if not calls and self.health is None and self.step >= _BLIND:
            what = "criterion" if self.layer is None else "layer"
            given = f"no call of the {what} in training, in {self.step} steps"
            raise InputError(what, given, "a module that the loop calls, outside torch.compile")
        if calls and self.guard.monitor.due(self.step):
            seen = _together(calls)
            slopes = [slope.rows() for slope in seen.slopes]
            known = [slope for slope in slopes if slope is not None]
            gradient = torch.cat(known) if len(known) == len(slopes) else None
            self._look(seen.rows, seen.labels, seen.loss, gradient)

    def _look(self, rows: Any, labels: Any, loss: Any, slope: Tensor | None = None) -> None:
        if isinstance(rows, Tensor):
            rows, labels, loss, slope = self.guard.monitor.on_host(rows, labels, loss, slope)
        monitor, pull = self.guard.monitor, None if slope is None else direction_rate(rows, slope)
        if slope is not None and self.guard.action == "rescue":
            self.guard.measured_drift = known_drift(rows, slope)
        monitor.settings = replace(monitor.settings, direction_drift=pull)
        events = self.guard.after_step(rows, labels, loss, self.step)
        if labels is None and isinstance(rows, Tensor) and monitor.settings.margin is None:
            self._look_at_directions(rows, pull)
        health = self.guard.health
        for event in events:
            self.on_event(event)
        if health is not None:
            known = {"loss": None if loss is None else float(loss), "verdict": health.verdict}
            known |= {} if pull is None else {"direction_drift": pull}
            self.history.append({"step": self.step, **health.scalars(), **known})
            if len(self.history) > _HISTORY:
                del self.history[1::2]
            for logger in self.loggers:
                log_health(logger, health, self.step, prefix=self.prefix)

    def _look_at_directions(self, rows: Tensor, pull: float | None) -> None:
        """Warn once of a run without labels whose directions have lost much of their spread.

        The rule is that of docs/results/label-free; a loss that pulls them together gets less room.
        """
        now = spread(functional.normalize(rows.float(), dim=1))
        first = self._directions = now if self._directions is None else self._directions
        room = _LITTLE if pull is not None and pull > _PULLS else _TOO_LITTLE
        if self.step < _SETTLED or not now < room * first:
            return
        self._directions = 0.0  # said: nothing is below it
        advice = advise_on("cone", self.guard.monitor.settings)
        reason = f"{percent(now / first, 2)} of the spread of directions is left"
        words = "; ".join(filter(None, (reason, advice.cause, advice.sentence)))
        event = GuardEvent(self.step, "warning", f"shrinking: {words}")
        self.events.append(event)
        self.on_event(event)

    def card(self) -> Card:
        """The last look, the last events, and the diameter over all looks."""
        if self.health is None:
            return Card("Watching: nothing seen yet")
        known, last = self.health.card(), [str(event) for event in self.events[-3:]]
        diameters = [row["diameter"] for row in self.history if "diameter" in row]
        title = f"Step {self.step:,}. {known.title}" + "; watching ended" * bool(self.error)
        curves = {"diameter over the looks": diameters}
        return replace(known, title=title, lines=[*known.lines, *last], curves=curves)


class _Slope:
    """The gradient at some tensors, caught in the backward pass, for a loss of weight one.

    A scaler, or accumulation, multiplies the loss: what it does to the criterion's output is caught
    too, and divided by.
    """

    def __init__(self, sources: Sequence[Tensor], output: Any = None) -> None:
        self.count = len(sources)
        self.caught: dict[int, Tensor] = {}
        weighed = [output] if isinstance(output, Tensor) and output.ndim == 0 else []
        for n, tensor in enumerate([*sources, *weighed]):
            if not tensor.is_leaf:  # a parameter would keep the hook
                tensor.register_hook(partial(self._catch, n))  # type: ignore[no-untyped-call]

    def _catch(self, n: int, gradient: Tensor) -> None:
        self.caught[n] = gradient.detach()

    def rows(self) -> Tensor | None:
        """The gradient at the rows; None where it has not come by."""
        if not self.count or any(n not in self.caught for n in range(self.count)):
            return None
        slope = joined([self.caught[n] for n in range(self.count)])
        return slope / self.caught[self.count] if self.count in self.caught else slope


class _Seen(NamedTuple):
    """Rows of one call or several, with labels, loss and gradient as far as they are known."""

    rows: Tensor
    labels: Any
    loss: Tensor | None
    slopes: list[_Slope]


def _together(calls: list[_Seen]) -> _Seen:
    """The calls of one step as one batch, with the mean of their losses."""
    last = calls[-1]
    calls = [call for call in calls if call.rows.shape[1:] == last.rows.shape[1:]]
    if len(calls) == 1:
        return last
    labels: Any = [call.labels for call in calls]
    if all(isinstance(each, Tensor) for each in labels):
        labels = torch.cat(labels)
    else:
        known = all(each is not None for each in labels)
        labels = np.concatenate([label_array(each) for each in labels]) if known else None
    losses = [call.loss.float() for call in calls if call.loss is not None]
    loss = torch.stack(losses).mean() if losses else None
    slopes = [slope for call in calls for slope in call.slopes]
    return _Seen(torch.cat([call.rows for call in calls]), labels, loss, slopes)


def _has_graph(output: Any) -> bool:
    return any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in tree_leaves(output))


def _is_frozen(layer: nn.Module, model: nn.Module) -> bool:
    """Whether it is a teacher's, which may be in evaluation mode all along."""
    return not any(p.requires_grad for p in list(layer.parameters()) or model.parameters())


def _submodule(model: nn.Module, name: str) -> nn.Module:
    """A part of a network by its name, also inside DataParallel or a compiled network."""
    plain: dict[str, nn.Module] = {
        key.replace("_orig_mod.", "").removeprefix("module."): part
        for key, part in model.named_modules()
        if key
    }
    if name not in plain:
        allowed = "the name of a part of the model, as model.named_modules() has it"
        raise InputError("layer", name, allowed, shown=f"{name!r}{did_you_mean(str(name), plain)}")
    return plain[name]


def _no_loss(embeddings: Tensor, labels: ArrayLike) -> Tensor:
    raise InputError("criterion", None, "a loss, to be called")


def log_health(
    logger: Logger, health: Health, step: int | None = None, *, prefix: str = "collapse"
) -> None:
    """Log every scalar of `health`, and, when it is not healthy, the reasons and the advice.

    `verdict` is logged as its index in `VERDICTS`: 0 is healthy. In a loop:

        logger, monitor = WandbLogger(), CollapseMonitor(loss_fn)
        log_health(logger, monitor.update(z, labels, loss))

    >>> from uncollapse.health import measure
    >>> class Printer:
    ...     def log(self, scalars, step):
    ...         print("diameter", scalars["collapse/diameter"], step)
    ...     def note(self, name, text, step):
    ...         print(name, text)
    >>> log_health(Printer(), measure(torch.zeros(3, 2)), step=7)
    diameter 0.0 7
    collapse/verdict network-collapse
      all embeddings are equal
    """
    step = (health.step or 0) if step is None else step
    logger.log({f"{prefix}/{name}": value for name, value in health.scalars().items()}, step)
    if health.verdict != "healthy":
        logger.note(f"{prefix}/verdict", str(health), step)


watch = Watch  # as a user calls it
