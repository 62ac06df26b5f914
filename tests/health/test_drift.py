"""The radial drift: Euler's identities, gradient flow, and the laws it contains."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from pytorch_metric_learning import losses as pml
from torch import Tensor, nn

from oracles import Array, distance_matrix, labelled_sets
from uncollapse._base.check import InputError
from uncollapse.health import drift, drift_table
from uncollapse.health.drifts import LOSSES
from uncollapse.losses import MarginLoss, ProxyNCALoss, TripletLoss
from uncollapse.mining import Miner

FEW = settings(max_examples=40, deadline=None)


def _batch(p: int = 8, k: int = 4, dim: int = 16, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(p).repeat_interleave(k)
    means = torch.randn(p, dim, generator=generator)
    return means[labels] + torch.randn(p * k, dim, generator=generator), labels


@FEW
@given(labelled_sets(max_rows=8))
def test_drift_of_a_triplet_hinge_is_the_mean_of_d_ap_minus_d_an(
    drawn: tuple[Array, Array],
) -> None:
    x, labels = drawn
    distance = distance_matrix(x)
    mean = distance.sum() / (len(x) * (len(x) - 1))
    if mean < 1e-3:
        return
    for positives in ("hard", "easy"):
        triplets = _mine(distance, labels, positives)
        excess = [distance[a, p] - distance[a, n] for a, p, n in triplets]
        if any(abs(e + 0.3) < 1e-9 for e in excess) or not triplets:
            return  # at the hinge itself there is no gradient
        euler = sum(e for e in excess if e + 0.3 > 0) / len(excess)
        loss_fn = TripletLoss(margin=0.3, miner=Miner(positives, "hard"))
        found = drift(loss_fn, torch.from_numpy(x), torch.from_numpy(labels))
        assert found.value == pytest.approx(euler / mean, abs=1e-7)
        charged = sum(max(0.0, e + 0.3) for e in excess) / len(excess)
        assert found.relative_loss == pytest.approx(charged / mean, rel=1e-6, abs=1e-12)


@FEW
@given(labelled_sets(max_rows=8))
def test_drift_of_a_scale_free_loss_is_zero(drawn: tuple[Array, Array]) -> None:
    z, labels = torch.from_numpy(drawn[0]), torch.from_numpy(drawn[1])
    for miner in (Miner("hard", "hard"), None):
        loss_fn = TripletLoss(margin=0.2, miner=miner, scale_free=True)
        labels = torch.cat([labels, labels])
        z = torch.cat([z, z + 0.1 * torch.arange(1.0, len(z) + 1)[:, None]])
        assert drift(loss_fn, z, labels).value == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("normalize", [False, True])
def test_gradient_flow_changes_the_size_by_minus_twice_the_drift(normalize: bool) -> None:
    for seed in range(5):
        z, labels = _batch(seed=seed)
        z = nn.functional.normalize(z, dim=1).double() if normalize else z.double()
        loss_fn = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
        leaf = z.clone().requires_grad_(True)
        gradient = torch.autograd.grad(loss_fn(leaf, labels), leaf)[0]
        sizes = []
        for step in (1e-5, -1e-5):
            moved = z - step * gradient
            moved = nn.functional.normalize(moved, dim=1) if normalize else moved
            sizes.append(float((moved - moved.mean(0)).square().sum()))
        speed = (sizes[0] - sizes[1]) / 2e-5
        n = len(z)
        mean = float(torch.cdist(z, z).sum()) / (n * (n - 1))
        value = drift(loss_fn, z, labels, normalize=normalize).value
        assert value == pytest.approx(-speed / 2 / mean, rel=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_drift_on_the_sphere_is_the_pull_towards_one_direction(seed: int) -> None:
    labels = torch.arange(16).repeat_interleave(4)
    generator = torch.Generator().manual_seed(seed)
    z = nn.functional.normalize(torch.randn(64, 32, generator=generator), dim=1)
    z = nn.functional.normalize(z + 2 * z[0], dim=1)  # a cone, as networks begin
    values = []
    for positives, negatives in (("hard", "hard"), ("easy", "hard"), ("hard", "semihard")):
        loss_fn = TripletLoss(margin=0.2, miner=Miner(positives, negatives))
        leaf = z.clone().requires_grad_(True)
        gradient = torch.autograd.grad(loss_fn(leaf, labels), leaf)[0]
        moved = nn.functional.normalize(z - 0.1 * gradient, dim=1)
        value = drift(loss_fn, z, labels, normalize=True).value
        assert (value > 0) == (float(moved.mean(0).norm()) > float(z.mean(0).norm()))
        values.append(value)
    assert values == sorted(values, reverse=True)
    assert values[0] > 0 > values[-1]


def test_drift_grows_with_the_batch_and_falls_with_the_dimension() -> None:
    loss_fn = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    by_batch = [
        np.mean([drift(loss_fn, *_batch(p, k, 32, seed)).value for seed in range(5)])
        for p, k in ((2, 2), (4, 4), (18, 8))
    ]
    by_dim = [
        np.mean([drift(loss_fn, *_batch(8, 4, dim, seed)).value for seed in range(5)])
        for dim in (2, 8, 64)
    ]
    assert by_batch == sorted(by_batch)
    assert by_dim == sorted(by_dim, reverse=True)


def test_semi_hard_negatives_never_shrink() -> None:
    for seed in range(10):
        z, labels = _batch(seed=seed)
        for positives in ("hard", "easy", "random"):
            miner = Miner(positives, "semihard", generator=torch.Generator().manual_seed(seed))
            assert drift(TripletLoss(margin=0.2, miner=miner), z, labels).value <= 1e-9


def test_any_callable_will_do_and_its_parameters_are_left_alone() -> None:
    z, labels = _batch()
    theirs = pml.TripletMarginLoss(margin=0.2, distance=_plain(), reducer=_mean())
    ours = TripletLoss(margin=0.2)
    assert drift(theirs, z, labels).value == pytest.approx(drift(ours, z, labels).value, rel=1e-4)
    # The mean square size has gradient Z_c: the drift is |Z_c|² over the mean distance.
    n = len(z)
    mean = float(torch.cdist(z, z).sum()) / (n * (n - 1))
    centred = z - z.mean(0)
    size = drift(lambda x, y: (x - x.mean(0)).square().sum() / 2, z, labels).value
    assert size == pytest.approx(float(centred.square().sum()) / mean, rel=1e-5)
    proxies = ProxyNCALoss(num_classes=8, dim=16)
    drift(proxies, z, labels)
    margin = MarginLoss()
    drift(margin, z, labels)
    assert all(p.grad is None for p in [*proxies.parameters(), *margin.parameters()])
    assert not z.requires_grad


def test_a_loss_without_a_gradient_has_no_drift() -> None:
    z, labels = _batch(2, 2)
    assert drift(lambda x, y: torch.tensor(3.0), z, labels).value == 0.0
    point = torch.ones(4, 3)
    found = drift(TripletLoss(margin=0.2), point, [0, 0, 1, 1])
    assert found.value == 0.0
    assert found.relative_loss == math.inf


def test_drift_of_batches_is_their_mean_and_standard_deviation() -> None:
    loss_fn = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    batches = [_batch(8, 8, 16, seed) for seed in range(20)]
    over = drift(loss_fn, batches)
    values = [drift(loss_fn, z, y).value for z, y in batches]
    assert over.value == pytest.approx(np.mean(values))
    assert over.spread == pytest.approx(np.std(values, ddof=1))
    assert math.isnan(drift(loss_fn, *batches[0]).spread)


def test_the_table_has_every_loss_and_every_miner() -> None:
    z, labels = _batch(6, 4, 8)
    some = drift_table(z, labels, positives=("easy", "hard"), negatives=("hard", "semihard"))
    assert len({(r.loss, r.positives, r.negatives) for r in some}) == len(some) == len(LOSSES) * 5
    assert all(math.isfinite(r.drift.value) for r in some)
    free = [r.drift.value for r in some if r.loss == "triplet, scale-free"]
    assert max(map(abs, free)) < 1e-6
    name = "triplet, margin 0.2"
    rows = drift_table(z, labels, losses={name: LOSSES[name]})
    assert len(rows) == 1 + 7 * 7
    found = {(r.positives, r.negatives): r.drift.value for r in rows}
    assert found["hard", "hard"] > found["easy", "hard"]
    assert all(found[p, "semihard"] <= 1e-9 for p in ("easy", "hard", "inside", "random"))


def test_wrong_arguments_are_named() -> None:
    z, labels = _batch(2, 2)
    with pytest.raises(InputError, match="labels"):
        drift(TripletLoss(), z)
    with pytest.raises(InputError, match="embeddings"):
        drift(TripletLoss(), [(z, labels)], labels)


def _mine(distance: Array, labels: Array, positives: str) -> list[tuple[int, int, int]]:
    chosen = []
    for a in range(len(labels)):
        own = [i for i in range(len(labels)) if labels[i] == labels[a] and i != a]
        other = [i for i in range(len(labels)) if labels[i] != labels[a]]
        if own and other:
            pick = max if positives == "hard" else min
            p = pick(own, key=lambda i, a=a: distance[a, i])
            n = min(other, key=lambda i, a=a: distance[a, i])
            chosen.append((a, p, n))
    return chosen


def _plain() -> object:
    from pytorch_metric_learning.distances import LpDistance

    return LpDistance(normalize_embeddings=False)


def _mean() -> object:
    from pytorch_metric_learning.reducers import MeanReducer

    return MeanReducer()
