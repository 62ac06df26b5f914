"""Scores of the network before training beside those of a later one, and where these are lower."""

from __future__ import annotations

import re
from collections.abc import Mapping

from uncollapse._base.files import DamagedFileError
from uncollapse.training.measured_rows import NotMeasuredError
from uncollapse.training.run import Run

__all__ = ["ends_below", "start_scores"]

_RECALL = re.compile(r"(?:(?P<split>.+?)/)?(?P<fine>fine/)?recall@(?P<k>\d+)")


def start_scores(run: Run) -> dict[str, float]:
    """Scores of the network before training by `split/name`, as they were measured.

    They are of the same samples as those logged at the end. Empty for a run without measures.
    """
    try:
        before = run.measures().before
    except (NotMeasuredError, DamagedFileError):
        return {}
    return {
        f"{split}/{name}": value
        for split, figures in before.splits.items()
        for name, value in figures.scores.items()
    }


def ends_below(start: Mapping[str, float], end: Mapping[str, float]) -> list[str]:
    """A sentence for each split and kind of label where R@1 (the smallest k) is below its start.

    >>> ends_below({"test/recall@1": 0.498, "test/recall@5": 0.7},
    ...            {"test/recall@1": 0.375, "test/recall@5": 0.6})
    ['R@1 on test ends below the network before training: 37.5 % against 49.8 %.']
    """
    first: dict[tuple[str, str], tuple[int, str]] = {}
    for key in end:
        found = _RECALL.fullmatch(key)
        if found is None or key not in start or (found["split"] or "").endswith("/share"):
            continue
        group = (found["split"] or "", found["fine"] or "")
        first[group] = min(first.get(group, (int(found["k"]), key)), (int(found["k"]), key))
    return [
        _sentence(k, split, bool(fine), start[key], end[key])
        for (split, fine), (k, key) in first.items()
        if end[key] < start[key]
    ]


def _sentence(k: int, split: str, fine: bool, start: float, end: float) -> str:
    what = f"R@{k}{' by fine labels' * fine}{f' on {split}' * bool(split)}"
    numbers = f"{_percent(end, start)} against {_percent(start, end)}"
    return f"{what} ends below the network before training: {numbers}."


def _percent(share: float, other: float) -> str:
    """To a tenth, or as far as tells the two apart."""
    digits = next((d for d in (1, 2, 3) if f"{100 * share:.{d}f}" != f"{100 * other:.{d}f}"), 4)
    return f"{100 * share:.{digits}f} %"
