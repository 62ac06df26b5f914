"""Drift and mode drift of every loss, unmined, on real states of collapse: those of detectors.py.

python benchmarks/loss_drifts.py                 digits, one seed; runs are kept in out/detectors
python benchmarks/loss_drifts.py --regularisers  those that are added to a loss, beside batch-hard

Each state is the end of a run of `_collapse_runs`: held-out rows, with the labels of its training.
Learned proxies are fitted to the state first, with the embeddings still.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from _collapse_runs import settings, snapshots
from _drift_table import LOSSES, Maker
from uncollapse.health import drift, mode_drift
from uncollapse.losses import (
    CodingRateLoss,
    MultipleLosses,
    SIGRegLoss,
    TripletLoss,
    VarianceCovarianceLoss,
)
from uncollapse.mining import Miner

OUT = Path("out/detectors")
FIT = 200  # steps that proxies have


def batch_hard() -> TripletLoss:
    """The loss that collapses networks."""
    return TripletLoss(margin=0.2, miner=Miner("hard", "hard"))


def sigreg() -> SIGRegLoss:
    """From the same directions each time."""
    return SIGRegLoss(generator=torch.Generator().manual_seed(0))


REGULARIZERS = {
    "hard x hard": Maker(lambda miner, c, d: batch_hard()),
    "hard x hard, over the hardest negatives": Maker(
        lambda miner, c, d: TripletLoss(
            margin=0.2, miner=Miner("hard", "hard"), scale_free="hardest-negative"
        )
    ),
    "variance-covariance": Maker(lambda miner, c, d: VarianceCovarianceLoss()),
    "coding rate": Maker(lambda miner, c, d: CodingRateLoss()),
    "coding rate, not normalised": Maker(lambda miner, c, d: CodingRateLoss(normalize=False)),
    "SIGReg": Maker(lambda miner, c, d: sigreg()),
    "hard x hard + 0.2 variance-covariance": Maker(
        lambda miner, c, d: MultipleLosses(
            [batch_hard(), VarianceCovarianceLoss()], weights=[1, 0.2]
        )
    ),
    "hard x hard + 0.01 coding rate": Maker(
        lambda miner, c, d: MultipleLosses([batch_hard(), CodingRateLoss()], weights=[1, 0.01])
    ),
    "hard x hard + 0.7 SIGReg": Maker(
        lambda miner, c, d: MultipleLosses([batch_hard(), sigreg()], weights=[1, 0.7])
    ),
}


def states() -> Iterator[tuple[str, Tensor, Tensor]]:
    """Name, rows and labels: a start, and one end of each kind."""
    seen: set[str] = set()
    for setting in settings(["digits"], 1):
        if setting.kind in seen or setting.kind in ("uninformative", "diverging"):
            continue
        found = snapshots(setting, OUT)
        labels = torch.from_numpy(found.coarse if setting.labels == "coarse" else found.fine)
        if not seen:
            yield "start", torch.from_numpy(found.embeddings[0]), labels
        seen.add(setting.kind)
        yield setting.kind, torch.from_numpy(found.embeddings[-1]), labels


def fitted(loss: nn.Module, z: Tensor, labels: Tensor) -> None:
    """Learn the loss's own parameters on rows that stay where they are."""
    parameters = list(loss.parameters())
    if not parameters:
        return
    optimiser = torch.optim.Adam(parameters, lr=0.1)
    for _ in range(FIT):
        optimiser.zero_grad()
        loss(z, labels).backward()
        optimiser.step()


def main() -> int:
    torch.set_num_threads(1)
    asked = sys.argv[1:]
    makers = REGULARIZERS if "--regularisers" in asked else LOSSES
    every = list(states())
    names = [name for name in asked if not name.startswith("--")] or list(makers)
    print("| loss | " + " | ".join(name for name, *_ in every) + " |")
    print("|---" * (len(every) + 1) + "|")
    for name in names:
        make, normalize = makers[name]
        cells = []
        for _, z, labels in every:
            loss = make(None, int(labels.max()) + 1, z.shape[1])
            fitted(loss, z, labels)  # type: ignore[arg-type]
            radial = drift(loss, z, labels, normalize=normalize).value
            modes = mode_drift(loss, z, labels, normalize=normalize).value
            cells.append(f"{radial:+.3g}, {modes:+.3g}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
