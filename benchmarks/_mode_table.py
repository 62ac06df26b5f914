"""Tables of the study of mode drift: which score told bad strategies from good ones, and where."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from _mode_sets import JUDGED, NAMES, TUNED

# The rule, fixed on Omniglot and MNIST before runs on the other data were looked at.
RULE = "mode drift, probe"  # k = 3, 30 steps: the larger, the worse is a run expected to end
MERGING = 0.1  # and above this it is expected to end badly
FORCE = 0.25  # of the median `inside` of a loss's keeping runs on the data; below: no prediction
ENOUGH = 0.7  # of the best strategy's R@1: below that, or below its own start, a run is bad


class ModeOutcome(NamedTuple):
    """A run that has ended: what it was, what was seen, and whether it ended badly."""

    data: str
    loss: str
    name: str
    seed: int
    seen: dict[str, Any]
    bad: bool
    idle: bool = False  # keeps modes, and has no force inside them: nothing is predicted

    @property
    def recall(self) -> float:
        """R@1 by fine labels on held-out rows."""
        return float(self.seen["recall"]["fine"])


def outcomes(found: Iterable[tuple[Any, dict[str, Any]]]) -> list[ModeOutcome]:
    """Judge runs beside the best of their dataset and seed."""
    runs = list(found)
    best: dict[tuple[str, int], float] = {}
    for run, seen in runs:
        key = run.data, run.seed
        best[key] = max(best.get(key, 0.0), seen["recall"]["fine"])
    judged = []
    for run, seen in runs:
        recall, start = seen["recall"]["fine"], seen["recall_start"]["fine"]
        bad = recall < max(start, ENOUGH * best[run.data, run.seed])
        judged.append(ModeOutcome(run.data, run.loss, run.name, run.seed, seen, bad))
    return [run._replace(idle=_idle(run, judged)) for run in judged]


def _idle(run: ModeOutcome, runs: Sequence[ModeOutcome]) -> bool:
    keeping = [one for one in runs if one[:2] == run[:2] and SCORES[RULE](one.seen) <= MERGING]
    if run not in keeping:
        return False
    force = [one.seen["probe"]["modes_inside"] for one in keeping]
    return bool(run.seen["probe"]["modes_inside"] < FORCE * np.median(force))


def _ratio(seen: dict[str, float]) -> float:
    """Mode drift over the force inside modes, which is free of a loss's own scale."""
    return seen["modes_value"] / max(seen["modes_inside"], 1e-9)


# Each is larger for runs that are expected to end badly.
Score = Callable[[dict[str, Any]], float]
SCORES: dict[str, Score] = {
    "mode drift, start": lambda r: r["start"]["modes_value"],
    "mode drift, probe": lambda r: r["probe"]["modes_value"],
    "exact, probe": lambda r: r["probe"]["modes_exact"],
    "mode drift / inside, start": lambda r: _ratio(r["start"]),
    "mode drift / inside, probe": lambda r: _ratio(r["probe"]),
    "radial drift, start": lambda r: r["start"]["radial"],
    "radial drift, probe": lambda r: r["probe"]["radial"],
    "NC1, probe (small)": lambda r: -r["probe"]["nc1"],
    "CDNV, probe (small)": lambda r: -r["probe"]["cdnv"],
}


def auc(scores: Sequence[float], bad: Sequence[bool]) -> float:
    """Chance that a bad run has the larger score, ties counting half; NaN for one kind alone."""
    values, truth = np.asarray(scores, float), np.asarray(bad, bool)
    values = np.where(np.isnan(values), -np.inf, values)
    if truth.all() or not truth.any():
        return math.nan
    wins = values[truth][:, None] - values[~truth][None]
    wins = np.where(np.isnan(wins), 0.0, wins)  # both -inf
    return float(((wins > 0) + 0.5 * (wins == 0)).mean())


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's; NaN for fewer than four runs, or where one does not vary."""
    if len(x) < 4 or len(set(x)) < 2 or len(set(y)) < 2:
        return math.nan
    return float(np.corrcoef(_ranks(x), _ranks(y))[0, 1])


def auc_table(runs: Sequence[ModeOutcome]) -> str:
    """AUC of each score on each dataset, on those of tuning and on those of judging together.

    Together means within datasets: a mean weighted by pairs of a bad and a good run, as scores
    of different data are not comparable.
    """
    present = [name for name in NAMES if any(run.data == name for run in runs)]
    groups = {"chosen on": TUNED, "judged on": JUDGED}
    head = [*(NAMES[name] for name in present), *groups]
    lines = [_line(["score", *head]), "|" + "---|" * (len(head) + 1)]
    counts = [f"{_bad(runs, (n,))} of {len(_of(runs, (n,)))}" for n in present]
    counts += [f"{_bad(runs, g)} of {len(_of(runs, g))}" for g in groups.values()]
    lines.append(_line(["*bad runs*", *counts]))
    for name, score in SCORES.items():
        cells = [_within(runs, (one,), score) for one in present]
        cells += [_within(runs, group, score) for group in groups.values()]
        lines.append(_line([name, *map(_figure, cells)]))
    score = SCORES[RULE]
    kept = [run for run in runs if not run.idle]
    sets = [*((one,) for one in present), *groups.values()]
    for name, among, same in (
        (f"**rule**: {RULE}, without idle runs", kept, False),
        ("the same, pairs within one loss", kept, True),
    ):
        lines.append(_line([name, *(_figure(_within(among, s, score, same)) for s in sets)]))
    lines.append(_line([f"bad runs above {MERGING}", *(_above(kept, s, bad=True) for s in sets)]))
    lines.append(_line([f"others above {MERGING}", *(_above(kept, s, bad=False) for s in sets)]))
    lines.append(_line(["keeping above merging", *(_figure(_higher(kept, s)) for s in sets)]))
    return "\n".join(lines)


def _higher(runs: Sequence[ModeOutcome], names: Sequence[str]) -> float:
    """Share of pairs in which a run that keeps modes ends above one that merges them, by R@1."""
    wins: list[float] = []
    for name, seed in dict.fromkeys((run.data, run.seed) for run in _of(runs, names)):
        own = [run for run in runs if (run.data, run.seed) == (name, seed)]
        merging = [run.recall for run in own if SCORES[RULE](run.seen) > MERGING]
        keeping = [run.recall for run in own if SCORES[RULE](run.seen) <= MERGING]
        wins += [(a > b) + 0.5 * (a == b) for a in keeping for b in merging]
    return float(np.mean(wins)) if wins else math.nan


def _above(runs: Sequence[ModeOutcome], names: Sequence[str], *, bad: bool) -> str:
    own = [SCORES[RULE](run.seen) > MERGING for run in _of(runs, names) if run.bad == bad]
    return f"{sum(own)} of {len(own)}"


def correlation_table(runs: Sequence[ModeOutcome], names: Sequence[str]) -> str:
    """Rank correlations of scores with fine R@1 within each loss and dataset (seeds pooled)."""
    present = [name for name in NAMES if any(run.data == name for run in runs)]
    lines = [_line(["loss", "score", *(NAMES[n] for n in present)])]
    lines.append("|" + "---|" * (len(present) + 2))
    for loss in dict.fromkeys(run.loss for run in runs):
        for name in names:
            cells = []
            for data in present:
                own = [run for run in runs if (run.data, run.loss) == (data, loss)]
                scores = [SCORES[name](run.seen) for run in own]
                cells.append(_figure(rank_correlation(scores, [run.recall for run in own])))
            lines.append(_line([loss, name, *cells]))
    return "\n".join(lines)


def run_table(runs: Sequence[ModeOutcome], data: str) -> str:
    """Every run of a dataset, the best first."""
    own = sorted((r for r in runs if r.data == data), key=lambda run: -run.recall)
    head = ["loss", "mining", "seed", "R@1 fine", "start", "R@1 coarse"]
    head += ["mode drift, start", "probe", "inside, probe", "ended"]
    lines = [f"**{NAMES[data]}**", "", _line(head), "|" + "---|" * len(head)]
    for run in own:
        r = run.seen
        recalls = [r["recall"]["fine"], r["recall_start"]["fine"], r["recall"]["coarse"]]
        drifts = [r["start"]["modes_value"], r["probe"]["modes_value"], r["probe"]["modes_inside"]]
        ended = ("bad" if run.bad else "good") + ", idle" * run.idle
        cells = [run.loss, run.name, str(run.seed), *(f"{100 * one:.1f}" for one in recalls)]
        lines.append(_line([*cells, *(f"{one:+.2f}" for one in drifts), ended]))
    return "\n".join(lines)


def _within(
    runs: Sequence[ModeOutcome], names: Sequence[str], score: Score, same_loss: bool = False
) -> float:
    total = weight = 0.0
    keys = dict.fromkeys((run.data, run.loss if same_loss else "") for run in _of(runs, names))
    for name, loss in keys:
        own = [run for run in _of(runs, (name,)) if loss in ("", run.loss)]
        bad = [run.bad for run in own]
        pairs = sum(bad) * (len(bad) - sum(bad))
        if pairs:
            total += pairs * auc([score(run.seen) for run in own], bad)
            weight += pairs
    return total / weight if weight else math.nan


def _of(runs: Sequence[ModeOutcome], names: Sequence[str]) -> list[ModeOutcome]:
    return [run for run in runs if run.data in names]


def _bad(runs: Sequence[ModeOutcome], names: Sequence[str]) -> int:
    return sum(run.bad for run in _of(runs, names))


def _ranks(values: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    array = np.asarray(values, float)
    below = (array[None] < array[:, None]).sum(1)
    return below + 0.5 * ((array[None] == array[:, None]).sum(1) - 1.0)


def _figure(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
