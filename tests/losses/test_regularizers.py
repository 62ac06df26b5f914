"""What every regulariser has in common: the contract of a loss, without labels and tuples."""

import copy
import pickle

import pytest
import torch
from torch import nn

from losses.synchronisations import device_step
from support.errors import refused
from uncollapse.health import CollapseMonitor, Guard, drift
from uncollapse.health.strategy import left_alone, strategy_of
from uncollapse.losses import (
    CodingRateLoss,
    IdentityLoss,
    MultipleLosses,
    SIGRegLoss,
    TrimmedLoss,
    TripletLoss,
    VarianceCovarianceLoss,
)
from uncollapse.mining import Miner

MAKERS = {
    "variance-covariance": VarianceCovarianceLoss,
    "coding-rate": CodingRateLoss,
    "sigreg": lambda **k: SIGRegLoss(slices=16, generator=torch.Generator().manual_seed(0), **k),
}
EVERY = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
LABELS = torch.arange(6).repeat_interleave(4)


def rows(seed=0, dtype=torch.float32):
    return torch.randn(24, 6, generator=torch.Generator().manual_seed(seed)).to(dtype)


def hard():
    return TripletLoss(margin=0.2, miner=Miner("hard", "hard"))


@EVERY
def test_labels_tuples_references_and_sample_ids_change_nothing(make):
    found = make()(rows())
    tuples = Miner("easy", "hard")(rows(), LABELS)
    for args, more in (
        ((LABELS,), {}),
        ((["a", "b"] * 12,), {}),
        ((None, tuples), {}),
        ((LABELS,), {"ref_embeddings": rows(1), "ref_labels": LABELS}),
        ((LABELS,), {"sample_ids": torch.arange(24)}),
    ):
        assert torch.equal(make()(rows(), *args, **more), found)
    with refused("labels"):
        make()(rows(), LABELS[:5])


@EVERY
def test_there_are_no_tuples_and_so_nothing_to_trim(make):
    assert not hasattr(make(), "elements")
    with refused("loss"):
        TrimmedLoss(make(), fraction=0.5)


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
        leaf = x.clone().requires_grad_()
        value = make(normalize=normalize)(leaf)
        value.backward()
        assert bool(torch.isfinite(value))
        assert bool(torch.isfinite(leaf.grad).all())


@EVERY
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_gives_the_same(make, copied):
    loss = MultipleLosses([hard(), make()], weights=[1.0, 0.1])
    again = copied(loss)
    assert torch.equal(again(rows(), LABELS), loss(rows(), LABELS))
    assert repr(again) == repr(loss)
    assert "Generator" not in repr(loss)


@EVERY
def test_its_drift_adds_to_that_of_the_loss_it_stands_beside(make):
    alone = [drift(one, rows(), LABELS).value for one in (hard(), make())]
    both = drift(MultipleLosses([hard(), make()], weights=[1.0, 0.3]), rows(), LABELS).value
    assert both == pytest.approx(alone[0] + 0.3 * alone[1], rel=1e-5)


@EVERY
def test_settings_of_the_sum_are_the_loss_s(make):
    loss = MultipleLosses([hard(), make()], weights=[1.0, 0.1])
    assert strategy_of(loss) == strategy_of(hard())
    assert CollapseMonitor(loss).loss.level is None  # a sum is not said to sit at the margin
    beside = MultipleLosses([IdentityLoss(hard(), num_classes=6, dim=6), make()])
    assert beside(rows(), LABELS).requires_grad


@EVERY
def test_what_is_tried_on_a_sum_leaves_its_draws_alone(make):
    def sum_of_two():
        return MultipleLosses([hard(), make()], weights=[1.0, 0.1])

    loss, other = sum_of_two(), sum_of_two()
    with left_alone(loss, strategy_of(loss)):
        loss(rows(1), LABELS)
    assert torch.equal(loss(rows(), LABELS), other(rows(), LABELS))


@EVERY
def test_a_guard_rescues_a_sum_whose_weight_is_too_small(make):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    mined = hard()
    loss = MultipleLosses([mined, make()], weights=[1.0, 1e-6])
    guard = Guard(model, optimiser, loss, CollapseMonitor(loss, every=10))
    labels = torch.arange(12).repeat_interleave(6)
    for step in range(60):
        z = model(torch.randn(72, 8, generator=torch.Generator().manual_seed(step)))
        value = loss(z, labels)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        guard.after_step(z, labels, value, step)
    assert [event.kind for event in guard.events][:1] == ["rescue"]
    assert strategy_of(mined) == guard.strategy != guard.first
    assert guard.monitor.verdict == "healthy"


@EVERY
def test_on_a_device_a_step_waits_once(make):
    leaf = rows().requires_grad_()
    with device_step() as seen:
        make()(leaf, LABELS).backward()
    assert len(seen.reads) <= 1, seen.reads


@EVERY
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_compiled_one_gives_the_same(make):
    torch.compiler.reset()
    torch.testing.assert_close(torch.compile(make(), backend="eager")(rows()), make()(rows()))
