"""Beyond HNM: the batch that collapses batch-hard mining, with a rescue, and mined otherwise.

One table by the official protocol of Market-1501: untrained, batch-hard, rescued, five others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from uncollapse._base.files import write_csv
from uncollapse.charts import Series, curves
from uncollapse.papers._compare import Claim, Comparison, publish, spread
from uncollapse.papers._item import Item, Made, Request, Table
from uncollapse.papers._study import Sections, Setup
from uncollapse.papers.hnm.diameters import STUDIES
from uncollapse.sweep import is_collapsed
from uncollapse.training import NotMeasuredError, Run

__all__ = ["MARKET_STRATEGIES"]


def _mined(
    positives: str, negatives: str, *, scale_free: bool = False, guard: str = "off"
) -> Sections:
    return {
        "mining": {"positives": positives, "negatives": negatives},
        "loss": {"name": "triplet", "margin": 0.2, "scale_free": scale_free},
        "guard": {"action": guard},
    }


_HARD, _RESCUED, _UNTRAINED = "batch-hard", "batch-hard, rescued", "untrained"
_STRATEGIES: Mapping[str, Sections] = {
    _HARD: _mined("hard", "hard"),
    _RESCUED: _mined("hard", "hard", guard="rescue"),
    "easy × hard": _mined("easy", "hard"),
    "scale-free hard × hard": _mined("hard", "hard", scale_free=True),
    "scale-free easy × hard": _mined("easy", "hard", scale_free=True),
    "easy × semi-hard": _mined("easy", "semihard"),
    "inside × hard": _mined("inside", "hard"),
}
# Names of scores as they are logged; of data without a gallery the second name.
_SCORES = {
    "R@1": ("recall@1",),
    "R@5": ("recall@5",),
    "R@10": ("recall@10",),
    "mAP": ("mAP", "map@r"),
    "mINP": ("mINP",),
}


_STUDY = STUDIES["market-strategies"]


@dataclass(frozen=True)
class _Result:
    """A run: its scores before and after training, in per cent, and what became of its scale."""

    method: str
    seed: int
    before: Mapping[str, float]
    after: Mapping[str, float]
    start: float
    end: float
    verdict: str
    rescues: int

    @property
    def collapsed(self) -> bool:
        return is_collapsed(None, self.start, self.end)

    def row(self) -> list[object]:
        scores = [f"{100 * one[name]:.3f}" for one in (self.before, self.after) for name in _SCORES]
        ends = f"{self.start:.6g}", f"{self.end:.6g}"
        return [self.method, self.seed, *scores, *ends, self.collapsed, self.verdict, self.rescues]


def _read(method: str, run: Run) -> _Result:
    measures = run.measures()
    if measures.after is None:
        raise NotMeasuredError(run.path, "measures after training")
    moments = [moment.splits[measures.split] for moment in (measures.before, measures.after)]
    before, after = (_named(moment.scores) for moment in moments)
    first, last = (moment.health for moment in moments)
    rescues = sum("Rolled back" in str(line.get("event", "")) for line in run.metrics())
    seed = run.config.seed
    return _Result(
        method, seed, before, after, first.diameter, last.diameter, last.verdict, rescues
    )


def _named(scores: Mapping[str, float]) -> dict[str, float]:
    return {
        name: next((scores[key] for key in keys if key in scores), math.nan)
        for name, keys in _SCORES.items()
    }


def _make(request: Request) -> Made:
    trained = _STUDY.train(request, _STRATEGIES)
    found = {name: [_read(name, run) for run in runs] for name, runs in trained.runs.items()}
    every = [one for results in found.values() for one in results]
    heading = ["strategy", "seed"]
    heading += [f"{name} {when}" for when in ("before", "after") for name in _SCORES]
    heading += ["diameter before", "diameter after", "collapsed", "verdict", "rescues"]
    runs = request.folder / f"{request.item}-runs.csv"
    write_csv(runs, heading, [one.row() for one in every])
    title = f"Market-1501 by strategy ({request.scale})"
    setup = trained.setup
    made = publish(
        request,
        title,
        Comparison(claims=[_collapse_claim(found[_HARD], setup)]),
        about=trained.about(request),
        notes=[*trained.notes, _below(every), _RULES],
        more=[_table(found)],
        figure=_diameters(title, trained.runs, setup.words),
    )
    page, comma, *pictures = made.files
    return replace(made, files=[page, comma, runs, *pictures])


def _collapse_claim(runs: Sequence[_Result], setup: Setup) -> Claim:
    fell, batch = sum(one.collapsed for one in runs), setup.config["batch"]
    what = f"batch-hard at N = {batch['p'] * batch['k']}"
    ours = f"{fell} of {len(runs)} runs below 1 % of the first diameter"
    return Claim(what, "collapses at large batches", ours, fell == len(runs))


def _table(found: Mapping[str, Sequence[_Result]]) -> Table:
    """Means over seeds; the untrained network first, and the best mAP in bold."""
    first = next(iter(found.values()))
    start = spread([one.start for one in first])[0]
    rows = [[_UNTRAINED, *_scores([one.before for one in first]), "", f"{start:.3g}", "", ""]]
    for method, runs in found.items():
        gain = spread([100 * (one.after["mAP"] - one.before["mAP"]) for one in runs])[0]
        end = spread([one.end for one in runs])[0]
        left = 100 * spread([one.end / one.start for one in runs])[0]
        verdicts = ", ".join(dict.fromkeys(one.verdict for one in runs))
        scores = _scores([one.after for one in runs])
        share = f"{left:.0f} %" if left >= 10 else f"{left:.2g} %"
        rows.append([method, *scores, f"{gain:+z.1f}", f"{end:.3g}", share, verdicts])
    means = [spread([one.after["mAP"] for one in runs])[0] for runs in found.values()]
    best = [] if all(map(math.isnan, means)) else [1 + int(np.nanargmax(means))]
    heading = ["strategy", *(f"{name}, %" for name in _SCORES), "mAP − untrained"]
    heading += ["diameter", "left", "verdict"]
    return Table(heading, rows, "By strategy (means ± std over seeds)", strong=best)


def _scores(moments: Sequence[Mapping[str, float]]) -> list[str]:
    found = []
    for name in _SCORES:
        mean, std = spread([100 * one[name] for one in moments])
        said = "-" if math.isnan(mean) else f"{mean:.1f}"
        found.append(said if math.isnan(std) else f"{said} ± {std:.1f}")
    return found


def _below(runs: Sequence[_Result]) -> str:
    """Which runs ended below the network they began with."""
    lost = [one for one in runs if one.after["mAP"] < one.before["mAP"]]
    if not lost:
        return f"All {len(runs)} runs end above the untrained network in mAP."
    named = "; ".join(
        f"{one.method}, seed {one.seed} ({100 * one.before['mAP']:.1f} → "
        f"{100 * one.after['mAP']:.1f})"
        for one in lost
    )
    return f"{len(lost)} of {len(runs)} runs end below their own start in mAP: {named}."


def _diameters(title: str, runs: Mapping[str, Sequence[Run]], words: str) -> Any:
    """The diameter of the training batches, mean over seeds and from the least to the largest."""
    return curves(
        title,
        [_line(name, mine) for name, mine in runs.items()],
        y_label="diameter of a training batch",
        note=words,
        log=True,
        width=640.0,
        height=380.0,
    )


def _line(name: str, runs: Sequence[Run]) -> Series:
    logged = [
        {line["step"]: line["diameter"] for line in run.metrics() if "diameter" in line}
        for run in runs
    ]
    steps = sorted(set.intersection(*map(set, logged)))
    values = np.array([[max(one[step], _LEAST) for step in steps] for one in logged])
    geometric = np.exp(np.log(values).mean(axis=0)).tolist()
    if len(runs) < 2:
        return Series(name, steps, geometric)
    low, high = values.min(axis=0).tolist(), values.max(axis=0).tolist()
    return Series(name, steps, geometric, low, high)


_LEAST = 1e-4  # a diameter may be 0, which a logarithm does not show
_RULES = (
    "Verdicts are those of `uncollapse diagnose` on the queries, beside the untrained network. "
    "With a scale-free loss the diameter says nothing about quality. The picture shows the "
    "diameter of the training batches, where 0.0001 stands for less."
)

MARKET_STRATEGIES = Item.of("market-strategies", _make)
