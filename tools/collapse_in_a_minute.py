"""Watch hard mining collapse a network, and two cures, in about a minute on a laptop.

The data are made up: letters of a few random strokes, drawn by an unsteady hand (each sample moves
the strokes' points, then turns, scales and shifts the letter). 120 letters to learn, 40 others to
be tested on, 20 drawings each. The network is two convolutions and a linear layer without batch
norm, the batches P=18 letters x K=8 drawings, Adam 1e-3, margin 0.2.

- batch-hard (farthest positive, nearest negative): all embeddings go to one point, loss = margin.
- easy positives, hard negatives (EPS): it learns.
- batch-hard, scale-free (distances over their batch mean, inside the gradient): it learns.

    python tools/collapse_in_a_minute.py [--seed 0] [--steps 200]
"""

from __future__ import annotations

import argparse
import math
import time

import torch
from torch import Tensor, nn

from uncollapse import pairwise_distances
from uncollapse.data.letters import SIDE, draw_letters, letter_shapes
from uncollapse.losses import TripletLoss
from uncollapse.mining import Miner

MARGIN, P, K, DRAWINGS = 0.2, 18, 8, 20


def letters(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """`count` letters, each drawn `DRAWINGS` times: images `[n, 1, SIDE, SIDE]` and labels."""
    g = torch.Generator().manual_seed(seed)
    images = draw_letters(letter_shapes(count, g), DRAWINGS, g)
    return images, torch.arange(count).repeat_interleave(DRAWINGS)


def network() -> nn.Module:
    """Two convolutions and a linear layer, no batch norm."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (SIDE // 4) ** 2, 64),
    )


def measure(model: nn.Module, images: Tensor, labels: Tensor) -> tuple[float, float]:
    """Diameter of the embeddings, and R@1 in percent (a tie counts as a miss)."""
    with torch.no_grad():
        distance = pairwise_distances(model(images))
    same = labels[:, None] == labels
    near = distance.masked_fill(~same, math.inf).fill_diagonal_(math.inf).amin(1)
    far = distance.masked_fill(same, math.inf).amin(1)
    return float(distance.max()), 100 * float((near < far).float().mean())


def train(loss_fn: TripletLoss, seed: int, steps: int, data: list[Tensor]) -> list[float]:
    """Train a fresh network; its last loss, its diameter, and R@1 on letters it never saw."""
    torch.manual_seed(seed)
    images, labels, new_images, new_labels = data
    model = network()
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    by_letter = torch.arange(len(labels)).view(-1, DRAWINGS)
    for _ in range(steps):
        chosen = torch.randperm(len(by_letter))[:P]
        drawing = torch.rand(P, DRAWINGS).argsort(1)[:, :K]
        batch = by_letter[chosen].gather(1, drawing).flatten()
        loss = loss_fn(model(images[batch]), labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return [loss.item(), *measure(model, new_images, new_labels)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)  # the same figures everywhere, also beside other work
    begun = time.perf_counter()
    data = [*letters(120, 2 * options.seed), *letters(40, 2 * options.seed + 1)]
    torch.manual_seed(options.seed)
    diameter, recall = measure(network(), *data[2:])
    print(f"{'':36} {'loss':>8} {'diameter':>9} {'R@1':>6}")
    print(f"{'untrained':36} {'':8} {diameter:9.4f} {recall:6.1f}")
    hard = Miner("hard", "hard")
    runs = {
        "batch-hard": TripletLoss(margin=MARGIN, miner=hard),
        "easy positives, hard negatives": TripletLoss(margin=MARGIN, miner=Miner("easy", "hard")),
        "batch-hard, scale-free": TripletLoss(margin=MARGIN, miner=hard, scale_free=True),
    }
    for name, loss_fn in runs.items():
        loss, diameter, recall = train(loss_fn, options.seed, options.steps, data)
        print(f"{name:36} {loss:8.4f} {diameter:9.4f} {recall:6.1f}", flush=True)
    print(f"margin {MARGIN}; {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
