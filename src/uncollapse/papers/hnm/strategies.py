"""Beyond HNM: a setup in which batch-hard mining collapses, rescued, and with other mining.

One table by the official protocol of Market-1501: untrained, batch-hard, rescued, five others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from uncollapse._base.check import percent
from uncollapse._base.table import Table
from uncollapse.charts import Series, curves
from uncollapse.papers.comparison import Finding, Scorecard, line, publish, spread, with_std
from uncollapse.papers.hnm.diameters import FIGURES, STUDIES
from uncollapse.papers.items import Made, Request
from uncollapse.papers.study import batch_diameters
from uncollapse.sweep import is_collapsed
from uncollapse.training import NotMeasuredError, Run

STUDY = STUDIES["market-strategies"]
_ITEM = FIGURES["market-strategies"]
STRATEGIES, _SCORES = _ITEM["methods"], _ITEM["scores"]
_LEAST = 1e-4  # a diameter may be 0, which a logarithm does not show


@dataclass(frozen=True)
class StrategyRun:
    """A run: its scores before and after training, in per cent, and what happened to its scale."""

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
        """Below 1 % of the diameter before training."""
        return is_collapsed(None, self.start, self.end)

    def record(self) -> dict[str, object]:
        """For a table of runs, by column."""
        moments = {"before": self.before, "after": self.after}
        return {
            "strategy": self.method,
            "seed": self.seed,
            **{f"{k} {when}": f"{moments[when][k]:.3f}" for when in moments for k in _SCORES},
            "diameter before": f"{self.start:.6g}",
            "diameter after": f"{self.end:.6g}",
            "collapsed": self.collapsed,
            "verdict": self.verdict,
            "rescues": self.rescues,
        }


def make(request: Request) -> Made:
    """Train every strategy, and set them beside the untrained network."""
    trained = STUDY.train(request, STRATEGIES)
    results = [_read(name, run) for name, runs in trained.runs.items() for run in runs]
    title = f"Market-1501 by strategy ({request.scale})"
    batch = trained.setup.config["batch"]
    hard = [result for result in results if result.method == "batch-hard"]
    fell = sum(result.collapsed for result in hard)
    claim = Finding(
        f"batch-hard at N = {batch['p'] * batch['k']}",
        "collapses at large batches",
        f"{fell} of {len(hard)} runs below 1 % of the first diameter",
        fell == len(hard),
    )
    figure = curves(
        title,
        [_line(name, runs) for name, runs in trained.runs.items()],
        y_label="diameter of a training batch",
        note=trained.setup.words,
        log=True,
        width=640.0,
        height=380.0,
    )
    return publish(
        request,
        title,
        Scorecard(claims=[claim]),
        [trained],
        notes=[_ITEM["rules"]],
        more=[table(results)],
        runs=[result.record() for result in results],
        figure=figure,
    )


def _read(method: str, run: Run) -> StrategyRun:
    measures = run.measures()
    if measures.after is None:
        raise NotMeasuredError(run.path, "measures after training")
    moments = [moment.splits[measures.split] for moment in (measures.before, measures.after)]
    before, after = (
        {
            name: 100 * next((moment.scores[key] for key in keys if key in moment.scores), math.nan)
            for name, keys in _SCORES.items()
        }
        for moment in moments
    )
    first, last = (moment.health for moment in moments)
    rescues = sum("Rolled back" in str(entry.get("event", "")) for entry in run.metrics())
    ends = first.diameter, last.diameter
    return StrategyRun(method, run.config.seed, before, after, *ends, last.verdict, rescues)


def table(results: Sequence[StrategyRun]) -> Table:
    """Means over seeds; the untrained network first, and the best mAP in bold."""
    methods = list(dict.fromkeys(result.method for result in results))
    by_method = {name: [r for r in results if r.method == name] for name in methods}
    first = by_method[methods[0]]
    start = spread([run.start for run in first])[0]
    rows = [["untrained", *_means([run.before for run in first]), "", f"{start:.3g}", "", ""]]
    for method, runs in by_method.items():
        gain = spread([run.after["mAP"] - run.before["mAP"] for run in runs])[0]
        end = spread([run.end for run in runs])[0]
        left = percent(spread([run.end / run.start for run in runs])[0], 2)
        verdicts = ", ".join(dict.fromkeys(run.verdict for run in runs))
        scores = _means([run.after for run in runs])
        rows.append([method, *scores, f"{gain:+z.1f}", f"{end:.3g}", left, verdicts])
    means = [spread([run.after["mAP"] for run in runs])[0] for runs in by_method.values()]
    best = [] if all(map(math.isnan, means)) else [1 + int(np.nanargmax(means))]
    heading = ["strategy", *(f"{name}, %" for name in _SCORES), "mAP − untrained"]
    heading += ["diameter", "left", "verdict"]
    return Table(heading, rows, "By strategy (means ± std over seeds)", strong=best)


def _means(moments: Sequence[Mapping[str, float]]) -> list[str]:
    texts = (with_std([moment[name] for moment in moments]) for name in _SCORES)
    return [text.replace("nan", "–") for text in texts]


def _line(name: str, runs: Sequence[Run]) -> Series:
    """The diameter of the training batches, mean over seeds and from the least to the largest."""
    logged = [batch_diameters(run) for run in runs]
    steps = sorted(set.intersection(*map(set, logged)))
    values = np.array([[max(each[step], _LEAST) for step in steps] for each in logged])
    return line(name, steps, values, np.exp(np.log(values).mean(axis=0)))
