"""Rescue a collapsing run: roll back, and continue with the strategy that wins a short race.

A run that diverged continues at a lower learning rate.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from uncollapse._base.arrays import ArrayLike
from uncollapse._base.check import InputError, check_bool, check_choice, check_int, check_number
from uncollapse._base.table import percent
from uncollapse.health import race as races
from uncollapse.health.advice import Strategy, at_lower_rates, code, contenders, rank_strategies
from uncollapse.health.drifts import LossFn, predict_scale
from uncollapse.health.figures import spread
from uncollapse.health.monitor import CollapseMonitor
from uncollapse.health.race import Listener, LoopTrial, Race, Trial
from uncollapse.health.strategy import apply_strategy, drift_meter, random_streams_kept, strategy_of
from uncollapse.health.verdict import Health
from uncollapse.losses import Loss

__all__ = ["Guard", "GuardEvent"]

ACTIONS = ("warn", "stop", "rescue")
_ALARMS = ("network-collapse", "shrinking", "cone")
# A snapshot is taken while the scale is at least this share of its start.
_SNAPSHOT_ROOM = races.SMALL
_UNTOUCHED = 0.8  # the same under a strategy that shrinks: its later states are not worth keeping
_SNAPSHOT_GROWTH = 0.03  # and at most this share of what is called diverging
_LOOK = 5  # steps between two predictions, once less than that is left
_SINKS = 0.97  # and what is left of the scale from one to the next, if it still falls
_LITTLE = 0.1  # share of the scale that leaves no room to learn
_FALLS, _AGAIN = 2, 10  # comparisons in a row that find R@1 fallen, and steps between them
_TOGETHER = 3  # comparisons that are judged as one: a fall of a sixth is within the noise of each
_ROWS = 288  # that R@1 is compared on
_LOWER = 0.1  # what the learning rate is multiplied by after a divergence
_ROLLBACKS = 30  # in a row, without a healthy snapshot between: then it is not the learning rate
_SHARE = 0.07  # of a run's steps that races may cost: with copies and judging, a tenth of its time
_USUAL_STEPS = 800  # of a run that does not say how many it has


@dataclass(frozen=True)
class GuardEvent:
    """Something the guard saw or did, in words."""

    step: int
    kind: str  # "warning", "stop" or "rescue"
    text: str
    race: Race | None = None  # what a rescue chose by

    def __str__(self) -> str:
        return f"step {self.step}: {self.text}"


@dataclass
class _State:
    """What a guard keeps from step to step, in plain values and tensors."""

    race_left: float  # training steps that races may still cost
    warned_of: str = "healthy"
    first_scale: float | None = None  # of the run
    start: tuple[float, float] | None = None  # that scale, and the drift as the strategy began
    period: int = 0  # the number of `snapshot_every` steps in which a snapshot was last due
    looked_at: int = -1  # the same of the periods between two predictions
    scale: float = math.inf  # at the last of these
    rate: float = 1.0  # what divergence has left of the learning rate
    rollbacks: int = 0
    # The newest copy is of weights whose embeddings nobody has seen yet: the step that led to them
    # may be the one that diverged. So the one before it stays until these were seen to be sound.
    snapshots: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class _Recall:
    """How R@1 of the same rows has changed since earlier weights, under one strategy.

    `change` is 1 if it has risen, -1 if fallen, None where unknown; `falls` how often in a row it
    had fallen; `hits` what the last comparisons, each on other rows, saw then and now. `earlier`
    are the weights compared with, None for those of the newest snapshot. The last comparison holds
    until the step `holds_until`, the next one as long as `wait` says.
    """

    change: int | None = None
    falls: int = 0
    hits: list[Tensor] = field(default_factory=list)
    earlier: dict[str, Tensor] | None = None
    holds_until: int = -1
    wait: int = _LOOK

    def add(self, change: int | None, step: int) -> None:
        """Each comparison but that of a fall holds twice as long: a slow rise shows too."""
        self.change, self.falls = change, self.falls + 1 if change == -1 else 0
        self.holds_until = step + (_AGAIN if self.falls else self.wait)
        self.wait *= 1 if self.falls else 2

    @property
    def has_fallen(self) -> bool:
        """In two comparisons in a row, or in the last three taken together."""
        together = len(self.hits) == _TOGETHER and races.trend(*torch.cat(self.hits, 1)) < 0
        return together or self.falls >= _FALLS


class Guard:
    """Watches a training loop and acts on collapse. Call `after_step` after each step.

    `warn` reports each verdict once; `stop` also asks the loop to end (`guard.stopped`). `rescue`
    restores the last healthy network and optimiser and changes the loss, or the learning rate.

    **When it acts.** Once half of the scale is gone and the rest still falls, it looks ahead
    (`drifts.predict_scale`); it need not wait for the verdict. A loss that mines is rescued if its
    drift will shrink, or has shrunk, the rest to what the monitor calls shrinking, unless R@1 of
    held-out rows rises meanwhile. Any other loss, such as one of proxies, may close in on few
    directions as it learns: it is rescued only once R@1 has fallen, or has not risen while nine
    tenths of the scale went. R@1 is compared on the same rows with the weights that a rescue would
    go back to, and counts beyond two standard errors.

    **The choice.** Positive drift means that the loss shrinks the rows. Of the strategies the
    adviser ranks (`health.rank_strategies`), those whose drift on the monitor's recent rows does
    not shrink **race** from the restored state, on the same batches, for a few dozen steps:
    successive halving, judged by R@1 of rows held out of them. The winner goes on from where the
    race left it. Where the drift is not what shrinks it, or all that race shrink, or a rescued run
    shrinks again, the steps are too long: strategies race at a tenth and a third of the rate. The
    same strategy at the same rate is not tried twice. Races cost at most a tenth of `steps`. The
    batches are the last ones, which the guard keeps copies of (at most 32, or 512 MB): the
    embeddings given to `after_step` must be what `model` returned, or its rows over their norms.
    Where they are something else, or several processes train together, the adviser's first choice
    is taken. A rescue that fails or is interrupted leaves everything as it was.

    **The learning rate** that a rescue lowers is lowered inside each step of the optimizer
    (`lr_factor`), so that any schedule, made before or after the guard, goes on as it was.

    **Divergence.** Embeddings or a loss that are NaN or infinite, and embeddings a thousand times
    the scale of their start and of the margin, are rolled back too, and the run goes on at a tenth
    of the learning rate, for good; `stop` ends it. Our losses refuse embeddings that are not
    finite: give these to `after_step` without a loss, and go on with the next batch.

    Args:
        model: the network.
        optimizer: its optimizer, or several in a list.
        loss_fn: one of our losses; it is changed in place. For any other callable `rescue` only
            changes the learning rate, and says which loss to take in its place.
        monitor: by default a `CollapseMonitor` of the loss.
        action: `"warn"`, `"stop"` or `"rescue"`.
        tolerance: drifts up to this count as not shrinking.
        snapshot_every: steps between copies of a healthy state.
        steps: steps of the whole run, of which races may take a tenth; 800 if it is not given.
        race: whether rescues race at all.
        max_norm: the loop clips the norm of its gradients to this; races do so too.
        trial: trains and judges in races, where that takes more than `loss_fn(model(inputs),
            labels)`.

    >>> from uncollapse.losses import TripletLoss
    >>> from uncollapse.mining import Miner
    >>> model = nn.Linear(4, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> guard = Guard(model, optimizer, TripletLoss(margin=0.2, miner=Miner("hard", "hard")))
    >>> str(guard.strategy), guard.events
    ('hard x hard', [])
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        loss_fn: LossFn,
        monitor: CollapseMonitor | None = None,
        *,
        action: str = "rescue",
        tolerance: float = 0.02,
        snapshot_every: int = 20,
        steps: int | None = None,
        race: bool = True,
        max_norm: float | None = None,
        trial: Trial | None = None,
    ) -> None:
        check_choice("action", action, ACTIONS)
        _check_parts(model, loss_fn)
        self.model, self.loss_fn = model, loss_fn
        self.optimizers = races.optimizers_in(optimizer)
        self.monitor = monitor or CollapseMonitor(loss_fn)
        self.action = action
        self.tolerance = check_number("tolerance", tolerance, 0.0)
        self.snapshot_every = check_int("snapshot_every", snapshot_every)
        self.first = self.strategy = strategy_of(loss_fn)
        self.events: list[GuardEvent] = []
        self.stopped = False
        self.measured_drift: float | None = None  # of the last batch, where a `Watch` saw it
        self.health: Health | None = None  # at the last look, whatever it led to
        self._failed: list[Strategy] = []
        self._recall = _Recall()
        self._meter: Callable[[Strategy], float] | None = None  # of the recent rows at this look
        self._lr = self.monitor.settings.lr
        self._rates = [_LowerRates(each) for each in self.optimizers]
        budget = _SHARE * check_int("steps", _USUAL_STEPS if steps is None else steps)
        self._state = _State(race_left=budget if check_bool("race", race) else 0.0)
        if action != "rescue":
            trial = Trial(model, optimizer, loss_fn)
        self._trial = trial or LoopTrial(model, optimizer, loss_fn, max_norm)
        if action == "rescue":
            self._take_snapshot()

    @property
    def lr_factor(self) -> float:
        """What the present strategy, and divergence so far, multiply the learning rate by."""
        return self.strategy.lr_factor * self._state.rate

    def after_step(
        self,
        embeddings: ArrayLike,
        labels: ArrayLike | None = None,
        loss: float | Tensor | None = None,
        step: int | None = None,
    ) -> list[GuardEvent]:
        """Look at a step's batch if the monitor does, and act if it is time to.

        Returns what happened, usually nothing.
        """
        self.record(embeddings, labels)
        last, before = self.monitor.health, len(self.events)
        health = self.monitor.update(embeddings, labels, loss, step)
        if health is last:  # it did not look
            return []
        self.health, self._meter = health, None
        if health.diameter < _SNAPSHOT_GROWTH * self._diverged_at:  # not of NaN
            self._state.snapshots = self._state.snapshots[-1:]
        if health.verdict == "diverging":
            self._on_divergence(health)
        elif health.verdict in _ALARMS:
            self._on_collapse(health)
        elif health.verdict != "healthy":
            self._warn(health)
        elif self.action == "rescue":
            self._on_health(health)
        if health.verdict == "healthy":
            about = "a loss at rest" if health.advice else "healthy"
            if about not in ("healthy", self._state.warned_of):
                self._record(health, "warning", health.advice)
            self._state.warned_of = about
        return self.events[before:]

    def record(self, embeddings: ArrayLike, labels: ArrayLike | None) -> None:
        """Keep a step's batch for races, if it has labels; `after_step` does so too."""
        if isinstance(self._trial, LoopTrial):
            self._trial.add(embeddings, labels)

    @property
    def recording(self) -> bool:
        """Whether the batch whose call was seen last is to be recorded."""
        return isinstance(self._trial, LoopTrial) and self._trial.last_call is not None

    @property
    def memory(self) -> str:
        """What it keeps to rescue a run; the optimizers' state counts as far as it exists."""
        states = [self.model.state_dict(), *(each.state_dict() for each in self.optimizers)]
        tensors = [leaf for leaf in tree_leaves(states) if isinstance(leaf, Tensor)]
        size = sum(tensor.nbytes for tensor in tensors) / 2**20
        batches = f" and at most {races.MOST_BYTES // 2**20} MB of batches"
        batches *= isinstance(self._trial, LoopTrial)
        return f"two copies of the network ({size:.3g} MB each){batches}"

    def close(self) -> None:
        """Let go of network, loss and optimizers; a rate that was lowered stays lowered."""
        rates = self._rates if self.lr_factor == 1.0 else []
        for handle in [*self._trial.handles, *(one for each in rates for one in each.handles)]:
            handle.remove()

    def state_dict(self) -> dict[str, Any]:
        """Everything but the parts it was given, the monitor included."""
        return {
            "trial": self._trial.state_dict(),
            "monitor": self.monitor.state_dict(),
            "strategy": asdict(self.strategy),
            "failed": [asdict(strategy) for strategy in self._failed],
            "events": [asdict(event) for event in self.events],
            "stopped": self.stopped,
            "recall": dict(vars(self._recall)),
            **vars(self._state),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on as the guard that gave `state` would have; the loss gets its strategy."""
        self.monitor.load_state_dict(state["monitor"])
        self.strategy, self.stopped = Strategy(**state["strategy"]), state["stopped"]
        self._failed = [Strategy(**strategy) for strategy in state["failed"]]
        self.events = [
            GuardEvent(**{**event, "race": event["race"] and Race.from_dict(event["race"])})
            for event in state["events"]
        ]
        self._state = _State(**{name: state[name] for name in vars(self._state)})
        self._recall, self.health = _Recall(**state["recall"]), self.monitor.health
        self._trial.load_state_dict(state["trial"])
        self._apply(self.strategy)

    def _on_collapse(self, health: Health) -> None:
        if self.action != "rescue":
            if self.action == "stop" and health.verdict in ("network-collapse", "cone"):
                self._stop(health)
            self._warn(health)
            return
        if self._must_act(health):
            with self._undone_on_error():
                self._rescue(health)
        else:
            self._warn(health)

    def _must_act(self, health: Health) -> bool:
        """Whether an embedding that has lost its scale, or soon will, is to be rescued."""
        settings, mines = self.monitor.settings, self.first != Strategy()
        if settings.loss == "foreign" and settings.positives is not None and self._shrinks:
            return False  # what it mines cannot be changed from here: the advice says by what
        if mines and health.verdict == "network-collapse":
            return True
        change = self._change_of_recall(health)
        if change is None:  # no rows to judge by
            return self._shrinks and (mines or health.verdict != "shrinking")
        return change < 1 if mines and self._shrinks else self._recall.has_fallen

    def _change_of_recall(self, health: Health) -> int | None:
        """Whether R@1 of held-out rows has risen, 1, or fallen, -1; None where nothing tells.

        Compared with the weights that a rescue would go back to, or with later ones that were
        better; where little of the scale is left, what has not risen counts as fallen.
        """
        recall, state, step = self._recall, self._state, health.step or 0
        if step >= recall.holds_until and state.snapshots:
            earlier = recall.earlier or state.snapshots[-1]["training"]["model"]
            with random_streams_kept(self.loss_fn):
                both = self._trial.recalls(earlier, _ROWS)
            change = None if both is None else races.trend(*both)
            if both is not None:
                recall.hits = [*recall.hits[1 - _TOGETHER :], torch.stack(both)]
            left = 1.0 if health.relative_diameter is None else health.relative_diameter
            sound = left > self.monitor.thresholds.shrink_ratio and self.first == Strategy()
            if change == 1 and sound:
                self._take_snapshot()
            elif change == 1:  # better, but too small or too near to it to go back to
                recall.earlier, recall.hits = self._trial.copy_weights(), []
            recall.add(-1 if change == 0 and left <= _LITTLE else change, step)
        return recall.change

    def _on_divergence(self, health: Health) -> None:
        """Stop or roll back a run whose embeddings are not finite, or far too large."""
        if self.action == "warn" or health.diameter < self._diverged_at:
            self._warn(health)
            return
        tried = self._state.rollbacks
        if self.action == "stop" or tried >= _ROLLBACKS:
            self._stop(health, f" {tried} lower rates did not help" if tried else "")
            return
        with self._undone_on_error():
            self._state.rollbacks += 1
            self._state.rate *= _LOWER
            step, _ = self._roll_back(confirmed=True)
            self._state.warned_of = "healthy"
            words = f"Rolled back to step {step}; going on at lr x {self.lr_factor:.2g}"
            self._record(health, "rescue", f"{_words(health)} {words}")

    def _stop(self, health: Health, why: str = "") -> None:
        """Ask the loop to end, once: it may go on."""
        if not self.stopped:
            self.stopped = True
            self._record(health, "stop", f"stopped: {_words(health)}{why}")

    def _warn(self, health: Health) -> None:
        """Warn, once for each change of verdict."""
        if health.verdict != self._state.warned_of:
            self._state.warned_of = health.verdict
            self._record(health, "warning", f"{_words(health)} {health.advice}".strip())

    def _on_health(self, health: Health) -> None:
        step = health.step or 0
        if self._state.start is None and self.monitor.recent.filled:
            first = self._state.first_scale or spread(self.monitor.recent.rows()[0])
            self._state.first_scale = first
            self._state.start = (first, self._drift(self.strategy))
        if self._state.start is not None and health.spread < _SNAPSHOT_ROOM * self._state.start[0]:
            looked_at, self._state.looked_at = self._state.looked_at, step // _LOOK
            if looked_at != self._state.looked_at:
                self._look_ahead(health, *self._state.start)
            return
        period, self._state.period = self._state.period, step // self.snapshot_every
        if period != self._state.period and self._is_sound(health):
            self._take_snapshot()
            self._state.rollbacks = 0

    def _is_sound(self, health: Health) -> bool:
        """Whether a state is worth going back to: neither small nor near divergence.

        Under a strategy that shrinks, most of the scale it began with must be left too.
        """
        scale = 1.0 if health.relative_diameter is None else health.relative_diameter
        if scale < _SNAPSHOT_ROOM or health.diameter >= _SNAPSHOT_GROWTH * self._diverged_at:
            return False
        if self._state.start is None or self._state.start[1] <= self.tolerance:
            return True
        return health.spread >= _UNTOUCHED * self._state.start[0]

    def _look_ahead(self, health: Health, scale_then: float, drift_then: float) -> None:
        """Rescue an embedding that is still healthy if its drift will make it `shrinking`."""
        scale = spread(self.monitor.recent.rows()[0])
        left = scale / scale_then
        falls, self._state.scale = scale < _SINKS * self._state.scale, scale
        if not falls or not self._shrinks:
            return
        drift = self._drift(self.strategy)
        end = predict_scale(left, drift_then, drift)
        if end <= self.monitor.thresholds.shrink_ratio:
            reason = (
                f"{percent(left, 2)} of the scale is left, and a drift that went from "
                f"{drift_then:+.3f} to {drift:+.3f} predicts that {percent(end, 2)} will be left"
            )
            health = replace(health, verdict="shrinking", reasons=(reason,))
            if self._must_act(health):
                with self._undone_on_error():
                    self._rescue(health)

    @contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        """What fails or is interrupted inside leaves the run as it was; gradients always stay."""
        weights, own = self._trial.copy_state(), {**self.state_dict(), "trial": {}}
        taken = self._trial.batches_taken()
        learned = {p for each in self.optimizers for g in each.param_groups for p in g["params"]}
        for part in (self.model, self.loss_fn):  # some may be another optimizer's
            learned |= set(part.parameters()) if isinstance(part, nn.Module) else set()
        gradients = {parameter: parameter.grad for parameter in learned}
        try:
            for parameter in learned:
                parameter.grad = None
            # A batch without triplets, say, is not the loop's to warn of.
            with random_streams_kept(self.loss_fn), warnings.catch_warnings(action="ignore"):
                yield
        except BaseException:
            self._trial.restore(weights)
            self.load_state_dict(own)
            if taken is not None:
                self._trial.rewind(taken)
            raise
        finally:
            for parameter, gradient in gradients.items():
                parameter.grad = gradient

    def _rescue(self, health: Health) -> None:
        before, is_first = self.strategy, not self._failed
        size = self.monitor.settings.batch_size or 1  # the state of the start may not know it
        drift = self._drift(before)
        if before not in self._failed:
            self._failed.append(before)
        candidates = self._candidates() if is_first and self._shrinks else []
        candidates = candidates or self._slower_candidates()
        if not candidates:  # to roll back again would hold the run where it is
            if self.monitor.verdict != "healthy":  # a prediction is not repeated at each look
                self._warn(health)
            return
        step, taken = self._roll_back()
        if taken is not None:
            self._trial.rewind(taken)  # repeat what the restored weights have not seen
        chosen, race = self._raced_choice(candidates, size)
        if race is not None and race.all_shrink and chosen.lr_factor == before.lr_factor:
            self._roll_back()
            self._failed += [each for each in candidates if each not in self._failed]
            slower = at_lower_rates(candidates, before.lr_factor)
            chosen, second = self._raced_choice(slower, size)
            race = second or race
        self._change(chosen)
        how = f"drift {self._drift(chosen):+.3f}" if race is None else str(race)
        text = (
            f"{_words(health)} Drift of {before} {drift:+.3f}. Rolled back to step {step}; "
            f"going on with {chosen} ({how})"
        )
        if drift > self.tolerance and self.monitor.settings.loss == "foreign":
            margin = self.monitor.settings.margin
            better = code(Strategy("inside", "hard", scale_free=True, margin=margin))
            text += f". What this loss may mine cannot be changed from here; instead: {better}"
        self._record(health, "rescue", text, race)

    def _candidates(self) -> list[Strategy]:
        """The alternatives at the same rate that do not shrink the rows.

        What a race may choose from comes first; the others are measured where none of it is safe.
        """
        ranked = rank_strategies(self.first, self.monitor.settings)
        for some in (contenders(self.first, ranked), ranked):
            safe = [strategy for strategy in some if not self._drift(strategy) > self.tolerance]
            if safe:
                return safe
        return sorted(ranked, key=self._drift)[:1]  # none is safe: the one that shrinks least

    def _slower_candidates(self) -> list[Strategy]:
        """At lower rates the present strategy, unless it is what shrinks, and its alternatives."""
        known, rate = replace(self.strategy, lr_factor=1.0), self.strategy.lr_factor
        others = [each for each in self._candidates() if each != known]
        if self._shrinks and self.monitor.settings.loss == "foreign" and rate < 1.0:
            return []  # it is the loss, which cannot be changed from here
        own = [] if self._shrinks and others else [known]
        every = at_lower_rates([*own, *others], rate)
        every += [replace(each, lr_factor=rate) for each in others]
        return [strategy for strategy in every if strategy not in self._failed]

    def _raced_choice(
        self, candidates: Sequence[Strategy], size: int
    ) -> tuple[Strategy, Race | None]:
        """The winner of a race, in whose state the run then is; without a race the first."""
        plan = races.plan_race(len(candidates), self._state.race_left, size)
        race = plan and races.run_race(self._trial, candidates, self._apply, plan, size)
        if race is None:
            return candidates[0], None
        self._state.race_left -= race.spent
        return next(strategy for strategy in candidates if str(strategy) == race.chosen), race

    def _roll_back(self, *, confirmed: bool = False) -> tuple[int, int | None]:
        """Restore the newest snapshot, or the newest that is sound; its step and batches taken."""
        if confirmed:
            self._state.snapshots = self._state.snapshots[:1]
        step, taken = 0, None
        if self._state.snapshots:  # none in the state of a guard that did not rescue
            kept = self._state.snapshots[-1]
            step, taken = kept["step"], kept["batches_taken"]
            self._trial.restore(kept["training"])
            self.monitor.roll_back(kept["monitor"])
        self._change(self.strategy)
        return step, taken

    def _change(self, strategy: Strategy) -> None:
        """Go on with a strategy."""
        self.strategy, state = strategy, self._state
        state.start, state.scale, self._recall = None, math.inf, _Recall()
        self._apply(strategy)
        known = {k: v for k, v in asdict(strategy).items() if k != "lr_factor" and v is not None}
        known["lr"] = None if self._lr is None else self._lr * self.lr_factor
        self.monitor.change_settings(**known)

    def _apply(self, strategy: Strategy) -> None:
        """Put a strategy into the loss, and its rate into the optimizers' steps."""
        apply_strategy(self.loss_fn, strategy)
        for rates in self._rates:
            rates.factor = strategy.lr_factor * self._state.rate

    def _drift(self, strategy: Strategy) -> float:
        """Drift of a strategy on the monitor's recent rows; 0.0 where it cannot be measured."""
        if self.measured_drift is not None and not isinstance(self.loss_fn, Loss):
            return self.measured_drift
        if self._meter is None:
            self._meter = drift_meter(self.loss_fn, self.strategy, *self.monitor.recent.rows())
        value = self._meter(strategy)
        return 0.0 if math.isnan(value) else value

    @property
    def _shrinks(self) -> bool:
        """Whether the loss, as it is, shrinks the recent rows."""
        return self._drift(self.strategy) > self.tolerance

    @property
    def _diverged_at(self) -> float:
        """The diameter from which an embedding has diverged.

        From a tiny start a thousandfold may be no more than what the loss asks for: the margin
        counts too.
        """
        then = 0.0 if self.monitor.reference is None else self.monitor.reference.diameter
        scale = max(then, self.monitor.settings.margin or 1.0)
        return self.monitor.thresholds.diverge_ratio * scale

    def _take_snapshot(self) -> None:
        step = 0 if self.monitor.health is None else self.monitor.health.step or 0
        snapshot = {
            "step": step,
            "batches_taken": self._trial.batches_taken(),
            "training": self._trial.copy_state(),
            "monitor": self.monitor.state_dict(),
        }
        self._state.snapshots = [*self._state.snapshots[-1:], snapshot]
        self._recall.hits = []  # of a comparison with older weights

    def _record(self, health: Health, kind: str, text: str, race: Race | None = None) -> None:
        self.events.append(GuardEvent(health.step or 0, kind, text, race))


class _LowerRates:
    """Multiplies an optimizer's rates by `factor` while it steps, and puts them back.

    Of several for one optimizer the first to lower a rate keeps it for all.
    """

    _kept: ClassVar[WeakKeyDictionary[torch.optim.Optimizer, list[Any]]] = WeakKeyDictionary()

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.factor, self.is_lower = optimizer, 1.0, False
        self.handles = [
            optimizer.register_step_pre_hook(Listener(self.lower)),
            optimizer.register_step_post_hook(Listener(self.put_back)),
        ]

    def lower(self, *_: object) -> None:
        if self.is_lower:
            self.put_back()  # a step that raised has not
        if self.factor != 1.0:
            self.is_lower, groups = True, self.optimizer.param_groups
            self._kept.setdefault(self.optimizer, [group["lr"] for group in groups])
            for group in groups:
                group["lr"] = group["lr"] * self.factor

    def put_back(self, *_: object) -> None:
        self.is_lower, kept = False, self._kept.pop(self.optimizer, [])
        for group, rate in zip(self.optimizer.param_groups, kept, strict=False):
            group["lr"] = rate


def _check_parts(model: object, loss_fn: object) -> None:
    """Raise unless the two are what they are called: swapping parts is easy."""
    if not hasattr(model, "load_state_dict") or not hasattr(model, "parameters"):
        raise InputError("model", type(model).__name__, "the network: a torch.nn.Module, first")
    if isinstance(loss_fn, type) or not callable(loss_fn):
        raise InputError("loss_fn", repr(loss_fn), "a loss, or a function(embeddings, labels)")


def _words(health: Health) -> str:
    return f"{health.verdict}: {'; '.join(health.reasons)}."
