"""Watch a pytorch-metric-learning run: batch-hard mining collapses, and the watch says so.

    pip install uncollapse pytorch-metric-learning
    python examples/pml.py

Trains twice on the digits that come with scikit-learn. The miner and the loss are theirs; the only
line added is `uc.watch`.
"""

from __future__ import annotations

import torch
from pytorch_metric_learning import distances, losses, miners, reducers
from torch import nn

import uncollapse as uc


def train(miner: nn.Module, steps: int = 100, seed: int = 0) -> uc.Health:
    torch.manual_seed(seed)
    data = uc.load("digits")
    pixels, labels = data[torch.arange(len(data))]
    labels = labels[torch.randperm(len(labels))]  # labels that cannot be learned: a hard set
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    distance = distances.LpDistance(normalize_embeddings=False)
    loss_fn = losses.TripletMarginLoss(0.2, distance=distance, reducer=reducers.MeanReducer())
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    watch = uc.watch(model, loss_fn, optimizer, miner=miner, on_event=print)
    for step in range(steps):
        rows = torch.cat([(labels == c).nonzero().flatten().roll(step)[:8] for c in range(10)])
        z = model(pixels[rows])
        loss = loss_fn(z, labels[rows], miner(z, labels[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    health = watch.health
    print(f"after {steps} steps: {health.verdict}, diameter {health.diameter:.3g}\n")
    return health


def main() -> None:
    distance = distances.LpDistance(normalize_embeddings=False)
    print("hard positives, hard negatives")
    train(miners.BatchHardMiner(distance=distance))
    print("easy positives, semi-hard negatives")
    train(miners.BatchEasyHardMiner("easy", "semihard", distance=distance))


if __name__ == "__main__":
    main()
