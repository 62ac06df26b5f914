"""EPS Table 5: how far Recall@1 spreads over seeds, and whether EPS's gain is beyond it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from uncollapse.data import DataError, describe
from uncollapse.metrics import compare_seeds
from uncollapse.papers._beside import Beside, Claim, Score, publish, spread
from uncollapse.papers._item import Item, Request
from uncollapse.papers.eps._scores import Column, measure
from uncollapse.papers.eps._study import Study, Trained
from uncollapse.papers.eps.methods import BASELINE, only
from uncollapse.papers.eps.protocols import CARS, CUB, OMNIGLOT, TIMES

__all__ = ["TABLE5"]

# Study, by fine labels?, and the paper's std without and with EPS.
_ROWS: Mapping[str, tuple[Study, bool, Mapping[str, tuple[float | None, float]]]] = {
    "cars196": (
        CARS,
        False,
        {"Dist-Margin": (0.17, 0.27), "MS": (0.24, 0.29), "Trip. + SH": (0.20, 0.47)},
    ),
    "cub200": (
        CUB,
        False,
        {"Dist-Margin": (None, 0.33), "MS": (0.43, 0.36), "Trip. + SH": (0.52, 0.35)},
    ),  # the first is printed as 298
    "Omniglot letters": (
        OMNIGLOT,
        True,
        {"Dist-Margin": (0.73, 0.58), "MS": (0.52, 0.71), "Trip. + SH": (0.34, 0.61)},
    ),
}
_LEVEL = 0.05
_WORDS = ("without", "with")


def _make(request: Request) -> list[Path]:
    scores: list[Score] = []
    claims: list[Claim] = []
    notes: list[str] = []
    last: Trained | None = None
    missing = DataError("no study")
    for title, (study, fine, paper) in _ROWS.items():
        methods = only(*paper, *(eps for eps, base in BASELINE.items() if base in paper))
        try:
            last = study.train(request, methods)
        except DataError as error:
            missing = error
            notes.append(f"{title} is left out: no copy found. Get it from {_home(study, request)}")
            continue
        column = Column("R@1", "test", fine=fine, k=1)
        found = {m: [measure(r, [column])[column.title] for r in rs] for m, rs in last.runs.items()}
        for baseline, values in paper.items():
            eps = f"EPS + {baseline}"
            for word, method, theirs in zip(_WORDS, (baseline, eps), values, strict=True):
                _, std = spread(found[method])
                scores.append(Score(f"{title}, {baseline}", f"std {word} EPS", theirs, [std]))
            claims.append(_gain(f"{title}, {eps}", found[eps], found[baseline]))
    if last is None:
        raise missing
    table = Beside(
        "EPS Table 5: spread of R@1 over seeds",
        scores,
        claims,
        last.about(request, "table5"),
        [*last.notes, *notes],
        decimals=2,
    )
    return publish(request, "table5", table)


def _home(study: Study, request: Request) -> str:
    return describe(study.setups[request.scale].config["data"]["name"]).home


def _gain(what: str, mine: list[float], theirs: list[float]) -> Claim:
    """Whether the gain is significant: the exact sign-flip test over the seeds."""
    if len(mine) < 2:
        return Claim(f"{what}: gain in R@1", "significant", "one seed only", None)
    result = compare_seeds(mine, theirs)
    least = 2.0 ** (1 - len(mine))  # what so many seeds can give at all
    said = f"{result.difference:+.1f}, p = {result.p_value:.3f} ({result.test}"
    said += f"; {len(mine)} seeds cannot give less than {least:.3f})" if least > _LEVEL else ")"
    holds = None if least > _LEVEL else result.p_value < _LEVEL and result.difference > 0
    return Claim(f"{what}: gain in R@1", "significant", said, holds)


TABLE5 = Item(
    name="table5",
    summary="EPS Table 5: std of R@1 over seeds, and whether the gain is significant",
    needs="Omniglot; Cars196 and CUB200 where they are (smoke: nothing)",
    time=TIMES | {"laptop": "minutes after table3"},
    make=_make,
    scales=("laptop", "smoke", "paper"),
)
