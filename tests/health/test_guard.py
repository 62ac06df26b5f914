import copy

import pytest
import torch
from torch import nn

from uncollapse.health import CollapseMonitor
from uncollapse.health.guard import Guard
from uncollapse.health.strategy import Strategy, apply_strategy, strategy_of
from uncollapse.losses import TrimmedLoss, TripletLoss
from uncollapse.mining import Miner

pytestmark = pytest.mark.slow

LABELS = torch.arange(12).repeat_interleave(6)


def parts(action: str, **options):
    """Labels that the samples do not show: batch-hard collapses on them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    loss = TripletLoss(
        margin=0.2, miner=Miner("hard", "hard", generator=torch.Generator().manual_seed(0))
    )
    monitor = CollapseMonitor(loss, every=10)
    return model, optimiser, loss, Guard(model, optimiser, loss, monitor, action=action, **options)


def run(model, optimiser, loss, guard, steps: int, start: int = 0):
    for step in range(start, steps):
        generator = torch.Generator().manual_seed(step)
        z = model(torch.randn(72, 8, generator=generator))
        value = loss(z, LABELS)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        guard.after_step(z, LABELS, value, step)
        if guard.stopped:
            break
    return guard


def test_warn_says_it_and_changes_nothing():
    model, optimiser, loss, guard = parts("warn")
    run(model, optimiser, loss, guard, 150)
    assert guard.monitor.verdict == "network-collapse"
    kinds = [event.kind for event in guard.events]
    assert kinds
    assert set(kinds) == {"warning"}
    assert "try positives = inside" in str(guard.events[-1])
    assert strategy_of(loss) == guard.first


def test_stop_ends_the_run_at_network_collapse():
    guard = run(*parts("stop"), 300)
    assert guard.stopped
    assert guard.events[-1].kind in ("stop", "warning")
    assert any(event.kind == "stop" for event in guard.events)


def test_rescue_rolls_back_and_keeps_the_embedding_alive():
    lone = run(*parts("warn"), 150)
    model, optimiser, loss, guard = parts("rescue")
    run(model, optimiser, loss, guard, 150)
    assert guard.events[0].kind == "rescue"
    assert "Rolled back to step" in guard.events[0].text
    assert guard.strategy != guard.first
    assert loss.scale_free
    saved, lost = guard.monitor.health.diameter, lone.monitor.health.diameter
    assert saved > 20 * lost
    assert guard.monitor.verdict != "network-collapse"


def test_a_saved_guard_goes_on_as_if_nothing_had_happened():
    whole = run(*parts("rescue"), 120)
    model, optimiser, loss, guard = parts("rescue")
    run(model, optimiser, loss, guard, 60)
    saved = copy.deepcopy((model.state_dict(), optimiser.state_dict(), guard.state_dict()))
    random = loss.miner.generator.get_state()
    model, optimiser, loss, guard = parts("rescue")
    model.load_state_dict(saved[0])
    optimiser.load_state_dict(saved[1])
    guard.load_state_dict(saved[2])
    loss.miner.generator.set_state(random)
    run(model, optimiser, loss, guard, 120, start=60)
    assert guard.events == whole.events
    assert guard.monitor.health.diameter == whole.monitor.health.diameter


def test_a_trimmed_loss_is_changed_inside():
    loss = TrimmedLoss(TripletLoss(margin=0.2, miner=Miner("hard", "hard")), fraction=0.5)
    apply_strategy(loss, Strategy("easy", "hard", 16, True))
    assert strategy_of(loss) == Strategy("easy", "hard", 16, True, 0.2, False)


def test_an_unknown_action_is_refused():
    with pytest.raises(ValueError, match="action: expected one of 'warn', 'stop', 'rescue'"):
        parts("panic")


def test_a_rescue_does_not_wait_for_the_verdict():
    model, optimiser, loss, guard = parts("rescue")
    run(model, optimiser, loss, guard, 150)
    first = guard.events[0]
    assert first.kind == "rescue"
    assert "predicts" in first.text
    lone = run(*parts("warn"), 150)
    assert first.step < lone.monitor.changes[0][0]


def test_an_embedding_that_shrinks_without_drift_is_left_alone():
    _, _, loss, guard = parts("rescue")
    apply_strategy(loss, Strategy("easy", "semihard", None, False))
    guard.first = guard.strategy = strategy_of(loss)
    centres = torch.randn(12, 8, generator=torch.Generator().manual_seed(9))
    for step in range(40):  # scale falls to 40 % while classes stay apart: nothing drifts
        noise = torch.randn(72, 8, generator=torch.Generator().manual_seed(step))
        guard.after_step((1 - 0.015 * step) * (centres[LABELS] + 0.05 * noise), LABELS, 0.1, step)
    assert guard.events == []
