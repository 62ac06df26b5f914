"""Races in one's own loop: which batches are kept, and that the loop's own steps are raced."""

import copy
import io
import weakref

import torch
from torch import nn
from torch.nn import functional

from uncollapse.health import CollapseMonitor, Guard
from uncollapse.health.race import LoopTrial, nearest_is_own_class
from uncollapse.losses import ProxyNCALoss, TripletLoss
from uncollapse.mining import Miner

LABELS = torch.arange(12).repeat_interleave(6)
CENTRES = torch.randn(12, 8, generator=torch.Generator().manual_seed(3))


def batch(step: int) -> torch.Tensor:
    noise = torch.randn(72, 8, generator=torch.Generator().manual_seed(step))
    return 0.5 * CENTRES[LABELS] + noise


def network(*, norm: bool = False) -> nn.Module:
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(32)] if norm else []
    return nn.Sequential(nn.Linear(8, 32), *middle, nn.ReLU(), nn.Linear(32, 8))


def train(guard_of, *, steps: int = 60, norm: bool = False, use=lambda z: z, loss=None, lr=1e-2):
    model = network(norm=norm)
    loss = loss or TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    optimiser = torch.optim.Adam([*model.parameters(), *loss.parameters()], lr=lr)
    guard = guard_of(model, optimiser, loss)
    for step in range(steps):
        z = use(model(batch(step)))
        value = loss(z, LABELS)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        guard.after_step(z, LABELS, value, step)
    return model, guard


def rescuing(model, optimiser, loss, **options):
    monitor = CollapseMonitor(loss, every=10)
    return Guard(model, optimiser, loss, monitor, **options)


def test_a_rescue_in_a_plain_loop_races_and_says_so():
    model, guard = train(rescuing)
    (event,) = [event for event in guard.events if event.kind == "rescue"]
    assert event.race is not None
    assert str(guard.strategy) == event.race.chosen
    assert f"going on with {event.race.chosen} (R@1 of" in event.text
    assert len({score.strategy for score in event.race.scores}) > 1
    assert model.training


def test_races_cost_at_most_a_tenth_of_the_steps_that_are_announced():
    _, guard = train(lambda *parts: rescuing(*parts, steps=300))
    spent = sum(event.race.spent for event in guard.events if event.race is not None)
    assert 0 < spent <= 30
    _, short = train(lambda *parts: rescuing(*parts, steps=60))
    assert all(event.race is None for event in short.events)  # six steps are no race
    assert short.events[0].kind == "rescue"


def test_embeddings_that_the_network_did_not_return_are_not_raced_on():
    _, guard = train(rescuing, use=lambda z: z + 1.0)
    rescues = [event for event in guard.events if event.kind == "rescue"]
    assert rescues
    assert all(event.race is None for event in rescues)
    assert "(drift " in rescues[0].text


def test_directions_of_the_output_are_raced_on_as_directions():
    recent_batches = LoopTrial(model := network(), None, None)
    z = functional.normalize(model(batch(0)), dim=1)
    recent_batches.add(z, LABELS)
    (recorded,) = recent_batches.batches
    assert recorded.unit
    trial = LoopTrial(model, torch.optim.SGD(model.parameters(), lr=0.1), None)
    assert torch.allclose(trial._embedded(recorded), z)


def test_recent_batches_see_training_only_and_forget_the_oldest():
    recent_batches = LoopTrial(model := network(), None, None)
    model.eval()
    recent_batches.add(model(batch(0)), LABELS)
    model.train()
    with torch.no_grad():
        recent_batches.add(model(batch(0)), LABELS)
    assert not recent_batches.batches
    for step in range(40):
        recent_batches.add(model(batch(step)), LABELS)
    assert len(recent_batches.batches) == 32
    assert torch.equal(recent_batches.batches[0].args[0], batch(8))
    assert all(recorded.unchanged for recorded in recent_batches.batches)


def test_a_buffer_that_the_loop_fills_anew_is_not_used_again():
    recent_batches = LoopTrial(model := network(), None, None)
    buffer = batch(0).clone()
    recent_batches.add(model(buffer), LABELS)
    assert recent_batches.batches[0].unchanged
    buffer.copy_(batch(1))
    assert not recent_batches.batches[0].unchanged


def test_copies_and_files_of_the_network_leave_the_recent_batches_behind():
    recent_batches = LoopTrial(model := network(), None, None)
    copy.deepcopy(model)(batch(0))
    assert recent_batches.last_call is None
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    again(batch(0))
    assert recent_batches.last_call is None
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True)
    )


def test_recent_batches_that_are_gone_are_not_kept_alive_by_the_network():
    recent_batches = LoopTrial(model := network(), None, None)
    gone = weakref.ref(recent_batches)
    recent_batches.add(model(batch(0)), LABELS)
    del recent_batches
    assert gone() is None
    model(batch(1))


def taped(model: nn.Module, loss, steps: int = 9) -> LoopTrial:
    own = [*model.parameters(), *(loss.parameters() if loss is not None else [])]
    trial = LoopTrial(model, torch.optim.Adam(own, lr=1e-2), loss)
    for step in range(steps):
        trial.add(model(batch(step)), LABELS)
    return trial


def test_held_out_rows_are_in_no_batch_of_the_race_and_there_once():
    trial = taped(network(), TripletLoss(margin=0.2, miner=Miner("easy", "hard")))
    model = trial.model
    trial.add(model(batch(0)), LABELS)  # seen before: nothing of it may be held out
    data = trial.race_data(20, 144)
    batches, keep = data.held
    held = torch.cat([recorded.args[0] for recorded in batches])[keep]
    seen = torch.cat([recorded.args[0] for recorded in data.batches])
    assert len(held) == len(data.labels) >= 72
    assert not (held[:, None] == seen[None]).all(2).any()
    assert (held[:, None] == held[None]).all(2).sum() == len(held)


def test_three_batches_are_too_few():
    assert taped(network(), None, steps=3).race_data(20, 144) is None


def test_a_trial_is_a_step_of_the_loop():
    loss = TripletLoss(margin=0.2, miner=Miner("easy", "hard"))
    trial = taped(network(), loss)
    twin = network()
    optimiser = torch.optim.Adam(twin.parameters(), lr=1e-2)
    for recorded in list(trial.batches)[:3]:
        trial.train(recorded)
        value = loss(twin(recorded.args[0]), LABELS)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
    pairs = zip(trial.model.parameters(), twin.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_what_is_put_back_is_what_was_kept_proxies_included():
    loss = ProxyNCALoss(num_classes=12, dim=8)
    trial = taped(network(norm=True), loss)
    state = trial.copy_state()
    before = copy.deepcopy([*trial.model.state_dict().values(), *loss.parameters()])
    trial.train(trial.batches[0])
    assert not torch.equal(before[-1], list(loss.parameters())[-1])
    trial.restore(state)
    after = [*trial.model.state_dict().values(), *loss.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_judging_moves_neither_statistics_nor_modes():
    trial = taped(network(norm=True), TripletLoss(margin=0.2, miner=Miner("easy", "hard")))
    before = copy.deepcopy(trial.model.state_dict())
    trial.embed(trial.race_data(20, 144).held)
    assert all(torch.equal(before[k], v) for k, v in trial.model.state_dict().items())
    assert all(module.training for module in trial.model.modules())


def test_a_race_does_not_move_the_loop_s_random_numbers():
    torch.manual_seed(5)
    train(rescuing)
    torch.manual_seed(0)  # the network's
    expected = torch.get_rng_state()
    network()
    drawn = torch.get_rng_state()
    train(rescuing)
    assert not torch.equal(expected, drawn)
    assert torch.equal(torch.get_rng_state(), drawn)


def test_a_raced_run_ends_healthy_and_better_than_it_began():
    model, guard = train(rescuing, steps=120)
    assert guard.monitor.verdict == "healthy"
    assert any(event.race is not None for event in guard.events)
    rows, labels = torch.cat([batch(1000 + i) for i in range(8)]), LABELS.repeat(8)
    now, then = (nearest_is_own_class(one(rows), labels).mean() for one in (model, network()))
    assert now > then
