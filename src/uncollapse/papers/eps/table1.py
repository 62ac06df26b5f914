"""EPS Table 1: MNIST by odd and even, Recall@k by digit, on digits 0-5 and on unseen 6-9."""

from __future__ import annotations

from pathlib import Path

from uncollapse.papers._beside import Beside, publish
from uncollapse.papers._item import Item, Request
from uncollapse.papers.eps._scores import Column, score_rows
from uncollapse.papers.eps._study import Methods, Trained
from uncollapse.papers.eps.methods import with_mining
from uncollapse.papers.eps.protocols import MNIST, TIMES

__all__ = ["PARITY_METHODS", "TABLE1", "train_parity"]

_LOSS = {"name": "triplet", "margin": 1.0}
# EPS §5.1: the regular loss takes a random positive.
PARITY_METHODS: Methods = {
    "Triplet": with_mining(_LOSS, "random", "semihard"),
    "EPS + Triplet": with_mining(_LOSS, "easy", "semihard"),
}
_COLUMNS = [
    Column(f"{name} digits R@{k}", split, fine=True, k=k)
    for name, split in (("train", "val"), ("test", "test"))
    for k in (1, 5, 10)
]
_PAPER = {
    "Triplet": (42.01, 87.51, 96.56, 35.16, 80.86, 93.26),
    "EPS + Triplet": (65.78, 93.57, 97.38, 42.31, 83.86, 93.61),
}


def train_parity(request: Request) -> Trained:
    """The runs of Table 1 and Fig. 2."""
    return MNIST.train(request, PARITY_METHODS)


def _make(request: Request) -> list[Path]:
    trained = train_parity(request)
    table = Beside(
        "EPS Table 1: MNIST by odd and even, Recall@k by digit",
        score_rows(trained, _COLUMNS, _PAPER, {"EPS + Triplet": "Triplet"}),
        about=trained.about(request, "table1"),
        notes=trained.notes,
    )
    return publish(request, "table1", table)


TABLE1 = Item(
    name="table1",
    summary="EPS Table 1: MNIST by odd and even, R@1, 5, 10 by digit",
    needs="MNIST (smoke: nothing)",
    time=TIMES | {"laptop": "20 minutes", "paper": "hours"},
    make=_make,
    scales=("laptop", "smoke", "paper"),
)
