"""Each regulariser against its formula, and what all have in common: no labels and no tuples."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given

import uncollapse as uc
from losses.loss_oracles import assert_same, batches, clouds, measured, unit
from support.errors import refused
from uncollapse.health import drift
from uncollapse.health.strategy import left_alone, strategy_of
from uncollapse.losses import CodingRateLoss, MultipleLosses, SIGRegLoss, VarianceCovarianceLoss
from uncollapse.losses.regularizers import Regularizer, epps_pulley
from uncollapse.mining import Miner


def seeded(seed=0, **settings):
    return SIGRegLoss(generator=torch.Generator().manual_seed(seed), **settings)


MAKE = {kind: kind for kind in Regularizer.__subclasses__()} | {SIGRegLoss: seeded}
EVERY = pytest.mark.parametrize("make", MAKE.values(), ids=[kind.__name__ for kind in MAKE])
LABELS = torch.arange(6).repeat_interleave(4)


def rows(seed=0, dtype=torch.float32):
    return torch.randn(24, 6, generator=torch.Generator().manual_seed(seed)).to(dtype)


def beside(make):
    hard = uc.TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    return MultipleLosses([hard, make()], weights=[1.0, 0.1])


@EVERY
def test_labels_tuples_references_and_sample_ids_change_nothing(make):
    plain = make()(rows())
    tuples = Miner("easy", "hard")(rows(), LABELS)
    for args, more in (
        ((LABELS,), {}),
        ((["a", "b"] * 12,), {}),
        ((None, tuples), {}),
        ((LABELS,), {"ref_embeddings": rows(1), "ref_labels": LABELS}),
        ((LABELS,), {"sample_ids": torch.arange(24)}),
    ):
        assert torch.equal(make()(rows(), *args, **more), plain)
    with refused("labels"):
        make()(rows(), LABELS[:5])


@EVERY
def test_there_are_no_tuples_and_so_nothing_to_trim(make):
    assert not hasattr(make(), "elements")
    with refused("loss"):
        uc.losses.TrimmedLoss(make(), fraction=0.5)


@EVERY
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_dtype_does(make, dtype):
    x = rows(dtype=dtype).requires_grad_()
    value = make()(x)
    value.backward()
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert x.grad.dtype == dtype
    assert bool(torch.isfinite(x.grad).all())


@EVERY
@pytest.mark.parametrize("normalize", [False, True])
def test_any_batch_has_a_finite_value_and_gradient(make, normalize):
    for x in (torch.ones(1, 3), torch.zeros(4, 3), torch.ones(5, 1), 1e-30 * rows(), 1e4 * rows()):
        value, gradient = measured(make(normalize=normalize), x)
        assert math.isfinite(value)
        assert bool(torch.isfinite(gradient).all())


@EVERY
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_gives_the_same(make, copied):
    loss = beside(make)
    again = copied(loss)
    assert torch.equal(again(rows(), LABELS), loss(rows(), LABELS))
    assert repr(again) == repr(loss)
    assert "Generator" not in repr(loss)


@EVERY
def test_beside_a_loss_its_drift_adds_and_settings_are_those_of_the_loss(make):
    loss = beside(make)
    alone = [drift(part, rows(), LABELS).value for part in (loss.inner, make())]
    assert drift(loss, rows(), LABELS).value == pytest.approx(alone[0] + 0.1 * alone[1], rel=1e-5)
    assert strategy_of(loss) == strategy_of(loss.inner)
    classified = MultipleLosses([uc.IdentityLoss(loss.inner, num_classes=6, dim=6), make()])
    assert classified(rows(), LABELS).requires_grad


@EVERY
def test_what_is_tried_on_a_sum_leaves_its_draws_alone(make):
    loss, other = beside(make), beside(make)
    with left_alone(loss, strategy_of(loss)):
        loss(rows(1), LABELS)
    assert torch.equal(loss(rows(), LABELS), other(rows(), LABELS))


@EVERY
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_compiled_one_gives_the_same(make):
    torch.compiler.reset()
    torch.testing.assert_close(torch.compile(make(), backend="eager")(rows()), make()(rows()))


# ---- variance and covariance


def variance_covariance(z, variance=25.0, covariance=1.0, target=1.0, eps=1e-4):
    """Bardes et al. 2022, column by column and pair of columns by pair of columns."""
    n, d = z.shape
    if n < 2:
        return z.sum() * 0
    centred = [z[:, i] - z[:, i].mean() for i in range(d)]
    total = torch.zeros((), dtype=z.dtype)
    for i in range(d):
        spread = torch.sqrt((centred[i] * centred[i]).sum() / (n - 1) + eps)
        total = total + variance / d * torch.relu(target - spread)
        for j in range(d):
            if j != i:
                alike = (centred[i] * centred[j]).sum() / (n - 1)
                total = total + covariance / d * alike**2
    return total


@given(batches())
def test_variance_and_covariance_equal_the_definition(batch):
    x, labels = batch
    loss = VarianceCovarianceLoss()
    assert_same(lambda z: loss(z, labels), variance_covariance, x, 1e-7)
    of_directions = VarianceCovarianceLoss(normalize=True, target=0.7)
    root = math.sqrt(x.shape[1])
    assert_same(
        of_directions, lambda z: variance_covariance(unit(z) * root, target=0.7), x + 0.1, 1e-7
    )


def test_a_point_costs_the_target_less_the_root_of_eps_and_has_no_gradient():
    value, gradient = measured(VarianceCovarianceLoss(), torch.full((6, 4), 3.0))
    assert value == pytest.approx(25 * 0.99)
    assert float(gradient.abs().max()) == 0.0


# ---- coding rate


def coding_rate(z, distortion=0.5):
    """-1/2 log det(I + d/(n ε²) ZᵀZ)."""
    n, d = z.shape
    gram = torch.eye(d, dtype=z.dtype) + d / (n * distortion) * z.T @ z
    return -0.5 * torch.linalg.slogdet(gram)[1]


@given(batches())
def test_the_coding_rate_is_the_definition_s_with_fewer_or_more_rows_than_columns(batch):
    x, labels = batch
    x = x + 0.1
    loss, free = CodingRateLoss(distortion=0.3), CodingRateLoss(normalize=False)
    assert_same(lambda z: loss(z, labels), lambda z: coding_rate(unit(z), 0.3), x, 1e-7)
    assert_same(lambda z: free(z, labels), coding_rate, x, 1e-7)


def test_the_value_of_orthogonal_equal_and_zero_rows_is_known():
    for n, d in ((4, 4), (3, 7)):
        most = -0.5 * n * math.log(1 + d / (n * 0.5))
        assert CodingRateLoss()(torch.eye(n, d)).item() == pytest.approx(most, rel=1e-6)
        cone = CodingRateLoss()(torch.ones(n, d)).item()
        assert cone == pytest.approx(-0.5 * math.log(1 + d / 0.5))
    assert CodingRateLoss()(torch.zeros(3, 2)).item() == 0.0


# ---- SIGReg


def directions(dim, slices):
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(dim, slices, generator=generator, dtype=torch.float64)
    return drawn / drawn.norm(dim=0)


def sigreg(z, slices, knots, reach):
    """The statistic of each projection, knot by knot, by the trapezium rule over both halves."""
    projected, n, total = z @ directions(z.shape[1], slices), len(z), 0.0
    step = reach / (knots - 1)
    for column in projected.T:
        for k in range(-knots + 1, knots):
            t = k * step
            phi = math.exp(-t * t / 2)
            end = 0.5 if abs(k) == knots - 1 else 1.0
            real, imaginary = torch.cos(t * column).mean() - phi, torch.sin(t * column).mean()
            total = total + n * end * step * phi * (real**2 + imaginary**2)
    return total / slices


SLICED = {"slices": 3, "knots": 5, "reach": 2.5}


@given(batches())
def test_sigreg_equals_the_definition(batch):
    x, labels = batch
    root = math.sqrt(x.shape[1])
    assert_same(lambda z: seeded(**SLICED)(z, labels), lambda z: sigreg(z, **SLICED), x, 1e-7)
    assert_same(
        lambda z: seeded(**SLICED, normalize=True)(z, labels),
        lambda z: sigreg(unit(z) * root, **SLICED),
        x + 0.1,
        1e-7,
    )


def test_the_fast_form_is_the_formula_and_has_its_derivatives():
    x = 2 * torch.randn(7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def loss(z):
        return seeded(slices=4, knots=9)(z)

    plain = epps_pulley(x @ directions(3, 4), knots=9).mean()
    assert loss(x).item() == pytest.approx(plain.item(), rel=1e-12)
    x.requires_grad_()
    assert torch.autograd.gradcheck(loss, x)
    assert torch.autograd.gradgradcheck(loss, x)


def test_at_the_origin_it_costs_what_the_docs_say_and_has_no_gradient():
    value, gradient = measured(seeded(), torch.zeros(50, 8))
    assert value / 50 == pytest.approx(0.402, abs=5e-4)
    assert float(gradient.abs().max()) == 0.0


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
    ("make", "truth", "offset"),
    [
        (VarianceCovarianceLoss, variance_covariance, 100.0),
        (CodingRateLoss, lambda z: coding_rate(unit(z)), 1.0),
        (lambda: seeded(**SLICED), lambda z: sigreg(z, **SLICED), 1.0),
    ],
)
def test_float32_far_from_the_origin_keeps_its_digits(make, truth, offset):
    x = (1e-3 * clouds(n=64, dim=8, dtype=torch.float64)[0] + offset).float()
    assert_same(lambda z: make()(z), truth, x, 1e-5)


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (SIGRegLoss, "knots", 1),
        (SIGRegLoss, "slices", 0),
        (SIGRegLoss, "reach", 0.0),
        (SIGRegLoss, "generator", 3),
        (VarianceCovarianceLoss, "variance", -1.0),
        (VarianceCovarianceLoss, "covariance", -1.0),
        (VarianceCovarianceLoss, "target", -1.0),
        (CodingRateLoss, "distortion", 0.0),
    ],
)
def test_impossible_settings_are_refused(make, name, value):
    with refused(name):
        make(**{name: value})
