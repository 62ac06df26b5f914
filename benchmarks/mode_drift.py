"""Mode drift of losses and miners on batches of real images through an untrained network.

python benchmarks/mode_drift.py          digits by parity, which come with scikit-learn
python benchmarks/mode_drift.py --all    Omniglot alphabets and MNIST parity too (UNCOLLAPSE_DATA)
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from uncollapse.data import LabelledImages, load
from uncollapse.health import drift, mode_drift
from uncollapse.losses import (
    ContrastiveLoss,
    Loss,
    MarginLoss,
    MultiSimilarityLoss,
    NPairLoss,
    ProxyNCALoss,
    SupConLoss,
    TrimmedLoss,
    TripletLoss,
)
from uncollapse.mining import Miner

POSITIVES, NEGATIVES = ("easy", "inside", "random", "hard"), ("semihard", "hard", "random")
BATCHES = 4


class Setting(NamedTuple):
    """Images with coarse labels, the shape of a batch, and where the embedding lives."""

    name: str
    images: LabelledImages
    rows: Tensor
    labels: Tensor
    p: int
    k: int
    dim: int
    sphere: bool


def digits_by_parity() -> Setting:
    return _parity("digits by parity, plane", load("digits"), 10)


def omniglot() -> Setting:
    data = load("omniglot", split="train", size=32)
    rows = torch.arange(len(data))
    return Setting("Omniglot alphabets, sphere", data, rows, data.labels, 4, 40, 64, True)


def mnist_by_parity() -> Setting:
    return _parity("MNIST digits 0 to 5 by parity, plane", load("mnist"), 6)


def strategies(sphere: bool) -> Iterator[tuple[str, Loss]]:
    for p in POSITIVES:
        for n in NEGATIVES:
            miner = Miner(p, n, generator=torch.Generator().manual_seed(1))
            yield f"{p} x {n}", TripletLoss(margin=0.2, miner=miner)
    if not sphere:
        yield "contrastive", ContrastiveLoss(margin=1.0)
        yield "N-pair", NPairLoss()
        return
    yield "SupCon", SupConLoss()
    yield "SupCon, easy x all", SupConLoss(miner=Miner("easy", "all"))
    yield "multi-similarity", MultiSimilarityLoss()
    yield "multi-similarity, easy x all", MultiSimilarityLoss(miner=Miner("easy", "all"))
    yield "margin", MarginLoss()
    yield "margin, easy x all", MarginLoss(miner=Miner("easy", "all"))
    yield "contrastive", ContrastiveLoss(margin=1.0)
    yield "contrastive, easy x hard", ContrastiveLoss(margin=1.0, miner=Miner("easy", "hard"))
    yield "N-pair", NPairLoss()
    for per_class in (1, 10):
        generator = torch.Generator().manual_seed(1)
        proxies = ProxyNCALoss(num_classes=30, dim=64, per_class=per_class, generator=generator)
        yield f"ProxyNCA, {per_class} per class", proxies
    every = TripletLoss(margin=0.2, miner=Miner("all", "semihard"))
    yield "all x semihard", every
    trimmed = TrimmedLoss(every, fraction=0.1, on="positives")
    yield "all x semihard, trimmed on positives to 0.1", trimmed


def embedded(setting: Setting, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches through four convolution blocks as they begin."""
    torch.manual_seed(seed)
    blocks: list[nn.Module] = []
    for channels in (1, 32, 32, 32):
        blocks += [nn.Conv2d(channels, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
        blocks += [nn.MaxPool2d(2, ceil_mode=True)]
    model = nn.Sequential(*blocks, nn.Flatten(), nn.LazyLinear(setting.dim))
    generator = torch.Generator().manual_seed(seed)
    classes = setting.labels.unique()
    for _ in range(BATCHES):
        chosen = classes[torch.randperm(len(classes), generator=generator)[: setting.p]]
        members = [(setting.labels == c).nonzero().flatten() for c in chosen]
        picks = [m[torch.randperm(len(m), generator=generator)[: setting.k]] for m in members]
        batch = torch.cat(picks)
        with torch.no_grad():
            z = model(setting.images[setting.rows[batch]][0].float())
        yield (nn.functional.normalize(z, dim=1) if setting.sphere else z), setting.labels[batch]


def table(setting: Setting, seed: int) -> None:
    batches = list(embedded(setting, seed))
    print(f"\n{setting.name}: P {setting.p}, K {setting.k}, d {setting.dim}, seed {seed}\n")
    print("| positives x negatives | mode drift | exact | inside | radial drift |")
    print("|---|---|---|---|---|")
    for name, loss_fn in strategies(setting.sphere):
        found = mode_drift(loss_fn, batches, normalize=setting.sphere)
        whole = drift(loss_fn, batches, normalize=setting.sphere)
        print(
            f"| {name} | {found.value:+.2f} ± {found.spread:.2f} | {found.exact:+.2f} "
            f"| {found.inside:+.2f} | {whole.value:+.2f} |",
            flush=True,
        )


def _parity(name: str, data: LabelledImages, below: int) -> Setting:
    rows = (data.labels < below).nonzero().flatten()[:6000]
    return Setting(name, data, rows, data.labels[rows] % 2, 2, 80, 2, False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    makers = (digits_by_parity, omniglot, mnist_by_parity) if given.all else (digits_by_parity,)
    for make in makers:
        table(make(), given.seed)
