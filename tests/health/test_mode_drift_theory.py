"""What docs/theory.md proves of the mode drift, and its counterexamples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from oracles import Array, distance_matrix
from uncollapse.health import mode_drift
from uncollapse.losses import ContrastiveLoss, SupConLoss, TrimmedLoss, TripletLoss
from uncollapse.mining import Miner

PULL = ContrastiveLoss(margin=0.0)  # its negatives are never charged: the pull alone


def groups(seed: int, *, each: int = 3, modes: int = 3, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Classes of `modes` tight groups of `each` rows, anywhere: neighbourhoods are mutual."""
    generator = torch.Generator().manual_seed(seed)
    centres = 10 * torch.randn(classes * modes, 6, generator=generator).double()
    mode = torch.arange(classes * modes).repeat_interleave(each)
    noise = 0.1 * torch.randn(len(mode), 6, generator=generator).double()
    return centres[mode] + noise, mode // modes


def crossed(h: int = 3, m: float = 1.0, c: float = 3.0) -> tuple[Tensor, Tensor, float]:
    """Two classes of two point modes, ±m along axes of their own, and all negatives at one d."""
    mode = torch.tensor([[m, 0, 0], [-m, 0, 0], [0, m, c], [0, -m, c]]).double()
    rows = torch.arange(4).repeat_interleave(h)
    return mode[rows], rows // 2, math.sqrt(c * c + 2 * m * m)


def mean_distance(z: Tensor) -> float:
    return float(distance_matrix(z.numpy()).sum()) / (len(z) * (len(z) - 1))


def modes_of(z: Tensor, labels: Tensor, each: int) -> Array:
    """S of consecutive groups of `each` rows."""
    x, y = z.numpy(), labels.numpy()
    means = x.reshape(-1, each, x.shape[1]).mean(1).repeat(each, axis=0)
    return means - np.stack([x[y == label].mean(0) for label in y])


@pytest.mark.parametrize("seed", range(4))
def test_for_a_triplet_hinge_it_is_a_mean_over_the_active_triplets(seed: int) -> None:
    z, labels = groups(seed)
    triplets = Miner("all", "hard")(z, labels)
    s, x = modes_of(z, labels, 3), z.numpy()
    total = 0.0
    for a, p, n in zip(*(index.tolist() for index in triplets), strict=True):
        near, far = np.linalg.norm(x[a] - x[p]), np.linalg.norm(x[a] - x[n])
        if near - far + 4.0 > 0:
            total += (s[a] - s[p]) @ (x[a] - x[p]) / near - (s[a] - s[n]) @ (x[a] - x[n]) / far
    expected = len(z) * mean_distance(z) * total / len(triplets.anchor) / (s**2).sum()
    found = mode_drift(TripletLoss(margin=4.0, miner=Miner("all", "hard")), z, labels, k=2)
    assert found.value == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_the_pull_of_easy_positives_moves_no_mode(seed: int) -> None:
    z, labels = groups(seed)
    easy = ContrastiveLoss(margin=0.0, miner=Miner("easy", "hard"))
    found = mode_drift(easy, z, labels, k=2)
    assert found.value == pytest.approx(0.0, abs=1e-9)
    assert found.exact == pytest.approx(0.0, abs=1e-9)
    assert found.inside > 0
    # Neighbours that are not mutual: the pull is seen.
    assert abs(mode_drift(easy, z, labels, k=1).value) > 1e-6


@pytest.mark.parametrize("seed", range(6))
def test_the_pull_of_random_positives_merges_modes(seed: int) -> None:
    z, labels = groups(seed)
    for positives in ("random", "all", "hard"):
        miner = Miner(positives, "hard", generator=torch.Generator().manual_seed(seed))
        assert mode_drift(ContrastiveLoss(margin=0.0, miner=miner), z, labels, k=2).value > 0


@pytest.mark.parametrize("seed", range(4))
def test_squared_distances_have_a_closed_form_for_any_groups(seed: int) -> None:
    z, labels = groups(seed)
    mean, size = mean_distance(z), 9
    every = TripletLoss(margin=1e6, distance="squared")
    assert mode_drift(every, z, labels, k=2).value == pytest.approx(4 * mean / (size - 1), rel=1e-6)
    easy = TripletLoss(margin=1e6, distance="squared", miner=Miner("easy", "all"))
    assert mode_drift(easy, z, labels, k=2).value == pytest.approx(-4 * mean, rel=1e-6)


@pytest.mark.parametrize(("h", "c"), [(2, 1.5), (3, 3.0), (5, 8.0)])
def test_crossed_modes_have_a_closed_form_with_semi_hard_negatives(h: int, c: float) -> None:
    z, labels, far = crossed(h, 1.0, c)
    unit = 4 * h * mean_distance(z) / (4 * h)
    rate = {}
    for positives in ("easy", "all"):
        miner = Miner(positives, "semihard", margin=20.0)
        loss_fn = TripletLoss(margin=20.0, miner=miner)
        rate[positives] = mode_drift(loss_fn, z, labels, k=h - 1).value
    assert rate["easy"] == pytest.approx(-unit * 2 / far, rel=1e-6)
    assert rate["all"] == pytest.approx(unit * (2 * h / (2 * h - 1) - 2 / far), rel=1e-6)
    assert rate["easy"] < 0 < rate["all"]


def test_easy_positives_merge_modes_where_negatives_push_them_together() -> None:
    # On the line 0, 4 | 5, 9: the modes at 4 and 5 are pushed apart, each towards its other mode.
    z = torch.tensor([0.0, 0, 4, 4, 5, 5, 9, 9]).double()[:, None]
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    loss_fn = TripletLoss(margin=20.0, miner=Miner("easy", "hard"))
    found = mode_drift(loss_fn, z, labels, k=1)
    assert found.value == pytest.approx(mean_distance(z) / 2, rel=1e-9)
    leaf = z.clone().requires_grad_(True)
    moved = z - 0.1 * torch.autograd.grad(loss_fn(leaf, labels), leaf)[0]
    assert float(moved[2] - moved[0]) < 4.0


@pytest.mark.parametrize(("s", "temperature"), [(0.9, 0.1), (0.0, 0.5), (-0.5, 0.1), (0.5, 5.0)])
def test_supcon_merges_two_modes_at_any_temperature(s: float, temperature: float) -> None:
    h, classes = 3, 3
    one = torch.tensor([[1.0, 0.0], [s, math.sqrt(1 - s * s)]]).double()
    z = torch.block_diag(*[one] * classes).repeat_interleave(h, dim=0)
    labels = torch.arange(classes).repeat_interleave(2 * h)
    n = len(z)
    inside, across = (h - 1) * math.exp(1 / temperature), math.exp(s / temperature)
    share = across / (inside + h * across + (n - 2 * h))
    expected = 2 * (1 + s) * h * (1 / (2 * h - 1) - share) / temperature * mean_distance(z)
    loss_fn = SupConLoss(temperature=temperature)
    found = mode_drift(loss_fn, z, labels, k=h - 1, normalize=True)
    assert found.value == pytest.approx(expected, rel=1e-5)
    assert found.value > 0
    easy = SupConLoss(temperature=temperature, miner=Miner("easy", "all"))
    assert mode_drift(easy, z, labels, k=h - 1, normalize=True).value == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("temperature", [0.05, 0.2, 1.0])
@pytest.mark.parametrize("modes", [3, 5, 8])
def test_supcon_merges_any_ring_of_modes_by_its_bound(modes: int, temperature: float) -> None:
    h, classes, up = 2, 2, 0.6
    turn = torch.arange(modes).double() * 2 * math.pi / modes
    ring = torch.stack([torch.full_like(turn, up), 0.8 * turn.cos(), 0.8 * turn.sin()], dim=1)
    z = torch.block_diag(*[ring] * classes).repeat_interleave(h, dim=0)
    labels = torch.arange(classes).repeat_interleave(modes * h)
    logits = (z @ z.T / temperature).fill_diagonal_(-torch.inf)
    positive = (labels[:, None] == labels) & ~torch.eye(len(z), dtype=torch.bool)
    mass = (logits.softmax(1) * positive).sum(1)
    square = (2 - 2 * z @ z.T) * positive
    bound = up**2 / temperature * ((1 - mass) * square.sum(1) / positive.sum(1)).mean()
    size = float((modes_of(z, labels, h) ** 2).sum())
    found = mode_drift(SupConLoss(temperature=temperature), z, labels, k=h - 1, normalize=True)
    least = len(z) * mean_distance(z) * float(bound) / size
    assert found.value >= least * (1 - 1e-6)
    assert least > 0


def test_supcon_does_not_merge_two_opposite_modes() -> None:
    one = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]).double()
    z, labels = one.repeat_interleave(3, dim=0), torch.arange(12) // 6
    found = mode_drift(SupConLoss(), z, labels, k=2, normalize=True)
    assert found.value == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_trimming_positives_to_those_inside_modes_moves_no_mode(seed: int) -> None:
    z, labels = groups(seed)
    inside = 2 / 8  # of the 8 positives of a row 2 are in its group
    kept = TrimmedLoss(PULL, fraction=inside, on="positives")
    assert mode_drift(kept, z, labels, k=2).value == pytest.approx(0.0, abs=1e-9)
    more = TrimmedLoss(PULL, fraction=2 * inside, on="positives")
    assert mode_drift(more, z, labels, k=2).value > 1e-3


def test_a_quantile_of_the_batch_trims_the_wide_class_and_merges_the_narrow_one() -> None:
    def pairs(gap: float, apart: float) -> Tensor:
        return torch.tensor([[0, 0], [0, gap], [apart, 0], [apart, gap]]).double()

    z = torch.cat([pairs(0.1, 1.0), pairs(5.0, 100.0) + 300.0])
    labels = torch.arange(8) // 4
    kept = TrimmedLoss(PULL, fraction=1 / 3, on="positives")
    easy = ContrastiveLoss(margin=0.0, miner=Miner("easy", "hard"))
    assert mode_drift(easy, z, labels, k=1).value == pytest.approx(0.0, abs=1e-9)
    assert mode_drift(kept, z, labels, k=1).value > 1e-4
    leaf = z.clone().requires_grad_(True)
    moved = z - 0.1 * torch.autograd.grad(kept(leaf, labels), leaf)[0]
    assert float(moved[2:4, 0].mean() - moved[:2, 0].mean()) < 1.0


def test_trimming_by_the_loss_keeps_positives_across_modes() -> None:
    # Three classes of modes ±1, two near and one far: the easiest triplets have a far negative,
    # whatever their positive.
    mode = torch.tensor([[1, 0], [-1, 0], [1, 3], [-1, 3], [1, 100], [-1, 100]]).double()
    z, labels = mode.repeat_interleave(2, dim=0), torch.arange(12) // 4
    inner = TripletLoss(margin=1e3, miner=Miner("all", "all"))
    by_loss, by_positive = (
        mode_drift(TrimmedLoss(inner, fraction=1 / 3, on=on), z, labels, k=1).value
        for on in ("all", "positives")
    )
    assert by_positive < 0 < by_loss
    assert mode_drift(inner, z, labels, k=1).value > 0


def test_normalised_rows_are_what_the_loss_sees() -> None:
    z, labels = groups(0)
    loss_fn = SupConLoss()
    plain = mode_drift(loss_fn, nn.functional.normalize(z, dim=1), labels, normalize=True)
    again = mode_drift(loss_fn, z, labels, normalize=True)
    assert plain.value == pytest.approx(again.value, rel=1e-9)
