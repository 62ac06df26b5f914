"""Runs that blow up: what the guard says, where it goes back to, and at what learning rate."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import Tensor, nn

from uncollapse.health import CollapseMonitor, Guard, RunSettings
from uncollapse.losses import Loss, MarginLoss, TripletLoss
from uncollapse.mining import Miner

pytestmark = pytest.mark.slow

LABELS = torch.arange(8).repeat_interleave(4)
NAN = torch.full((32, 4), float("nan"))


def parts(
    action: str, lr: float, loss: Loss | None = None, **options: int
) -> tuple[nn.Module, torch.optim.Optimizer, Loss, Guard]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
    loss = loss or TripletLoss(margin=0.2, miner=Miner("easy", "semihard"))
    optimiser = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=lr)
    monitor = CollapseMonitor(loss, settings=RunSettings(lr=lr))
    return model, optimiser, loss, Guard(model, optimiser, loss, monitor, action=action, **options)


def batch(step: int) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    means = torch.randn(8, 6, generator=torch.Generator().manual_seed(99))
    return means[LABELS] + 0.5 * torch.randn(32, 6, generator=generator)


def run(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    loss: Loss,
    guard: Guard,
    steps: int,
    start: int = 1,
) -> Guard:
    """One's own loop: what is not finite goes to the guard without a loss."""
    for step in range(start, steps + 1):
        z = model(batch(step))
        value = None
        if bool(torch.isfinite(z).all()):
            value = loss(z, LABELS)
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
        guard.after_step(z, LABELS, value, step)
        if guard.stopped:
            break
    return guard


def finite(*modules: nn.Module) -> bool:
    return all(bool(torch.isfinite(p).all()) for one in modules for p in one.parameters())


def test_a_rate_far_too_high_is_lowered_until_the_run_trains() -> None:
    model, optimiser, loss, guard = parts("rescue", 1e6)
    run(model, optimiser, loss, guard, 200)
    assert {event.kind for event in guard.events} == {"rescue"}
    assert all(event.text.startswith("diverging: ") for event in guard.events)
    assert f"going on at lr x {guard.lr_factor:.2g}" in guard.events[-1].text
    assert guard.lr_factor == pytest.approx(0.1 ** len(guard.events))
    assert optimiser.param_groups[0]["lr"] == pytest.approx(1e6 * guard.lr_factor)
    assert finite(model)
    assert guard.monitor.verdict == "healthy"


def test_what_the_loss_has_learned_is_rolled_back_as_well() -> None:
    loss = MarginLoss(learn_beta=True)
    model, optimiser, _, guard = parts("rescue", 1e30, loss)
    first = loss.beta.detach().clone()
    run(model, optimiser, loss, guard, 1)
    assert not torch.equal(loss.beta, first)
    guard.after_step(NAN, LABELS, None, 2)
    assert torch.equal(loss.beta, first)


@pytest.mark.parametrize("lost", [NAN, torch.full((32, 4), float("inf")), 1e30 * NAN])
def test_warn_says_it_once_and_changes_nothing(lost: Tensor) -> None:
    model, optimiser, _, guard = parts("warn", 0.1)
    before = copy.deepcopy(model.state_dict())
    said = [event for step in range(3) for event in guard.after_step(lost, LABELS, None, step)]
    assert [event.kind for event in said] == ["warning"]
    assert "diverging: embeddings: NaN or infinite" in said[0].text
    assert "try lr = 0.01, gradient clipping" in said[0].text
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert optimiser.param_groups[0]["lr"] == 0.1


def test_stop_ends_the_run() -> None:
    guard = run(*parts("stop", 1e18), 20)
    assert guard.stopped
    assert [event.kind for event in guard.events] == ["stop"]
    assert guard.monitor.verdict == "diverging"


def test_a_loss_that_is_not_finite_is_divergence_too() -> None:
    *_, guard = parts("rescue", 0.1)
    (event,) = guard.after_step(torch.randn(32, 4), LABELS, float("inf"), 1)
    assert (event.kind, guard.lr_factor) == ("rescue", pytest.approx(0.1))
    assert "the loss: NaN or infinite" in event.text


def test_a_snapshot_of_the_step_that_diverged_is_not_gone_back_to() -> None:
    model, optimiser, loss, guard = parts("rescue", 0.05, snapshot_every=1)
    run(model, optimiser, loss, guard, 5)
    for group in optimiser.param_groups:
        group["lr"] = 1e30
    run(model, optimiser, loss, guard, 7, start=6)  # 6 steps into the void, and is copied
    assert [event.step for event in guard.events] == [7]
    assert "Rolled back to step 5" in guard.events[0].text
    assert finite(model)


def test_what_no_rate_cures_is_given_up() -> None:
    *_, guard = parts("rescue", 0.1)
    for step in range(40):
        guard.after_step(NAN, LABELS, None, step)
        if guard.stopped:
            break
    assert step == 30
    assert guard.events[-1].kind == "stop"
    assert "30 lower rates did not help" in guard.events[-1].text


def test_a_thousandfold_growth_from_a_tiny_start_is_only_said() -> None:
    model, *_, guard = parts("rescue", 0.05)
    for step, scale in enumerate([1e-4, 1e-4, *[1.0] * 8]):
        guard.after_step(scale * model(batch(step)), LABELS, 0.1, step)
    assert [event.kind for event in guard.events] == ["warning"]
    assert guard.lr_factor == 1.0


def test_a_saved_guard_goes_on_after_a_divergence() -> None:
    whole = run(*parts("rescue", 1e3), 60)
    model, optimiser, loss, guard = parts("rescue", 1e3)
    run(model, optimiser, loss, guard, 15)
    assert guard.events
    buffer = io.BytesIO()
    torch.save([model.state_dict(), optimiser.state_dict(), guard.state_dict()], buffer)
    buffer.seek(0)
    saved = torch.load(buffer, weights_only=True)
    model, optimiser, loss, guard = parts("rescue", 1e3)
    for part, state in zip((model, optimiser, guard), saved, strict=True):
        part.load_state_dict(state)
    run(model, optimiser, loss, guard, 60, start=16)
    assert guard.events == whole.events
    assert guard.monitor.health.diameter == whole.monitor.health.diameter
    assert guard.monitor.settings == whole.monitor.settings
