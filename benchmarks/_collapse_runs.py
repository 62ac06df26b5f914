"""Short real runs that collapse in each known way, or do not: snapshots of held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse._base.files import written_aside
from uncollapse.data import load
from uncollapse.losses import ContrastiveLoss, Loss, ProxyNCALoss, SupConLoss, TripletLoss
from uncollapse.mining import Miner
from uncollapse.samplers import PKSampler

FEATURES = Path("out/features")
HELD = 500  # rows that every snapshot is of
STEPS = (*range(0, 20, 2), *range(20, 100, 10), *range(100, 301, 20))
HIDDEN = 128


class Rows(NamedTuple):
    """Inputs with coarse and fine labels."""

    x: Tensor
    coarse: np.ndarray
    fine: np.ndarray

    def at(self, rows: np.ndarray) -> Rows:
        return Rows(self.x[torch.from_numpy(rows)], self.coarse[rows], self.fine[rows])


@dataclass(frozen=True)
class Setting:
    """One run: `kind` is the collapse it is meant to show, or `healthy`."""

    kind: str
    data: str
    loss: str
    labels: str = "fine"
    unit: bool = False
    lr: float = 1e-3
    p: int = 16
    k: int = 4
    offset: float = 0.0
    depth: int = 0
    scale: float = 1.0
    noise: float = 0.0
    dim: int = 64
    seed: int = 0

    @property
    def name(self) -> str:
        """Of its file."""
        words = (self.kind, self.data, self.loss, self.labels, "unit" if self.unit else "free")
        more = f"lr{self.lr:g} p{self.p} k{self.k} o{self.offset:g} d{self.depth} x{self.scale:g}"
        more += f" n{self.noise:g} dim{self.dim}"
        return f"{' '.join(words)} {more} s{self.seed}".replace(" ", "_")


class Snapshots(NamedTuple):
    """Embeddings of the held-out rows at each step, and their labels."""

    steps: np.ndarray
    embeddings: np.ndarray
    coarse: np.ndarray
    fine: np.ndarray


def settings(datasets: list[str], seeds: int) -> Iterator[Setting]:
    """Every run of the study."""
    for data in datasets:
        for seed in range(seeds):
            for one in (*_collapsing(), *_healthy()):
                yield replace(one, data=data, seed=seed)


def _collapsing() -> tuple[Setting, ...]:
    # Batch-hard with wrong labels: the loss cannot get below its margin but by a point.
    hard = Setting("point at the origin", "", "hard x hard", lr=3e-3, p=16, k=16, noise=0.5)
    coarse = Setting("mode", "", "supcon", "coarse", unit=True, lr=3e-3, p=2, k=64)
    return (
        hard,
        replace(hard, kind="point far out", offset=5.0),
        replace(hard, kind="cone", unit=True, offset=0.3),
        Setting("dimensional", "", "contrastive", lr=3e-4, depth=4),
        replace(coarse, kind="class", loss="proxynca", lr=1e-2),
        replace(coarse, kind="class", loss="contrastive", lr=1e-2),
        coarse,
        replace(coarse, dim=16),
        Setting("uninformative", "", "easy x semihard"),  # labels out of step with the rows
        Setting("diverging", "", "hard x semihard", lr=3.0),
    )


def _healthy() -> tuple[Setting, ...]:
    return (
        Setting("healthy", "", "easy x semihard"),
        Setting("healthy", "", "easy x semihard", unit=True),
        Setting("healthy", "", "easy x hard", unit=True),
        Setting("healthy", "", "random x semihard", unit=True),
        Setting("healthy", "", "easy x semihard", "coarse", unit=True, p=2, k=64),
        Setting("healthy", "", "supcon", unit=True),
        Setting("healthy", "", "proxynca", unit=True),
        Setting("healthy", "", "contrastive"),
        Setting("healthy", "", "easy x semihard", scale=1e-6),  # tiny units
        Setting("healthy", "", "frozen"),  # the features as they come
    )


def snapshots(setting: Setting, folder: Path) -> Snapshots:
    """Those of one run, from its file or trained now."""
    path = folder / f"{setting.name}.npz"
    if path.exists():
        with np.load(path) as kept:
            return Snapshots(**kept)
    found = _run(setting)
    folder.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside, aside.open("wb") as file:
        np.savez(file, **found._asdict())
    return found


def _run(setting: Setting) -> Snapshots:
    train, held = _data(setting.data, setting.seed)
    torch.manual_seed(setting.seed)
    if setting.loss == "frozen":
        still = np.stack([held.x.numpy()] * 2)
        return Snapshots(np.array([0, STEPS[-1]]), still, held.coarse, held.fine)
    labels = train.coarse if setting.labels == "coarse" else train.fine
    if setting.noise:
        rng = np.random.default_rng(setting.seed)
        wrong = rng.random(len(labels)) < setting.noise
        labels = np.where(wrong, rng.permutation(labels), labels)
    model, loss = _head(setting, train.x), _loss(setting, len(np.unique(labels)))
    optimiser = torch.optim.Adam([*model.parameters(), *loss.parameters()], lr=setting.lr)
    p, k = min(setting.p, len(np.unique(labels))), setting.k
    batches = chain.from_iterable(repeat(PKSampler(labels, p, k, setting.seed)))
    kept = []
    for step, rows in zip(range(STEPS[-1] + 1), batches, strict=False):
        if step in STEPS:
            with torch.no_grad():
                kept.append(model(held.x).numpy() * setting.scale)
        z = model(train.x[rows])
        value = loss(z, torch.from_numpy(labels[rows]))
        if not torch.isfinite(value):
            break
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
    coarse, fine = held.coarse, held.fine
    if setting.kind == "uninformative":
        order = np.random.default_rng(setting.seed).permutation(len(fine))
        coarse, fine = coarse[order], fine[order]
    return Snapshots(np.array(STEPS[: len(kept)]), np.stack(kept), coarse, fine)


def _head(setting: Setting, x: Tensor) -> nn.Module:
    dim = setting.dim
    last = nn.Linear(HIDDEN, dim, bias=setting.offset > 0)
    if setting.offset:
        nn.init.normal_(last.bias, std=setting.offset * dim**-0.5)
    layers: list[nn.Module] = [nn.Linear(x.shape[1], HIDDEN), nn.ReLU(), last]
    for _ in range(setting.depth):  # deep and linear: ranks are lost (Jing et al. 2022)
        linear = nn.Linear(dim, dim, bias=False)
        nn.init.normal_(linear.weight, std=0.5 * dim**-0.5)
        layers.append(linear)
    return nn.Sequential(*layers, _Unit() if setting.unit else nn.Identity())


class _Unit(nn.Module):
    def forward(self, z: Tensor) -> Tensor:
        return nn.functional.normalize(z, dim=1)


def _loss(setting: Setting, classes: int) -> Loss:
    makers: dict[str, Callable[[], Loss]] = {
        "supcon": SupConLoss,
        "proxynca": lambda: ProxyNCALoss(num_classes=classes, dim=setting.dim),
        "contrastive": ContrastiveLoss,
    }
    if setting.loss in makers:
        return makers[setting.loss]()
    positives, negatives = setting.loss.split(" x ")
    generator = torch.Generator().manual_seed(setting.seed)
    return TripletLoss(margin=0.2, miner=Miner(positives, negatives, generator=generator))


def available() -> list[str]:
    """Names of the data there is: digits always, features of real networks where written."""
    return ["digits", *(name for name in _FILES if (FEATURES / f"{name}.npz").exists())]


_FILES = ("minilm-clinc150", "lite0-cub200", "lite0-cars196")


@cache
def _data(name: str, seed: int) -> tuple[Rows, Rows]:
    """Rows to train on and others, of the same classes, to look at."""
    rows = _digits() if name == "digits" else _features(name, np.random.default_rng(seed))
    order = np.random.default_rng(seed + 1).permutation(len(rows.fine))
    place = np.empty(len(order), int)  # of each row among those of its fine class
    for c in np.unique(rows.fine):
        members = order[rows.fine[order] == c]
        place[members] = np.arange(len(members))
    held = place < HELD // len(np.unique(rows.fine))
    return rows.at(np.flatnonzero(~held)), rows.at(np.flatnonzero(held))


def _digits() -> Rows:
    images = load("digits")
    x = images[torch.arange(len(images))][0].flatten(1).float()
    fine = (images.labels if images.fine_labels is None else images.fine_labels).numpy()
    return Rows(x, fine % 2, fine)


def _features(name: str, rng: np.random.Generator) -> Rows:
    """Eight classes of five finer ones, or as many as there are of at least three."""
    with np.load(FEATURES / f"{name}.npz") as table:
        x, labels, finer = (table[key] for key in ("embeddings", "labels", "fine_labels"))
    inside = {c: np.unique(finer[labels == c]) for c in np.unique(labels)}
    several = [c for c, names in inside.items() if len(names) >= 3]
    chosen = list(rng.permutation(several)[:8])
    kept = np.concatenate([rng.permutation(inside[c])[:5] for c in chosen])
    rows = np.flatnonzero(np.isin(finer, kept))
    unit = nn.functional.normalize(torch.from_numpy(x[rows]).float(), dim=1)
    ids = (np.unique(names[rows], return_inverse=True)[1] for names in (labels, finer))
    return Rows(unit, *ids)
