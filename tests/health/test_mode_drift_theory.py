"""What docs/theory.md proves of the mode drift, and its counterexamples."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from oracles import distance_matrix
from uncollapse.health import mode_drift
from uncollapse.losses import ContrastiveLoss, SupConLoss, TrimmedLoss, TripletLoss
from uncollapse.mining import Miner

PULL = ContrastiveLoss(margin=0.0)  # its negatives are never charged: the pull alone


def groups(seed):
    """Three classes of three tight groups of three rows, anywhere: neighbourhoods are mutual."""
    generator = torch.Generator().manual_seed(seed)
    mode = torch.arange(9).repeat_interleave(3)
    centres = 10 * torch.randn(9, 6, generator=generator).double()
    return centres[mode] + 0.1 * torch.randn(27, 6, generator=generator).double(), mode // 3


def crossed(h: int = 3, m: float = 1.0, c: float = 3.0) -> tuple[Tensor, Tensor, float]:
    """Two classes of two point modes, ±m along axes of their own, and all negatives at one d."""
    mode = torch.tensor([[m, 0, 0], [-m, 0, 0], [0, m, c], [0, -m, c]]).double()
    rows = torch.arange(4).repeat_interleave(h)
    return mode[rows], rows // 2, math.sqrt(c * c + 2 * m * m)


def mean_distance(z: Tensor) -> float:
    return float(distance_matrix(z.numpy()).sum()) / (len(z) * (len(z) - 1))


@pytest.mark.parametrize("seed", range(3))
def test_the_pull_of_easy_positives_moves_no_mode_and_that_of_others_merges_them(seed):
    z, labels = groups(seed)
    easy = ContrastiveLoss(margin=0.0, miner=Miner("easy", "hard"))
    result = mode_drift(easy, z, labels, k=2)
    assert [result.value, result.exact] == pytest.approx([0.0, 0.0], abs=1e-9)
    assert result.inside > 0
    # Neighbours that are not mutual: the pull is seen.
    assert abs(mode_drift(easy, z, labels, k=1).value) > 1e-6
    for positives in ("random", "all", "hard"):
        miner = Miner(positives, "hard", generator=torch.Generator().manual_seed(seed))
        assert mode_drift(ContrastiveLoss(margin=0.0, miner=miner), z, labels, k=2).value > 0


@pytest.mark.parametrize("seed", range(2))
def test_squared_distances_have_a_closed_form_for_any_groups(seed):
    z, labels = groups(seed)
    mean, size = mean_distance(z), 9
    every = TripletLoss(margin=1e6, distance="squared")
    assert mode_drift(every, z, labels, k=2).value == pytest.approx(4 * mean / (size - 1), rel=1e-6)
    easy = TripletLoss(margin=1e6, distance="squared", miner=Miner("easy", "all"))
    assert mode_drift(easy, z, labels, k=2).value == pytest.approx(-4 * mean, rel=1e-6)


@pytest.mark.parametrize(("h", "c"), [(2, 1.5), (3, 3.0), (5, 8.0)])
def test_crossed_modes_have_a_closed_form_with_semi_hard_negatives(h, c):
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


def test_easy_positives_merge_modes_where_negatives_push_them_together():
    # On the line 0, 4 | 5, 9: the modes at 4 and 5 are pushed apart, each towards its other mode.
    z = torch.tensor([0.0, 0, 4, 4, 5, 5, 9, 9]).double()[:, None]
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    loss_fn = TripletLoss(margin=20.0, miner=Miner("easy", "hard"))
    found = mode_drift(loss_fn, z, labels, k=1)
    assert found.value == pytest.approx(mean_distance(z) / 2, rel=1e-9)
    leaf = z.clone().requires_grad_(True)
    moved = z - 0.1 * torch.autograd.grad(loss_fn(leaf, labels), leaf)[0]
    assert float(moved[2] - moved[0]) < 4.0


@pytest.mark.parametrize(("s", "temperature"), [(0.9, 0.1), (-0.5, 0.5), (0.5, 5.0)])
def test_supcon_merges_two_modes_at_any_temperature(s, temperature):
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


@pytest.mark.parametrize("seed", range(2))
def test_trimming_positives_to_those_inside_modes_moves_no_mode(seed):
    z, labels = groups(seed)
    inside = 2 / 8  # of the 8 positives of a row 2 are in its group
    kept = TrimmedLoss(PULL, fraction=inside, on="positives")
    assert mode_drift(kept, z, labels, k=2).value == pytest.approx(0.0, abs=1e-9)
    more = TrimmedLoss(PULL, fraction=2 * inside, on="positives")
    assert mode_drift(more, z, labels, k=2).value > 1e-3


def test_a_quantile_of_the_batch_trims_the_wide_class_and_merges_the_narrow_one():
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


def test_trimming_by_the_loss_keeps_positives_across_modes():
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


def test_normalised_rows_are_what_the_loss_sees():
    z, labels = groups(0)
    loss_fn = SupConLoss()
    plain = mode_drift(loss_fn, nn.functional.normalize(z, dim=1), labels, normalize=True)
    again = mode_drift(loss_fn, z, labels, normalize=True)
    assert plain.value == pytest.approx(again.value, rel=1e-9)
