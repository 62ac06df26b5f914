"""Races of strategies: what they cost, which one wins, and races in one's own loop."""

import copy
import io
import math
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import uncollapse as uc
from uncollapse.health import CollapseMonitor, Guard, Race
from uncollapse.health.race import LoopTrial, nearest_is_own_class, plan_race, run_race
from uncollapse.health.strategy import Strategy
from uncollapse.losses import CrossBatchMemory, ProxyNCALoss, TripletLoss
from uncollapse.mining import Miner

IDS = torch.arange(100) % 10
NAMES = [Strategy(p, "hard", scale_free=free) for free in (True, False) for p in ("inside", "easy")]
NAMES += [Strategy("hard", "semihard", scale_free=False)]


class Toy:
    """A state that is a number of steps under a strategy; R@1 is what the strategy is worth."""

    def __init__(self, worth, rows=100):
        self.worth, self.rows = worth, rows
        self.state = (None, 0)
        self.batches = []

    def apply(self, strategy):
        self.state = (strategy, self.state[1])

    def race_data(self, steps, rows):
        return uc.health.race.RaceData(list(range(steps)), None, IDS) if self.rows else None

    def copy_state(self):
        return self.state

    def restore(self, state):
        self.state = state

    def train(self, batch):
        self.batches.append((self.state[0], batch))
        self.state = (self.state[0], self.state[1] + 1)

    def embed(self, held):
        """Rows at their class, but for a share of them that sits beside a row of another."""
        row = torch.arange(len(IDS))
        right = row < round(self.worth.get(self.state[0], 0.0) * len(IDS))
        return torch.where(right, 10.0 * IDS, 1000.0 + 10 * (row // 2) + 0.1 * (row % 2))[:, None]


def race(worth):
    toy = Toy(dict(zip(NAMES, worth, strict=True)))
    return toy, run_race(toy, NAMES, toy.apply, plan_race(len(NAMES), 80.0, 144), 144)


def test_the_best_strategy_wins_on_the_same_batches_and_leaves_its_state():
    toy, result = race([0.3, 0.2, 0.9, 0.4, 0.5])
    assert result.chosen == "inside x hard"
    rungs = plan_race(5, 80.0, 144).rungs
    assert toy.state == (NAMES[2], sum(rungs))
    by_strategy = {}
    for strategy, batch in toy.batches:
        by_strategy.setdefault(strategy, []).append(batch)
    assert len(by_strategy) == 4
    for batches in by_strategy.values():
        assert batches == list(range(len(batches)))
        assert len(batches) >= rungs[0]
    assert Race.from_dict(result.to_dict()) == result
    assert "R@1 of 100 held-out rows: inside x hard 90 % after 28; " in " ".join(
        str(result).split()
    )
    assert next(iter(result.last)) == "inside x hard"
    first = result.scores[0]
    assert (first.strategy, first.steps) == ("inside x hard, scale-free", 9)
    assert first.recall == pytest.approx(0.3)


def test_what_chance_could_decide_goes_to_the_adviser_s_first_choice():
    _, near = race([0.60, 0.61, 0.60, 0.61, 0.0])
    assert near.chosen == "inside x hard, scale-free"
    _, far = race([0.40, 0.61, 0.40, 0.40, 0.0])
    assert far.chosen == "easy x hard, scale-free"


class Shrinking(Toy):
    """Starts with good rows; some strategies draw them all to one point."""

    def __init__(self, lost, worth=0.5):
        super().__init__(dict.fromkeys(NAMES, worth) | {None: 0.9})
        self.lost = lost

    def embed(self, held):
        return super().embed(held) * (0.01 if self.state[0] in self.lost else 1.0)


def test_a_strategy_that_shrinks_the_rows_loses_to_one_that_does_not():
    toy = Shrinking(lost=NAMES[:3])
    result = run_race(toy, NAMES, toy.apply, plan_race(len(NAMES), 80.0, 144), 144)
    assert result.chosen == str(NAMES[3])
    assert not result.all_shrink
    assert [score.shrinks for score in result.scores[:3]] == [True] * 3
    assert 0.005 < result.scores[0].scale < 0.03
    assert "shrinks" in str(result)


def test_a_race_in_which_all_shrink_says_so():
    toy = Shrinking(lost=NAMES)
    plan = plan_race(len(NAMES), 80.0, 144)
    assert run_race(toy, NAMES, toy.apply, plan, 144).all_shrink
    # What shrinks and does not get worse has learned.
    better = Shrinking(lost=NAMES, worth=0.95)
    assert not run_race(better, NAMES, better.apply, plan, 144).all_shrink


def test_a_tie_is_called_a_tie():
    _, near = race([0.60, 0.61, 0.60, 0.61, 0.0])
    assert near.tied
    assert "within noise: the adviser's order decides" in str(near)
    _, far = race([0.2, 0.9, 0.2, 0.2, 0.0])
    assert not far.tied
    assert "within noise" not in str(far)


def test_a_race_without_rows_to_judge_by_is_not_run_and_changes_nothing():
    toy = Toy(dict.fromkeys(NAMES, 0.5), rows=0)
    assert run_race(toy, NAMES, toy.apply, plan_race(5, 80, 144), 144) is None
    assert toy.state == (None, 0)
    assert toy.batches == []


@given(candidates=st.integers(2, 9), budget=st.floats(0, 2000), batch=st.integers(4, 1024))
def test_a_plan_stays_within_its_budget(candidates, budget, batch):
    plan = plan_race(candidates, budget, batch)
    if plan is None:
        assert budget < 2 * 5 + 3 * max(96, 2 * batch) / 3 / batch + 1e-9
        return
    assert 2 <= plan.strategies <= min(candidates, 4)
    running, cost = plan.strategies, 0.0
    for steps in plan.rungs:
        assert steps >= 4
        cost += running * (steps + plan.rows / 3 / batch)
        running = math.ceil(running / 2)
    assert running == 1
    assert cost <= budget + 1e-6


def test_r_at_1_is_that_of_a_loop_with_ties_counted_against_it():
    z, ids = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 7
    hits = []
    for row in range(60):
        others = [other for other in range(60) if other != row]
        nearest = min(others, key=lambda other: float((z[row] - z[other]).norm()))
        hits.append(float(ids[nearest] == ids[row]))
    assert nearest_is_own_class(z, ids).tolist() == hits
    tied = torch.tensor([[0.0], [0.0], [0.0], [9.0]])  # and the last row has no other of its class
    assert nearest_is_own_class(tied, torch.tensor([0, 0, 1, 2])).tolist() == [0.0, 0.0]
    lost = torch.full((4, 1), math.nan)
    assert nearest_is_own_class(lost, torch.tensor([0, 0, 1, 1])).tolist() == [0.0] * 4


# Races in one's own loop: which batches are kept, and that the loop's own steps are raced.

LABELS = torch.arange(12).repeat_interleave(6)
CENTRES = torch.randn(12, 8, generator=torch.Generator().manual_seed(3))


def batch(step):
    noise = torch.randn(72, 8, generator=torch.Generator().manual_seed(step))
    return 0.5 * CENTRES[LABELS] + noise


def network(*, norm=False):
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(32)] if norm else []
    return nn.Sequential(nn.Linear(8, 32), *middle, nn.ReLU(), nn.Linear(32, 8))


def draw(*_):
    """A forward hook that uses random numbers, as dropout does."""
    torch.rand(1)


def train(*, until=60, use=lambda z: z, **options):
    model = network()
    model.register_forward_hook(draw)
    loss = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    guard = Guard(model, optimiser, loss, CollapseMonitor(loss, every=10), **options)
    for step in range(until):
        z = use(model(batch(step)))
        value = loss(z, LABELS)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        guard.after_step(z, LABELS, value, step)
    return model, guard


@pytest.mark.slow
def test_a_rescue_in_a_plain_loop_races_and_ends_healthy_and_better_than_it_began():
    network()
    for _ in range(120):
        torch.rand(1)
    drawn = torch.get_rng_state()
    model, guard = train(until=120)
    assert torch.equal(torch.get_rng_state(), drawn)  # races leave the loop's random numbers alone
    (event,) = [event for event in guard.events if event.kind == "rescue"]
    assert str(guard.strategy) == event.race.chosen
    assert f"going on with {event.race.chosen} (R@1 of" in event.text
    assert len({score.strategy for score in event.race.scores}) > 1
    assert model.training
    assert guard.monitor.verdict == "healthy"
    rows, labels = torch.cat([batch(1000 + i) for i in range(8)]), LABELS.repeat(8)
    now, then = (nearest_is_own_class(net(rows), labels).mean() for net in (model, network()))
    assert now > then


@pytest.mark.slow
def test_races_cost_at_most_a_tenth_of_the_steps_that_are_announced():
    _, guard = train(steps=300)
    spent = sum(event.race.spent for event in guard.events if event.race is not None)
    assert 0 < spent <= 30
    _, short = train(steps=60)
    assert all(event.race is None for event in short.events)  # six steps are no race
    assert short.events[0].kind == "rescue"


@pytest.mark.slow
def test_embeddings_that_the_network_did_not_return_are_not_raced_on():
    _, guard = train(use=lambda z: z + 1.0)
    rescues = [event for event in guard.events if event.kind == "rescue"]
    assert rescues
    assert all(event.race is None for event in rescues)
    assert "(drift " in rescues[0].text


def test_directions_of_the_output_are_raced_on_as_directions():
    trial = loop_trial(model := network(), None, steps=0)
    z = functional.normalize(model(batch(0)), dim=1)
    trial.add(z, LABELS)
    (recorded,) = trial.batches
    assert recorded.normalizes
    assert torch.allclose(trial._embedded(recorded), z)


def test_recent_batches_are_of_training_only_and_the_oldest_are_forgotten():
    trial = loop_trial(model := network(), None, steps=0)
    model.eval()
    trial.add(model(batch(0)), LABELS)
    model.train()
    with torch.no_grad():
        trial.add(model(batch(0)), LABELS)
    assert not trial.batches
    calls = trial.calls
    for step in range(40):
        trial.add(model(batch(step)), LABELS)
    assert len(trial.batches) == 32
    later = sum((calls + step + 1) % 4 == 0 for step in range(32 - calls, 40))  # one in four
    assert torch.equal(trial.batches[0].args[0], batch(later))


def test_a_network_under_autocast_is_raced_under_it():
    trial = loop_trial(model := network(), None, steps=0)
    with torch.autocast("cpu", torch.bfloat16):
        z = model(batch(0))
    trial.add(z.float(), LABELS)
    (recorded,) = trial.batches
    assert recorded.precision == trial._embedded(recorded).dtype == torch.bfloat16


def test_inputs_and_labels_are_copied_as_a_loop_may_refill_its_buffers():
    trial = loop_trial(model := network(), None, steps=0)
    inputs, labels = batch(0).numpy().copy(), LABELS.numpy().copy()
    trial.add(model(torch.from_numpy(inputs)), labels)
    inputs.fill(0.0)
    labels.fill(0)
    assert torch.equal(trial.batches[0].args[0], batch(0))
    assert trial.batches[0].names.tolist() == LABELS.tolist()


def test_copies_and_files_of_the_network_leave_the_recent_batches_behind():
    trial = loop_trial(model := network(), None, steps=0)
    copy.deepcopy(model)(batch(0))
    assert trial.last_call is None
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    again(batch(0))
    assert trial.last_call is None
    assert all(map(torch.equal, model.parameters(), again.parameters()))


def test_a_trial_that_is_gone_is_not_kept_alive_by_the_network():
    trial = loop_trial(model := network(), None, steps=0)
    gone = weakref.ref(trial)
    trial.add(model(batch(0)), LABELS)
    del trial
    assert gone() is None
    model(batch(1))


def loop_trial(model, loss, steps=9):
    """A trial that has seen some steps of a loop."""
    learned = [*model.parameters(), *(loss.parameters() if loss is not None else [])]
    trial = LoopTrial(model, torch.optim.Adam(learned, lr=1e-2), loss)
    for step in range(steps):
        trial.add(model(batch(step)), LABELS)
    return trial


def test_held_out_rows_are_in_no_batch_of_the_race_and_there_once():
    trial = loop_trial(network(), None)
    trial.add(trial.model(batch(0)), LABELS)  # seen before: nothing of it may be held out
    data = trial.race_data(20, 144)
    batches, keep = data.held
    held = torch.cat([recorded.args[0] for recorded in batches])[keep]
    seen = torch.cat([recorded.args[0] for recorded in data.batches])
    assert len(held) == len(data.labels) >= 72
    assert not (held[:, None] == seen[None]).all(2).any()
    assert (held[:, None] == held[None]).all(2).sum() == len(held)
    assert loop_trial(network(), None, steps=3).race_data(20, 144) is None  # too few batches


def test_a_trial_is_a_step_of_the_loop():
    loss = TripletLoss(margin=0.2, miner=Miner("easy", "hard"))
    trial = loop_trial(network(), loss)
    twin = network()
    optimiser = torch.optim.Adam(twin.parameters(), lr=1e-2)
    for recorded in list(trial.batches)[:3]:
        trial.train(recorded)
        value = loss(twin(recorded.args[0]), LABELS)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
    assert all(map(torch.equal, trial.model.parameters(), twin.parameters()))


@pytest.mark.parametrize(
    "loss", [ProxyNCALoss(num_classes=12, dim=8), CrossBatchMemory(TripletLoss(), 1000)]
)
def test_what_is_put_back_is_what_was_kept_proxies_and_memories_included(loss):
    trial = loop_trial(network(norm=True), loss)

    def states():
        return [*loss.state_dict().values(), *trial.model.state_dict().values()]

    state, before = trial.copy_state(), copy.deepcopy(states())
    trial.train(trial.batches[0])
    assert not torch.equal(before[0], states()[0])
    trial.restore(state)
    assert all(map(torch.equal, before, states()))


def test_judging_moves_neither_statistics_nor_modes():
    trial = loop_trial(network(norm=True), None)
    before = copy.deepcopy(trial.model.state_dict())
    trial.embed(trial.race_data(20, 144).held)
    assert all(torch.equal(before[k], v) for k, v in trial.model.state_dict().items())
    assert all(module.training for module in trial.model.modules())
