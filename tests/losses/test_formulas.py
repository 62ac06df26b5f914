"""Every registered loss against the definition in its own test file, and its digits near collapse.

A loss is here by being registered: `definition` finds its formula.
"""

import inspect
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from losses import loss_oracles
from losses.loss_oracles import MINERS, Given, assert_same, batches, every_loss, measured, unit
from support.errors import refused
from uncollapse.losses.proxies import ProxyLoss
from uncollapse.losses.registry import LOSSES, always_normalizes, loss_settings, make_loss

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")

DEFINED = {kind: loss_oracles.definition(kind) for kind in LOSSES.values()}
EVERY = pytest.mark.parametrize("kind", LOSSES.values(), ids=LOSSES)
MAKE = loss_oracles.makers()
MADE = {name: make() for name, make in every_loss().items()}


@EVERY
def test_every_loss_has_its_definition_in_the_test_file_of_its_module(kind):
    assert DEFINED[kind] is not None


FORMS = [
    pytest.param(kind, form, id=f"{kind.info.name} {form or ''}")
    for kind, declared in DEFINED.items()
    for form in (declared.forms if declared else ())
]


@pytest.mark.parametrize(("kind", "form"), FORMS)
@given(batch=batches(), miner=MINERS, data=st.data())
def test_value_and_gradients_are_those_of_the_definition(kind, form, batch, miner, data):
    x, labels = batch
    x = x + 0.1  # no row is zero: a zero row has no cosine
    if issubclass(kind, ProxyLoss):  # a miner restricts the samples; in 1 dimension no angle is
        x, miner = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1), None
    declared = DEFINED[kind]
    drawn = {k: data.draw(st.sampled_from(v), label=k) for k, v in declared.drawn.items()}
    settings = {**drawn, **form}
    normalize = settings.get("normalize", always_normalizes(kind))
    ids = torch.arange(len(x)) // 2 if settings.pop("sample_ids", True) else None

    def made(miner):
        generator = torch.Generator().manual_seed(0)
        sizes = {"num_classes": 4, "dim": x.shape[1], "samples": len(x)}
        loss = make_loss(kind, settings, miner=miner, generator=generator, **sizes).double()
        for parameter in loss.parameters():  # β's start alike
            parameter.data += torch.linspace(-0.5, 0.7, parameter.numel()).view_as(parameter)
        return loss

    loss = made(miner)
    parameters = [p.detach().clone().requires_grad_() for p in loss.parameters()]
    tuples = None if miner is None else miner(unit(x) if normalize else x, labels)

    def truth(wide):
        rows, numbers = unit(wide) if normalize else wide, None if ids is None else ids.tolist()
        return declared.formula(
            Given(rows, labels.tolist(), tuples, numbers, *parameters), **settings
        )

    assert_same(lambda z: loss(z, labels, sample_ids=ids), truth, x, 1e-7)
    if tuples is not None:
        bare = made(None)
        assert_same(lambda z: bare(z, labels, tuples, sample_ids=ids), truth, x, 1e-7)
    expected = truth(x)
    if parameters and expected.requires_grad:
        (slope,) = torch.autograd.grad(expected, parameters)
        (gradient,) = (p.grad for p in loss.parameters())
        torch.testing.assert_close(gradient, slope, rtol=1e-6, atol=1e-9)


@EVERY
def test_what_all_embeddings_in_one_point_cost_is_as_documented_and_the_gradient_zero(kind):
    x, labels = torch.full((12, 6), 0.3), torch.arange(12) // 3
    assert DEFINED[kind].collapsed
    for settings, value in DEFINED[kind].collapsed:
        loss = MAKE[kind.info.name](**settings)
        if isinstance(loss, ProxyLoss):  # which pulls classes apart until proxies coincide too
            assert float(measured(lambda z, f=loss: f(z, labels), x)[1].norm()) > 0.1
            loss.proxies.data = torch.ones_like(loss.proxies)
        cost, gradient = measured(lambda z, f=loss: f(z, labels), x)
        assert cost == pytest.approx(value, rel=1e-5)
        assert float(gradient.abs().max()) < 1e-6


@EVERY
def test_every_number_among_the_settings_is_checked_when_made_and_when_set(kind):
    wrong = DEFINED[kind].refused
    settings = loss_settings(kind)
    numbers = {k for k, p in settings.items() if type(p.default) in (float, int)}
    assert wrong.keys() == numbers, "one value that is refused for each"
    for name, value in wrong.items():
        for given_value in (value, math.nan, "wide"):
            with refused(name):
                MAKE[kind.info.name](**{name: given_value})
        if inspect.getattr_static(kind, name, None) is not None:  # not where β starts
            loss = MAKE[kind.info.name]()
            with refused(name):
                setattr(loss, name, value)
            assert getattr(loss, name) == settings[name].default


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("noise", [1e-2, 1e-5])
def test_every_float32_gradient_is_right_near_collapse(name, noise):
    if name.startswith("n-pair"):
        pytest.skip("inner products of raw embeddings have no centre to be taken about")
    loss = MADE[name]
    g = torch.Generator().manual_seed(0)
    x, labels = 1.0 + noise * torch.randn(24, 6, generator=g), torch.arange(24) // 6
    loss_oracles.assert_right_in_float32(loss, x, labels)
    if isinstance(loss, ProxyLoss) and "sub_centers" not in name:  # which of two is a toss-up
        loss = every_loss()[name]()  # and where the proxies nearly coincide with the rows
        loss.proxies.data = 1.0 + noise * torch.randn(loss.proxies.shape, generator=g)
        loss_oracles.assert_right_in_float32(loss, x, labels)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_loss_takes_every_dtype_and_ignores_autocast(name, dtype):
    x = torch.randn(12, 6, generator=torch.Generator().manual_seed(0)).to(dtype)
    labels = torch.arange(12) // 3
    value, gradient = measured(lambda z: MADE[name](z, labels), x)
    assert math.isfinite(value)
    assert bool(torch.isfinite(gradient).all())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again, other = measured(lambda z: MADE[name](z, labels), x)
    assert value == again
    if "identity" not in name:  # whose classifier has a backward pass of torch's
        assert torch.equal(gradient, other)
    if dtype in (torch.float16, torch.bfloat16):  # rounded once, from float32
        wide = measured(lambda z: MADE[name](z, labels), x.float())
        assert value == pytest.approx(wide[0], rel=1e-6)
        torch.testing.assert_close(gradient.to(dtype), wide[1].to(dtype))


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2], [3]])
def test_every_loss_is_finite_on_one_class_and_on_singletons(name, labels):
    x = torch.randn(len(labels), 6, generator=torch.Generator().manual_seed(0))
    value, gradient = measured(lambda z: MADE[name](z, labels), x)
    assert math.isfinite(value)
    assert bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("name", ["circle", "smooth-ap", "spread"])
def test_anchors_without_a_positive_are_left_out(name):
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    assert MADE[name].elements(x, [0, 0, 1, 1, 2]).anchor.tolist() == [0, 1, 2, 3]
