"""What a figure of trained networks trains: a grid of batch sizes, and one of dimensions."""

from __future__ import annotations

import itertools
import math
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

from uncollapse._base.files import write_csv
from uncollapse.charts import Axes, Chart, Entry, Scale, panels
from uncollapse.charts.marks import Line, Mark, Points, Rect, hatch
from uncollapse.geometry import diameter_lower_bound
from uncollapse.papers._compare import Claim, Comparison, publish, spread
from uncollapse.papers._item import Item, Made, Request, Table
from uncollapse.papers._study import (
    Cells,
    Sections,
    Setup,
    Trained,
    about_together,
    read_studies,
)
from uncollapse.sweep import is_collapsed
from uncollapse.training import NotMeasuredError, Run, TrainingError

__all__ = ["DIAMETER_FIGURES", "STUDIES", "Point", "measure"]


STUDIES = read_studies(Path(__file__).with_name("studies.toml"))


def grid_cells(setup: Setup, axis: str, margin: float) -> Cells:
    """The runs of a grid along an axis, `batch` or `dim`, by name.

    The name is the same for the same run, whichever figure asks for it.
    """
    if axis == "batch":
        shapes = [(batch, setup.dim) for batch in setup.batches]
    else:
        shapes = [(setup.batch, dim) for dim in setup.dims]
    data, model, train = (setup.config[section] for section in ("data", "model", "train"))
    hidden = "x".join(map(str, model.get("hidden", ())))
    size = data.get("size", "")
    side = "x".join(map(str, size)) if isinstance(size, list) else size
    protocol = f"{data['name']}{side}-{model['backbone']}{hidden}-{train['steps']}"
    protocol += f"-lr{setup.config['optimizer']['lr']:g}-m{margin:g}"
    cells: dict[str, Sections] = {}
    for batch, dim in shapes:
        section: dict[str, Any] = {"sampler": "uniform", "size": batch}
        shape = f"n{batch}"
        if not isinstance(batch, int):
            section = dict(zip("pk", batch, strict=True))
            shape = "p{}k{}".format(*batch)
        cells[f"{protocol}-{shape}-d{dim}"] = {
            "batch": section,
            "model": {"dim": dim},
            "loss": {"margin": margin},
        }
    return cells


@dataclass(frozen=True)
class Point:
    """A trained network.

    `start` and `end` are the diameters of the embedded evaluation images before and after training.
    `hardest` and `loss` are the triplet loss at initialisation in batches of the run's own shape:
    of the hardest triplet (what (17) means) and the batch-hard mean (what training minimises);
    `bound` is (17) with the first and `mean_bound` with the second, both with c = 2. `drift` is
    the radial drift at initialisation, in neither paper. `anchors` is the share of a batch's
    samples that have a positive in it. `recall` is R@1; where queries search a gallery it is by the
    protocol of Market-1501, and `mean_ap` its mAP; `recall_start` and `mean_ap_start` are those of
    the untrained network. `batch_start`, `batch_quarter`, `batch_half` and `batch_end` are
    diameters of training batches, before training (a mean of 8) and after these shares of it;
    `batch_after` is that of the first 8 batches again.
    """

    run: str
    p: int | None
    k: int | None
    batch: int
    dim: int
    margin: float
    seed: int
    start: float
    end: float
    hardest: float
    loss: float
    bound: float
    mean_bound: float
    drift: float
    anchors: float
    batch_end: float
    loss_end: float
    recall: float
    mean_ap: float = math.nan
    recall_start: float = math.nan
    mean_ap_start: float = math.nan
    batch_start: float = math.nan
    batch_quarter: float = math.nan
    batch_half: float = math.nan
    batch_after: float = math.nan

    @property
    def left(self) -> float:
        """The share of the first diameter that is left."""
        return self.end / self.start

    @property
    def unsettled(self) -> bool:
        """Whether the diameter is that of batch norm's running statistics, not of the network.

        Evaluated, less than a fifth of the share is left that batches in training mode keep.
        """
        return self.left * self.batch_start < 0.2 * self.batch_after

    @property
    def collapsed(self) -> bool:
        """Below 1 % of the diameter before training, as everywhere in the project."""
        return is_collapsed(None, self.start, self.end)

    @classmethod
    def heading(cls) -> list[str]:
        """Names of the columns of `row`."""
        return [field.name for field in fields(cls)] + ["left", "collapsed"]

    def row(self) -> list[object]:
        """For a table."""
        own = [getattr(self, field.name) for field in fields(self)]
        values = [f"{value:.6g}" if isinstance(value, float) else value for value in own]
        return [*values, f"{self.left:.6g}", self.collapsed]


def measure(run: Run) -> Point:
    """What a finished run shows: figures of its start and its end, as they were measured.

    Raises `NotMeasuredError` for a run that has not ended or has no plain triplet loss.
    """
    config, measures, logged = run.config, run.measures(), run.summary["metrics"]
    before, after = measures.before, measures.after
    batches = before.batches
    if after is None or batches.hard_mined_loss is None or batches.drift is None:
        raise NotMeasuredError(run.path, "measures of a plain triplet loss, before and after")
    start_scores = before.splits[measures.split].scores
    uniform = config.batch.sampler == "uniform"
    p, k = (None, None) if uniform else (config.batch.p, config.batch.k)
    split = next(iter(config.data.eval_splits), "")
    return Point(
        run=run.path.name,
        p=p,
        k=k,
        batch=config.batch.size if p is None or k is None else p * k,
        dim=config.model.dim,
        margin=config.loss.mining_margin,
        seed=config.seed,
        start=before.diameter,
        end=after.diameter,
        hardest=batches.hard_mined_loss,
        loss=batches.loss,
        bound=diameter_lower_bound(before.diameter, batches.hard_mined_loss),
        mean_bound=diameter_lower_bound(before.diameter, batches.loss),
        drift=batches.drift,
        anchors=batches.anchors,
        batch_end=float(logged["diameter"]),
        loss_end=float(logged["loss"]),
        recall=float(logged.get(f"{split}/recall@1", "nan")),
        mean_ap=float(logged.get(f"{split}/mAP", "nan")),
        recall_start=start_scores.get("recall@1", math.nan),
        mean_ap_start=start_scores.get("mAP", math.nan),
        batch_start=batches.diameter,
        batch_quarter=_batch_at(run, 0.25),
        batch_half=_batch_at(run, 0.5),
        batch_after=after.batches.diameter,
    )


def _batch_at(run: Run, share: float) -> float:
    """Diameter of the training batch logged nearest to this share of the steps."""
    wanted = share * run.config.train.steps
    logged = [line for line in run.metrics() if "diameter" in line]
    nearest = min(logged, key=lambda line: abs(line["step"] - wanted), default=None)
    return math.nan if nearest is None else float(nearest["diameter"])


# Diameter against batch size or dimension, as in HNM Figs. 5 to 12: every run is a mark.

_LEAST = 1e-4  # a diameter may be 0, which a logarithm does not show
_COLLAPSED = "1 %: collapsed below (0.01 % stands for less)"
_NAMES = {"batch": "batch size N", "dim": "embedding dimension d"}
_UPPER, _LOWER = "diameter of the embedded images", "share of the first diameter left"
_WIDTH, _TALL, _SHORT = 400.0, 270.0, 200.0
# Name, colour, dash and value of each line of means.
_LINES: tuple[tuple[str, str, tuple[float, ...], Callable[[Point], float]], ...] = (
    ("mean diameter after training", "ink", (), lambda p: p.end),
    ("before training", "s7", (2, 4), lambda p: p.start),
    ("bound (17), hardest triplet, c = 2", "s0", (7, 4), lambda p: p.bound),
    ("bound (17), batch-hard mean, c = 2", "s0", (9, 3, 2, 3), lambda p: p.mean_bound),
)


def draw(plots: Sequence[tuple[str, str, Sequence[Point]]], title: str) -> Chart:
    """A column per plot `(title, axis, points)`: above as in the paper, below the share left."""
    upper = [_diameters(heading, axis, points) for heading, axis, points in plots]
    lower = [_shares(axis, points) for _, axis, points in plots]
    every = [point for _, _, points in plots for point in points]
    return panels(title, [*upper, *lower], columns=len(plots), legend=_legend(every))


def _diameters(heading: str, axis: str, points: Sequence[Point]) -> Chart:
    top = max(max(p.start, p.end) for p in points)
    axes = _axes(points, axis, _TALL, Scale(-0.06 * top, 1.08 * top, _TALL - 36, 10))
    at = _values(points, axis)
    marks: list[Mark] = [axes.across(0.0, "line", ())]
    for _, colour, dash, value in _LINES:
        means = [float(np.mean([value(p) for p in points if getattr(p, axis) == x])) for x in at]
        marks.append(axes.line(at, means, colour, dash=dash, width=1.6))
    drawn = (*_regions(axes, points, axis), *_frame(axes, at, axis, _UPPER), axes.inside(*marks))
    marked = _marks(axes, points, axis, lambda p: p.end)
    return Chart(heading, _words(points, axis), (*drawn, *marked), _WIDTH, _TALL)


def _shares(axis: str, points: Sequence[Point]) -> Chart:
    shares = [max(p.left, _LEAST) for p in points]
    low, high = min(0.01, *shares) / 1.4, max(1.0, *shares) * 1.3
    axes = _axes(points, axis, _SHORT, Scale(low, high, _SHORT - 36, 10, log=True))
    ticks = {share: f"{100 * share:g} %" for share in axes.y.ticks(5)}
    marks = [
        *_regions(axes, points, axis),
        *_frame(axes, _values(points, axis), axis, _LOWER, ticks),
        axes.across(0.01, "s1", (2, 3)),
        *_marks(axes, points, axis, lambda p: max(p.left, _LEAST)),
    ]
    return Chart("", "the share of the first diameter left, logarithmic", marks, _WIDTH, _SHORT)


def _axes(points: Sequence[Point], axis: str, height: float, y: Scale) -> Axes:
    edges = _edges(_values(points, axis))
    return Axes(Scale(edges[0], edges[-1], 72.0, _WIDTH - 8, log=True), y)


def _frame(
    axes: Axes, at: Sequence[int], axis: str, label: str, ticks: dict[float, str] | None = None
) -> tuple[Mark, ...]:
    x_ticks = {float(x): str(x) for x in at}
    return axes.frame(_NAMES[axis], label, x_ticks=x_ticks, y_ticks=ticks)


def _marks(
    axes: Axes, points: Sequence[Point], axis: str, value: Callable[[Point], float]
) -> list[Mark]:
    """Runs of one cell stand side by side, so that none hides another."""
    at = _values(points, axis)
    seeds = sorted({p.seed for p in points})
    gap = 0.18 * min(1.0, *np.diff(np.log2(at)), 1.0)
    found: list[Mark] = []
    for p in points:
        shift = gap * (seeds.index(p.seed) - (len(seeds) - 1) / 2)
        place = axes.at(getattr(p, axis) * 2.0**shift, value(p))
        tip = f"N = {p.batch}, d = {p.dim}, seed {p.seed}: {value(p):.3g}"
        found.append(Points((place,), *_look(p.collapsed), tips=(tip,)))
    return found


def _look(collapsed: bool) -> tuple[str, str, float]:
    return ("cross", "s1", 1.2) if collapsed else ("circle", "s2", 1.1)


def _regions(axes: Axes, points: Sequence[Point], axis: str) -> list[Mark]:
    """Red, hatched, where at least half the runs collapsed; green where none did."""
    at = _values(points, axis)
    found: list[Mark] = []
    for (left, right), x in zip(pairwise(_edges(at)), at, strict=True):
        here = [p.collapsed for p in points if getattr(p, axis) == x]
        if 2 * sum(here) >= len(here):
            stripe = axes.columns(left, right, "s1", 0.1)
            found += [stripe, hatch(stripe.x, stripe.y, stripe.width, stripe.height, "s1")]
        elif not any(here):
            found.append(axes.columns(left, right, "s2", 0.1))
    return found


def _legend(points: Sequence[Point]) -> list[Entry]:
    kinds = {False: "a run", True: "a run that collapsed"}
    fell = {p.collapsed for p in points}
    return [
        *(Entry(kinds[k], (Points(((15, 7),), *_look(k)),)) for k in kinds if k in fell),
        *(Entry(name, (Line((1, 7), (29, 7), c, 1.6, dash),)) for name, c, dash, _ in _LINES),
        Entry(_COLLAPSED, (Line((1, 7), (29, 7), "s1", 1.3, (2, 3)),)),
        Entry("no run collapsed", (Rect(0, 0, 30, 14, "s2", 0.1),)),
        Entry(
            "half or more collapsed",
            (Rect(0, 0, 30, 14, "s1", 0.1), hatch(0, 0, 30, 14, "s1", gap=5)),
        ),
    ]


def _words(points: Sequence[Point], axis: str) -> str:
    fell = sum(p.collapsed for p in points)
    values = ", ".join(str(x) for x in _values(points, axis))
    return f"{fell} of {len(points)} runs collapsed; {_NAMES[axis]} {values}"


def _values(points: Sequence[Point], axis: str) -> list[int]:
    return sorted({getattr(p, axis) for p in points})


def _edges(at: Sequence[int]) -> list[float]:
    """Half way, in doublings, between neighbours."""
    log = np.log2(np.asarray(at, dtype=float))
    steps = np.diff(log) if len(log) > 1 else np.array([1.0])
    inner = log[:-1] + steps / 2 if len(log) > 1 else np.array([])
    ends = [log[0] - steps[0] / 2], [log[-1] + steps[-1] / 2]
    return [float(2.0**e) for e in np.concatenate([ends[0], inner, ends[1]])]


# Where along an axis HNM (17) held, and which runs retrieve worse than untrained: in words.

STATES = ("held", "violated", "vacuous")
_BOUNDS: tuple[tuple[str, Callable[[Point], float]], ...] = (
    ("with the hardest triplet", lambda p: p.bound),
    ("with the batch-hard mean", lambda p: p.mean_bound),
)
_WHERE_NAMES = {"batch": "N", "dim": "d"}


def bound_state(end: float, bound: float) -> str:
    """`held` or `violated` by a final diameter; `vacuous` where the bound is not above 0.

    >>> [bound_state(1.0, bound) for bound in (0.5, 1.5, -0.5)]
    ['held', 'violated', 'vacuous']
    """
    if not bound > 0.0:
        return "vacuous"
    return "held" if end >= bound else "violated"


def where_bound(points: Sequence[Point], axis: str, title: str) -> str:
    """How often (17) held, was violated or said nothing, and at which values of the axis."""
    told = []
    for words, bound in _BOUNDS:
        states = [(bound_state(p.end, bound(p)), p) for p in points]
        parts = []
        for state in STATES:
            mine = [p for found, p in states if found == state]
            parts.append(f"{state} in {len(mine)}{_places(mine, points, axis)}")
        told.append(f"{words} {', '.join(parts)}")
    return f"Where (17) held, {title}, of {len(points)} runs: {'; '.join(told)}."


def below_start(points: Sequence[Point], axis: str, title: str) -> str:
    """Which runs ended with a lower R@1 than the same network had untrained; '' if none scored."""
    scored = [p for p in points if math.isfinite(p.recall) and math.isfinite(p.recall_start)]
    if not scored:
        return ""
    lost = [p for p in scored if p.recall < p.recall_start]
    start = f"Retrieval beside the untrained network, {title}:"
    if not lost:
        return f"{start} no run ends below its own start in R@1."
    where = _places(lost, scored, axis)
    return f"{start} {len(lost)} of {len(scored)} runs end below their own start in R@1{where}."


def unsettled(points: Sequence[Point], axis: str, title: str) -> str:
    """Runs too short for batch norm: what is evaluated is not yet what was trained; '' if none."""
    lost = [p for p in points if p.unsettled]
    if not lost:
        return ""
    return (
        f"Batch norm, {title}: in {len(lost)} of {len(points)} runs{_places(lost, points, axis)} "
        "the images keep less than a fifth of the share of their diameter that training batches "
        "keep. The running statistics have not caught up, so their diameter and their collapse "
        "say little."
    )


def _places(mine: Sequence[Point], every: Sequence[Point], axis: str) -> str:
    """` (N = 4, 16; 1 of 2 at 32)`: values where all runs are meant, then those where some are."""
    if not mine or len(mine) == len(every):
        return ""
    totals = Counter(getattr(p, axis) for p in every)
    counts = Counter(getattr(p, axis) for p in mine)
    whole = [str(x) for x in sorted(counts) if counts[x] == totals[x]]
    partly = [f"{counts[x]} of {totals[x]} at {x}" for x in sorted(counts) if counts[x] < totals[x]]
    name = _WHERE_NAMES[axis]
    said = [f"{name} = {', '.join(whole)}"] if whole else []
    said += [", ".join(partly) if whole else ", ".join(partly).replace(" at ", f" at {name} = ", 1)]
    return f" ({'; '.join(part for part in said if part)})"


# What HNM says of its figures 5 to 12, each tested on our runs by a stated rule.

_LEVEL = 0.05
_EXACT = 8  # runs; 40,320 orders
RULES = (
    "Rules. A trend is Spearman's rank correlation over the runs: reproduced if its sign is the "
    "paper's and p < 0.05, otherwise not; p of at most 8 runs is by all their orders. A run has "
    "collapsed if its diameter fell below 1 % of the one before training; that collapse goes with "
    "one end of the axis is Fisher's exact test between the two halves of the axis, one-sided, "
    "p < 0.05. (17) is counted over the runs where it says anything, that is where it is above 0; "
    "elsewhere it is vacuous. No correction for testing several claims."
)
_WORDS = {"batch": "batch size", "dim": "dimension"}
_SAYS = {
    "batch": ("falls as the batch grows", "large batches"),
    "dim": ("grows with the dimension", "small dimensions"),
}


def claims_of(points: Sequence[Point], axis: str, title: str) -> list[Claim]:
    """The paper's claims about one panel.

    >>> claims_of([], "batch", "A")
    []
    """
    if not points:
        return []
    sign = -1.0 if axis == "batch" else 1.0
    trend, risky = _SAYS[axis]
    return [
        _trend(f"{title}: the diameter", trend, points, axis, lambda p: p.end, sign),
        _collapse(f"{title}: collapse", f"at {risky}", points, axis),
        bound_claim(f"{title}: (17), hardest triplet, c = 2", points, lambda p: p.bound),
        bound_claim(f"{title}: (17), batch-hard mean, c = 2", points, lambda p: p.mean_bound),
    ]


def beyond(points: Sequence[Point], axis: str, title: str) -> str:
    """What the paper does not ask: the diameter relative to the first one, and the drift."""
    sign = -1.0 if axis == "batch" else 1.0
    told = []
    for what, at, expected in (
        (f"against the {_WORDS[axis]}", axis, sign),
        ("against the radial drift at the start", "drift", -1.0),
    ):
        claim = _trend("", "", points, at, _left, expected)
        verdict = {True: "as expected", False: "not as expected", None: "not judged"}[claim.holds]
        told.append(f"{what} {claim.ours}, {verdict}")
    why = (
        " A wider embedding has a larger diameter before any training, so the diameter alone does "
        "not say whether the dimension protects it."
    )
    return (
        f"Beyond the paper, {title}: the share of the first diameter that is left, "
        f"{', and '.join(told)}.{why if axis == 'dim' else ''}"
    )


def through_training(points: Sequence[Point], axis: str, title: str) -> str:
    """The trend at the start, on the way and at the end: a direction may turn."""
    moments: tuple[tuple[str, Callable[[Point], float]], ...] = (
        ("before", lambda p: p.batch_start),
        ("after a quarter", lambda p: p.batch_quarter),
        ("after half", lambda p: p.batch_half),
        ("at the end", lambda p: p.batch_end),
    )
    told = []
    for words, value in moments:
        rho = _rank_correlation(points, axis, value)
        told.append(f"{words} {'-' if rho is None else f'{rho:+.2f}'}")
    return (
        f"Through training, {title}: rank correlation of the diameter of a training batch with "
        f"the {_WORDS[axis]}, {', '.join(told)}."
    )


def bound_claim(what: str, points: Sequence[Point], bound: Callable[[Point], float]) -> Claim:
    """Whether the diameter stayed above HNM (17) wherever that is above 0."""
    telling = [p for p in points if bound(p) > 0.0]
    held = sum(p.end >= bound(p) for p in telling)
    ours = f"held in {held} of {len(telling)} runs; vacuous in {len(points) - len(telling)}"
    return Claim(what, "appears to hold", ours, held == len(telling) if telling else None)


def margin_claims(panels: Sequence[Sequence[Point]]) -> list[Claim]:
    """HNM appendix C, between a panel with a small margin and one with a larger."""
    low, high = panels
    if not low or not high:
        return []
    by_cell = {(p.batch, p.p, p.dim, p.seed): p.end for p in low}
    pairs = [(by_cell.get((p.batch, p.p, p.dim, p.seed)), p.end) for p in high]
    known = [(a, b) for a, b in pairs if a is not None]
    larger = sum(b > a for a, b in known)
    p_value = scipy.stats.binomtest(larger, len(known), alternative="greater").pvalue
    ours = f"in {larger} of {len(known)} pairs of runs ({_p(p_value)}, sign test)"
    return [Claim("larger margin, larger diameter", "yes", ours, bool(p_value < _LEVEL))]


def threshold(points: Sequence[Point], axis: str = "batch") -> int | None:
    """The first value of the axis at which at least half the runs collapsed, if there is one."""
    for value in sorted({_at(p, axis) for p in points}):
        here = [p.collapsed for p in points if _at(p, axis) == value]
        if 2 * sum(here) >= len(here):
            return int(value)
    return None


def threshold_claims(panels: Sequence[Sequence[Point]]) -> list[Claim]:
    """Appendix C: a "collapse threshold around N = 128 independent of α"."""
    found = [threshold(points) for points in panels]
    words = [f"N = {n}" if n else "none" for n in found]
    ours = f"half the runs collapse from {words[0]} (smaller margin), {words[1]} (larger)"
    says = "around N = 128 for both margins"
    same = found[0] == found[1] if any(found) else None
    return [*margin_claims(panels), Claim("batch size at which collapse begins", says, ours, same)]


def outlier_claims(panels: Sequence[Sequence[Point]]) -> list[Claim]:
    """Appendix E: "a few outliers for d > 256", put down to memory warnings."""
    wide = [p for p in panels[1] if p.dim > 256]
    fell = sum(p.collapsed for p in wide)
    ours = f"{fell} of {len(wide)} runs" if wide else "no such dimension at this scale"
    return [Claim("collapse at d > 256", "a few, blamed on memory", ours, None)]


def _trend(
    what: str,
    says: str,
    points: Sequence[Point],
    axis: str,
    value: Callable[[Point], float],
    sign: float,
) -> Claim:
    if _rank_correlation(points, axis, value) is None:
        return Claim(what, says, "one value only", None)
    x, y = [_at(p, axis) for p in points], [value(p) for p in points]
    rho, p_value = _spearman(x, y)
    ours = f"ρ = {rho:+.2f} over {len(points)} runs ({_p(p_value)})"
    return Claim(what, says, ours, sign * rho > 0 and p_value < _LEVEL)


def _rank_correlation(
    points: Sequence[Point], axis: str, value: Callable[[Point], float]
) -> float | None:
    """Spearman's, over all runs; None where one side has one value only, or one unknown."""
    x, y = [_at(p, axis) for p in points], [value(p) for p in points]
    if len(set(x)) < 2 or len(set(y)) < 2 or not all(map(math.isfinite, y)):
        return None
    return _spearman(x, y)[0]


def _spearman(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Spearman's ρ and its two-sided p; of few runs by all orders they could have had.

    scipy's p is of a large sample: three runs in order would have p = 0.
    """
    found = scipy.stats.spearmanr(x, y)
    if len(x) > _EXACT:
        return float(found.statistic), float(found.pvalue)
    one, other = (scipy.stats.rankdata(values) - (len(x) + 1) / 2 for values in (x, y))
    orders = np.array(list(itertools.permutations(range(len(x)))))
    reached = np.abs(other[orders] @ one) >= abs(float(other @ one)) - 1e-9
    return float(found.statistic), float(reached.mean())


def _collapse(what: str, says: str, points: Sequence[Point], axis: str) -> Claim:
    values = sorted({_at(p, axis) for p in points})
    if len(values) < 2:
        return Claim(what, says, "one value only", None)
    middle = values[len(values) // 2]
    below = [p.collapsed for p in points if _at(p, axis) < middle]
    above = [p.collapsed for p in points if _at(p, axis) >= middle]
    table = [[sum(half), len(half) - sum(half)] for half in (above, below)]
    side = "greater" if axis == "batch" else "less"
    p_value = float(scipy.stats.fisher_exact(table, alternative=side).pvalue)
    name = "N" if axis == "batch" else "d"
    ours = (
        f"{sum(below)} of {len(below)} runs with {name} < {middle:g}, "
        f"{sum(above)} of {len(above)} with {name} ≥ {middle:g} ({_p(p_value)})"
    )
    return Claim(what, says, ours, p_value < _LEVEL)


def _at(point: Point, axis: str) -> float:
    return float(getattr(point, axis))


def _left(point: Point) -> float:
    return point.left


def _p(value: Any) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"


# A figure of trained networks: train the grids of its panels, measure, judge, draw.

_HEADING = (
    "N",
    "P × K",
    "d",
    "before",
    "after",
    "left",
    "collapsed",
    "(17)",
    "(17) is",
    "drift",
    "R@1, %",
    "mAP, %",
)


@dataclass(frozen=True)
class Panel:
    """One plot: the diameter against the batch size or the dimension (`axis`).

    `title` is what tells it from the other panel, beyond what its grid says.
    """

    axis: str
    study: str
    margin: float = 0.0
    title: str = ""

    @property
    def short(self) -> str:
        """What tells the panel's rows in a table."""
        words = self.title or ("batch size" if self.axis == "batch" else "dimension")
        return f"{words}, margin {self.margin:g}" if self.margin else words

    def heading(self, grid: Setup) -> str:
        """What the panel shows, in a line."""
        if self.axis == "batch":
            fixed = f"batch size at d = {grid.dim}"
        elif isinstance(grid.batch, int):
            fixed = f"dimension at N = {grid.batch}"
        else:
            fixed = "dimension at P = {}, K = {}".format(*grid.batch)
        prefix = f"{self.title}: " if self.title else ""
        return f"{prefix}{fixed}, margin {self.margin:g}"

    def cells(self, grid: Setup) -> Cells:
        """The runs of the panel."""
        return grid_cells(grid, self.axis, self.margin)


@dataclass(frozen=True)
class DiameterFigure:
    """A figure: its panels, and what the paper says of it beyond what it says of every panel."""

    name: str
    title: str
    panels: Sequence[Panel]
    more: Callable[[Sequence[Sequence[Point]]], list[Claim]] | None = None


@dataclass(frozen=True)
class _Shown:
    """A panel with its runs."""

    panel: Panel
    heading: str
    points: Sequence[Point]

    @property
    def plot(self) -> tuple[str, str, Sequence[Point]]:
        return self.heading, self.panel.axis, self.points


def _make(figure: DiameterFigure, request: Request) -> Made:
    shown, trained = _train(figure.panels, request)
    points = [one.points for one in shown]
    claims = [c for one in shown for c in claims_of(one.points, one.panel.axis, one.panel.short)]
    claims += figure.more(points) if figure.more is not None else []
    notes = [note for one in trained for note in one.notes]
    for tell in (where_bound, below_start, unsettled, through_training, beyond):
        notes += [tell(one.points, one.panel.axis, one.panel.short) for one in shown]
    title = f"HNM {figure.title} ({request.scale})"
    rows = [[one.heading, *point.row()] for one in shown for point in one.points]
    runs = request.folder / f"{figure.name}-runs.csv"
    write_csv(runs, ["panel", *Point.heading()], rows)
    made = publish(
        request,
        title,
        Comparison(claims=claims),
        about=about_together(trained, request),
        notes=[*filter(None, dict.fromkeys(notes)), RULES],
        more=[_cell_table(one) for one in shown],
        figure=draw([one.plot for one in shown], title),
    )
    page, comma, *pictures = made.files
    return replace(made, files=[page, comma, runs, *pictures])


def _train(panels: Sequence[Panel], request: Request) -> tuple[list[_Shown], list[Trained]]:
    """Make the runs of all panels, each once, and measure those that finished."""
    grids = [
        STUDIES[panel.study].setup(request) for panel in panels
    ]  # all data is there, or nothing begins
    cells = [panel.cells(grid) for panel, grid in zip(panels, grids, strict=True)]
    trained = []
    for study in dict.fromkeys(panel.study for panel in panels):
        wanted: dict[str, Sections] = {}
        for panel, of_panel in zip(panels, cells, strict=True):
            wanted |= of_panel if panel.study == study else {}
        trained.append(STUDIES[study].train(request, wanted))
    runs = {name: found for one in trained for name, found in one.runs.items()}
    points = {name: [measure(run) for run in found] for name, found in runs.items()}
    shown = []
    for panel, grid, names in zip(panels, grids, cells, strict=True):
        found = [point for name in names for point in points[name]]
        if not found:
            lost = [one.error or one.status for some in trained for one in some.lost]
            why = f": {lost[0]}" if lost else ""
            raise TrainingError(f"no run of {panel.heading(grid)!r} finished{why}")
        shown.append(_Shown(panel, panel.heading(grid), found))
    return shown, trained


def _cell_table(shown: _Shown) -> Table:
    """One row per batch shape and dimension: means over its runs."""

    def cell(p: Point) -> tuple[int, int, int]:
        return p.batch, p.p or 0, p.dim

    rows = []
    for (batch, p, dim), found in groupby(sorted(shown.points, key=cell), cell):
        mine = list(found)
        mean, std = spread([one.end for one in mine])
        rows.append(
            [
                str(batch),
                f"{p} × {batch // p}" if p else "any",
                str(dim),
                f"{_mean([one.start for one in mine]):.3g}",
                f"{mean:.3g}" + (f" ± {std:.1g}" if len(mine) > 1 else ""),
                _percent(_mean([one.left for one in mine])),
                f"{sum(one.collapsed for one in mine)} of {len(mine)}",
                f"{_mean([one.bound for one in mine]):.3g}",
                _states(mine),
                f"{_mean([one.drift for one in mine]):+.3f}",
                _score([one.recall_start for one in mine], [one.recall for one in mine]),
                _score([one.mean_ap_start for one in mine], [one.mean_ap for one in mine]),
            ]
        )
    return Table(
        _HEADING,
        rows,
        f"{shown.heading} (means over the runs of a cell; scores untrained → trained)",
    )


def _score(before: Sequence[float], after: Sequence[float]) -> str:
    """From the untrained network to the trained one; NaN where nothing was evaluated, or not so."""
    start, end = _mean(before), _mean(after)
    if not math.isfinite(end):
        return "-"
    return f"{100 * start:.1f} → {100 * end:.1f}" if math.isfinite(start) else f"{100 * end:.1f}"


def _states(points: Sequence[Point]) -> str:
    """What (17) with the hardest triplet was in the runs of a cell."""
    found = [bound_state(one.end, one.bound) for one in points]
    counts = {state: found.count(state) for state in STATES if state in found}
    if len(counts) == 1:
        return found[0]
    return ", ".join(f"{state} {count} of {len(found)}" for state, count in counts.items())


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# What the paper says of a figure beyond what it says of every panel.
_MORE_CLAIMS = {
    "threshold": threshold_claims,
    "margin": margin_claims,
    "outlier": outlier_claims,
}


def _read_figures() -> list[Item]:
    """The figures of `figures.toml` as items at all three scales."""
    content = tomllib.loads(Path(__file__).with_name("figures.toml").read_text(encoding="utf-8"))
    items = []
    for name, figure in content.items():
        panels = [Panel(**panel) for panel in figure["panels"]]
        more = _MORE_CLAIMS.get(figure.get("more", ""))
        made = DiameterFigure(name, figure["title"], panels, more)
        items.append(Item.of(name, partial(_make, made)))
    return items


DIAMETER_FIGURES = _read_figures()
