"""HNM Figs. 5 to 12: the diameter of trained networks against the batch size and the dimension."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

from uncollapse._base.check import percent
from uncollapse._base.files import read_toml
from uncollapse._base.table import Table
from uncollapse.charts import Axes, Chart, Entry, Scale, panels
from uncollapse.charts.marks import Line, Mark, Points, Rect, hatch
from uncollapse.geometry import diameter_lower_bound
from uncollapse.health import Thresholds
from uncollapse.papers.comparison import Finding, Scorecard, publish, spread
from uncollapse.papers.items import Made, Request
from uncollapse.papers.study import (
    Cells,
    Sections,
    Setup,
    Trained,
    batch_diameters,
    has_settled,
    read_studies,
)
from uncollapse.sweep import is_collapsed
from uncollapse.training import NotMeasuredError, Run, TrainingError

STUDIES = read_studies(Path(__file__).with_name("studies.toml"))
FIGURES = read_toml(Path(__file__).with_name("figures.toml"))
AXES: dict[str, dict[str, Any]] = FIGURES["axes"]


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
class DiameterRow:
    """A trained network.

    `start` and `end` are the diameters of the embedded evaluation images before and after training.
    `hardest` and `loss` are the triplet loss at initialisation in batches of the run's own shape:
    of the hardest triplet (what (17) means) and the batch-hard mean (what training minimises);
    `bound` is (17) with the first and `mean_bound` with the second, both with c = 2. `drift` is
    the radial drift at initialisation, in neither paper. `anchors` is the share of a batch's
    samples that have a positive in it. `recall` is R@1; where queries search a gallery it is by the
    protocol of Market-1501, and `mean_ap` its mAP; `recall_start` and `mean_ap_start` are those of
    the untrained network. `batch_start` is the mean diameter of 8 training batches before training,
    `batch_after` that of the same ones after it. `steps` is the length; `settled` whether the
    diameter of the batches had no trend at its end or had collapsed, `fell` the step from which on
    it was below 1 %, if it ever was; `predicted` the share of the scale that a probe said would be
    left.
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
    recall: float
    mean_ap: float = math.nan
    recall_start: float = math.nan
    mean_ap_start: float = math.nan
    batch_start: float = math.nan
    batch_after: float = math.nan
    steps: int = 0
    settled: bool = False
    fell: int | None = None
    predicted: float = math.nan

    @property
    def left(self) -> float:
        """The share of the initial diameter that is left."""
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

    def record(self) -> dict[str, object]:
        """For a table of runs, by column."""
        numbers = {**asdict(self), "left": self.left}
        texts = {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in numbers.items()}
        return {**texts, "collapsed": self.collapsed}


def measure(run: Run, predicted: float = math.nan) -> DiameterRow:
    """The figures of a finished run before and after training, as they were measured.

    Raises `NotMeasuredError` for a run that has not ended or has no plain triplet loss.
    """
    config, measures, logged = run.config, run.measures(), run.summary["metrics"]
    before, after = measures.before, measures.after
    batches = before.batches
    if after is None or batches.hard_mined_loss is None or batches.drift is None:
        raise NotMeasuredError(run.path, "measures of a plain triplet loss, before and after")
    start_scores = before.splits[measures.split].scores
    sizes = batch_diameters(run)
    above = [step for step, size in sizes.items() if not is_collapsed(None, batches.diameter, size)]
    after_last = [step for step in sizes if step > max(above, default=-1)]
    uniform = config.batch.sampler == "uniform"
    p, k = (None, None) if uniform else (config.batch.p, config.batch.k)
    split = next(iter(config.data.eval_splits), "")
    return DiameterRow(
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
        recall=float(logged.get(f"{split}/recall@1", "nan")),
        mean_ap=float(logged.get(f"{split}/mAP", "nan")),
        recall_start=start_scores.get("recall@1", math.nan),
        mean_ap_start=start_scores.get("mAP", math.nan),
        batch_start=batches.diameter,
        batch_after=after.batches.diameter,
        steps=config.train.steps,
        settled=has_settled(sizes, batches.diameter),
        fell=min(after_last, default=None),
        predicted=predicted,
    )


@dataclass(frozen=True)
class Panel:
    """One plot with its runs: the diameter against the batch size or the dimension (`axis`).

    `heading` says what it shows, `short` what tells it from the other panel.
    """

    axis: str
    heading: str
    short: str
    points: Sequence[DiameterRow]

    @property
    def values(self) -> list[int]:
        """The batch sizes or dimensions, ascending."""
        return sorted({getattr(p, self.axis) for p in self.points})

    def at(self, value: int) -> list[DiameterRow]:
        """The runs with this batch size or dimension."""
        return [p for p in self.points if getattr(p, self.axis) == value]


# A figure of trained networks: train the grids of its panels, measure, judge, draw.


def make(request: Request) -> Made:
    """A figure of `figures.toml`."""
    figure = FIGURES[request.item]
    shown, trained = _train(figure["panels"], request)
    claims = [claim for panel in shown for claim in claims_of(panel)]
    claims += [claim for name in figure.get("more", ()) for claim in _MORE_CLAIMS[name](shown)]
    notes = [tell(panel) for tell in (forecast, unsettled, beyond) for panel in shown]
    title = f"HNM {figure['title']} ({request.scale})"
    runs = [{"panel": panel.heading, **p.record()} for panel in shown for p in panel.points]
    return publish(
        request,
        title,
        Scorecard(claims=claims),
        trained,
        notes=[*filter(None, notes), FIGURES["rules"]],
        more=[_cell_table(panel) for panel in shown],
        runs=runs,
        figure=draw(shown, title),
    )


def _train(wanted: Sequence[dict[str, Any]], request: Request) -> tuple[list[Panel], list[Trained]]:
    """Make the runs of all panels, each once, and measure those that finished."""
    # All data is there, or nothing begins.
    grids = [STUDIES[panel["study"]].setup(request) for panel in wanted]
    cells = [
        grid_cells(grid, panel["axis"], panel.get("margin", 0.0))
        for panel, grid in zip(wanted, grids, strict=True)
    ]
    by_study: dict[str, dict[str, Sections]] = {}
    for panel, of_panel in zip(wanted, cells, strict=True):
        by_study.setdefault(panel["study"], {}).update(of_panel)
    trained = [STUDIES[study].train(request, every) for study, every in by_study.items()]
    runs = {cell: of_cell for study in trained for cell, of_cell in study.runs.items()}
    probes = {run: left for study in trained for run, left in study.forecasts.items()}
    shown = []
    for panel, grid, names in zip(wanted, grids, cells, strict=True):
        heading = _heading(panel, grid)
        points = [
            measure(run, probes.get(run.path.name, math.nan))
            for name in names
            for run in runs[name]
        ]
        if not points:
            lost = [run.error or run.status for study in trained for run in study.lost]
            why = f": {lost[0]}" if lost else ""
            raise TrainingError(f"no run of {heading!r} finished{why}")
        short = panel.get("title") or AXES[panel["axis"]]["words"]
        short += f", margin {panel['margin']:g}" if "margin" in panel else ""
        shown.append(Panel(panel["axis"], heading, short, points))
    return shown, trained


def _heading(panel: dict[str, Any], grid: Setup) -> str:
    """What a panel shows, in a line."""
    if panel["axis"] == "batch":
        fixed = f"batch size at d = {grid.dim}"
    elif isinstance(grid.batch, int):
        fixed = f"dimension at N = {grid.batch}"
    else:
        fixed = "dimension at P = {}, K = {}".format(*grid.batch)
    prefix = f"{panel['title']}: " if "title" in panel else ""
    return f"{prefix}{fixed}, margin {panel.get('margin', 0.0):g}"


def _cell_table(panel: Panel) -> Table:
    """One row per batch shape and dimension: means over its runs."""

    def cell(p: DiameterRow) -> tuple[int, int, int]:
        return p.batch, p.p or 0, p.dim

    rows = []
    for (batch, p, dim), group in groupby(sorted(panel.points, key=cell), cell):
        runs = list(group)
        end, std = spread([run.end for run in runs])
        fell = ", ".join(f"step {run.fell}" for run in runs if run.collapsed and run.fell)
        rows.append(
            [
                str(batch),
                f"{p} × {batch // p}" if p else "any",
                str(dim),
                ", ".join(f"{run.steps}{'' if run.settled else '…'}" for run in runs),
                f"{_mean(runs, 'start'):.3g}",
                f"{end:.3g}" + (f" ± {std:.1g}" if len(runs) > 1 else ""),
                percent(_mean(runs, "left"), 2),
                f"{sum(run.collapsed for run in runs)} of {len(runs)}" + f": {fell}" * bool(fell),
                f"{_mean(runs, 'bound'):.3g}",
                _states(runs),
                f"{_mean(runs, 'drift'):+.3f}",
                percent(_mean(runs, "predicted"), 2),
                _change(runs, "recall"),
                _change(runs, "mean_ap"),
            ]
        )
    heading = ["N", "P × K", "d", "steps", "before", "after", "left", "collapsed", "(17)"]
    heading += ["(17) is", "drift", "left, forecast", "R@1, %", "mAP, %"]
    title = f"{panel.heading} (means over the runs of a cell; scores untrained → trained)"
    return Table(heading, rows, title, notes=[FIGURES["columns"]])


def _change(runs: Sequence[DiameterRow], score: str) -> str:
    """From the untrained network to the trained one; `–` if nothing was evaluated."""
    start, end = _mean(runs, f"{score}_start"), _mean(runs, score)
    if not math.isfinite(end):
        return "–"
    return f"{100 * start:.1f} → {100 * end:.1f}" if math.isfinite(start) else f"{100 * end:.1f}"


def _states(runs: Sequence[DiameterRow]) -> str:
    """What (17) with the hardest triplet was in the runs of a cell; vacuous where not above 0."""
    states = [
        "vacuous" if not run.bound > 0.0 else "held" if run.end >= run.bound else "violated"
        for run in runs
    ]
    if len(set(states)) == 1:
        return states[0]
    counts = {state: states.count(state) for state in ("held", "violated", "vacuous")}
    return ", ".join(f"{state} {n} of {len(runs)}" for state, n in counts.items() if n)


def _mean(runs: Sequence[DiameterRow], name: str) -> float:
    return float(sum(getattr(run, name) for run in runs) / len(runs))


# What HNM says of its figures 5 to 12, each tested on our runs by a stated rule.

_LEVEL = 0.05
_EXACT = 8  # runs; 40,320 orders


def claims_of(panel: Panel) -> list[Finding]:
    """The paper's claims about one panel."""
    axis, what = AXES[panel.axis], f"{panel.short}: the diameter"
    return [
        _trend(what, axis["trend"], panel.points, panel.axis, "end", axis["sign"]),
        _collapse(panel),
        bound_claim(f"{panel.short}: (17), hardest triplet, c = 2", panel.points, "bound"),
        bound_claim(f"{panel.short}: (17), batch-hard mean, c = 2", panel.points, "mean_bound"),
    ]


def bound_claim(what: str, points: Sequence[DiameterRow], bound: str) -> Finding:
    """Whether the diameter stayed above HNM (17) wherever that is above 0."""
    telling = [(p.end, getattr(p, bound)) for p in points if getattr(p, bound) > 0.0]
    held = sum(end >= least for end, least in telling)
    ours = f"held in {held} of {len(telling)} runs; vacuous in {len(points) - len(telling)}"
    return Finding(what, "appears to hold", ours, held == len(telling) if telling else None)


def margin_claims(shown: Sequence[Panel]) -> list[Finding]:
    """HNM appendix C, between a panel with a small margin and one with a larger."""
    low, high = shown
    by_cell = {(p.batch, p.p, p.dim, p.seed): p.end for p in low.points}
    pairs = [(by_cell.get((p.batch, p.p, p.dim, p.seed)), p.end) for p in high.points]
    known = [(a, b) for a, b in pairs if a is not None]
    larger = sum(b > a for a, b in known)
    p_value = scipy.stats.binomtest(larger, len(known), alternative="greater").pvalue
    ours = f"in {larger} of {len(known)} pairs of runs ({_p(p_value)}, sign test)"
    return [Finding("larger margin, larger diameter", "yes", ours, bool(p_value < _LEVEL))]


def threshold(panel: Panel) -> int | None:
    """The first value of the axis at which at least half the runs collapsed, if there is one."""
    return next((value for value in panel.values if _half_collapsed(panel.at(value))), None)


def threshold_claims(shown: Sequence[Panel]) -> list[Finding]:
    """Appendix C: a "collapse threshold around N = 128 independent of α"."""
    first, second = (threshold(panel) for panel in shown)
    words = [f"N = {n}" if n else "none" for n in (first, second)]
    ours = f"half the runs collapse from {words[0]} (smaller margin), {words[1]} (larger)"
    same = first == second if first or second else None
    what, says = "batch size at which collapse begins", "around N = 128 for both margins"
    return [Finding(what, says, ours, same)]


def outlier_claims(shown: Sequence[Panel]) -> list[Finding]:
    """Appendix E: "a few outliers for d > 256", put down to memory warnings."""
    wide = [p for p in shown[1].points if p.dim > 256]
    fell = sum(p.collapsed for p in wide)
    ours = f"{fell} of {len(wide)} runs" if wide else "no such dimension at this scale"
    return [Finding("collapse at d > 256", "a few, blamed on memory", ours, None)]


# What the paper says of a figure beyond what it says of every panel.
_MORE_CLAIMS = {"threshold": threshold_claims, "margin": margin_claims, "outlier": outlier_claims}


def _trend(
    what: str, says: str, points: Sequence[DiameterRow], axis: str, value: str, sign: float
) -> Finding:
    correlation = _spearman(points, axis, value)
    if correlation is None:
        return Finding(what, says, "one value only", None)
    rho, p_value = correlation
    ours = f"ρ = {rho:+.2f} over {len(points)} runs ({_p(p_value)})"
    # So few runs can be in order by chance: nothing would be significant.
    few = 2.0 / math.factorial(len(points)) >= _LEVEL
    return Finding(what, says, ours, None if few else sign * rho > 0 and p_value < _LEVEL)


def _spearman(points: Sequence[DiameterRow], axis: str, value: str) -> tuple[float, float] | None:
    """Spearman's ρ and its two-sided p; None where one side has one value only, or one unknown.

    Of few runs p is by all orders they could have had: scipy's is of a large sample, and three
    runs in order would have p = 0.
    """
    x, y = ([float(getattr(p, name)) for p in points] for name in (axis, value))
    if len(set(x)) < 2 or len(set(y)) < 2 or not all(map(math.isfinite, y)):
        return None
    result = scipy.stats.spearmanr(x, y)
    if len(x) > _EXACT:
        return float(result.statistic), float(result.pvalue)
    first, second = (scipy.stats.rankdata(values) - (len(x) + 1) / 2 for values in (x, y))
    orders = np.array(list(permutations(range(len(x)))))
    reached = np.abs(second[orders] @ first) >= abs(float(second @ first)) - 1e-9
    return float(result.statistic), float(reached.mean())


def _collapse(panel: Panel) -> Finding:
    values, axis = panel.values, AXES[panel.axis]
    what, says = f"{panel.short}: collapse", axis["risky"]
    if len(values) < 2:
        return Finding(what, says, "one value only", None)
    half = len(values) // 2
    below, above = (
        [p.collapsed for value in part for p in panel.at(value)]
        for part in (values[:half], values[half:])
    )
    table = [[sum(fell), len(fell) - sum(fell)] for fell in (above, below)]
    p_value = float(scipy.stats.fisher_exact(table, alternative=axis["side"]).pvalue)
    name, middle = axis["letter"], values[half]
    ours = (
        f"{sum(below)} of {len(below)} runs with {name} < {middle:g}, "
        f"{sum(above)} of {len(above)} with {name} ≥ {middle:g} ({_p(p_value)})"
    )
    clearest = 1.0 / math.comb(len(below) + len(above), len(above))  # p if each half were one way
    return Finding(what, says, ours, None if clearest >= _LEVEL else p_value < _LEVEL)


def _half_collapsed(points: Sequence[DiameterRow]) -> bool:
    return 2 * sum(p.collapsed for p in points) >= len(points)


def _p(value: Any) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"


# Beyond the paper: a sentence for each panel, or none.


def forecast(panel: Panel) -> str:
    """Whether the probe said which runs would shrink; '' without one."""
    low, words = Thresholds().shrink_ratio, []
    for more, phrase in ((False, "at most"), (True, "more than")):
        runs = [p for p in panel.points if (p.predicted > low) is more and p.predicted >= 0.0]
        ends = f"{sum(p.left > low for p in runs)} ended above it, {sum(p.collapsed for p in runs)}"
        words += [f"{phrase} {low:.0%} for {len(runs)} runs ({ends} collapsed)"] if runs else []
    start = f"Forecast, {panel.short}: the share of the scale that a probe said would be left is"
    return f"{start} {', '.join(words)}." if words else ""


def unsettled(panel: Panel) -> str:
    """Runs too short for batch norm: what is evaluated is not yet what was trained; '' if none."""
    lost = [p for p in panel.points if p.unsettled]
    if not lost:
        return ""
    return (
        f"Batch norm, {panel.short}: in {len(lost)} of {len(panel.points)} runs"
        f"{_places(lost, panel)} "
        "the images keep less than a fifth of the share of their diameter that training batches "
        "keep. The running statistics have not caught up, so their diameter and their collapse "
        "say little."
    )


def beyond(panel: Panel) -> str:
    """The diameter relative to the first one, against the axis and against the drift."""
    trends, axis = [], AXES[panel.axis]
    for what, value, sign in (
        (axis["words"], panel.axis, axis["sign"]),
        ("radial drift at the start", "drift", -1.0),
    ):
        claim = _trend("", "", panel.points, value, "left", sign)
        verdict = {True: "as expected", False: "not as expected", None: "not judged"}[claim.holds]
        trends.append(f"against the {what} {claim.ours}, {verdict}")
    why = (
        " A wider embedding has a larger diameter before any training, so the diameter alone does "
        "not say whether the dimension protects it."
    )
    return (
        f"Beyond the paper, {panel.short}: the share of the first diameter that is left, "
        f"{', and '.join(trends)}.{why if panel.axis == 'dim' else ''}"
    )


def _places(some: Sequence[DiameterRow], panel: Panel) -> str:
    """` (N = 4, 16)`: the values of the axis where some of the runs are; empty of all runs."""
    if len(some) == len(panel.points):
        return ""
    values = sorted({getattr(p, panel.axis) for p in some})
    return f" ({AXES[panel.axis]['letter']} = {', '.join(map(str, values))})"


# Diameter against batch size or dimension, as in HNM Figs. 5 to 12: every run is a mark.

_LEAST = 1e-4  # a diameter may be 0, which a logarithm does not show
_WIDTH, _TALL, _SHORT = 400.0, 270.0, 200.0
_LOOKS = {False: ("circle", "s2", 1.1), True: ("cross", "s1", 1.2)}  # of runs that collapsed
_MEANS: list[dict[str, Any]] = FIGURES["means"]


def draw(shown: Sequence[Panel], title: str) -> Chart:
    """A column per panel: above as in the paper, below the share left."""
    plots = [*map(_diameters, shown), *map(_shares, shown)]
    fell = {p.collapsed for panel in shown for p in panel.points}
    return panels(title, plots, columns=len(shown), legend=_legend(fell))


def _diameters(panel: Panel) -> Chart:
    top = max(max(p.start, p.end) for p in panel.points)
    axes = _axes(panel, Scale(-0.06 * top, 1.08 * top, _TALL - 36, 10))
    lines: list[Mark] = [axes.across(0.0, "line", ())]
    for look in _MEANS:
        means = [_mean(panel.at(value), look["value"]) for value in panel.values]
        lines.append(axes.line(panel.values, means, look["color"], dash=look["dash"], width=1.6))
    ends = [p.end for p in panel.points]
    marks = _marks(axes, panel, "diameter of the embedded images", ends, axes.inside(*lines))
    fell = sum(p.collapsed for p in panel.points)
    values = ", ".join(map(str, panel.values))
    words = f"{fell} of {len(panel.points)} runs collapsed; {AXES[panel.axis]['label']} {values}"
    return Chart(panel.heading, words, marks, _WIDTH, _TALL)


def _shares(panel: Panel) -> Chart:
    shares = [max(p.left, _LEAST) for p in panel.points]
    low, high = min(0.01, *shares) / 1.4, max(1.0, *shares) * 1.3
    axes = _axes(panel, Scale(low, high, _SHORT - 36, 10, log=True))
    ticks = {share: f"{100 * share:g} %" for share in axes.y.ticks(5)}
    label = "share of the first diameter left"
    marks = _marks(axes, panel, label, shares, axes.across(0.01, "s1", (2, 3)), ticks)
    return Chart("", f"the {label}, logarithmic", marks, _WIDTH, _SHORT)


def _axes(panel: Panel, y: Scale) -> Axes:
    edges = _edges(panel.values)
    return Axes(Scale(edges[0], edges[-1], 72.0, _WIDTH - 8, log=True), y)


def _marks(
    axes: Axes,
    panel: Panel,
    label: str,
    values: Sequence[float],
    lines: Mark,
    ticks: Mapping[float, str] | None = None,
) -> list[Mark]:
    """Regions, frame, lines, then a mark per run; runs of a cell stand side by side."""
    sizes = {float(value): str(value) for value in panel.values}
    frame = axes.frame(AXES[panel.axis]["label"], label, x_ticks=sizes, y_ticks=ticks)
    marks: list[Mark] = [*_regions(axes, panel), *frame, lines]
    seeds = sorted({p.seed for p in panel.points})
    gap = 0.18 * min(1.0, *np.diff(np.log2(panel.values)), 1.0)
    for p, value in zip(panel.points, values, strict=True):
        shift = gap * (seeds.index(p.seed) - (len(seeds) - 1) / 2)
        at = axes.at(getattr(p, panel.axis) * 2.0**shift, value)
        tip = f"N = {p.batch}, d = {p.dim}, seed {p.seed}: {value:.3g}"
        marks.append(Points((at,), *_LOOKS[p.collapsed], tips=(tip,)))
    return marks


def _regions(axes: Axes, panel: Panel) -> list[Mark]:
    """Red, hatched, where at least half the runs collapsed; green where none did."""
    marks: list[Mark] = []
    for (left, right), value in zip(pairwise(_edges(panel.values)), panel.values, strict=True):
        runs = panel.at(value)
        if _half_collapsed(runs):
            stripe = axes.columns(left, right, "s1", 0.1)
            marks += [stripe, hatch(stripe.x, stripe.y, stripe.width, stripe.height, "s1")]
        elif not any(p.collapsed for p in runs):
            marks.append(axes.columns(left, right, "s2", 0.1))
    return marks


def _legend(fell: set[bool]) -> list[Entry]:
    kinds = {False: "a run", True: "a run that collapsed"}
    green, red = (Rect(0, 0, 30, 14, color, 0.1) for color in ("s2", "s1"))
    return [
        *(Entry(kinds[k], (Points(((15, 7),), *_LOOKS[k]),)) for k in kinds if k in fell),
        *(Entry(m["name"], (_sample(m["color"], 1.6, m["dash"]),)) for m in _MEANS),
        Entry("1 %: collapsed below (0.01 % stands for less)", (_sample("s1", 1.3, (2, 3)),)),
        Entry("no run collapsed", (green,)),
        Entry("half or more collapsed", (red, hatch(0, 0, 30, 14, "s1", gap=5))),
    ]


def _sample(color: str, width: float, dash: Sequence[float]) -> Line:
    return Line((1, 7), (29, 7), color, width, dash)


def _edges(at: Sequence[int]) -> list[float]:
    """Half way, in doublings, between neighbours."""
    log = np.log2(np.asarray(at, dtype=float))
    steps = np.diff(log) if len(log) > 1 else np.array([1.0])
    edges = [log[0] - steps[0] / 2, *(log[:-1] + steps / 2), log[-1] + steps[-1] / 2]
    return [float(2.0**edge) for edge in edges]
