"""Several ranks against one process: forked ranks over gloo, many cases in each set of ranks."""

import io
import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import warnings

import pytest
import torch
from torch import distributed, nn

from support.configs import STATEFUL, merged, small_config
from support.errors import refused
from support.runs import disturbed
from uncollapse.cli import app
from uncollapse.cli.printing import run as run_command
from uncollapse.data import LabelledImages, TensorSource
from uncollapse.losses.memory import memories
from uncollapse.mining.miner import NEGATIVES, POSITIVES
from uncollapse.training import parse_config, train
from uncollapse.training.distributed import (
    ALONE,
    FirstRankError,
    LostRankError,
    Ranks,
    gather,
    join,
    sum_gradients,
    synchronise_batch_norm,
)
from uncollapse.training.session import Session

pytestmark = pytest.mark.processes

CPU = torch.device("cpu")
EXACT = 1e-5  # of the largest entry of a gradient

LOSSES = {
    "triplet": {"name": "triplet", "margin": 0.3},
    "triplet soft": {"name": "triplet", "soft": True, "reduction": "mean"},
    "triplet scale-free": {"name": "triplet", "margin": 0.3, "scale_free": True},
    "triplet over hardest negatives": {"name": "triplet", "scale_free": "hardest-negative"},
    "triplet and sigreg": {"name": "triplet", "regularizer": {"name": "sigreg"}},
    "triplet and coding rate": {"name": "triplet", "regularizer": {"name": "coding-rate"}},
    "margin and variance": {"name": "margin", "regularizer": {"name": "variance-covariance"}},
    "margin": {"name": "margin"},
    "margin, β a class": {"name": "margin", "beta_per": "class", "nu": 0.1},
    "margin, β a sample": {"name": "margin", "beta_per": "sample"},
    "contrastive": {"name": "contrastive"},
    "multi-similarity": {"name": "multi-similarity"},
    "proxies": {"name": "proxy-nca", "per_class": 2},
    "n-pair": {"name": "n-pair"},
    "sup-con": {"name": "sup-con"},
    "trimmed": {"name": "triplet", "trim": 0.5, "trim_on": "positives"},
    "identity": {"name": "triplet", "identity": {"label_smoothing": 0.1}},
    "identity neck": {"name": "margin", "trim": 0.6, "identity": {"neck": "batch-norm"}},
    "memory": {"name": "triplet", "margin": 0.3, "memory": {"size": 40}},
    "memory fixed": {"name": "sup-con", "memory": {"size": 40, "references": "fixed"}},
    "trimmed β a sample": {"name": "margin", "beta_per": "sample", "trim": 0.6},
}
ALL = list(itertools.product(POSITIVES, NEGATIVES))


def forked(size, work, *args):
    """`work(ranks, *args)` on each of `size` ranks; what each gave, or the error it ended with."""
    # Port 0: the store takes a free one.
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("fork")
    # None connects before all are there: to fork while the store looks up the name of another rank
    # would copy a lock of the resolver that is never opened again.
    all_there = context.Event()
    ends = []
    for rank in range(size):
        ours, theirs = context.Pipe(duplex=False)
        given = (rank, size, store.port, all_there, theirs, work, args)
        child = context.Process(target=_child, args=given)
        with warnings.catch_warnings():  # newer Pythons warn of threads; the child starts its own
            warnings.simplefilter("ignore", DeprecationWarning)
            child.start()
        theirs.close()
        ends.append((ours, child))
    all_there.set()
    results = []
    for ours, child in ends:
        try:
            results.append(pickle.loads(ours.recv_bytes()))
        except EOFError:
            results.append(None)
        child.join()
    return results


def _child(rank, size, port, all_there, answer, work, args):
    all_there.wait()
    torch.set_num_threads(1)
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"})
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # the parent's store, as under torchrun
    try:
        with join(CPU, timeout=60) as ranks:
            result = work(ranks, *args)
            if size > 1:
                distributed.barrier()  # no rank ends while another still talks to it
    except BaseException as error:
        result = error
    # Plain bytes: a pipe of torch's own would pass tensors by descriptors, which die with us.
    answer.send_bytes(pickle.dumps(result))
    os._exit(0)


def whole(results):
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def samples():
    z = torch.randn(48, 1, 8, 8, generator=torch.Generator().manual_seed(5))
    return LabelledImages(TensorSource(z), torch.arange(48) % 8, name="drawn")


def case(loss, miner=None, backbone="mlp", **more):
    mining = {} if miner is None else dict(zip(("positives", "negatives"), miner, strict=True))
    model, batch = {"backbone": backbone, "dim": 5, "hidden": [12]}, {"p": 5, "k": 3}
    values = {"model": model, "batch": batch, "loss": loss, "mining": mining}
    return parse_config({**values, "guard": {"action": "off"}, "train": {"device": "cpu"}, **more})


def one_step(config, data, ranks=ALONE):
    """Loss, gradients and running statistics of the first step."""
    session = Session(config, data, ranks)
    with warnings.catch_warnings():  # some miners find nothing here, which is a case too
        warnings.simplefilter("ignore")
        loss = session.advance()["loss"]
    parts = [*session.model.named_parameters(), *session.loss.named_parameters()]
    gradients = {name: p.grad.clone() for name, p in parts if p.grad is not None}
    return loss, gradients, dict(session.model.named_buffers())


def difference(found, expected):
    """Largest difference of loss, gradients or buffers, beside their largest entry."""
    if found[1].keys() != expected[1].keys():
        return float("inf")
    worst = abs(found[0] - expected[0]) / max(1.0, abs(expected[0]))
    for now, then in zip(found[1:], expected[1:], strict=True):
        size = max([1e-3, *(float(value.abs().max()) for value in then.values())])
        for name, value in then.items():
            worst = max(worst, float((now[name] - value).abs().max()) / size)
    return worst


def _steps(ranks, configs, data):
    return [one_step(config, data, ranks) for config in configs]


@pytest.fixture(scope="module")
def cases():
    """Every miner; and every loss with none and with two of them, in turn.

    15 samples: shares of 8 and 7, or of 4, 4, 4 and 3.
    """
    configs = [case(LOSSES["triplet"], ("easy", "hard"), backbone="mnist-cnn")]  # batch norm
    configs += [case(loss) for loss in LOSSES.values()]
    for number, loss in enumerate(LOSSES.values()):
        configs += [case(loss, ALL[(7 * number + 3 * turn) % len(ALL)]) for turn in (0, 1)]
    configs += [case(LOSSES["triplet"], miner) for miner in ALL]
    data = samples()
    expected = [one_step(config, data) for config in configs]
    charged = [loss for loss, gradients, _ in expected if gradients and loss != 0]
    assert len(charged) > 0.9 * len(expected)
    return configs, data, expected


@pytest.mark.parametrize(("size", "most"), [(2, None), (4, 1 + len(LOSSES))])
def test_every_loss_and_miner_gives_the_gradients_of_one_process(cases, size, most):
    configs, data, expected = cases
    for steps in whole(forked(size, _steps, configs[:most], data)):
        errors = [difference(*pair) for pair in zip(steps, expected[:most], strict=True)]
        names = [f"{config.loss} {config.mining}" for config in configs]
        assert max(errors) < EXACT, names[errors.index(max(errors))]


def _remembered(ranks, config, data):
    """Losses of four steps, and what is remembered then."""
    session = Session(config, data, ranks)
    losses = [session.advance()["loss"] for _ in range(4)]
    session.check_ranks()
    (memory,) = memories(session.loss)
    return losses, memory.kept()


def test_every_rank_remembers_the_batches_of_all():
    slow = {"optimizer": {"name": "sgd", "lr": 0.02}}  # rounding stays what it is
    config, data = case(LOSSES["memory"], ("hard", "hard"), **slow), samples()
    alone, kept = _remembered(ALONE, config, data)
    (losses, first), (_, second) = whole(forked(2, _remembered, config, data))
    assert losses == pytest.approx(alone, rel=1e-5)
    assert len(first["memory"]) == 40
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(first["memory_ids"], kept["memory_ids"])
    torch.testing.assert_close(first["memory"], kept["memory"])


def test_a_batch_norm_that_cannot_be_shared_is_refused_and_a_frozen_one_left():
    class Own(nn.BatchNorm1d):
        pass

    with refused("model.backbone"):
        synchronise_batch_norm(nn.Sequential(Own(2)), Ranks(0, 2))
    frozen = nn.Sequential(nn.BatchNorm1d(2)).eval()
    assert type(synchronise_batch_norm(frozen, Ranks(0, 2))[0]) is nn.BatchNorm1d


def _basics(ranks, points):
    results = {"any": (ranks.any(ranks.rank == 1), ranks.any(False))}
    share = points[ranks.share(len(points))].clone().requires_grad_()
    for adjoint in ("sum", "own"):
        rows = gather(share, ranks, adjoint=adjoint)
        # Each rank weighs the rows by its own number, which only "sum" hands back.
        (rows * (ranks.rank + 1)).sum().backward()
        results[adjoint] = (rows.detach(), share.grad.clone())
        share.grad = None
    weight = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    weight.grad = torch.full_like(weight, ranks.rank)
    sum_gradients([weight], ranks)
    results["summed"] = weight.grad
    results["values"] = ranks.all_values(10 * ranks.rank)
    results["shared"] = ranks.on_first(lambda: ranks.rank)
    try:
        ranks.on_first(lambda: 1 / 0)
    except Exception as error:
        results["failure"] = error
    session = Session(case(LOSSES["triplet"]), samples(), ranks)
    session.check_ranks()
    with torch.no_grad():
        next(session.model.parameters()).add_(ranks.rank)
    try:
        session.check_ranks()
    except Exception as error:
        results["apart"] = error
    return results


def test_what_ranks_settle_together():
    size = 3
    points = torch.randn(61, 3, generator=torch.Generator().manual_seed(0))
    for rank, results in enumerate(whole(forked(size, _basics, points))):
        assert results["any"] == (True, False)
        for adjoint, upstream in (("sum", size * (size + 1) / 2), ("own", rank + 1)):
            rows, gradient = results[adjoint]
            assert torch.equal(rows, points)
            assert len(gradient) == Ranks(rank, size).counts(61)[rank]
            assert torch.equal(gradient, torch.full_like(gradient, upstream))
        assert results["summed"].tolist() == [size * (size - 1) / 2] * 2
        assert (results["values"], results["shared"]) == ([0, 10, 20], 0)
        assert isinstance(results["failure"], FirstRankError if rank else ZeroDivisionError)
        assert isinstance(results["apart"], LostRankError)


RUN = {
    "batch": {"p": 9, "k": 4},
    "guard": {"every": 4},
    "evaluate": {"max_samples": 200, "batch": 64, "clustering": True},
    "train": {"steps": 14, "log_every": 1, "evaluate_every": 7, "checkpoint_every": 4},
}
CONFIG = small_config(3, **merged(STATEFUL, RUN | {"optimizer": {"name": "sgd", "lr": 0.02}}))


def _trained(ranks, out, config=CONFIG, at=0, event=None):
    """Train; on the last rank something happens after step `at`."""
    if ranks.rank == ranks.size - 1:
        Session.advance = disturbed(at, event)
    run = train(config, out, resume=True)
    return run.summary.get("status"), run.summary.get("step")


def _please_stop(_):
    os.kill(os.getpid(), signal.SIGTERM)


def lines(out):
    return list(train(CONFIG, out, resume=True).metrics())


def close(found, expected):
    assert [line.keys() for line in found] == [line.keys() for line in expected]
    for now, then in zip(found, expected, strict=True):
        words = [name for name in then if isinstance(then[name], str)]
        assert [now.pop(name) for name in words] == [then[name] for name in words]
        assert now == pytest.approx({k: then[k] for k in now}, rel=1e-5)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "alone"
    train(CONFIG, out)
    return out


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "two"
    assert whole(forked(2, _trained, out)) == [("finished", 14)] * 2
    return out


def test_a_run_on_two_ranks_is_the_run_of_one_process(alone, two):
    close(lines(two), lines(alone))


def test_ranks_stop_together_and_other_numbers_of_ranks_go_on(alone, tmp_path):
    out = tmp_path / "run"
    assert whole(forked(2, _trained, out, CONFIG, 5, _please_stop)) == [("interrupted", 5)] * 2
    assert whole(forked(1, _trained, out, CONFIG, 9, _please_stop)) == [("interrupted", 9)]
    assert whole(forked(4, _trained, out)) == [("finished", 14)] * 4
    close(lines(out), lines(alone))


def test_a_rank_that_dies_ends_the_others_with_advice_and_costs_nothing_saved(two, tmp_path):
    out = tmp_path / "run"
    first, last = forked(2, _trained, out, CONFIG, 10, lambda _: os._exit(9))
    assert last is None
    assert isinstance(first, LostRankError)
    assert "step 8 is saved: go on with the same command and --resume" in str(first)
    assert whole(forked(2, _trained, out)) == [("finished", 14)] * 2
    assert (out / "metrics.jsonl").read_bytes() == (two / "metrics.jsonl").read_bytes()


def _rescued(ranks, out):
    changes = {
        "mining": {"positives": "hard", "negatives": "hard"},
        "loss": {"margin": 0.0},
        "optimizer": {"name": "adam", "lr": 0.03},
        "guard": {"action": "rescue", "every": 5},
        "train": {"steps": 60, "evaluate_every": 60, "checkpoint_every": 10},
    }
    kept = []
    advance = Session.advance
    Session.advance = lambda self: (kept.append(self), advance(self))[1]
    train(small_config(3, **RUN | changes), out)  # every tenth step the ranks compare their weights
    return [str(event) for event in kept[0].guard.events]


def test_the_guard_rescues_all_ranks_alike(tmp_path):
    events = whole(forked(2, _rescued, tmp_path / "run"))
    assert events[0] == events[1]
    assert any("Rolled back" in event for event in events[0])


def _command(ranks, config, out):
    sys.stderr = io.StringIO()
    return run_command(app, ["train", str(config), "--out", str(out)]), sys.stderr.getvalue()


def test_what_is_wrong_is_said_once(alone, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(CONFIG.to_toml())
    (code, text), other = whole(forked(2, _command, file, alone))
    assert code == 2
    assert "which holds a run" in text
    assert other == (1, "")


def test_a_device_the_ranks_cannot_share_is_refused(monkeypatch):
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1", "MASTER_ADDR": "127.0.0.1"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    with refused("train.device"), join(torch.device("mps")):
        pass
