"""Expected triplet loss under label noise: sorted counting beside the dense sum over n³ triplets.

CPU time of one thread, value and gradient, interleaved medians. The dense form is measured at
n = 300 and extrapolated by (2000/300)³; at 2000 it would hold 64 GB.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from uncollapse.distances import pairwise_distances
from uncollapse.noise import NoiseModel, expected_loss

SMALL, LARGE, ROUNDS, BAR = 300, 2000, 5, 100.0


def dense(z: Tensor, *, weights: Tensor) -> Tensor:
    d = pairwise_distances(z.double())
    return (weights * (d[:, :, None] - d[:, None, :] + 1.0).relu()).sum()


def dense_weights(labels: Tensor, noise: NoiseModel) -> Tensor:
    """E[δ_ij(1 − δ_ik)] of distinct i, j, k; made once, outside the time measured."""
    label, n = noise.probabilities[labels], len(labels)
    weights = torch.einsum("ir,jr,kr->ijk", label, label, 1 - label)
    i = torch.arange(n)
    weights[i, i, :] = weights[i, :, i] = weights[:, i, i] = 0.0
    return weights


def cpu_seconds(loss: Callable[[Tensor], Tensor], z: Tensor) -> float:
    leaf = z.clone().requires_grad_()
    start = time.process_time()
    loss(leaf).backward()
    return time.process_time() - start


def main() -> None:
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(0)
    print(f"{'t':>3} {'dense 300':>10} {'-> 2000':>9} {'sorted 2000':>12} {'ratio':>7}  easy 2000")
    for t in (2, 10):
        noise = NoiseModel(t, 0.7)
        small, large = noise.labels(SMALL), noise.labels(LARGE)
        z_small, z_large = (torch.randn(n, 8, generator=g) for n in (SMALL, LARGE))
        weights = dense_weights(small, noise)
        slow_form = partial(dense, weights=weights)
        sorted_form = partial(expected_loss, "triplet", labels=large, model=noise)
        easy_form = partial(expected_loss, "eps-triplet", labels=large, model=noise)
        same = float(slow_form(z_small)), float(expected_loss("triplet", z_small, small, noise))
        if abs(same[0] - same[1]) > 1e-9 * same[0]:
            raise SystemExit(f"the two forms differ: {same}")
        slow, fast, easy = [], [], []
        for _ in range(ROUNDS):
            slow.append(cpu_seconds(slow_form, z_small))
            fast.append(cpu_seconds(sorted_form, z_large))
            easy.append(cpu_seconds(easy_form, z_large))
        small_s, large_s, easy_s = map(statistics.median, (slow, fast, easy))
        scaled = small_s * (LARGE / SMALL) ** 3
        ratio = scaled / large_s
        print(
            f"{t:>3} {small_s:>9.2f}s {scaled:>8.0f}s {large_s:>11.2f}s {ratio:>6.0f}x"
            f"  {easy_s:.2f}s  {'ok' if ratio >= BAR else 'BELOW THE BAR'} (bar {BAR:.0f}x)"
        )


if __name__ == "__main__":
    main()
