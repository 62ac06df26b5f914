"""Which figure tells, without fine labels, that the modes of a class have merged: EPS §4, §5.

python benchmarks/class_collapse.py --data digits clinc         runs, cached in out/class_collapse
python benchmarks/class_collapse.py --data digits clinc --table  the figures judged on cached runs

Short runs on coarse labels with hidden fine ones. Truth: how often a row's nearest neighbour inside
its class shares its fine label, above chance, as a share of what it was at the start. MNIST and
Omniglot need UNCOLLAPSE_DATA, CLINC150 and CUB the files of `real_features.py` in out/features.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse.data import load
from uncollapse.health import measure
from uncollapse.losses import ContrastiveLoss, Loss, MultiSimilarityLoss, TripletLoss
from uncollapse.metrics import modes_per_class
from uncollapse.mining import Miner, NoTripletsWarning

OUT = Path("out/class_collapse")
KS = (3, 5, 10)
LOST = 0.7  # fine agreement above chance that must be left
ROWS = 1000
FEW = tuple(
    f"{where} {how}"
    for where in ("free", "sphere")
    for how in ("easy x semihard", "random x semihard", "random x random, margin 1", "contrastive")
)
MINED = (
    ("easy", "semihard"),
    ("easy", "hard"),
    ("random", "semihard"),
    ("random", "random"),
    ("hard", "semihard"),
    ("inside", "semihard"),
)


class Data(NamedTuple):
    """Inputs with labels; rows to train on and rows to judge by; the shape of a batch."""

    x: Tensor
    labels: Tensor
    fine: Tensor
    train: Tensor
    judged: Tensor
    p: int
    k: int
    steps: int
    model: Callable[[int], nn.Module]


def digits() -> Data:
    data = load("digits", split="all")
    x, fine = data[torch.arange(len(data))]
    rows = torch.arange(len(x))
    return Data(x, fine % 2, fine, rows[:1198], rows[1198:], 2, 60, 600, _perceptron(64, 128))


def mnist() -> Data:
    data = load("mnist", split="train")
    x, fine = data[torch.arange(8000)]
    rows = torch.arange(8000)
    return Data(x, fine % 2, fine, rows[:7000], rows[7000:], 2, 60, 300, _perceptron(784, 256))


def omniglot() -> Data:
    parts = []
    for split, alphabets in (("train", 12), ("test", 8)):
        data = load("omniglot", split=split, size=28)
        some = torch.isin(data.labels, data.labels.unique()[:alphabets]).nonzero().flatten()
        parts.append((data[some][0], data.labels[some], data.fine_labels[some]))
    x, labels, fine = (torch.cat([part[i] for part in parts]) for i in range(3))
    seen, generator = len(parts[0][0]), torch.Generator().manual_seed(0)
    judged = _some_letters(labels, fine, seen, generator)
    return Data(x, labels, fine, torch.arange(seen), judged, 4, 30, 200, _perceptron(784, 256))


def clinc() -> Data:
    return _features("minilm-clinc150.npz", 5, 20, lambda table: table["splits"] == "train")


def cub() -> Data:
    return _features("lite0-cub200.npz", 10, 12, None)


DATA = {"digits": digits, "mnist": mnist, "omniglot": omniglot, "clinc": clinc, "cub": cub}


def strategies(seed: int) -> dict[str, Callable[[], Loss]]:
    """Losses and miners, by name; a word for the sphere first."""

    def triplet(positives: str, negatives: str, margin: float, normalize: bool) -> Loss:
        miner = Miner(positives, negatives, generator=torch.Generator().manual_seed(seed))
        return TripletLoss(margin=margin, miner=miner, normalize=normalize)

    found: dict[str, Callable[[], Loss]] = {}
    for sphere in (False, True):
        where = "sphere" if sphere else "free"
        for p, n in MINED:
            found[f"{where} {p} x {n}"] = lambda p=p, n=n, s=sphere: triplet(p, n, 0.2, s)
        wide = f"{where} random x random, margin 1"
        found[wide] = lambda s=sphere: triplet("random", "random", 1.0, s)
        found[f"{where} contrastive"] = lambda s=sphere: ContrastiveLoss(margin=1.0, normalize=s)
    found["sphere multi-similarity"] = MultiSimilarityLoss
    return found


def run(
    name: str, data: Data, strategy: str, dim: int, seed: int, modes: bool
) -> Iterator[dict[str, Any]]:
    """Figures of the judged rows at some steps, beside those of the start."""
    torch.manual_seed(seed)
    model, loss_fn = data.model(dim), strategies(seed)[strategy]()
    sphere = strategy.startswith("sphere")
    optimiser = torch.optim.Adam([*model.parameters(), *loss_fn.parameters()], 1e-3)
    members = [data.train[data.labels[data.train] == c] for c in data.labels[data.train].unique()]
    coarse, fine = data.labels[data.judged].numpy(), data.fine[data.judged].numpy()
    x = data.x[data.judged].float()
    start = _embed(model, x, sphere)
    seen = Start(start, coarse, fine)
    at = {data.steps // 8, data.steps // 3, data.steps}
    for step in range(1, data.steps + 1):
        classes = torch.randperm(len(members))[: data.p].tolist()
        batch = torch.cat([members[c][torch.randperm(len(members[c]))[: data.k]] for c in classes])
        loss = loss_fn(model(data.x[batch].float()), data.labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step in at:
            key = {"data": name, "strategy": strategy, "dim": dim, "seed": seed, "step": step}
            yield (
                key
                | {"last": step == data.steps}
                | seen.figures(_embed(model, x, sphere), modes=modes and step == data.steps)
            )


class Start:
    """Rows of an untrained network, and every candidate figure of the same rows later."""

    def __init__(self, z: Tensor, labels: Any, fine: Any) -> None:
        self.z, self.labels, self.fine = z, labels, fine
        self.members = [np.flatnonzero(labels == c) for c in np.unique(labels)]
        self.members = [rows for rows in self.members if len(rows) > 3 * max(KS)]
        self.order = [_order(z[rows]) for rows in self.members]
        self.health = measure(z, labels, modes=False)
        self.own = {k: _held(z, self.members, self.order, k) for k in KS}
        self.excess = self._excess(z, self.order, KS[1])
        self.agreement, self.chance = _agreement(self.order, self.members, fine)

    def figures(self, z: Tensor, *, modes: bool) -> dict[str, Any]:
        """All of them, by name."""
        order = [_order(z[rows]) for rows in self.members]
        agreement, chance = _agreement(order, self.members, self.fine)
        now = measure(z, self.labels, reference=self.health, modes=False)
        found = {
            "start": self.agreement,
            "now": agreement,
            "chance": chance,
            "kept": (agreement - chance) / max(self.agreement - chance, 1e-9),
            "verdict": now.verdict,
            "r1": now.agreement,
            "tightness": _median(now) / _median(self.health),
            "tightness now": _median(now),
            "within share": now.within_share / self.health.within_share,
            "cdnv": now.cdnv / self.health.cdnv,
            "modes": float(np.nanmean(self._modes(z) / self._modes(self.z))) if modes else math.nan,
        }
        for k in KS:
            excess = self._excess(z, order, k) if k == KS[1] else math.nan
            held = _held(z, self.members, self.order, k)
            found |= {
                f"overlap {k}": _overlap(self.order, order, k),
                f"rank {k}": _rank(self.order, order, k),
                f"held {k}": held / self.own[k],
                f"own {k}": _held(z, self.members, order, k) / self.own[k],
                f"excess {k}": excess,
                f"excess ratio {k}": excess / max(self.excess, 0.02),
                f"held or excess {k}": np.maximum(
                    held / self.own[k], excess / max(self.excess, 0.02)
                ),
            }
        return found

    def _modes(self, z: Tensor) -> Any:
        return modes_per_class(z, self.labels, max_points=80).modes

    def _excess(self, z: Tensor, order: list[Any], k: int) -> float:
        """What neighbourhoods hold beyond Gaussian rows of the same covariance, by class."""
        values = []
        for rows, near in zip(self.members, order, strict=True):
            own = z[rows].double() - z[rows].double().mean(0)
            _, sizes, axes = torch.linalg.svd(own, full_matrices=False)
            noise = torch.randn(len(rows), len(sizes), generator=torch.Generator().manual_seed(0))
            flat = (noise.double() * sizes / math.sqrt(len(rows))) @ axes
            flat = flat - flat.mean(0)
            every = [np.arange(len(rows))]
            real, null = _held(own, every, [near], k), _held(flat, every, [_order(flat)], k)
            values.append((real - null) / max(1 - null, 1e-3))
        return float(np.mean(values))


def _order(z: Tensor) -> Any:
    x = z.double() - z.double().mean(0)
    distance = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    distance.fill_diagonal_(math.inf)
    return distance.argsort(dim=1, stable=True)[:, :-1].numpy()


def _agreement(order: list[Any], members: list[Any], fine: Any) -> tuple[float, float]:
    hits, chances = [], []
    for near, rows in zip(order, members, strict=True):
        own = fine[rows]
        hits.append(own[near[:, 0]] == own)
        chances.append(((own[:, None] == own).sum(1) - 1) / (len(own) - 1))
    return float(np.concatenate(hits).mean()), float(np.concatenate(chances).mean())


def _overlap(then: list[Any], now: list[Any], k: int) -> float:
    """Share of the first k neighbours that are among the k now, above chance."""
    values = []
    for a, b in zip(then, now, strict=True):
        share = (a[:, :k, None] == b[:, None, :k]).any(2).mean()
        values.append((share - k / a.shape[1]) / (1 - k / a.shape[1]))
    return float(np.mean(values))


def _rank(then: list[Any], now: list[Any], k: int) -> float:
    """How often a first neighbour is nearer now than a random row of the class; 1/2 is chance."""
    values = []
    for a, b in zip(then, now, strict=True):
        place = np.argsort(np.concatenate([np.arange(len(b))[:, None], b], 1), axis=1)
        rank = np.take_along_axis(place, a[:, :k], 1) - 1
        values.append(1 - rank.mean() / (b.shape[1] - 1))
    return float(np.mean(values))


def _held(z: Tensor, members: list[Any], order: list[Any], k: int) -> float:
    """Share of the variance inside classes that means of neighbourhoods hold, above chance."""
    held = total = 0.0
    for rows, near in zip(members, order, strict=True):
        own = z[rows].double() - z[rows].double().mean(0)
        means = (own + own[near[:, :k]].sum(1)) / (k + 1)
        total += float(own.square().sum())
        held += float((means - means.mean(0)).square().sum())
    share, chance = held / max(total, 1e-300), 1 / (k + 1)
    return (share - chance) / (1 - chance)


def _median(health: Any) -> float:
    return float(np.nanmedian([one.tightness for one in health.classes]))


def _embed(model: nn.Module, x: Tensor, sphere: bool) -> Tensor:
    model.eval()
    with torch.no_grad():
        z = model(x)
    model.train()
    return nn.functional.normalize(z, dim=1) if sphere else z


def _perceptron(width: int, hidden: int) -> Callable[[int], nn.Module]:
    return lambda dim: nn.Sequential(
        nn.Flatten(), nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, dim)
    )


def _features(file: str, p: int, k: int, chosen: Any) -> Data:
    with np.load(Path("out/features") / file) as table:
        x = torch.from_numpy(table["embeddings"]).float()
        labels, fine = (
            torch.from_numpy(np.unique(table[key], return_inverse=True)[1])
            for key in ("labels", "fine_labels")
        )
        generator = torch.Generator().manual_seed(0)
        first = torch.rand(len(x), generator=generator) < 0.7
        known = first if chosen is None else torch.from_numpy(chosen(table))
    judged = _some_letters(labels, fine, 0, generator, (~known).nonzero().flatten())
    return Data(
        x, labels, fine, known.nonzero().flatten(), judged, p, k, 200, _perceptron(x.shape[1], 256)
    )


def _some_letters(
    labels: Tensor, fine: Tensor, first: int, generator: torch.Generator, of: Tensor | None = None
) -> Tensor:
    """At most ROWS rows: whole classes with many of their fine classes, ten rows of each."""
    rows = torch.arange(first, len(labels)) if of is None else of
    picked = []
    for f in fine[rows].unique():
        own = rows[fine[rows] == f]
        picked.append(own[torch.randperm(len(own), generator=generator)[:10]])
    found = torch.cat(picked)
    kept = torch.cat([found[labels[found] == c][:200] for c in labels[found].unique()])
    return kept[: 2 * ROWS]


def auc(scores: Any, positive: Any) -> float:
    """Probability that a positive has the lower score; ties are half."""
    low, high = scores[positive], scores[~positive]
    if not len(low) or not len(high):
        return math.nan
    return float(((low[:, None] < high) + 0.5 * (low[:, None] == high)).mean())


def table(names: list[str]) -> None:
    entries = [json.loads(line) for name in names for line in _file(name).read_text().splitlines()]
    entries = [one for one in entries if one["verdict"] != "network-collapse"]
    figures = [key for key, value in entries[0].items() if isinstance(value, float)]
    figures = [key for key in figures if key not in ("start", "now", "chance", "kept")]
    print(f"{len(entries)} states of {sum(one['last'] for one in entries)} runs")
    groups = {name: [one for one in entries if one["data"] == name] for name in names}
    groups |= {"all": entries}
    print("| figure | " + " | ".join(groups) + " |")
    print("|---" * (len(groups) + 1) + "|")
    for figure in figures:
        cells = []
        for group in groups.values():
            known = [one for one in group if not math.isnan(one[figure])]
            if not known:
                break
            scores, kept = (np.array([one[key] for one in known]) for key in (figure, "kept"))
            lost, ranked = kept < LOST, _correlation(scores, kept)
            cells.append(f"{auc(scores, lost):.3f} ({ranked:+.2f})")
        print(f"| {figure} | " + " | ".join(cells) + " |")
    for name, group in groups.items():
        print(name, sum(one["kept"] < LOST for one in group), "of", len(group), "lost")


def _correlation(a: Any, b: Any) -> float:
    return float(np.corrcoef(np.argsort(np.argsort(a)), np.argsort(np.argsort(b)))[0, 1])


def _file(name: str) -> Path:
    return OUT / f"{name}.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=DATA, default=["digits"])
    parser.add_argument("--dims", nargs="+", type=int, default=[16, 64])
    parser.add_argument("--modes", action="store_true", help="count the modes too: slow")
    parser.add_argument("--few", action="store_true", help="four ways to train, not eight")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NoTripletsWarning)
    if given.table:
        table(given.data)
        return
    OUT.mkdir(parents=True, exist_ok=True)
    for name in given.data:
        data = DATA[name]()
        with _file(name).open("w") as file:
            for seed in range(given.seeds):
                for dim in given.dims:
                    for strategy in FEW if given.few else strategies(seed):
                        begun = time.perf_counter()
                        for entry in run(name, data, strategy, dim, seed, given.modes):
                            file.write(json.dumps(entry) + "\n")
                            file.flush()
                        print(
                            f"{name} {strategy} d={dim}: {time.perf_counter() - begun:.0f} s, "
                            f"{entry['start']:.3f} -> {entry['now']:.3f} kept {entry['kept']:.2f} "
                            f"(chance {entry['chance']:.2f}), {entry['verdict']}, held "
                            f"{entry['held 5']:.2f}, overlap {entry['overlap 5']:.2f}, excess "
                            f"{entry['excess ratio 5']:.2f}",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
