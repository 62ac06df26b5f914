"""On a device (a strict stand-in) everything gives what the host gives, and rarely asks for it."""

import dataclasses
import io
import math

import numpy as np
import pytest
import torch
from torch import nn

from losses.loss_oracles import makers
from support import device_cases as cases
from support.configs import small_config
from support.device import NAME, device, host, to_device
from uncollapse.health import CollapseMonitor, Guard, watch
from uncollapse.losses import CrossBatchMemory, TripletLoss
from uncollapse.mining import Miner
from uncollapse.samplers import PKSampler, check_batches
from uncollapse.training.assemble import load_data
from uncollapse.training.session import Session

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")

LISTING = {"semihard", "distance", "multi_similarity"}  # negatives whose number values decide
FEW = 5  # waits of a metric or a figure


def most_waits(words, wrapper=0):
    """One read of the batch, one more where a miner must list what it has chosen."""
    positives, _, negatives = words.partition(" x ")
    lists = negatives in LISTING or positives == "multi_similarity"
    both = positives == "multi_similarity" and negatives in {"semihard", "distance"}
    return 1 + lists + both + wrapper


def assert_same_step(make, words, name="", kind="plain", steps=1, most=None):
    """A step on the device is the host's, values and gradients, and waits at most so often."""
    x, labels = cases.given(name, kind)
    here = cases.step(make, words, x, labels, on_device=False, steps=steps)
    there = cases.step(make, words, x, labels, on_device=True, steps=steps)
    value, gradients, _ = here
    other, others, waits = there
    case = f"{name}, {words}, {kind}"
    torch.testing.assert_close(other, value, rtol=1e-5, atol=1e-6, msg=f"{case}: {other} {value}")
    assert len(gradients) == len(others)
    for mine, its in zip(gradients, others, strict=True):
        assert float((mine - its).norm()) <= 1e-5 * max(float(mine.norm()), 1e-3), case
    assert len(waits) <= (most_waits(words) if most is None else most), (case, waits)


# The stand-in itself.


def test_the_device_does_not_mix_with_host_memory():
    x = torch.ones(3)
    with device():
        with pytest.raises(RuntimeError, match="one device"):
            to_device(x) + x
        with pytest.raises(RuntimeError, match="numpy"):
            to_device(x).numpy()
        with pytest.raises(RuntimeError, match="numpy"):
            np.asarray(to_device(x))
        assert host(to_device(x) * torch.tensor(2.0)).tolist() == [2.0, 2.0, 2.0]


def test_everything_that_makes_the_host_wait_is_counted():
    x = torch.arange(4.0)
    with device() as waits:
        y = to_device(x)
        y.sum().item(), bool(y.any()), y.tolist(), y.cpu(), torch.empty(4).copy_(y)
        y.nonzero(), y.unique(), y[y > 0], torch.equal(y, y), y.repeat_interleave(y.long())
        y.new_tensor([1.0]), torch.tensor([1.0], device=y.device), x.to(y.device)
    assert dict(waits.kinds) == {
        "item": 2,
        "to host": 3,
        "nonzero": 1,
        "unique": 1,
        "mask": 1,
        "equal": 1,
        "repeat_interleave": 1,
        "to device": 3,
    }
    with device() as waits:
        y = to_device(x).requires_grad_()
        torch.zeros(3, device=y.device), x.to(y.device, non_blocking=True), y.sort()
        z = y.detach().clone()
        z[z > 1] = 0.0
        (y * y).sum().backward()
    assert (host(y.grad).tolist(), waits) == ([0.0, 2.0, 4.0, 6.0], [])


def test_other_tests_of_the_process_do_not_see_the_device():
    with device():
        assert torch.get_device_module(NAME).is_available()
    assert not torch.get_device_module(NAME).is_available()
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.zeros(1, device=NAME)
    x = torch.ones(2, requires_grad=True)
    (2 * x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


# Losses and miners.


@pytest.mark.parametrize("name", makers())
def test_every_registered_loss_is_the_hosts_and_reads_once(name):
    make = cases.loss_makers()[name]
    for words in ("none", "easy x hard", "all x semihard", "multi_similarity x multi_similarity"):
        assert_same_step(make, words, name, "ragged")


@pytest.mark.parametrize("positives", cases.POSITIVES)
def test_every_miner_is_the_hosts_and_reads_once_or_lists(positives):
    make = cases.loss_makers()["triplet"]
    for words in (f"{positives} x {negatives}" for negatives in cases.NEGATIVES):
        assert_same_step(make, words, kind="ragged")


@pytest.mark.parametrize("name", cases.FURTHER)
def test_further_settings_of_a_miner_are_the_hosts(name):
    def make(words):
        return TripletLoss(margin=0.2, miner=cases.miner(words, **cases.FURTHER[name]))

    for words in ("easy x semihard", "all x hard"):
        most = 6 if name in ("relative", "quantile", "agreement") else 3
        assert_same_step(make, words, name, "ragged", most=most)


@pytest.mark.parametrize("kind", ["near collapse", "one ray", "one point"])
@pytest.mark.parametrize("name", ["triplet", "multi-similarity", "sup-con"])
def test_a_collapsed_batch_is_the_hosts(name, kind):
    make = cases.loss_makers()[name]
    for words in ("none", "easy x hard", "easy x semihard", "multi_similarity x multi_similarity"):
        assert_same_step(make, words, name, kind)


@pytest.mark.parametrize("name", cases.ALONE)
def test_regularisers_are_the_hosts_and_read_once(name):
    assert_same_step(cases.loss_makers()[name], "none", name)


@pytest.mark.parametrize("words", ["none", "easy x hard", "easy x semihard"])
@pytest.mark.parametrize(("name", "more"), [("memory of contrastive", 1), ("columns", 2)])
def test_losses_that_arrange_a_batch_anew_read_that_too(name, more, words):
    most = most_waits(words, more)
    assert_same_step(cases.loss_makers()[name], words, name, steps=3, most=most)


@pytest.mark.night
@pytest.mark.parametrize("kind", ["plain", "ragged", "near collapse"])
@pytest.mark.parametrize("name", cases.loss_makers())
def test_every_loss_with_many_miners_is_the_hosts(name, kind):
    make = cases.loss_makers()[name]
    more = 1 if name.startswith("memory") else 2 if name == "columns" else 0
    for words in cases.MINERS:
        if words == "none" or hasattr(make(words), "miner"):
            assert_same_step(make, words, name, kind, steps=2, most=most_waits(words, more))


def test_a_memory_with_sample_ids_is_the_hosts():
    x, labels = cases.batch()
    values = []
    for move in (host, to_device):
        with device():
            loss = CrossBatchMemory(TripletLoss(miner=Miner("hard", "hard")), 64)
            loss = to_device(loss) if move is to_device else loss
            for step in range(3):
                ids = move((torch.arange(24) + 8 * step) % 40)
                value = loss(move(x + step), move(labels), sample_ids=ids)
            values.append(host(value))
    torch.testing.assert_close(*values)


# Metrics, figures, samplers.


def numbers(result):
    """All numbers in a result, in order."""
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        public = [f.name for f in dataclasses.fields(result) if not f.name.startswith("_")]
        return [n for name in public for n in numbers(getattr(result, name))]
    if isinstance(result, dict):
        return [n for value in result.values() for n in numbers(value)]
    if isinstance(result, torch.Tensor):
        return host(result).double().flatten().tolist()
    if isinstance(result, np.ndarray):
        return result.astype(float).flatten().tolist() if result.dtype.kind in "iufb" else []
    if isinstance(result, list | tuple):
        return [n for value in result for n in numbers(value)]
    return [float(result)] if isinstance(result, int | float) else []


@pytest.mark.parametrize("name", cases.FUNCTIONS)
def test_functions_of_embeddings_are_the_hosts_with_few_reads(name):
    function = cases.FUNCTIONS[name]
    here, _ = cases.function_result(function, on_device=False)
    there, waits = cases.function_result(function, on_device=True)
    expected = numbers(here)
    assert expected
    np.testing.assert_allclose(numbers(there), expected, rtol=1e-5, atol=1e-6)
    assert len(waits) <= FEW + (name == "reid"), waits  # which has six arrays to copy


def test_samplers_take_labels_of_a_device():
    labels = torch.arange(60) % 6
    batches, reports = [], []
    for move in (host, to_device):
        with device():
            sampler = PKSampler(move(labels), 3, 4, seed=0)
            batches.append([list(batch) for batch in sampler])
            reports.append(str(check_batches(sampler, move(labels), 5)))
    assert batches[0] == batches[1]
    assert reports[0] == reports[1]


# Training.


class Loop:
    """A few steps of one's own loop, watched by a guard; `move` puts everything in its place."""

    def __init__(self, move, action="warn"):
        torch.manual_seed(0)
        self.move = move
        self.model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
        miner = Miner("hard", "hard", generator=torch.Generator().manual_seed(0))
        self.loss = TripletLoss(margin=0.2, miner=miner)
        if move is to_device:
            self.model = to_device(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        monitor = CollapseMonitor(self.loss, every=5)
        self.guard = Guard(self.model, self.optimizer, self.loss, monitor, action=action)
        self.labels = move(torch.arange(8).repeat_interleave(4))

    def train(self, steps, start=1):
        """Steps `start` to `steps`; the losses of all."""
        values = []
        for step in range(start, steps + 1):
            seeded = torch.Generator().manual_seed(step)
            z = self.model(self.move(torch.randn(32, 8, generator=seeded)))
            value = self.loss(z, self.labels)
            self.optimizer.zero_grad()
            value.backward()
            self.optimizer.step()
            self.guard.after_step(z, self.labels, value, step)
            values.append(float(host(value)))
        return values


@pytest.mark.slow
def test_monitor_and_guard_see_on_a_device_what_they_see_on_the_host():
    here = Loop(host)
    expected = here.train(30)
    with device():
        there = Loop(to_device)
        np.testing.assert_allclose(there.train(30), expected, rtol=1e-4, atol=1e-5)
    assert there.guard.monitor.verdict == here.guard.monitor.verdict
    mine, its = (numbers(loop.guard.monitor.health) for loop in (here, there))
    np.testing.assert_allclose(its, mine, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("action", ["warn", "rescue"])
def test_a_watch_reads_once_when_it_looks_and_never_between(action):
    with device() as waits:
        loop = Loop(to_device)
        loop.guard.close()
        seen = watch(loop.model, loop.loss, loop.optimizer, action=action, every=7)
        seen.step = 100  # past the first steps, which are all looked at
        counts = []
        for step in range(22):
            before = len(waits)
            value = loop.loss(loop.model(to_device(torch.randn(32, 8))), loop.labels)
            value.backward()
            loop.optimizer.step()
            counts.append(len(waits) - before)
            if step == 0:
                schedule = seen.guard.monitor._counts
                schedule.first_step, schedule.gap = 0, 7
    assert seen.error is None
    assert counts == [2 if step % 7 == 0 else 1 for step in range(22)]  # one is the loss's own


@pytest.mark.slow
def test_a_checkpoint_of_a_device_is_read_on_the_host():
    with device():
        there = Loop(to_device)
        there.train(5)
        file = io.BytesIO()
        torch.save([there.model.state_dict(), there.guard.state_dict()], file)
        file.seek(0)
        model, guard = torch.load(file, weights_only=True, map_location="cpu")
        rest = there.train(10, start=6)
    here = Loop(host)
    here.train(5)
    here.model.load_state_dict(model)
    here.guard.load_state_dict(guard)
    np.testing.assert_allclose(here.train(10, start=6), rest, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_run_of_the_engine_is_the_hosts():
    losses = []
    for name in ("cpu", NAME):
        with device():
            config = small_config(train={"device": name, "steps": 6})
            session = Session(config, load_data(config, "train"))
            losses.append([session.advance() for _ in range(6)])
    assert all(math.isfinite(value) for value in numbers(losses[0]))
    np.testing.assert_allclose(numbers(losses[1]), numbers(losses[0]), rtol=1e-4, atol=1e-5)
