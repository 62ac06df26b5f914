"""The guard: what it says, when it stops, where it rolls back to and what it changes."""

import copy
import io
import re
from functools import cache

import pytest
import torch
from torch import nn

from support.errors import refused
from uncollapse.health import CollapseMonitor, Guard, RunSettings
from uncollapse.health.race import LoopTrial, Trial
from uncollapse.health.strategy import Strategy, apply_strategy, strategy_of
from uncollapse.losses import MarginLoss, ProxyNCALoss, TrimmedLoss, TripletLoss
from uncollapse.mining import Miner

LABELS = torch.arange(12).repeat_interleave(6)
STEPS = 170  # of a run that collapses


class Run:
    """A loop with a guard, on labels that the samples do not show: batch-hard collapses on them."""

    labels, every = LABELS, 10

    def __init__(self, action, **options):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        miner = Miner("hard", "hard", generator=torch.Generator().manual_seed(0))
        self.loss = TripletLoss(margin=0.2, miner=miner)
        monitor = CollapseMonitor(self.loss, every=self.every)
        self.guard = Guard(self.model, self.optimiser, self.loss, monitor, action=action, **options)

    def batch(self, step):
        return torch.randn(72, 8, generator=torch.Generator().manual_seed(step))

    def train(self, until, start=1):
        """One's own loop: what is not finite goes to the guard without a loss."""
        for step in range(start, until + 1):
            z, value = self.model(self.batch(step)), None
            if bool(torch.isfinite(z).all()):
                value = self.loss(z, self.labels)
                self.optimiser.zero_grad()
                value.backward()
                self.optimiser.step()
            self.guard.after_step(z, self.labels, value, step)
            if self.guard.stopped:
                break
        return self.guard

    def state(self):
        """Through a file: what a user saves."""
        file = io.BytesIO()
        parts = (self.model, self.optimiser, self.guard)
        torch.save([part.state_dict() for part in parts], file)
        file.seek(0)
        return torch.load(file, weights_only=True)

    def load(self, states):
        for part, state in zip((self.model, self.optimiser, self.guard), states, strict=True):
            part.load_state_dict(state)


@cache
def collapsed_run(action):
    """A finished run, to be read only."""
    run = Run(action)
    run.train(STEPS)
    return run


@pytest.mark.slow
def test_warn_says_it_and_changes_nothing():
    guard = collapsed_run("warn").guard
    assert guard.monitor.verdict == "network-collapse"
    assert {event.kind for event in guard.events} == {"warning"}
    assert "try positives = inside" in str(guard.events[-1])
    assert strategy_of(guard.loss_fn) == guard.first


@pytest.mark.slow
def test_stop_ends_the_run_at_network_collapse():
    guard = Run("stop").train(300)
    assert guard.stopped
    assert {"stop"} <= {event.kind for event in guard.events} <= {"stop", "warning"}


@pytest.mark.slow
def test_rescue_rolls_back_before_the_verdict_and_keeps_the_embedding_alive():
    lone, guard = collapsed_run("warn").guard, collapsed_run("rescue").guard
    first = guard.events[0]
    assert first.kind == "rescue"
    assert "Rolled back to step" in first.text
    assert "predicts" in first.text
    assert first.step < lone.monitor.changes[0][0]
    assert guard.strategy != guard.first
    assert guard.loss_fn.scale_free
    assert guard.monitor.health.diameter > 20 * lone.monitor.health.diameter
    assert guard.monitor.verdict != "network-collapse"


@pytest.mark.slow
def test_a_saved_guard_goes_on_as_if_nothing_had_happened():
    whole, first, second = collapsed_run("rescue").guard, Run("rescue"), Run("rescue")
    first.train(60)
    assert first.guard.events
    second.load(first.state())
    second.loss.miner.generator.set_state(first.loss.miner.generator.get_state())
    guard = second.train(STEPS, start=61)
    assert guard.events == whole.events
    assert guard.monitor.health.diameter == whole.monitor.health.diameter


def test_a_trimmed_loss_is_changed_inside():
    loss = TrimmedLoss(TripletLoss(margin=0.2, miner=Miner("hard", "hard")), fraction=0.5)
    apply_strategy(loss, Strategy("easy", "hard", 16, True))
    assert strategy_of(loss) == Strategy("easy", "hard", 16, True, 0.2, False)


def test_an_unknown_action_is_refused():
    with refused("action"):
        Run("panic")


def test_an_embedding_that_shrinks_without_drift_is_left_alone():
    run = Run("rescue")
    apply_strategy(run.loss, Strategy("easy", "semihard", None, False))
    run.guard.first = run.guard.strategy = strategy_of(run.loss)
    centres = torch.randn(12, 8, generator=torch.Generator().manual_seed(9))
    for step in range(40):  # scale falls to 40 % while classes stay apart: nothing drifts
        z = (1 - 0.015 * step) * (centres[LABELS] + 0.05 * run.batch(step))
        run.guard.after_step(z, LABELS, 0.1, step)
    assert run.guard.events == []


class Diverging(Run):
    """A loop that learns, at a rate that may be far too high."""

    labels = torch.arange(8).repeat_interleave(4)

    def __init__(self, action, lr, loss=None, **options):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
        self.loss = loss or TripletLoss(margin=0.2, miner=Miner("easy", "semihard"))
        learned = [*self.model.parameters(), *self.loss.parameters()]
        self.optimiser = torch.optim.SGD(learned, lr=lr)
        monitor = CollapseMonitor(self.loss, settings=RunSettings(lr=lr))
        self.guard = Guard(self.model, self.optimiser, self.loss, monitor, action=action, **options)

    def batch(self, step):
        means = torch.randn(8, 6, generator=torch.Generator().manual_seed(99))
        noise = torch.randn(32, 6, generator=torch.Generator().manual_seed(step))
        return means[self.labels] + 0.5 * noise

    @property
    def finite(self):
        return all(bool(torch.isfinite(p).all()) for p in self.model.parameters())


NAN = torch.full((32, 4), float("nan"))


@pytest.mark.slow
def test_a_rate_far_too_high_is_lowered_until_the_run_trains():
    run = Diverging("rescue", 1e6)
    guard = run.train(150)
    assert {event.kind for event in guard.events} == {"rescue"}
    assert all(event.text.startswith("diverging: ") for event in guard.events)
    assert f"going on at lr x {guard.lr_factor:.2g}" in guard.events[-1].text
    assert guard.lr_factor == pytest.approx(0.1 ** len(guard.events))
    assert run.optimiser.param_groups[0]["lr"] == 1e6  # a schedule is not disturbed
    assert run.finite
    assert guard.monitor.verdict == "healthy"


def test_what_the_loss_has_learned_is_rolled_back_as_well():
    loss = MarginLoss(learn_beta=True)
    run = Diverging("rescue", 1e30, loss)
    first = loss.beta.detach().clone()
    run.train(1)
    assert not torch.equal(loss.beta, first)
    run.guard.after_step(NAN, run.labels, None, 2)
    assert torch.equal(loss.beta, first)


@pytest.mark.parametrize("lost", [NAN, torch.full((32, 4), float("inf"))], ids=["nan", "inf"])
def test_warn_reports_lost_embeddings_once_and_changes_nothing(lost):
    run = Diverging("warn", 0.1)
    before = copy.deepcopy(run.model.state_dict())
    events = [e for step in range(3) for e in run.guard.after_step(lost, run.labels, None, step)]
    assert [event.kind for event in events] == ["warning"]
    assert "diverging: embeddings: NaN or infinite" in events[0].text
    assert "try lr = 0.01, gradient clipping" in events[0].text
    assert all(torch.equal(value, before[key]) for key, value in run.model.state_dict().items())
    assert run.optimiser.param_groups[0]["lr"] == 0.1


def test_stop_ends_a_run_that_diverges():
    guard = Diverging("stop", 1e18).train(20)
    assert guard.stopped
    assert [event.kind for event in guard.events] == ["stop"]
    assert guard.monitor.verdict == "diverging"


def test_a_loss_that_is_not_finite_is_divergence_too():
    guard = Diverging("rescue", 0.1).guard
    (event,) = guard.after_step(torch.randn(32, 4), Diverging.labels, float("inf"), 1)
    assert (event.kind, guard.lr_factor) == ("rescue", pytest.approx(0.1))
    assert "the loss: NaN or infinite" in event.text


def test_a_snapshot_of_the_step_that_diverged_is_not_gone_back_to():
    run = Diverging("rescue", 0.05, snapshot_every=1)
    run.train(5)
    for group in run.optimiser.param_groups:
        group["lr"] = 1e30
    run.train(7, start=6)  # 6 steps into the void, and is copied
    assert [event.step for event in run.guard.events] == [7]
    assert "Rolled back to step 5" in run.guard.events[0].text
    assert run.finite


def test_what_no_rate_cures_is_given_up():
    guard = Diverging("rescue", 0.1).guard
    for step in range(40):
        guard.after_step(NAN, Diverging.labels, None, step)
        if guard.stopped:
            break
    assert step == 30
    assert guard.events[-1].kind == "stop"
    assert "30 lower rates did not help" in guard.events[-1].text


def test_a_thousandfold_growth_from_a_tiny_start_is_only_reported():
    run = Diverging("rescue", 0.05)
    for step, scale in enumerate([1e-4, 1e-4, *[1.0] * 8]):
        run.guard.after_step(scale * run.model(run.batch(step)), run.labels, 0.1, step)
    assert [event.kind for event in run.guard.events] == ["warning"]
    assert run.guard.lr_factor == 1.0


def test_a_saved_guard_goes_on_after_a_divergence():
    whole, first, second = (Diverging("rescue", 1e3) for _ in range(3))
    first.train(15)
    assert first.guard.events
    second.load(first.state())
    second.train(40, start=16)
    whole.train(40)
    assert second.guard.events == whole.guard.events
    assert second.guard.monitor.health.diameter == whole.guard.monitor.health.diameter
    assert second.guard.monitor.settings == whole.guard.monitor.settings


# What R@1 of held-out rows says, beside the scale.


class Scripted(Trial):
    """Tells R@1 of a hundred rows before and now, and counts how often it is asked."""

    def __init__(self, model, optimizer, loss_fn, then, now):
        super().__init__(model, optimizer, loss_fn)
        self.hits = [(torch.arange(100) < share).double() for share in (then, now)]
        self.asked = 0

    def recalls(self, earlier, rows):
        self.asked += 1
        return tuple(self.hits)


def closing_in(loss, then, now, steps=60, left=0.1):
    """A guard that sees directions close in on one, while R@1 goes from `then` to `now` percent."""
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    optimiser = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.1)
    trial = Scripted(model, optimiser, loss, then, now)
    guard = Guard(model, optimiser, loss, trial=trial, steps=600)
    falling = torch.linspace(1.0, left, steps // 2)
    spread = torch.cat([falling, torch.full((steps - len(falling),), left)])
    for step in range(steps):
        noise = torch.randn(72, 8, generator=torch.Generator().manual_seed(step))
        z = nn.functional.normalize(torch.ones(8) + 3.0 * spread[step] * noise, dim=1)
        guard.after_step(z, LABELS, step=step + 1)
    return guard


def rescues(guard):
    return [event for event in guard.events if event.kind == "rescue"]


def proxies():
    return ProxyNCALoss(num_classes=12, dim=8)


@pytest.mark.parametrize("now", [50, 70], ids=["no better", "better"])
def test_proxies_whose_directions_close_in_are_left_alone_while_r_at_1_does_not_fall(now):
    guard = closing_in(proxies(), 50, now)
    assert rescues(guard) == []
    assert guard.lr_factor == 1.0


def test_proxies_that_lose_r_at_1_go_on_at_lower_and_lower_rates():
    guard = closing_in(proxies(), 50, 30, steps=200)
    goes_on = re.compile(r"going on with same tuples, lr x ([\d.]+)")
    rates = [float(goes_on.search(event.text)[1]) for event in rescues(guard)]
    assert rates == sorted(set(rates), reverse=True)
    assert rates[0] == pytest.approx(0.1)
    assert guard._trial.asked >= 2 * len(rates)  # a single fall may be chance


def test_what_has_not_risen_counts_as_lost_where_a_tenth_of_the_scale_is_left():
    assert rescues(closing_in(proxies(), 50, 50, left=0.02))


def test_a_loss_that_mines_is_rescued_unless_r_at_1_rises():
    loss = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    assert rescues(closing_in(loss, 50, 70)) == []
    loss = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    (event, *_) = rescues(closing_in(loss, 50, 50))
    assert "going on with inside x hard" in event.text


@pytest.mark.slow
def test_another_package_s_loss_is_slowed_once_and_named_the_loss_to_take():
    run = Run("rescue")
    mined = run.loss
    run.guard.close()
    run.loss = lambda z, y: mined(z, y)
    monitor = CollapseMonitor(run.loss, every=10)
    run.guard = Guard(run.model, run.optimiser, run.loss, monitor, steps=400)
    texts = [event.text for event in rescues(run.train(300))]
    assert len(texts) == 1
    assert "lr x 0.1" in texts[0]
    assert (
        'uc.TripletLoss(margin=0.2, miner=uc.Miner("inside", "hard"), scale_free=True)' in texts[0]
    )


def test_comparing_r_at_1_leaves_the_network_as_it_is():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    trial = LoopTrial(model, optimiser, lambda z, y: z.sum())
    earlier = trial.copy_weights()
    for step in range(8):
        noise = torch.randn(72, 8, generator=torch.Generator().manual_seed(step))
        trial.add(model(noise), LABELS)
    with torch.no_grad():
        model[0].weight.mul_(-2.0)
    before = trial.copy_weights()
    then, now = trial.recalls(earlier, 96)
    assert then.shape == now.shape
    assert not torch.equal(then, now)
    after = trial.copy_weights()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert model.training
