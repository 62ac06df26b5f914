import math

import pytest
import torch
from hypothesis import given

from losses.loss_oracles import assert_same, batches, clouds, measured, unit
from uncollapse.health import drift
from uncollapse.losses import CodingRateLoss


def truth(z, distortion=0.5):
    """-1/2 log det(I + d/(n ε²) ZᵀZ) by the singular values."""
    n, d = z.shape
    gram = z.T @ z
    return -0.5 * torch.linalg.slogdet(torch.eye(d, dtype=z.dtype) + d / (n * distortion) * gram)[1]


@given(batches())
def test_it_equals_the_definition_with_fewer_or_more_rows_than_columns(batch):
    x, labels = batch
    x = x + 0.1
    loss = CodingRateLoss(distortion=0.3)
    assert_same(lambda z: loss(z, labels), lambda z: truth(unit(z), 0.3), x, 1e-7)
    free = CodingRateLoss(normalize=False)
    assert_same(lambda z: free(z, labels), truth, x, 1e-7)


def test_the_value_of_orthogonal_and_of_equal_rows_is_known():
    for n, d in ((4, 4), (3, 7)):
        spread, cone = torch.eye(n, d), torch.ones(n, d)
        most = -0.5 * n * math.log(1 + d / (n * 0.5))
        assert CodingRateLoss()(spread).item() == pytest.approx(most, rel=1e-6)
        assert CodingRateLoss()(cone).item() == pytest.approx(-0.5 * math.log(1 + d / 0.5))


def test_zero_rows_have_no_rate():
    assert CodingRateLoss()(torch.zeros(3, 2)).item() == 0.0


def test_float32_in_a_narrow_cone_keeps_its_digits():
    x = (1.0 + 1e-3 * clouds(n=64, dim=8, dtype=torch.float64)[0]).float()
    assert_same(CodingRateLoss(), lambda z: truth(unit(z)), x, 1e-5)


def test_it_is_blind_to_scale_unless_it_sees_the_rows_as_they_are():
    x, labels = clouds(n=64, dim=8, dtype=torch.float64)
    assert CodingRateLoss()(x).item() == pytest.approx(CodingRateLoss()(1e-6 * x).item())
    about = torch.cat([x, -x])  # no mean: the gradient along each row is all of the drift
    both = torch.cat([labels, labels])
    assert abs(drift(CodingRateLoss(), about, both).value) < 1e-9
    assert drift(CodingRateLoss(normalize=False), about, both).value < -1.0


def test_a_cone_is_pushed_apart_and_a_single_direction_has_no_gradient_along_the_sphere():
    x, labels = clouds(n=64, dim=8, dtype=torch.float64)
    cone = 10.0 + x
    assert drift(CodingRateLoss(), cone, labels, normalize=True).value < -1.0
    _, gradient = measured(CodingRateLoss(), torch.full((6, 4), 3.0))
    assert float(gradient.abs().max()) < 1e-6
