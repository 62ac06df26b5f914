"""EPS's tables: methods trained, scored and set beside the paper's numbers (`tables.toml`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from uncollapse._base.check import InputError
from uncollapse.data import DataError, describe
from uncollapse.papers.comparison import Finding, Score, Scorecard, before_table, publish, spread
from uncollapse.papers.eps.scores import (
    STUDIES,
    TABLES,
    Column,
    columns,
    gain_claim,
    method_scores,
    paired_claim,
    paired_gain,
    some_methods,
)
from uncollapse.papers.items import Made, Request
from uncollapse.papers.study import Trained

LOSSES = ("Trip. + SH", "Dist-Margin", "MS", "SupCon")  # of coarse-to-fine
_CLAIM = "EPS is better"
_NOTE = (
    "This table is not in the paper. The test of the four losses together takes their pairs of "
    "runs (with and without EPS, same seed) as independent."
)


def make(request: Request) -> Made:
    """A table of `tables.toml`, part by part."""
    table = TABLES[request.item]
    made = []
    for part in table["parts"]:
        paper = {method: _known(numbers) for method, numbers in part["paper"].items()}
        trained = STUDIES[part["study"]].train(request, some_methods(*paper))
        shown = [column for group in part["columns"] for column in columns(**group)]
        title = ", ".join([table["title"], *([part["heading"]] if "heading" in part else [])])
        claims = _gains(trained, paper, shown[0]) if part.get("gains") else []
        comparison = Scorecard(method_scores(trained, shown, paper), claims)
        made.append(publish(request, title, comparison, [trained], file=part.get("file", "")))
    return _together(made)


def _gains(
    trained: Trained, paper: Mapping[str, Sequence[float | None]], column: Column
) -> list[Finding]:
    """What easy positives add to R@1 of each loss, and of all losses that have both."""
    runs, pairs, claims = trained.runs, [], []
    for easy in (method for method in paper if method.startswith("EPS + ")):
        plain = easy.removeprefix("EPS + ")
        pairs.append((runs[easy], runs[plain]))
        theirs = [paper[method][0] for method in (easy, plain)]
        says = "" if None in theirs else f"{theirs[0] - theirs[1]:+.1f}"  # type: ignore[operator]
        claims.append(paired_claim(f"{plain} → {easy}", says, paired_gain(pairs[-1:], column)))
    if len(pairs) > 1:
        together = paired_gain(pairs, column)
        claims.append(paired_claim(f"the {len(pairs)} losses together", "a gain", together))
    return claims


def _known(numbers: Sequence[float]) -> list[float | None]:
    """The paper's numbers; None for those that are not legible."""
    return [None if math.isnan(number) else number for number in numbers]


def _together(made: Sequence[Made]) -> Made:
    files = [path for part in made for path in part.files]
    return Made(files, [page for part in made for page in part.pages])


def table5(request: Request) -> Made:
    """How far Recall@1 spreads over seeds, and whether EPS's gain is beyond it."""
    scores: list[Score] = []
    claims: list[Finding] = []
    shown: list[Score] = []
    notes, trained = [], []
    missing = DataError("no study")
    for rows in TABLES["table5"]:
        title, study = rows["title"], STUDIES[rows["study"]]
        with_eps = [f"EPS + {loss}" for loss in rows["paper"]]
        try:
            last = study.train(request, some_methods(*rows["paper"], *with_eps))
        except InputError as error:
            notes.append(f"{title} is left out: {error}")
            continue
        except DataError as error:
            missing = error
            name = study.setups[request.scale][0].config["data"]["name"]
            notes.append(f"{title} is left out: no copy found. Get it from {describe(name).home}")
            continue
        trained.append(last)
        recall = Column("R@1", "test", rows.get("fine", False), k=1)
        by_method = {score.method: score for score in method_scores(last, [recall])}
        shown += [replace(score, method=f"{title}, {name}") for name, score in by_method.items()]
        for loss, paper in rows["paper"].items():
            plain, easy = (by_method[method].ours for method in (loss, f"EPS + {loss}"))
            stds = zip(("without", "with"), (plain, easy), _known(paper), strict=True)
            for word, ours, std in stds:
                metric = f"std {word} EPS"
                scores.append(Score(f"{title}, {loss}", metric, std, [spread(ours)[1]]))
            claims.append(gain_claim(f"{title}, EPS + {loss}", "significant", easy, plain))
    if not trained:
        raise missing
    return publish(
        request,
        "EPS Table 5: spread of R@1 over seeds",
        Scorecard(scores, claims, decimals=2),
        trained,
        notes=notes,
        more=[before_table(shown, "R@1 before training and at the end")],
    )


# Beyond the paper: four real datasets, EPS's losses and SupCon, five seeds. Training sees coarse
# labels alone (odd or even, alphabet, domain, make); what is judged is R@1 by the fine ones (digit,
# letter, intent, model), beside the network before training.


def coarse_to_fine(request: Request) -> Made:
    """The datasets that are there."""
    made: list[Made] = []
    missing: list[DataError] = []
    for dataset in TABLES["coarse"]:
        if request.scale not in STUDIES[dataset["study"]].setups:
            continue
        try:
            made.append(_make_dataset(dataset, request))
        except DataError as error:
            missing.append(error)
    if not made:
        raise missing[0]
    return _together(made)


def _make_dataset(dataset: Mapping[str, Any], request: Request) -> Made:
    """R@1 by the fine labels, which are judged, and by those trained on."""
    study = STUDIES[dataset["study"]]
    methods = some_methods(*LOSSES, "ProxyNCA", *(f"EPS + {loss}" for loss in LOSSES))
    trained = study.train(request, methods)
    split = "test" if request.scale == "smoke" else dataset["split"]
    fine = Column(f"{dataset['fine']} R@1", split, fine=True, k=1)
    coarse = Column(f"{dataset['coarse']} R@1", split, k=1)
    nothing = {method: [None, None] for method in trained.runs}  # the paper has no such table
    scores = [
        score if score.metric == fine.title else replace(score, than=None)
        for score in method_scores(trained, [fine, coarse], nothing)
    ]
    ours = {score.method: score.ours for score in scores if score.metric == fine.title}
    pairs = {f"{loss} → EPS + {loss}": (ours[f"EPS + {loss}"], ours[loss]) for loss in LOSSES}
    easy, plain = ([value for pair in pairs.values() for value in pair[i]] for i in (0, 1))
    claims = [gain_claim(what, _CLAIM, *pair) for what, pair in pairs.items()]
    claims.append(gain_claim("the four losses together", _CLAIM, easy, plain))
    return publish(
        request,
        f"Coarse to fine, beyond the paper. {dataset['title']}",
        Scorecard(scores, claims),
        [trained],
        notes=[_NOTE],
        file=f"{request.item}-{study.name.removeprefix('coarse-')}",
    )


class LettersNet(nn.Module):
    """Three convolutions (32, 64, 64), each batch norm and ReLU, and a linear layer; for 28 x 28.

    The first two have stride 2, so that a batch of 160 takes well under 0.1 s on one core. The last
    maps, 3 x 3, are not averaged: where a stroke is matters to a letter.

    >>> net = LettersNet(dim=128)
    >>> tuple(net(torch.zeros(2, 1, 28, 28)).shape), sum(p.numel() for p in net.parameters())
    ((2, 128), 130432)
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(1, 32, 5, stride=2, padding=2), nn.BatchNorm2d(32), nn.ReLU()),
            *(nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
            *(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
            *(nn.MaxPool2d(2), nn.Flatten()),
        )
        self.linear = nn.Linear(64 * 3 * 3, dim)
        # On a CPU a step takes about 0.7 of the time that way.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        """`[B, 1, 28, 28]` to `[B, dim]`."""
        z: Tensor = self.linear(self.body(images))
        return z


letters_net = LettersNet  # the name in the configs of runs
