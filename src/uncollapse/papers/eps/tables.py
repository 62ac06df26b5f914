"""EPS's tables: methods trained, scored and set beside the paper's numbers (`tables.toml`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from uncollapse.data import DataError, describe
from uncollapse.papers._compare import (
    Claim,
    Comparison,
    Score,
    before_table,
    publish,
    spread,
)
from uncollapse.papers._item import Item, Made, Request
from uncollapse.papers._study import Trained, about_together
from uncollapse.papers.eps._scores import (
    STUDIES,
    TABLES,
    Column,
    columns,
    gain_claim,
    method_scores,
    some_methods,
    start_and_end,
)

__all__ = ["EPS_TABLES", "LettersNet"]


def _make_table(table: Mapping[str, Any], request: Request) -> Made:
    made = [_make_part(table["title"], part, request) for part in table["parts"]]
    files = [path for part in made for path in part.files]
    return Made(files, [page for part in made for page in part.pages])


def _make_part(title: str, part: Mapping[str, Any], request: Request) -> Made:
    paper = {method: _known(numbers) for method, numbers in part["paper"].items()}
    trained = STUDIES[part["study"]].train(request, some_methods(*paper))
    shown = [column for group in part["columns"] for column in columns(**group)]
    heading = part.get("heading", "")
    return publish(
        request,
        f"{title}, {heading}" if heading else title,
        Comparison(method_scores(trained, shown, paper)),
        about=trained.about(request),
        notes=trained.notes,
        file=part.get("file", ""),
    )


def _known(numbers: Sequence[float]) -> list[float | None]:
    """The paper's numbers; None for those that are not legible."""
    return [None if math.isnan(number) else number for number in numbers]


# EPS Table 5: how far Recall@1 spreads over seeds, and whether EPS's gain is beyond it.


def _make_table5(request: Request) -> Made:
    scores: list[Score] = []
    claims: list[Claim] = []
    shown: list[Score] = []
    notes: list[str] = []
    trained: list[Trained] = []
    missing = DataError("no study")
    for rows in TABLES["table5"]:
        title, study = rows["title"], STUDIES[rows["study"]]
        with_eps = [f"EPS + {loss}" for loss in rows["paper"]]
        try:
            last = study.train(request, some_methods(*rows["paper"], *with_eps))
        except DataError as error:
            missing = error
            name = study.setups[request.scale][0].config["data"]["name"]
            notes.append(f"{title} is left out: no copy found. Get it from {describe(name).home}")
            continue
        trained.append(last)
        by_method = start_and_end(last, Column("R@1", "test", rows.get("fine", False), k=1))
        shown += [replace(score, method=f"{title}, {score.method}") for score in by_method]
        end = {score.method: score.ours for score in by_method}
        for loss, paper in rows["paper"].items():
            eps = f"EPS + {loss}"
            for word, method, std in zip(
                ("without", "with"), (loss, eps), _known(paper), strict=True
            ):
                ours = [spread(end[method])[1]]
                scores.append(Score(f"{title}, {loss}", f"std {word} EPS", std, ours))
            claims.append(gain_claim(f"{title}, {eps}", "significant", end[eps], end[loss]))
    if not trained:
        raise missing
    return publish(
        request,
        "EPS Table 5: spread of R@1 over seeds",
        Comparison(scores, claims, decimals=2),
        about=about_together(trained, request),
        notes=[*dict.fromkeys(note for study in trained for note in study.notes), *notes],
        more=[before_table(shown, "R@1 before training and at the end")],
    )


EPS_TABLES = [
    Item.of(name, partial(_make_table, TABLES[name]))
    for name in ("table1", "table2", "table3", "table4", "table6")
]
EPS_TABLES.append(Item.of("table5", _make_table5))


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
