"""Sums of losses: values, gradients and drifts add up; the first is the one a guard changes."""

import pytest
import torch
from torch import nn

from uncollapse._base.check import InputError
from uncollapse.health import CollapseMonitor, Guard, drift
from uncollapse.health.strategy import strategy_of
from uncollapse.losses import (
    ContrastiveLoss,
    MultipleLosses,
    MultiSimilarityLoss,
    ProxyNCALoss,
    TrimmedLoss,
    TripletLoss,
)
from uncollapse.mining import Miner

LABELS = torch.arange(8).repeat_interleave(4)


def rows(seed: int = 0) -> torch.Tensor:
    return torch.randn(32, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def parts() -> list:
    return [
        TripletLoss(margin=0.2, miner=Miner("hard", "hard")),
        MultiSimilarityLoss(),
        ProxyNCALoss(num_classes=8, dim=6).double(),
    ]


def test_values_and_gradients_are_those_of_the_weighted_sum():
    losses, weights = parts(), [1.0, 0.3, 2.0]
    one, other = rows().requires_grad_(), rows().requires_grad_()
    total = MultipleLosses(losses, weights=weights)(one, LABELS)
    each = [w * loss(other, LABELS) for w, loss in zip(weights, losses, strict=True)]
    expected = torch.stack(each).sum()
    assert float(total.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    total.backward()
    expected.backward()
    assert torch.allclose(one.grad, other.grad, rtol=1e-12, atol=1e-14)


def test_drifts_add_up_with_their_weights():
    losses = [
        TripletLoss(margin=0.2, miner=Miner("hard", "hard")),
        ContrastiveLoss(margin=1.0),
    ]
    alone = [drift(loss, rows(), LABELS).value for loss in losses]
    both = drift(MultipleLosses(losses, weights=[0.5, 3.0]), rows(), LABELS).value
    assert both == pytest.approx(0.5 * alone[0] + 3.0 * alone[1], rel=1e-9)


def test_settings_and_parameters_are_the_first_s_and_everybody_s():
    total = MultipleLosses(parts())
    assert strategy_of(total) == strategy_of(total.inner)
    assert total.inner.margin == 0.2
    assert [tuple(p.shape) for p in total.parameters()] == [(8, 1, 6)]
    again = MultipleLosses(parts())
    again.load_state_dict(total.state_dict())
    values = [float(one(rows(), LABELS).detach()) for one in (again, total)]
    assert values[0] == values[1]


def test_a_sum_is_not_said_to_sit_at_the_margin():
    assert CollapseMonitor(parts()[0]).loss.level == 0.2
    assert CollapseMonitor(MultipleLosses(parts())).loss.level is None


def test_a_guard_rescues_a_sum_by_changing_its_first_loss():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    mined = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    loss = MultipleLosses([mined, MultiSimilarityLoss()], weights=[1.0, 1e-3])
    guard = Guard(model, optimiser, loss, CollapseMonitor(loss, every=10))
    labels = torch.arange(12).repeat_interleave(6)
    for step in range(60):
        generator = torch.Generator().manual_seed(step)
        z = model(torch.randn(72, 8, generator=generator))
        value = loss(z, labels)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        guard.after_step(z, labels, value, step)
    assert [event.kind for event in guard.events][:1] == ["rescue"]
    assert guard.events[0].race is not None
    assert strategy_of(mined) == guard.strategy != guard.first
    assert guard.monitor.verdict == "healthy"


@pytest.mark.parametrize(
    ("losses", "options", "message"),
    [
        ([TripletLoss()], {}, "losses: expected two losses or more, got 1"),
        ([TripletLoss(), nn.ReLU()], {}, "losses: expected losses of uncollapse.losses, got ReLU"),
        ([TripletLoss(), TripletLoss()], {"weights": [1]}, "weights: expected 2, one for each"),
        ([TripletLoss(), TripletLoss()], {"weights": [1, -1]}, "weights: expected a"),
    ],
)
def test_what_cannot_be_added_up_is_refused(losses, options, message):
    with pytest.raises(ValueError, match=message):
        MultipleLosses(losses, **options)


def test_a_sum_has_no_tuples_of_its_own():
    with pytest.raises(InputError, match=r"MultipleLosses\(TrimmedLoss"):
        TrimmedLoss(MultipleLosses(parts()), fraction=0.5)
    assert not hasattr(MultipleLosses(parts()), "elements")
