"""Mode drift: its formula against loops, gradient flow, invariances, and odd batches."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as pml
from torch import Tensor, nn

from oracles import Array, distance_matrix
from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse.health import drift, drift_table, mode_drift
from uncollapse.health.drifts import LOSSES
from uncollapse.losses import MarginLoss, ProxyNCALoss, SupConLoss, TripletLoss
from uncollapse.mining import Miner

MINERS = (("hard", "hard"), ("easy", "semihard"), ("all", "all"))


def hidden_modes(
    seed: int = 0, *, classes: int = 4, rows: int = 4, noise: float = 0.05
) -> tuple[Tensor, Tensor]:
    """Two modes per class, apart in directions that no two class means differ in."""
    generator = torch.Generator().manual_seed(seed)
    means, modes = (torch.randn(classes, 8, generator=generator).double() for _ in range(2))
    means = nn.functional.normalize(means, dim=1) * 4
    modes = nn.functional.normalize(modes, dim=1)
    labels = torch.arange(classes).repeat_interleave(2 * rows)
    side = torch.tensor([1.0, -1.0]).repeat_interleave(rows).repeat(classes)[:, None]
    z = torch.cat([means[labels], side * modes[labels]], dim=1)
    return z + noise * torch.randn(z.shape, generator=generator), labels


def cloud(seed: int = 0, classes: int = 3, rows: int = 7, dim: int = 5) -> tuple[Tensor, Tensor]:
    """Classes whose neighbourhoods are not mutual."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(rows)
    means = torch.randn(classes, dim, generator=generator)
    z = means[labels] + torch.randn(len(labels), dim, generator=generator)
    return z.double(), labels


def smoothed(x: Array, labels: Array, k: int) -> tuple[Array, Array]:
    """S and T by loops: the mean over a row and its k nearest, less the class mean of that."""
    distance, n = distance_matrix(x), len(x)
    average = np.zeros((n, n))
    for i in range(n):
        others = sorted(
            (j for j in range(n) if j != i and labels[j] == labels[i]),
            key=lambda j: (distance[i, j], j),
        )
        near = [i, *others[:k]]
        average[i, near] = 1 / len(near)
    transform = average.copy()
    for i in range(n):
        own = [j for j in range(n) if labels[j] == labels[i]]
        transform[i] -= average[own].mean(0)
    return transform @ x, transform


def by_loops(x: Array, labels: Array, gradient: Array, k: int) -> tuple[float, float]:
    s, transform = smoothed(x, labels, k)
    n = len(x)
    unit = n * distance_matrix(x).sum() / (n * (n - 1)) / (s**2).sum()
    return unit * (s * gradient).sum(), unit * ((transform.T @ s) * gradient).sum()


def gradient_of(loss_fn: Callable[..., Tensor], z: Tensor, labels: Tensor) -> Tensor:
    leaf = z.clone().requires_grad_(True)
    return torch.autograd.grad(loss_fn(leaf, labels), leaf)[0]


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("miner", MINERS, ids=" x ".join)
def test_both_forms_are_the_formulas_by_loops(miner: tuple[str, str], k: int) -> None:
    loss_fn = TripletLoss(margin=0.5, miner=Miner(*miner))
    for seed in range(4):
        z, labels = cloud(seed)
        gradient = gradient_of(loss_fn, z, labels).numpy()
        value, exact = by_loops(z.numpy(), labels.numpy(), gradient, k)
        found = mode_drift(loss_fn, z, labels, k=k)
        assert found.value == pytest.approx(value, rel=1e-7, abs=1e-9)
        assert found.exact == pytest.approx(exact, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("miner", MINERS, ids=" x ".join)
def test_a_small_step_changes_the_spread_of_modes_at_the_exact_rate(
    miner: tuple[str, str], normalize: bool
) -> None:
    loss_fn = TripletLoss(margin=0.5, miner=Miner(*miner))
    for seed in range(4):
        z, labels = cloud(seed)
        z = nn.functional.normalize(z, dim=1) if normalize else z
        gradient = gradient_of(loss_fn, z, labels)
        sizes = []
        for step in (1e-6, -1e-6):
            moved = z - step * gradient
            moved = nn.functional.normalize(moved, dim=1) if normalize else moved
            s, _ = smoothed(moved.numpy(), labels.numpy(), 3)
            sizes.append((s**2).sum())
        speed = (math.log(sizes[0]) - math.log(sizes[1])) / 2e-6
        n = len(z)
        mean = distance_matrix(z.numpy()).sum() / (n * (n - 1))
        found = mode_drift(loss_fn, z, labels, k=3, normalize=normalize)
        assert found.exact == pytest.approx(-n * mean * speed / 2, rel=1e-4, abs=1e-6)


def test_both_forms_agree_where_neighbourhoods_are_mutual() -> None:
    for seed in range(5):
        z, labels = hidden_modes(seed)
        found = mode_drift(TripletLoss(margin=0.5), z, labels, k=3)
        assert found.value == pytest.approx(found.exact, rel=1e-9)
    apart = mode_drift(TripletLoss(margin=0.5), *cloud(), k=3)
    assert apart.value != pytest.approx(apart.exact, rel=1e-2)


@pytest.mark.parametrize("seed", range(6))
def test_easy_positives_keep_two_modes_and_random_ones_merge_them(seed: int) -> None:
    z, labels = hidden_modes(seed)
    rates = {}
    for positives in ("easy", "random", "all", "hard"):
        miner = Miner(positives, "semihard", generator=torch.Generator().manual_seed(seed))
        rates[positives] = mode_drift(TripletLoss(margin=9.0, miner=miner), z, labels, k=3).value
    assert rates.pop("easy") <= 0
    assert min(rates.values()) > 0


def test_scale_rotation_translation_and_order_change_nothing() -> None:
    for seed in range(3):
        z, labels = cloud(seed)
        generator = torch.Generator().manual_seed(seed)
        turn = torch.linalg.qr(torch.randn(5, 5, generator=generator).double())[0]
        order = torch.randperm(len(z), generator=generator)

        def rates(x: Tensor, y: Tensor, margin: float = 0.5) -> list[float]:
            loss_fn = TripletLoss(margin=margin, miner=Miner("hard", "semihard"))
            found = mode_drift(loss_fn, x, y)
            return [found.value, found.exact, found.inside]

        plain = pytest.approx(rates(z, labels), rel=1e-7)
        assert rates(z @ turn, labels) == plain
        assert rates(z + 100.0, labels) == plain
        assert rates(z[order], labels[order]) == plain
        for scale in (1e-9, 1e9):
            assert rates(scale * z, labels, 0.5 * scale) == plain


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_no_scale_is_too_small_or_too_large(scale: float) -> None:
    z, labels = cloud()
    push = torch.randn(z.shape, generator=torch.Generator().manual_seed(9)).double()
    plain, far = (mode_drift(lambda x, y: (push * x).sum(), one, labels) for one in (z, scale * z))
    assert far.value == pytest.approx(plain.value, rel=1e-9)
    assert far.exact == pytest.approx(plain.exact, rel=1e-9)
    assert far.inside == pytest.approx(plain.inside, rel=1e-9)


def test_the_rate_is_linear_in_the_loss() -> None:
    z, labels = cloud()
    inner, other = TripletLoss(margin=0.5), SupConLoss()
    both = mode_drift(lambda x, y: 2 * inner(x, y) + other(x, y), z, labels).value
    apart = 2 * mode_drift(inner, z, labels).value + mode_drift(other, z, labels).value
    assert both == pytest.approx(apart, rel=1e-6)


def test_the_rest_of_each_row_is_the_part_inside() -> None:
    # ∇L = Z: every part shrinks at the rate n · mean distance, wherever parts are orthogonal.
    z, labels = hidden_modes(noise=0.1)
    n = len(z)
    mean = distance_matrix(z.numpy()).sum() / (n * (n - 1))
    found = mode_drift(lambda x, y: (x - x.mean(0)).square().sum() / 2, z, labels, k=3)
    assert [found.value, found.exact, found.inside] == pytest.approx([n * mean] * 3, rel=1e-9)


def test_classes_of_one_row_show_no_modes_but_count_as_negatives() -> None:
    z, labels = cloud()
    more = torch.cat([z, z[:2] + 0.3])
    ids = torch.cat([labels, torch.tensor([8, 9])])
    loss_fn = TripletLoss(margin=0.5, miner=Miner("hard", "hard"))
    gradient = gradient_of(loss_fn, more, ids).numpy()
    expected = by_loops(more.numpy(), ids.numpy(), gradient, 3)
    found = mode_drift(loss_fn, more, ids)
    assert [found.value, found.exact] == pytest.approx(expected, rel=1e-7)
    alone = mode_drift(lambda x, y: x.square().sum(), more, list(range(len(more))))
    assert math.isnan(alone.value)
    assert math.isnan(alone.exact)


def test_classes_smaller_than_their_neighbourhoods_show_no_modes() -> None:
    z, labels = cloud(rows=4)
    loss_fn = TripletLoss(margin=0.5)
    for k in (3, 4, 10**30):
        assert math.isnan(mode_drift(loss_fn, z, labels, k=k).value)
    assert math.isfinite(mode_drift(loss_fn, z, labels, k=2).value)
    # A small class beside larger ones leaves the rate to those.
    more, ids = cloud(1, classes=2, rows=9)
    both, all_ids = torch.cat([z, more]), torch.cat([labels, ids + 5])
    gradient = gradient_of(loss_fn, both, all_ids).numpy()
    value, _ = by_loops(both.numpy(), all_ids.numpy(), gradient, 5)
    assert mode_drift(loss_fn, both, all_ids, k=5).value == pytest.approx(value, rel=1e-7)


@pytest.mark.parametrize("offset", [0.0, 1 / 3, 1e6])
def test_classes_that_are_points_have_no_rate(offset: float) -> None:
    labels = torch.arange(4).repeat_interleave(6)
    z = torch.randn(4, 7, generator=torch.Generator().manual_seed(0))[labels] + offset
    found = mode_drift(TripletLoss(margin=5.0), z, labels)
    assert math.isnan(found.value)
    assert math.isnan(mode_drift(TripletLoss(), torch.ones(24, 3), labels).value)
    # Modes that are points have no inside.
    halves = torch.arange(24) // 3
    z = torch.randn(8, 7, generator=torch.Generator().manual_seed(0))[halves] + offset
    found = mode_drift(TripletLoss(margin=5.0), z, labels, k=2)
    assert math.isfinite(found.value)
    assert found.inside == 0.0


def test_of_equals_the_lowest_index_is_a_neighbour() -> None:
    # Rows 1 and 2 are as near to row 0; row 1 is taken, and S has its mean.
    z = torch.tensor([[0.0], [1.0], [-1.0], [9.0], [20.0], [22.0]]).double()
    labels = torch.tensor([0, 0, 0, 0, 1, 1])
    weight = torch.tensor([[1.0], [0.0], [0.0], [0.0], [0.0], [0.0]]).double()
    found = mode_drift(lambda x, y: (weight * x).sum(), z, labels, k=1)
    s, _ = smoothed(z.numpy(), labels.numpy(), 1)
    mean = distance_matrix(z.numpy()).sum() / 30
    means = np.array([0.5, 0.5, -0.5, 5.0])
    assert s[0, 0] == pytest.approx(0.5 - means.mean())
    assert found.value == pytest.approx(6 * mean * s[0, 0] / (s**2).sum())


def test_any_callable_will_do_and_its_parameters_are_left_alone() -> None:
    z, labels = cloud()
    from pytorch_metric_learning.distances import LpDistance
    from pytorch_metric_learning.reducers import MeanReducer

    plain = LpDistance(normalize_embeddings=False)
    theirs = pml.TripletMarginLoss(margin=0.5, distance=plain, reducer=MeanReducer())
    ours = mode_drift(TripletLoss(margin=0.5), z, labels).value
    assert mode_drift(theirs, z, labels).value == pytest.approx(ours, rel=1e-4)
    for loss_fn in (ProxyNCALoss(num_classes=3, dim=5), MarginLoss()):
        mode_drift(loss_fn, z.float(), labels)
        assert all(p.grad is None for p in loss_fn.parameters())
    assert not z.requires_grad
    assert mode_drift(lambda x, y: torch.tensor(3.0), z, labels).value == 0.0


def test_grad_mode_does_not_matter_and_the_result_repeats() -> None:
    z, labels = cloud()
    loss_fn = TripletLoss(margin=0.5, miner=Miner("easy", "hard"))
    batches = [(z, labels), cloud(1)]
    plain = mode_drift(loss_fn, batches)
    assert mode_drift(loss_fn, batches) == plain
    with torch.no_grad():
        assert mode_drift(loss_fn, batches) == plain
    assert mode_drift(loss_fn, [(z.requires_grad_(True), labels), batches[1]]) == plain


def test_mode_drift_of_batches_is_their_mean_and_standard_deviation() -> None:
    loss_fn = TripletLoss(margin=0.5, miner=Miner("hard", "hard"))
    batches = [cloud(seed, rows=12) for seed in range(12)]
    over = mode_drift(loss_fn, batches)
    values = [mode_drift(loss_fn, z, y).value for z, y in batches]
    assert over.value == pytest.approx(np.mean(values))
    assert over.spread == pytest.approx(np.std(values, ddof=1))
    assert math.isnan(mode_drift(loss_fn, *batches[0]).spread)


def test_batches_that_show_no_modes_are_left_out_of_the_mean() -> None:
    loss_fn, good, small = TripletLoss(margin=0.5), cloud(), cloud(rows=3)
    found, alone = mode_drift(loss_fn, [good, small]), mode_drift(loss_fn, *good)
    assert (found.value, found.exact, found.inside) == (alone.value, alone.exact, alone.inside)
    assert math.isnan(found.spread)
    assert math.isnan(mode_drift(loss_fn, [small, small]).value)


def test_the_table_has_both_drifts_of_the_same_triplets() -> None:
    z, labels = cloud(rows=8)
    some = {name: LOSSES[name] for name in ("triplet, margin 0.2", "SupCon")}
    rows = drift_table(z, labels, losses=some, k=2, seed=5)
    assert len(rows) == 2 * (1 + 7 * 7)
    for row in rows:
        if row.positives not in (None, "random", "easy"):
            continue
        generator = torch.Generator().manual_seed(5)
        names = (row.positives, row.negatives)
        miner = None if None in names else Miner(*names, generator=generator)
        maker = some[row.loss]
        loss_fn = maker.make(miner, 3, 5)
        found = mode_drift(loss_fn, z, labels, k=2, normalize=maker.normalize)
        assert row.modes.value == pytest.approx(found.value, rel=1e-9, abs=1e-12)
        generator.manual_seed(5)
        expected = drift(loss_fn, z, labels, normalize=maker.normalize).value
        assert row.drift.value == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert math.isnan(drift_table(z, labels, losses=some, positives=(), k=7)[0].modes.value)
    with refused("k"):
        drift_table(z, labels, k=0)


def test_wrong_arguments_are_named() -> None:
    z, labels = cloud()
    with pytest.raises(InputError, match="labels"):
        mode_drift(TripletLoss(), z)
    with pytest.raises(InputError, match="embeddings"):
        mode_drift(TripletLoss(), [(z, labels)], labels)
    with refused("k"):
        mode_drift(TripletLoss(), z, labels, k=1.5)  # type: ignore[arg-type]
