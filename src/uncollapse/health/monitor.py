"""Watch an embedding while it trains: its scale at each look, everything now and then."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, as_rows, class_ids, label_array, scalar
from uncollapse._base.check import InputError, check_int, check_kind, percent
from uncollapse.health.advice import DriftOf, advise
from uncollapse.health.figures import balanced_rows, health_figures, scale_figures, to_host
from uncollapse.health.resting import StuckLoss
from uncollapse.health.strategy import RunSettings, drift_meter, mode_facts, settings_of
from uncollapse.health.verdict import Health, Reference, Thresholds, cone_reason, judge, scale_ratio

__all__ = ["CollapseMonitor"]

_MOST = 0.75  # of a class's pairs, as in the tightness of a full measure
_STRUCTURAL = ("class-collapse", "dimensional-collapse", "cone")  # known only from a full measure
_SMALL_BESIDE_LOSS = 0.05  # a diameter below this share of a margin cannot move the loss
_RECENT = 10  # steps for which a full measure counts as recent
_SLACK = 1.5  # a bad verdict is withdrawn only at thresholds this much stricter
_NEARLY = 1.1  # classes of one batch this near to the threshold call for a full measure
_GAP, _CALLS = 5, 6  # steps between such measures, for the first so many of them
_LATER = 15  # and from then on, while they find nothing
_GROWTH = 5  # steps so far over the steps from one look to the next
_MOST_ROWS = 1024  # of a batch on a device that are copied to the host


@dataclass
class _Counts:
    """Numbers that a monitor keeps from update to update."""

    looks: int = 0
    step: int = -1  # of the last update
    looked_at: int = 0  # step of the last look
    gap: int = 1  # steps from there to the next one
    full_at: int = 0  # step of the last full measure
    first_step: int = 0
    disagreeing: int = 0  # looks in a row that disagree with the verdict
    peak: float = 0.0  # largest diameter while healthy
    diameter_at_rest: float = math.nan  # diameter when the loss came to rest
    began_as_cone: bool | None = None
    calls: tuple[int, int] = (0, 0)  # full measures that batches called for; step of the last
    modes: tuple[str, ...] | None = None  # what is said of modes, once classes collapse


class CollapseMonitor:
    """Tells, batch by batch, whether an embedding is collapsing, why, and what to change.

    Call `update` with each training batch. It looks at the first nine, then less often, at last
    every `look_every` steps, and at each while a verdict is about to change. Scale (diameter,
    spread, centre) is measured at each look; classes, dimensions and the rest every `every` steps
    on class-balanced recent rows, and at once if the classes of a batch look like points, or its
    rows like a cone, so that either is reported within 30 steps. Modes that merge
    inside classes of unchanged size cannot be seen in batches: `measure(..., before=...)` sees them
    on fixed rows, and `mode_drift` whether a loss merges them. The first state that is not
    already collapsed is the reference that later scales are compared with; a fall below
    `collapse_ratio` of the largest healthy scale since is a collapse too.

    **No flapping.** A verdict changes after `patience` looks in a row that disagree with it
    (full measures, for class and dimensional collapse), and a bad one is left only for a state that
    would be healthy by thresholds 1.5 times as strict. NaN is `diverging` at once; on a device, at
    the next look.

    **Verdicts it does not give.** `uninformative`: at the start of training nothing is learned yet,
    and what is lost later has another name. `cone`, if rows with labels do not have length 1, or as
    long as the embedding has been one since the start. `dimensional-collapse`, in the first `every`
    updates: untrained networks use few axes. `class-collapse`, where no class has more than two of
    the recent rows: these may be views of one sample.

    **The loss.** Pass it, and a loss that sits still is named in the reasons, with what its value
    means: at the margin, at log N, all similarities are equal (`health.resting`). If the embedding
    is small beside its start, or beside that loss, and does not grow, that is network-collapse even
    without a healthy start; if rows stay spread for long, the advice says that nothing is learned.

    What the loss sees is judged: where it is known to normalise, rows are normalised first.
    Embeddings may be gathered from several processes (call it on one of them, or on all with the
    same batch), of any float dtype, on any device; no gradient is kept.

    Args:
        loss_fn: read for the run's settings: ours or pytorch-metric-learning's. Called only as a
            copy, or read: for its drift and that of what is advised in its place, when classes
            collapse for what it does to their modes, and once when the loss has sat still, for its
            resting values.
        miner: the miner, where it is not part of `loss_fn`.
        settings: what `loss_fn` does not say (batch size and learning rate, say); wins over it.
        thresholds: when a figure is bad.
        every: steps between full measures.
        patience: looks that must agree.
        look_every: steps between two looks, at most.
        reference: the healthy scale, where it is known beforehand (resumed or fine-tuned runs).
        on_change: called with the health whenever the verdict has changed.

    >>> monitor = CollapseMonitor(patience=2, settings=RunSettings(positives="hard"))
    >>> z = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))
    >>> labels = torch.arange(32) % 8
    >>> [monitor.update(z * scale, labels).verdict for scale in (1.0, 0.5, 0.2, 0.1, 0.001)]
    ['healthy', 'healthy', 'healthy', 'shrinking', 'shrinking']
    >>> print(monitor.update(z * 1e-3, labels))
    network-collapse
      diameter 0.00658: the embedding fell to 0.1...% of its reference scale
      hard positives mined over 32 samples; diameter fell to 0.1...% of its start in 5 steps; try
      positives = easy or negatives = semihard
    """

    def __init__(
        self,
        loss_fn: object | None = None,
        *,
        miner: object | None = None,
        settings: RunSettings | None = None,
        thresholds: Thresholds | None = None,
        every: int = 50,
        patience: int = 3,
        look_every: int = 10,
        reference: Health | Reference | float | None = None,
        on_change: Callable[[Health], None] | None = None,
    ) -> None:
        if isinstance(loss_fn, type):
            raise InputError("loss_fn", f"the class {loss_fn.__name__}", "a loss, not its class")
        if on_change is not None and not callable(on_change):
            raise InputError("on_change", on_change, "a function of a Health, or None")
        given = check_kind("settings", settings or RunSettings(), RunSettings, "RunSettings(...)")
        self.settings = given.known(settings_of(loss_fn, miner))
        self.thresholds = Thresholds.of(thresholds)
        self.every, self.patience = check_int("every", every), check_int("patience", patience)
        self.look_every = check_int("look_every", look_every)
        self.on_change = on_change
        self.recent = RecentRows()
        self.reference = Reference.of(reference)
        self.health: Health | None = None
        self.changes: list[tuple[int, str]] = []
        self.loss = StuckLoss.of(self.settings)
        self._loss_fn, self._miner = loss_fn, miner
        self._drift_of: DriftOf | None = None
        self._full: Health | None = None
        self._counts = _Counts()

    @property
    def verdict(self) -> str:
        """The present verdict; `unknown` before the first update."""
        return "unknown" if self.health is None else self.health.verdict

    @property
    def advice(self) -> str:
        """What to change; empty while healthy."""
        return "" if self.health is None else self.health.advice

    def update(
        self,
        embeddings: ArrayLike,
        labels: ArrayLike | None = None,
        loss: float | Tensor | None = None,
        step: int | None = None,
    ) -> Health:
        """Health at the last look, which may be at this batch: then it has this `step`.

        `step` is the caller's count; by default the updates'. Scale and norms are those of the
        batch (the diameter that of at most 256 of its rows); the other figures are those of the
        last full measure.
        """
        counts = self._counts
        counts.step = step = counts.step + 1 if step is None else step
        far = loss is None or (isinstance(loss, Tensor) and not loss.is_cpu)
        known_loss = None if far else scalar(loss, "loss")
        if self.health is not None and not self.due(step) and _is_finite(embeddings, known_loss):
            if known_loss is not None:
                self.loss.add(known_loss)
            return self.health
        z, labels, loss = self.on_host(as_rows(embeddings, "embeddings"), labels, loss)
        if self.settings.normalize:
            z = torch.nn.functional.normalize(z, dim=-1)
        if counts.looks == 0:
            counts.first_step = step
            seen = RunSettings(batch_size=len(z), labels=labels is not None)
            self.settings = self.settings.known(seen)
        counts.looks += 1
        if loss is not None:
            loss = scalar(loss, "loss")
            self.loss.add(loss, (self._loss_fn, labels, *z.shape))
        rows_are_finite = bool(torch.isfinite(z).all())
        if not rows_are_finite or not (loss is None or math.isfinite(loss)):
            reason = f"{'the loss' if rows_are_finite else 'embeddings'}: NaN or infinite"
            unknown = health_figures(torch.full_like(z, math.nan), None, sample=8)
            diverging = replace(unknown, verdict="diverging", reasons=(reason,))
            return self._settle(diverging, at_once=True)
        self.recent.add(z, labels)
        # One row has no scale of its own: that of the recent rows stands for it.
        light = scale_figures(z if len(z) > 1 else self.recent.rows()[0])
        full = self._full
        due = abs(step - counts.full_at) >= self.every or self._classes_due
        due = due or self._called_for(z, labels, light)
        if full is not None and not due:
            health = self._judged(light, full)
            # Whether a fall in scale is excused by better classes takes recent figures of them.
            recent = step - counts.full_at < _RECENT
            if recent or health.verdict != "shrinking" or self._held != "healthy":
                return self._settle(health)
        margin = self.thresholds.margin or 0.0
        full = health_figures(*self.recent.rows(), sample=self.recent.capacity, margin=margin)
        if self.reference is not None and self._classes_due and full.cdnv is not None:
            self.reference = replace(self.reference, cdnv=full.cdnv)
        self._full, counts.full_at = full, step
        return self._settle(self._judged(light, full), structural=True)

    def due(self, step: int) -> bool:
        """Whether a batch of this step will be looked at: the first is. A count may start anew."""
        return self.health is None or abs(step - self._counts.looked_at) >= self._counts.gap

    def on_host(self, z: Tensor, *parts: Any) -> list[Any]:
        """Rows, and what belongs to them, by one copy from their device.

        Of a large batch on a device, rows that follow each other: a class may be together.
        """
        n = len(z)
        if n <= _MOST_ROWS or z.is_cpu:
            return to_host(z, *parts)
        start = int(self.recent.random.integers(n - _MOST_ROWS + 1))
        rows = slice(start, start + _MOST_ROWS)
        per_row = (np.ndim(part) > 0 and len(part) == n for part in parts)
        some = (part[rows] if many else part for part, many in zip(parts, per_row, strict=True))
        return to_host(z[rows], *some)

    def change_settings(self, **known: Any) -> None:
        """Continue with other settings: with another margin, a stuck loss sits elsewhere."""
        before = self.settings.strategy
        self.settings = replace(self.settings, **known)
        self._counts.gap = 1
        if self.settings.strategy != before:
            self.loss = StuckLoss.of(self.settings)

    def state_dict(self) -> dict[str, Any]:
        """Everything seen so far, and the run's settings, in plain values and tensors.

        Thresholds, intervals and sizes are not part of it: they are the constructor's.
        """
        return {
            "settings": asdict(self.settings),
            "recent": self.recent.state_dict(),
            "reference": self.reference and asdict(self.reference),
            "health": self.health and self.health.to_dict(),
            "full": self._full and self._full.to_dict(),
            "loss": {name: getattr(self.loss, name) for name in ("count", "value", "span")},
            "changes": list(self.changes),
            **asdict(self._counts),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on as the monitor that gave `state` would have, with its advice."""
        self.settings = RunSettings(**state["settings"])
        self.recent.load_state_dict(state["recent"])
        self.reference = state["reference"] and Reference(**state["reference"])
        self.health = state["health"] and Health.from_dict(state["health"])
        self._full = state["full"] and Health.from_dict(state["full"])
        self.loss = replace(StuckLoss.of(self.settings), **state["loss"])
        self.changes = list(state["changes"])
        self._counts = _Counts(**{name: state[name] for name in vars(self._counts)})

    def roll_back(self, state: dict[str, Any]) -> None:
        """Go back to an earlier state of this monitor, with what is known of the run's start."""
        reference, is_cone = self.reference, self._counts.began_as_cone
        self.load_state_dict(state)
        self.reference = self.reference or reference
        if self._counts.began_as_cone is None:
            self._counts.began_as_cone = is_cone

    @property
    def _held(self) -> str:
        """The verdict that stands until updates disagree with it: `healthy` before the first."""
        return "healthy" if self.health is None else self.health.verdict

    @property
    def _classes_due(self) -> bool:
        """Whether the reference still lacks its classes and there are now rows to know them by."""
        unknown = self.reference is not None and math.isnan(self.reference.cdnv)
        return unknown and self.recent.filled and self._counts.looks <= self.recent.age

    def _called_for(self, z: Tensor, labels: ArrayLike | None, light: dict[str, Any]) -> bool:
        """Whether this batch's classes look like points, or its rows like a cone: measure at once.

        At first most recent rows are from before the onset, hence several looks; a state that only
        looks like it is looked at less often.
        """
        counts = self._counts
        if self._held in ("class-collapse", "cone"):
            return False
        calls, called_at = counts.calls
        if counts.step - called_at > self.every:
            calls = 0
        soon = calls < _CALLS or counts.disagreeing > 0
        counts.calls = (calls, called_at)
        if counts.step - counts.full_at < (_GAP if soon else _LATER):
            return False
        limits = self.thresholds
        # The squared length of the centre of rows of length 1 is their mean cosine.
        cosine = (light["centre_norm"] / (light["norms"].mean or 1.0)) ** 2
        called = cosine >= limits.cone_low and self._by_cosine(light["norms"].are_one)
        called = called and not counts.began_as_cone
        if labels is not None and not called:
            share = tight_share(z, labels, _NEARLY * limits.tightness)
            called = share >= limits.class_share / _NEARLY
        if called:
            counts.calls = (calls + 1, counts.step)
        return called

    def _judged(self, light: dict[str, Any], full: Health) -> Health:
        """This batch's scale with the last full measure's other figures, judged alone."""
        seen, counts = replace(full, **light), self._counts
        if self.loss.count <= max(1, counts.step - counts.looked_at):  # not at rest by then
            counts.diameter_at_rest = seen.diameter
        limits = self.thresholds if self._held == "healthy" else self.thresholds.easier(_SLACK)
        health = self._judge(seen, limits)
        known = seen.n > 1 and health.verdict not in ("network-collapse", "diverging")
        if self.reference is None and known:
            variable = seen.cdnv if self.recent.filled and seen.cdnv is not None else math.nan
            self.reference = Reference(seen.diameter, seen.spread, variable)
            health = self._judge(seen, limits)
        if health.verdict == "network-collapse":
            return health
        if counts.peak > 0.0 and seen.diameter <= limits.collapse_ratio * counts.peak:
            share = percent(seen.diameter / counts.peak, 2)
            reason = f"diameter {seen.diameter:.3g}: {share} of the largest it had while healthy"
            return replace(health, verdict="network-collapse", reasons=(reason,))
        if self._loss_says_collapse(health, limits):
            reason = f"diameter {seen.diameter:.3g}, and the {self.loss.words}"
            return replace(health, verdict="network-collapse", reasons=(reason, *health.reasons))
        return health

    def _judge(self, seen: Health, limits: Thresholds) -> Health:
        cosine, counts = self._by_cosine(seen.norms.are_one), self._counts
        if counts.began_as_cone is not False:  # until it has been left for good
            wide = self.thresholds.easier(_SLACK)
            counts.began_as_cone = cosine and cone_reason(seen, wide, None) is not None
        # An untrained network may use few axes.
        early = counts.step - counts.first_step < self.every
        pairs = all(each.count <= 2 for each in seen.classes)  # of views, it may be
        ignore = ["uninformative", *["cone"] * counts.began_as_cone]
        ignore += [*["dimensional-collapse"] * early, *["class-collapse"] * pairs]
        return judge(seen, limits, self.reference, cosine=cosine, ignore=ignore)

    def _by_cosine(self, unit: bool) -> bool:
        """Whether directions matter: rows have length 1, or a method without labels uses them."""
        return unit or (self.settings.labels is False and self.settings.margin is None)

    def _loss_says_collapse(self, health: Health, limits: Thresholds) -> bool:
        level = self.loss.level
        if level is None or level.state == "random":
            return False
        if scale_ratio(health, self.reference) <= limits.shrink_ratio:
            return True
        # A margin is a distance; the value of a loss of directions is not.
        size = 1.0 if self.settings.normalize else level.value
        small = health.diameter <= _SMALL_BESIDE_LOSS * size
        grows = not health.diameter <= _SLACK * self._counts.diameter_at_rest
        return small and bool(self.loss.long_state) and not grows and not self.settings.scale_free

    def _settle(self, raw: Health, *, structural: bool = False, at_once: bool = False) -> Health:
        """The raw judgement, held back until `patience` looks agree that it has changed."""
        counts, current = self._counts, self._held
        slow = raw.verdict in _STRUCTURAL or (raw.verdict == "healthy" and current in _STRUCTURAL)
        needed = (self.patience + 1) // 2 if slow else self.patience
        differs = raw.verdict != current
        if not differs:
            counts.disagreeing = 0
        elif structural or not slow:
            counts.disagreeing += 1
        changed = differs and (at_once or counts.disagreeing >= needed)
        if changed:
            counts.disagreeing, counts.modes = 0, None
            self._drift_of = None  # of rows as they were
            self.changes.append((counts.step, raw.verdict))
        elif differs:
            raw = replace(raw, verdict=current, reasons=getattr(self.health, "reasons", ()))
        calls, called_at = counts.calls
        called = 0 < calls < _CALLS and counts.step - called_at <= _GAP
        later = min(self.look_every, max(1, (counts.step - counts.first_step + 1) // _GROWTH))
        later = later if self.settings.batch_size != 1 else 1  # rows by themselves tell little
        counts.looked_at, counts.gap = counts.step, 1 if called or counts.disagreeing else later
        if raw.verdict == "healthy" and structural:
            counts.peak = max(counts.peak, raw.diameter)
        facts, state = self._facts(raw), self.loss.long_state
        lost = raw.verdict in ("network-collapse", "shrinking", "cone")
        if lost and self._drift_of is None and self._loss_fn is not None:
            own, rows = self.settings.strategy, self.recent.rows()
            self._drift_of = drift_meter(self._loss_fn, own, *rows, self._miner)
        advice = advise(raw, self.settings, facts, state, self._drift_of)
        self.health = replace(raw, step=counts.step, advice=advice)
        if changed and self.on_change is not None:
            self.on_change(self.health)
        return self.health

    def _facts(self, health: Health) -> tuple[str, ...]:
        facts = []
        ratio = health.relative_diameter
        if ratio is not None and ratio <= self.thresholds.shrink_ratio * _SLACK:
            steps = self._counts.step - self._counts.first_step
            facts.append(f"diameter fell to {percent(ratio, 2)} of its start in {steps} steps")
        if health.verdict == "class-collapse":
            if self._counts.modes is None:
                self._counts.modes = mode_facts(self._loss_fn, *self.recent.rows())
            facts += self._counts.modes
        return (*facts, *filter(None, [self.loss.words]))


class RecentRows:
    """Rows of the last batches, at most `capacity` of them and none older than `age` batches.

    A batch gives at most half the capacity, as even over its classes as it allows, so that small
    batches are judged together and a large one does not stand alone; the oldest rows go first. Old
    embeddings are not those of the present network, hence the age.

    >>> recent = RecentRows(capacity=8, age=2)
    >>> for step in range(3):
    ...     recent.add(torch.full((3, 2), float(step)), [0, 0, 1])
    >>> rows, labels = recent.rows()
    >>> rows[:, 0].tolist(), labels.tolist()
    ([1.0, 1.0, 1.0, 2.0, 2.0, 2.0], [0, 0, 1, 0, 0, 1])
    """

    def __init__(self, capacity: int = 256, age: int = 16) -> None:
        self.capacity, self.age = capacity, age
        self.random = np.random.default_rng(0)
        self._batches: deque[tuple[Tensor, Array]] = deque()

    def add(self, embeddings: Tensor, labels: ArrayLike | None) -> None:
        """Take rows of a batch. Without labels every row is a class of its own."""
        n = len(embeddings)
        given = np.full(n, -1) if labels is None else label_array(labels, n)
        ids = np.arange(n) if labels is None else class_ids(given, n)[0]
        chosen = balanced_rows(ids, self.capacity // 2, self.random)
        if self._batches and self._batches[-1][0].shape[1] != embeddings.shape[1]:
            self._batches.clear()  # a criterion may be called on rows of several widths
        self._batches.append((embeddings[torch.from_numpy(chosen)], given[chosen]))
        while len(self._batches) > self.age or self._held > self.capacity:
            self._batches.popleft()

    @property
    def filled(self) -> bool:
        """Whether it holds enough rows to judge classes by."""
        return len(self._batches) == self.age or self._held >= self.capacity // 2

    @property
    def _held(self) -> int:
        return sum(len(labels) for _, labels in self._batches)

    def rows(self) -> tuple[Tensor, Array | None]:
        """All rows held and their labels, oldest first; labels None if none were given."""
        labels = np.concatenate([labels for _, labels in self._batches])
        rows = torch.cat([rows for rows, _ in self._batches])
        unknown = labels.dtype.kind == "i" and bool((labels == -1).all())
        return rows, None if unknown else labels

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to go on as if nothing had happened."""
        return {
            "random": self.random.bit_generator.state,
            "rows": [rows for rows, _ in self._batches],
            "labels": [labels.tolist() for _, labels in self._batches],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over another's rows and randomness."""
        self.random.bit_generator.state = state["random"]
        labels = map(np.asarray, state["labels"])
        self._batches = deque(zip(state["rows"], labels, strict=True))


def tight_share(z: Tensor, labels: ArrayLike, tightness: float) -> float:
    """Share of the classes whose pairs mostly lie within `tightness` of the distance between them.

    Of each class only pairs of rows that follow each other are looked at, and between classes one
    pair per row: an estimate of what `ClassHealth.tightness` says of all pairs. 0.0 where no two
    rows share a class, or all do.

    >>> z = torch.tensor([[0.0], [0.1], [9.0], [9.1], [20.0], [24.0]])
    >>> round(tight_share(z, [0, 0, 1, 1, 2, 2], tightness=0.05), 2)
    0.67
    """
    ids, classes = class_ids(labels, len(z))
    order = np.argsort(ids, kind="stable")
    ids, half = ids[order], len(ids) // 2
    rows = z[torch.from_numpy(order)].double()
    gaps = rows[1:] - rows[:-1], rows - rows.roll(-half, 0)
    inside, across = (torch.linalg.vector_norm(gap, dim=1).numpy() for gap in gaps)
    across = across[ids != np.roll(ids, -half)]
    same = ids[1:] == ids[:-1]
    if not len(across) or not same.any():
        return 0.0
    pairs = np.bincount(ids[1:][same], minlength=len(classes))
    near = inside[same] <= tightness * np.median(across)
    tight = np.bincount(ids[1:][same], near, minlength=len(classes)) >= _MOST * pairs
    return float(tight[pairs > 0].mean())


def _is_finite(embeddings: ArrayLike, loss: float | None) -> bool:
    """Whether a batch is, as far as that is known without a read from a device."""
    if isinstance(embeddings, Tensor) and embeddings.is_cpu:
        loss = float(embeddings.detach().sum()) + (loss or 0.0)
    return loss is None or math.isfinite(loss)
