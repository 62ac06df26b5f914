"""What wrong labels do to the classes of a network: regular against easy positives, EPS §4.

    python benchmarks/label_noise.py      # the table of docs/noise.md, on digits 0 to 5

Each training of a noise level starts from the same weights, and sees odd and even only.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from uncollapse.data import load
from uncollapse.losses import TripletLoss
from uncollapse.metrics import retrieval
from uncollapse.mining import Miner
from uncollapse.noise import NoiseModel
from uncollapse.samplers import PKSampler

STEPS, SAMPLES_PER_CLASS, MARGIN, LR = 200, 16, 0.2, 1e-3


def trained(x: Tensor, labels: Tensor, positives: str, seed: int) -> Tensor:
    """Embeddings of `x` by a network that was trained with these labels."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(x.shape[1], 128), nn.ReLU(), nn.Linear(128, 16))
    optimizer = torch.optim.Adam(network.parameters(), lr=LR)
    generator = torch.Generator().manual_seed(seed)
    miner = Miner(positives, "semihard", margin=MARGIN, generator=generator)
    loss_fn = TripletLoss(margin=MARGIN, miner=miner)
    sampler = PKSampler(labels, p=2, k=SAMPLES_PER_CLASS, seed=seed)
    batches = itertools.chain.from_iterable(itertools.repeat(sampler))
    for rows in itertools.islice(batches, STEPS):
        loss = loss_fn(network(x[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        embeddings: Tensor = network(x).double()
    return embeddings


def spread_inside(z: Tensor, labels: Tensor) -> float:
    """Mean distance to the class mean, over the mean distance to the mean of all."""
    inside = [mean_radius(z[labels == c]) for c in labels.unique()]
    return sum(inside) / len(inside) / mean_radius(z)


def mean_radius(z: Tensor) -> float:
    return float(torch.linalg.vector_norm(z - z.mean(0), dim=1).mean())


def main() -> None:
    data = load("digits", split="train")
    rows = torch.nonzero(data.labels < 6).flatten()
    images, digits = data[rows]
    x, labels = images.flatten(1), digits % 2
    print("| p | spread, regular | spread, easy | digit R@1, regular | digit R@1, easy |")
    print("|---|---|---|---|---|")
    for p in (1.0, 0.9, 0.8, 0.7):
        spreads, recalls = [], []
        for positives in ("random", "easy"):
            embedded = []
            for seed in range(3):
                generator = torch.Generator().manual_seed(seed)
                noisy = NoiseModel(2, p).sample(labels, generator)
                embedded.append(trained(x, noisy, positives, seed))
            spreads.append(sum(spread_inside(z, labels) for z in embedded) / 3)
            recalls.append(sum(retrieval(z, digits, ks=(1,)).recall[1] for z in embedded) / 3)
        cells = [f"{spread:.2f}" for spread in spreads] + [f"{100 * r:.1f}" for r in recalls]
        print(f"| {p} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
