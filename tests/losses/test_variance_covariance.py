import math

import pytest
import torch
from hypothesis import given
from pytorch_metric_learning import losses as pml_losses

from losses.loss_oracles import assert_same, batches, clouds, measured, unit
from uncollapse.health import drift
from uncollapse.losses import VarianceCovarianceLoss


def truth(z, variance=25.0, covariance=1.0, target=1.0, eps=1e-4):
    """Bardes et al. 2022, column by column and pair of columns by pair of columns."""
    n, d = z.shape
    if n < 2:
        return z.sum() * 0
    total = torch.zeros((), dtype=z.dtype)
    c = [[((z[:, i] - z[:, i].mean()) * (z[:, j] - z[:, j].mean())).sum() / (n - 1)
          for j in range(d)] for i in range(d)]  # fmt: skip
    for i in range(d):
        total = total + variance / d * torch.relu(target - torch.sqrt(c[i][i] + eps))
        total = total + covariance / d * sum(
            (c[i][j] ** 2 for j in range(d) if j != i), torch.zeros((), dtype=z.dtype)
        )
    return total


@given(batches())
def test_it_equals_the_definition(batch):
    x, labels = batch
    loss = VarianceCovarianceLoss()
    assert_same(lambda z: loss(z, labels), truth, x, 1e-7)


@given(batches())
def test_of_directions_it_is_that_of_unit_rows_times_the_root_of_dim(batch):
    x = batch[0] + 0.1
    loss = VarianceCovarianceLoss(normalize=True, target=0.7)
    assert_same(loss, lambda z: truth(unit(z) * math.sqrt(x.shape[1]), target=0.7), x, 1e-7)


def test_it_is_pml_s_without_the_invariance_of_two_views():
    x = clouds(n=60, dim=8, dtype=torch.float64)[0]
    ours = VarianceCovarianceLoss(variance=25.0, covariance=2.0)
    # PML has the mean of two views' variances, and the sum of their covariances.
    theirs = pml_losses.VICRegLoss(invariance_lambda=0, variance_mu=25, covariance_v=1)
    a = measured(ours, 0.5 * x)
    b = measured(lambda z: theirs(z, ref_emb=z), 0.5 * x)
    assert a[0] == pytest.approx(b[0], rel=1e-12)
    torch.testing.assert_close(a[1], b[1], rtol=1e-9, atol=1e-12)


def test_float32_far_from_the_origin_keeps_its_digits():
    x = (1e-3 * clouds(n=64, dim=8, dtype=torch.float64)[0] + 100.0).float()
    assert_same(VarianceCovarianceLoss(), truth, x, 1e-5)


def test_a_point_costs_the_target_less_the_root_of_eps_and_has_no_gradient():
    value, gradient = measured(VarianceCovarianceLoss(), torch.full((6, 4), 3.0))
    assert value == pytest.approx(25 * 0.99)
    assert float(gradient.abs().max()) == 0.0


def test_its_drift_is_that_of_the_formula_and_fades_below_the_root_of_eps():
    z = clouds(n=80, dim=8, dtype=torch.float64)[0]
    only_spread = VarianceCovarianceLoss(covariance=0.0, target=1e6)
    labels, found = torch.zeros(80, dtype=torch.int64), {}
    for scale in (1.0, 1e-3, 1e-4):
        rows = scale * z
        variance = rows.var(0)
        expected = -25 * float((variance / (variance + 1e-4).sqrt()).mean())
        gaps = torch.pdist(rows).mean()
        found[scale] = drift(only_spread, rows, labels).value
        assert found[scale] == pytest.approx(expected / float(gaps), rel=1e-9)
    assert found[1.0] < 5 * found[1e-3] < 30 * found[1e-4] < 0


def test_an_axis_that_is_spread_enough_and_axes_that_are_not_alike_cost_nothing():
    rows = torch.tensor([[2.0, 2.0], [2.0, -2.0], [-2.0, 2.0], [-2.0, -2.0]])
    assert float(VarianceCovarianceLoss()(rows)) == 0.0
    assert float(VarianceCovarianceLoss()(rows[[0, 3]])) > 0.0  # the two axes are one
