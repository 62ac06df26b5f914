"""EPS Table 5: how far Recall@1 spreads over seeds, and whether EPS's gain is beyond it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from uncollapse.data import DataError, describe
from uncollapse.papers._compare import (
    Claim,
    Comparison,
    Course,
    Score,
    before_table,
    publish,
    spread,
)
from uncollapse.papers._item import Item, Made, Request
from uncollapse.papers._study import Setup, Study, Trained, about_together
from uncollapse.papers.eps._scores import Column, courses, gain_claim, some_methods
from uncollapse.papers.eps.tables import CARS, CUB, OMNIGLOT

__all__ = ["TABLE5"]


@dataclass(frozen=True)
class _Rows:
    """One dataset: the paper's standard deviation of R@1 without and with EPS, by loss."""

    study: Study[Setup]
    column: Column
    paper: Mapping[str, tuple[float | None, float]]


_ROWS = {
    "cars196": _Rows(
        CARS,
        Column("R@1", "test", k=1),
        {"Dist-Margin": (0.17, 0.27), "MS": (0.24, 0.29), "Trip. + SH": (0.20, 0.47)},
    ),
    "cub200": _Rows(
        CUB,
        Column("R@1", "test", k=1),
        # The first is printed as 298.
        {"Dist-Margin": (None, 0.33), "MS": (0.43, 0.36), "Trip. + SH": (0.52, 0.35)},
    ),
    "Omniglot letters": _Rows(
        OMNIGLOT,
        Column("R@1", "test", fine=True, k=1),
        {"Dist-Margin": (0.73, 0.58), "MS": (0.52, 0.71), "Trip. + SH": (0.34, 0.61)},
    ),
}


def _make(request: Request) -> Made:
    scores: list[Score] = []
    claims: list[Claim] = []
    shown: list[Course] = []
    notes: list[str] = []
    trained: list[Trained] = []
    missing = DataError("no study")
    for title, rows in _ROWS.items():
        with_eps = [f"EPS + {loss}" for loss in rows.paper]
        try:
            last = rows.study.train(request, some_methods(*rows.paper, *with_eps))
            trained.append(last)
        except DataError as error:
            missing = error
            name = rows.study.setups[request.scale][0].config["data"]["name"]
            notes.append(f"{title} is left out: no copy found. Get it from {describe(name).home}")
            continue
        mine = courses(last, rows.column)
        shown += [replace(one, method=f"{title}, {one.method}") for one in mine]
        found = {one.method: one.end for one in mine}
        for loss, paper in rows.paper.items():
            for word, method, theirs in (
                ("without", loss, paper[0]),
                ("with", f"EPS + {loss}", paper[1]),
            ):
                std = spread(found[method])[1]
                scores.append(Score(f"{title}, {loss}", f"std {word} EPS", theirs, [std]))
            name = f"EPS + {loss}"
            claims.append(gain_claim(f"{title}, {name}", "significant", found[name], found[loss]))
    if not trained:
        raise missing
    return publish(
        request,
        "EPS Table 5: spread of R@1 over seeds",
        Comparison(scores, claims, decimals=2),
        about=about_together(trained, request),
        notes=[*dict.fromkeys(note for one in trained for note in one.notes), *notes],
        more=[before_table(shown, "R@1 before training and at the end")],
    )


TABLE5 = Item.of("table5", _make)
