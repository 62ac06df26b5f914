"""Coarse to fine beyond the paper: four real datasets, EPS's losses and SupCon, five seeds.

Training sees coarse labels alone (odd or even, alphabet, domain, make); what is judged is R@1 by
the fine ones (digit, letter, intent, model), beside the network before training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from uncollapse.data import DataError
from uncollapse.papers._compare import Comparison, publish
from uncollapse.papers._item import Item, Made, Request
from uncollapse.papers.eps._scores import (
    STUDIES,
    TABLES,
    Column,
    gain_claim,
    method_scores,
    some_methods,
)

__all__ = ["COARSE_TO_FINE"]

_LOSSES = ("Trip. + SH", "Dist-Margin", "MS", "SupCon")
_METHODS = some_methods(*_LOSSES, "ProxyNCA", *(f"EPS + {loss}" for loss in _LOSSES))
_CLAIM = "EPS is better"
_NOTE = (
    "This table is not in the paper. The test of the four losses together takes their pairs of "
    "runs (with and without EPS, same seed) as independent."
)


def _make(request: Request) -> Made:
    made: list[Made] = []
    missing: list[str] = []
    for dataset in TABLES["coarse"]:
        if request.scale not in STUDIES[dataset["study"]].setups:
            continue
        try:
            made.append(_make_dataset(dataset, request))
        except DataError as error:
            missing.append(str(error))
    if not made:
        raise DataError(missing[0])
    files = [path for part in made for path in part.files]
    return Made(files, [page for part in made for page in part.pages])


def _make_dataset(dataset: Mapping[str, Any], request: Request) -> Made:
    """R@1 by the fine labels, which are judged, and by those trained on."""
    study = STUDIES[dataset["study"]]
    trained = study.train(request, _METHODS)
    split = "test" if request.scale == "smoke" else dataset["split"]
    columns = [
        Column(f"{dataset['fine']} R@1", split, fine=True, k=1),
        Column(f"{dataset['coarse']} R@1", split, k=1),
    ]
    nothing = dict.fromkeys(trained.runs, [None] * len(columns))  # the paper has no such table
    scores = [
        score if score.metric == columns[0].title else replace(score, than=None)
        for score in method_scores(trained, columns, nothing)
    ]
    fine = {s.method: s for s in scores if s.metric == columns[0].title}
    easy, plain = ([fine[start + loss].ours for loss in _LOSSES] for start in ("EPS + ", ""))
    claims = [
        gain_claim(f"{loss} → EPS + {loss}", _CLAIM, with_eps, without)
        for loss, with_eps, without in zip(_LOSSES, easy, plain, strict=True)
    ]
    together = ([value for runs in scores for value in runs] for scores in (easy, plain))
    claims.append(gain_claim("the four losses together", _CLAIM, *together))
    return publish(
        request,
        f"Coarse to fine, beyond the paper. {dataset['title']}",
        Comparison(scores, claims),
        about=trained.about(request),
        notes=[*trained.notes, _NOTE],
        file=f"{request.item}-{study.name.removeprefix('coarse-')}",
    )


COARSE_TO_FINE = Item.of("coarse-to-fine", _make)
