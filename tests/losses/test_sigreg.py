import math

import numpy as np
import pytest
import torch
from hypothesis import given
from scipy import integrate

from losses.loss_oracles import assert_same, batches, clouds, measured, unit
from uncollapse._base.check import InputError
from uncollapse.health import drift
from uncollapse.losses import SIGRegLoss
from uncollapse.losses.regularizers import epps_pulley


def seeded(seed=0, **settings):
    return SIGRegLoss(generator=torch.Generator().manual_seed(seed), **settings)


def directions(dim, slices, seed=0):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(dim, slices, generator=generator, dtype=torch.float64)
    return drawn / drawn.norm(dim=0)


def truth(z, slices, knots, reach, seed=0):
    """The statistic of each projection, knot by knot, by the trapezium rule over both halves."""
    projected, n, total = z @ directions(z.shape[1], slices, seed), len(z), 0.0
    step = reach / (knots - 1)
    for column in projected.T:
        for k in range(-knots + 1, knots):
            t = k * step
            phi = math.exp(-t * t / 2)
            end = 0.5 if abs(k) == knots - 1 else 1.0
            real, imaginary = torch.cos(t * column).mean() - phi, torch.sin(t * column).mean()
            total = total + n * end * step * phi * (real**2 + imaginary**2)
    return total / slices


@given(batches())
def test_it_equals_the_definition(batch):
    x, labels = batch
    options = {"slices": 3, "knots": 5, "reach": 2.5}

    def ours(z):
        return seeded(**options)(z, labels)

    assert_same(ours, lambda z: truth(z, **options), x, 1e-7)

    def of_directions(z):
        return seeded(**options, normalize=True)(z, labels)

    root = math.sqrt(x.shape[1])
    assert_same(of_directions, lambda z: truth(unit(z) * root, **options), x + 0.1, 1e-7)


def test_the_fast_form_is_the_formula_and_has_its_derivatives():
    x = 2 * torch.randn(7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def loss(z):
        return seeded(slices=4, knots=9)(z)

    plain = epps_pulley(x @ directions(3, 4), knots=9).mean()
    assert loss(x).item() == pytest.approx(plain.item(), rel=1e-12)
    x.requires_grad_()
    assert torch.autograd.gradcheck(loss, x)
    assert torch.autograd.gradgradcheck(loss, x)


def test_many_knots_give_the_integral_of_epps_and_pulley():
    x = np.array([-1.0, 0.2, 0.5, 2.0])

    def integrand(t):
        sample = np.exp(1j * t * x).mean()
        return abs(sample - np.exp(-t * t / 2)) ** 2 * np.exp(-t * t / 2)

    expected = len(x) * integrate.quad(integrand, -8, 8, epsabs=1e-12)[0]
    found = epps_pulley(torch.from_numpy(x)[:, None], knots=400, reach=8.0)
    assert found.item() == pytest.approx(expected, rel=1e-9)


def test_at_the_origin_it_costs_what_the_docs_say_and_has_no_gradient():
    value, gradient = measured(seeded(), torch.zeros(50, 8))
    assert value / 50 == pytest.approx(0.402, abs=5e-4)
    assert float(gradient.abs().max()) == 0.0
    whole = math.sqrt(2 * math.pi) * (1 - math.sqrt(2) + 1 / math.sqrt(3))  # over all of the line
    line = seeded(knots=200, reach=9.0)(torch.zeros(50, 8)).item()
    assert line / 50 == pytest.approx(whole, rel=1e-6)


def test_a_normal_sample_costs_least():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(256, 8, generator=generator)
    cost = seeded()(z).item()
    flat = z.clone()
    flat[:, 4:] = 0.0
    lumps = torch.sign(z)
    for other in (0.1 * z, 5 * z, z + 2.0, flat, lumps[:, :1] * torch.ones(8)):
        assert seeded()(other).item() > 3 * cost


def test_its_push_fades_close_to_a_point():
    z, labels = clouds(n=64, dim=8, dtype=torch.float64)
    z = z - z.mean(0)
    near, nearer = (drift(seeded(), scale * z, labels).value for scale in (1e-2, 1e-4))
    assert near < 0.0
    assert nearer == pytest.approx(1e-2 * near, rel=1e-2)  # in proportion to the spread


def test_what_is_too_far_out_is_mistaken_for_something_nearer():
    period = 2 * math.pi * 16 / 3.0
    near = torch.linspace(-1, 1, 8, dtype=torch.float64)[:, None]
    torch.testing.assert_close(epps_pulley(near + period), epps_pulley(near))


def test_float32_far_from_the_origin_keeps_its_digits():
    x = (1e-4 * clouds(n=32, dim=8, dtype=torch.float64)[0] + 1.0).float()
    options = {"slices": 4, "knots": 9, "reach": 3.0}
    assert_same(lambda z: seeded(**options)(z), lambda z: truth(z, **options), x, 1e-5)


def test_directions_are_fresh_in_every_call_and_the_same_from_the_same_state():
    x, loss = clouds(n=32, dim=8)[0], seeded()
    first = loss(x)
    state = loss.state_dict()
    then = [loss(x) for _ in range(3)]
    assert len({value.item() for value in (first, *then)}) == 4
    again = seeded(7)
    again.load_state_dict(state)
    assert all(torch.equal(value, again(x)) for value in then)
    assert torch.equal(first, seeded()(x))


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [("knots", 1, "at least 2"), ("slices", 0, "at least 1"), ("generator", 3, "torch.Generator")],
)
def test_impossible_settings_are_refused(name, value, allowed):
    with pytest.raises(InputError, match=f"{name}: expected .*{allowed}"):
        SIGRegLoss(**{name: value})
