"""The watch: what it finds in calls, what it says where it cannot, and that faults end it alone."""

import copy
import io
import logging
import pickle
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.utils._pytree import tree_leaves

import uncollapse as uc
from support.errors import refused
from support.loops import (
    CLASSES,
    DIM,
    IN,
    LABELS,
    ROWS,
    NegativeCosine,
    SupCon,
    a_boundary_per_sample,
    adam,
    assert_equal_bit_for_bit,
    fit,
    layer_of_noise,
    lbfgs,
    network,
    noise,
    numpy_labels,
    plain,
    reused_buffers,
    run,
    samples,
    seed_all,
    string_labels,
    the_same_rows_at_every_step,
    traces,
    triplet,
    two_batches_in_turn,
    unfrozen_later,
)
from uncollapse.health import CollapseMonitor, Guard, guard, monitor, race, watching
from uncollapse.health.batches import layer_rows, read_call
from uncollapse.health.strategy import strategy_of

# Faults injected at the calls inside. `early` ones come in any run, the others in a rescue alone.


class Broken:
    """Calls a function, and raises at one call of it."""

    def __init__(self, function, at, error):
        self.function, self.at, self.error, self.calls = function, at, error, 0

    def __get__(self, owner, kind=None):
        return self if owner is None else lambda *args, **kwargs: self(owner, *args, **kwargs)

    def __call__(self, *args, **kwargs):
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        return self.function(*args, **kwargs)


class Silent:
    """A logger that keeps nothing."""

    run_id = None

    def log(self, scalars, step):
        pass

    def note(self, name, text, step):
        pass

    def on_event(self, event):
        pass


EVERYWHERE = {  # what fails, and at which of its calls
    "read_call": (watching, (1, 5)),
    "loss_in": (watching, (1, 5)),
    "log_health": (watching, (1, 5)),
    "to_host": (monitor, (1, 5)),
    "health_figures": (monitor, (1, 3)),
    "scale_figures": (monitor, (1, 5)),
    "judge": (monitor, (1, 5)),
    "advise": (monitor, (1, 5)),
    "update": (CollapseMonitor, (1, 5)),
    "log": (Silent, (1, 5)),
    "on_event": (Silent, (1,)),
}
AT_A_VERDICT = {"note": (Silent, (1, 2))}
FOR_RESCUES = {
    "add": (race.LoopTrial, (1, 5)),
    "drift_meter": (guard, (1, 2)),
    # While R@1 is compared.
    "recalls": (race.Trial, (1,)),
    "race_data": (race.LoopTrial, (1,)),
    "nearest_is_own_class": (race, (1, 2)),
    "embed": (race.LoopTrial, (1, 2)),
    "_take_snapshot": (Guard, (1, 2)),
}
IN_A_RESCUE = {
    "rank_strategies": (guard, (1,)),
    "RacePlan": (race, (1,)),
    "_first_of_each_form": (race, (1,)),
    "nearest_is_own_class": (race, (3, 4)),
    "apply_strategy": (guard, (3, 4)),
    "copy_state": (race.Trial, (1, 2, 4)),
    "restore": (race.Trial, (1, 2, 4)),
    "race_data": (race.LoopTrial, (2,)),
    "train": (race.LoopTrial, (1, 9)),
    "embed": (race.LoopTrial, (3, 4)),
    "_record": (Guard, (1,)),
}
LAYER = {"layer_rows": (watching, (1, 5))}
DRIFT_OF_A_LAYER = {"known_drift": (watching, (1, 5))}
ERRORS = [
    RuntimeError("out of luck"),
    OSError(28, "No space left on device"),
    MemoryError("no room"),
]


def cases(table, *actions):
    return [
        pytest.param(owner, name, at, action, id=f"{name}-{at}-{action}")
        for name, (owner, calls) in table.items()
        for at in calls
        for action in actions
    ]


def hooks_of(*parts):
    kinds = ("_forward_hooks", "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
    return [hook for part in parts for kind in kinds for hook in getattr(part, kind, {}).values()]


def all_of(watch):
    """Everything that a rescue may touch."""
    own = watch.guard
    state = {name: value for name, value in vars(own._state).items() if name != "snapshots"}
    known = (strategy_of(own.loss_fn), own.strategy, own._failed, own.events, own.monitor.changes)
    known = (*known, own.lr_factor, state, own.monitor.state_dict(), own.model.training)
    return copy.deepcopy(traces(own.model, own.loss_fn, own.optimizers[0], known))


def broken_run(monkeypatch, owner, name, at, error, loop=plain, **options):
    """A loop whose watch will fail inside, and the states before and after a failed rescue."""
    seed_all()
    running = loop(60)
    model, criterion, optimizer, own = next(running)
    options = {"loggers": [Silent()], "on_event": Silent().on_event, **own, **options}
    watch = uc.watch(model, criterion, optimizer, **options)
    fault = Broken(getattr(owner, name), at, error)
    monkeypatch.setattr(owner, name, fault)
    if name == "on_event":
        watch.on_event = Silent().on_event
    states, undone_on_error = [], Guard._undone_on_error

    @contextmanager
    def observed(self):
        states[:] = [all_of(watch)]
        try:
            with undone_on_error(self):
                yield
        except BaseException:
            states.append(all_of(watch))
            raise

    monkeypatch.setattr(Guard, "_undone_on_error", observed)
    return watch, running, fault, states


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "at", "action"),
    [
        *cases(EVERYWHERE, "warn", "stop", "rescue"),
        *cases(AT_A_VERDICT, "warn", "stop"),
        *cases(FOR_RESCUES, "rescue"),
        *cases(IN_A_RESCUE, "rescue"),
        *cases(LAYER, "warn", "stop", "rescue"),
        *cases(DRIFT_OF_A_LAYER, "rescue"),
    ],
)
def test_a_fault_ends_the_watching_and_nothing_else(owner, name, at, action, monkeypatch, caplog):
    error = ERRORS[(len(name) + at) % len(ERRORS)]
    loop = layer_of_noise if name in {**LAYER, **DRIFT_OF_A_LAYER} else plain
    with caplog.at_level(logging.WARNING, "uncollapse"):
        watch, running, fault, states = broken_run(
            monkeypatch, owner, name, at, error, loop, action=action
        )
        assert list(running) == list(range(60))
    assert fault.calls >= at
    assert [r.args[0] for r in caplog.records if "stopped watching" in r.msg] == [watch.step]
    assert "raise self.error" in watch.error
    assert str(error) in watch.error
    own = watch.guard
    assert hooks_of(*own.model.modules(), *own.loss_fn.modules(), *own.optimizers) == []
    if at in IN_A_RESCUE.get(name, (None, ()))[1] and (name, at) != ("copy_state", 1):
        before, after = states
        assert_equal_bit_for_bit(after, before)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "at"), [("race_data", 2), ("train", 1), ("embed", 3)])
def test_an_interrupted_race_is_undone_before_the_interrupt_goes_on_up(name, at, monkeypatch):
    watch, running, _, states = broken_run(
        monkeypatch, race.LoopTrial, name, at, KeyboardInterrupt(), action="rescue"
    )
    with pytest.raises(KeyboardInterrupt):
        list(running)
    before, after = states
    assert_equal_bit_for_bit(after, before)
    assert watch.error is None


@pytest.mark.slow
def test_a_run_that_was_interrupted_in_a_race_goes_on_to_its_rescue(monkeypatch):
    watch, running, _, states = broken_run(
        monkeypatch, race.LoopTrial, "train", 9, KeyboardInterrupt(), action="rescue"
    )
    with pytest.raises(KeyboardInterrupt):
        list(running)
    before, after = states
    assert_equal_bit_for_bit(after, before)
    monkeypatch.undo()
    own = watch.guard
    for step in range(30):
        fit(own.loss_fn(own.model(noise(step)), LABELS), own.optimizers[0])
    assert [event.kind for event in watch.events] == ["rescue"]


# What it finds in a call. Each case: the criterion, its arguments, and what should be read.

Z = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 3
NAMES = [f"class {number}" for number in Y.tolist()]


class Called(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def ntxent(z1, z2):
    return torch.nn.functional.cross_entropy(z1 @ z2.T, torch.arange(len(z1)))


def total(*args, **kwargs):
    """Any loss of all that is given."""
    return sum(x.square().mean() for x in tree_leaves((args, kwargs)) if is_float(x))


def is_float(x):
    return isinstance(x, Tensor) and x.is_floating_point()


def hugging_face(inputs=None, labels=None):
    return {"loss": inputs.square().mean(), "embeddings": 2 * inputs, "logits": inputs[:, :3]}


def pml(name, **options):
    return getattr(pytest.importorskip("pytorch_metric_learning.losses"), name)(**options)


VIEWS = torch.stack([Z, 2 * Z], 1)
TEXTS = [{"sentence_embedding": Z, "input_ids": Y}, {"sentence_embedding": 2 * Z}]
CALLS = {  # criterion, arguments, keywords, rows, labels
    "ours": (triplet, (Z, Y), {}, [Z], Y),
    "ours with names": (triplet, (Z, NAMES), {}, [Z], NAMES),
    "ours with names in a tuple": (triplet, (Z, tuple(NAMES)), {}, [Z], NAMES),
    "ours with NumPy labels": (triplet, (Z, Y.numpy()), {}, [Z], Y),
    "ours by keyword": (triplet, (), {"labels": Y, "embeddings": Z}, [Z], Y),
    "ours with references": (
        *(triplet, (Z, Y), {"ref_embeddings": 3 * Z, "ref_labels": Y.flip(0)}, [Z], Y),
    ),
    "ours with sample ids": (
        *(lambda: Called(total), (Z, Y), {"sample_ids": torch.arange(12)}, [Z], Y),
    ),
    "PML": (lambda: pml("TripletMarginLoss"), (Z, Y), {}, [Z], Y),
    "PML with tuples": (
        *(lambda: pml("TripletMarginLoss"), (Z, Y, (Y.argsort(), Y.argsort(), Y.argsort()))),
        *({}, [Z], Y),
    ),
    "PML with tuples by keyword": (
        *(lambda: pml("ContrastiveLoss"), (Z,)),
        *({"indices_tuple": (torch.arange(12),) * 4, "labels": Y}, [Z], Y),
    ),
    "PML with references": (
        *(lambda: pml("NTXentLoss"), (Z, Y), {"ref_emb": 3 * Z, "ref_labels": Y.flip(0)}, [Z], Y),
    ),
    "torch's triplets": (nn.TripletMarginLoss, (Z, 2 * Z, 3 * Z), {}, [Z, 2 * Z, 3 * Z], None),
    "torch's pairs": (nn.CosineEmbeddingLoss, (Z, 2 * Z, 2 * (Y % 2) - 1), {}, [Z, 2 * Z], None),
    "SupCon": (SupCon, (VIEWS, Y), {}, [Z, 2 * Z], Y.repeat(2)),
    "SupCon with a mask": (
        *(SupCon, (VIEWS,), {"mask": ((Y[:, None] == Y).float(),)}, [Z, 2 * Z], None),
    ),
    "NT-Xent": (lambda: Called(ntxent), (Z, 2 * Z), {}, [Z, 2 * Z], None),
    "SimSiam": (NegativeCosine, (Z, (2 * Z,)), {}, [Z], None),
    "ArcFace head": (lambda: Called(lambda z, y: z @ torch.ones(4, 9)), (Z, Y), {}, [Z], Y),
    "texts with labels": (lambda: Called(total), (TEXTS[:1], Y), {}, [Z], Y),
    "columns of texts": (
        *(
            lambda: Called(total),
            (TEXTS, torch.ones(12)),
            {},
            [Z, 2 * Z],
            torch.arange(12).repeat(2),
        ),
    ),
    "a dictionary": (
        *(lambda: Called(total), ({"feats": Z, "noise": torch.ones(12, 9), "target": Y},), {}),
        *([Z], Y),
    ),
    "a tuple": (lambda: Called(total), ((Z, Y),), {}, [Z], Y),
    "labels in a column": (lambda: Called(total), (Z, Y[:, None]), {}, [Z], Y),
    "Hugging Face": (lambda: Called(hugging_face), (), {"inputs": Z, "labels": Y}, [2 * Z], Y),
    "a pair whose other half is detached": (
        *(nn.CosineEmbeddingLoss, (Z, (2 * Z,), 2 * (Y % 2) - 1), {}, [Z], None),
    ),
    "a queue that learns": (
        *(lambda: Called(total), (Z, torch.ones(30, 4), Y), {}, [Z, torch.ones(30, 4)], None),
    ),
    "a queue that is detached": (lambda: Called(total), (Z, (torch.ones(30, 4),)), {}, [Z], None),
}


def with_graph(tree, scale):
    """The floats of a tree on the graph of `scale`; those in a tuple of one stay detached."""
    if isinstance(tree, tuple) and len(tree) == 1 and is_float(tree[0]):
        return tree[0]
    if isinstance(tree, dict):
        return {name: with_graph(value, scale) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(with_graph(value, scale) for value in tree)
    return tree * scale if is_float(tree) and tree.ndim > 1 else tree


class Seeing(CollapseMonitor):
    """Keeps what it is given."""

    def update(self, embeddings, labels=None, loss=None, step=None):
        self.seen = (embeddings, labels, loss)
        return super().update(embeddings, labels, loss, step)


@pytest.mark.parametrize("case", CALLS)
def test_embeddings_labels_and_loss_are_found_in_a_call(case):
    make, args, kwargs, rows, labels = CALLS[case]
    model, criterion, seeing = nn.Linear(1, 1, bias=False), make(), Seeing()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    with uc.watch(model, criterion, optimizer, monitor=seeing) as watch:
        with torch.no_grad():
            model.weight.fill_(1.0)
        scale = model(torch.ones(1))
        output = criterion(*with_graph(list(args), scale), **with_graph(kwargs, scale))
        loss = output["loss"] if isinstance(output, dict) else output.mean()
        loss.backward()
        optimizer.step()
    assert watch.error is None
    z, found, value = seeing.seen
    torch.testing.assert_close(z, torch.cat(rows))
    assert (found is None) == (labels is None)
    if labels is not None:
        assert list(np.asarray(found)) == list(np.asarray(labels))
    if isinstance(output, dict) or output.ndim == 0:
        assert float(value) == pytest.approx(loss.item())
    else:
        assert value is None


# What it finds in a layer, with or without a criterion.


class Nested(nn.Module):
    """Gives what a layer of a kind gives, behind a name."""

    def __init__(self, shape):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(IN, 6), Called(shape))
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.head(layer_rows(self.encoder(x)))


OUTPUTS = {  # of a layer: what is made of rows [N, 6]
    "pooled": lambda z: z,
    "tokens": lambda z: torch.stack([z, z, z], 1),
    "conv maps": lambda z: z[:, :, None, None].expand(-1, -1, 2, 2),
    "a tuple": lambda z: (z, {"attention": z.mean(1)}),
    "a dictionary": lambda z: {"last_hidden_state": 2 * z[:, None], "pooler_output": z},
    "in place": lambda z: z.clone(),
}


@pytest.mark.parametrize("with_criterion", [True, False])
@pytest.mark.parametrize("kind", OUTPUTS)
def test_a_layer_is_watched_by_its_name(kind, with_criterion):
    model, criterion, seeing = Nested(OUTPUTS[kind]), nn.CrossEntropyLoss(), Seeing()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    given = criterion if with_criterion else None
    with uc.watch(model, given, optimizer, layer="encoder.1", monitor=seeing) as watch:
        x = noise(0)
        criterion(model(x), LABELS).backward()
        optimizer.step()
        expected = model.encoder[0](x)
    assert watch.error is None
    z, labels, loss = seeing.seen
    torch.testing.assert_close(z, expected.detach())
    assert (labels is not None) == (loss is not None) == with_criterion
    if with_criterion:
        assert torch.equal(labels, LABELS)


def test_what_follows_a_layer_in_place_does_not_change_what_is_seen():
    model, seeing = nn.Sequential(nn.Linear(IN, 4), nn.ReLU(inplace=True)), Seeing()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    uc.watch(model, None, optimizer, layer="0", monitor=seeing)
    fit(model(noise(0)).sum(), optimizer)
    assert bool((seeing.seen[0] < 0).any())


def test_a_student_and_its_teacher_are_two_watches():
    student, sees, sees_other = network(), Seeing(), Seeing()
    teacher = copy.deepcopy(student).requires_grad_(False).eval()
    optimizer = adam(student)
    one = uc.watch(student, None, optimizer, layer="2", monitor=sees, every=1)
    other = uc.watch(teacher, None, optimizer, layer="2", monitor=sees_other, every=1)
    for step in range(30):
        with torch.no_grad():
            target = teacher(noise(step) + 1.0)
        fit((student(noise(step)) - target).square().mean(), optimizer)
    for watch, own, rows in ((one, sees, None), (other, sees_other, target)):
        assert watch.error is None
        assert watch.health.step == 30
        assert rows is None or torch.equal(own.seen[0], rows)


# What it says where it cannot tell.


def test_scores_of_classes_are_no_embeddings():
    with refused("criterion") as caught:
        read_call(nn.CrossEntropyLoss(), (Z.clone().requires_grad_(), Y), {}, None)
    assert "scores" in caught.value.given
    assert "layer=" in caught.value.allowed


def test_rows_of_two_widths_in_a_call_are_listed():
    a, b = Z.clone().requires_grad_(), Z[:, :3].clone().requires_grad_()
    with refused("criterion") as caught:
        read_call(Called(total), (a, b), {}, None)
    assert "[12, 4]" in caught.value.given
    assert "[12, 3]" in caught.value.given


def test_a_wrong_name_of_a_layer_is_refused_with_the_nearest_right_one():
    model = network()
    with refused("layer") as caught:
        uc.watch(nn.ModuleDict({"backbone": model}), None, adam(model), layer="backbon")
    assert "backbone" in str(caught.value)


@pytest.mark.parametrize("wrong", [functional.cross_entropy, None, nn.TripletMarginLoss, "triplet"])
def test_a_criterion_that_cannot_be_heard_is_refused_at_once(wrong):
    model = network()
    with refused("criterion"):
        uc.watch(model, wrong, adam(model))


@pytest.mark.parametrize("options", [{}, {"layer": "head"}], ids=["criterion", "layer"])
def test_what_is_never_called_is_named_after_some_steps(options, caplog):
    model, criterion = nn.ModuleDict({"net": network(), "head": nn.Linear(1, 1)}), triplet()
    optimizer = adam(model)
    watch = uc.watch(model, criterion, optimizer, **options)
    for step in range(30):
        fit(criterion.forward(model["net"](noise(step)), LABELS), optimizer)
    assert f"InputError: {next(iter(options), 'criterion')}: " in watch.error
    assert len([r for r in caplog.records if "stopped watching" in r.msg]) == 1
    assert int(optimizer.state[model["net"][0].weight]["step"]) == 30


@pytest.mark.parametrize("action", ["warn", "stop", "rescue"])
def test_a_classifier_trains_on_where_its_scores_are_taken_for_embeddings(action):
    model, criterion = network(), nn.CrossEntropyLoss()
    optimizer = adam(model)
    watch = uc.watch(model, criterion, optimizer, action=action)
    for step in range(5):
        fit(criterion(model(noise(step)), LABELS % DIM), optimizer)
    assert "InputError: criterion: " in watch.error
    assert int(optimizer.state[model[0].weight]["step"]) == 5


# Bugs that were known, each by its loop. A rescue comes in all of them.


@pytest.mark.slow
@pytest.mark.parametrize(
    "loop",
    [the_same_rows_at_every_step, two_batches_in_turn, lbfgs, unfrozen_later],
    ids=lambda loop: loop.__name__,
)
def test_a_rescue_comes_through(loop):
    *_, watch, _ = run(loop, 60, action="rescue")
    assert watch.error is None
    assert "rescue" in [event.kind for event in watch.events]


@pytest.mark.slow
def test_a_race_trains_and_judges_on_copies_of_buffers_that_are_refilled():
    model, criterion, *_, watch, _ = run(plain, 60, action="rescue")
    other, same, *_, watch_of_other, _ = run(reused_buffers, 60, action="rescue")
    assert watch.events[0].race is not None
    assert watch_of_other.events == watch.events
    assert strategy_of(same) == strategy_of(criterion)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def losses_of_others():
    pml = pytest.importorskip("pytorch_metric_learning.losses")
    return {
        "PML": pml.TripletMarginLoss(),
        "cross entropy": nn.CrossEntropyLoss(),
        "function": lambda z, labels: functional.cross_entropy(z, labels.long()),
    }


@pytest.mark.parametrize("name", ["PML", "cross entropy", "function"])
def test_a_guard_lets_a_healthy_run_with_another_package_s_loss_train(name):
    seed_all()
    model, criterion = network(), losses_of_others()[name]
    optimizer = adam(model, lr=1e-3)
    guard = Guard(model, optimizer, criterion)
    for step in range(40):
        z = model(samples(step))
        loss = criterion(z, LABELS % DIM)
        fit(loss, optimizer)
        guard.after_step(z, (LABELS % DIM).numpy(), loss)
    assert [event for event in guard.events if event.kind == "rescue"] == []
    assert guard.monitor.health.step == 36  # the last look


@pytest.mark.slow
@pytest.mark.parametrize("by_hand", [True, False])
def test_a_rescue_comes_through_with_a_boundary_per_sample(by_hand):
    seed_all()
    model, criterion, optimizer, _ = next(a_boundary_per_sample(1))
    if by_hand:
        watching = guard = Guard(model, optimizer, criterion)
    else:
        watching = uc.watch(model, criterion, optimizer, action="rescue")
        guard = watching.guard
    for step in range(20):
        z = model(noise(step))
        loss = criterion(z, LABELS, sample_ids=torch.arange(ROWS))
        fit(loss, optimizer)
        if by_hand:
            guard.after_step(z, LABELS, loss)
    for _ in range(4):
        watching.after_step(1e-4 * z, LABELS, loss)
    assert [event.kind for event in watching.events] == ["rescue"]
    recorded = guard._trial.batches[-1]
    assert torch.equal(recorded.sample_ids, torch.arange(ROWS))
    guard._trial.train(recorded)
    assert by_hand or watching.error is None


@pytest.mark.parametrize("make", [lr_scheduler.OneCycleLR, lr_scheduler.StepLR])
def test_a_schedule_made_after_the_guard_goes_on_after_a_rollback(make):
    seed_all()
    model, criterion = network(), triplet()
    optimizer, lone = adam(model), adam(network())
    watch = uc.watch(model, criterion, optimizer, action="rescue")
    options = (
        {"max_lr": 0.1, "total_steps": 31} if make is lr_scheduler.OneCycleLR else {"step_size": 3}
    )
    schedules = [make(each, **options) for each in (optimizer, lone)]
    for step in range(30):
        fit(criterion(model(noise(step)), LABELS), optimizer)
        if step == 5:
            watch.after_step(torch.full((4, 2), torch.nan))
            assert watch.guard.lr_factor == pytest.approx(0.1)
        lone.step()
        for schedule in schedules:
            schedule.step()
        assert optimizer.param_groups[0]["lr"] == lone.param_groups[0]["lr"]
    assert watch.error is None


@pytest.mark.parametrize("wrong", [{"thresholds": {"shrink_ratio": 0.1}}, {"on_change": 5}])
def test_a_monitor_refuses_at_once_what_would_be_fatal_later(wrong):
    with refused(next(iter(wrong))):
        CollapseMonitor(**wrong)


# Several watches, parts that are another's, and what is left after the end.


def test_a_rate_lowered_by_two_watches_is_put_back_after_each_step():
    seed_all()
    model, criterion = network(), triplet()
    optimizer = adam(model)
    first, second = (uc.watch(model, criterion, optimizer, action="rescue") for _ in "ab")
    rates = []
    optimizer.register_step_pre_hook(lambda *_: rates.append(optimizer.param_groups[0]["lr"]))
    for watch in (first, second):
        watch.after_step(torch.full((4, 2), torch.nan))
    for step in range(3):
        fit(criterion(model(noise(step)), LABELS), optimizer)
        assert optimizer.param_groups[0]["lr"] == 1e-2
    assert rates == pytest.approx([1e-4] * 3)


@pytest.mark.slow
def test_two_watches_on_one_loop_see_the_same():
    def loop(steps):
        running = plain(steps)
        parts = next(running)
        also.append(uc.watch(*parts[:3]))
        yield parts
        yield from running

    also = []
    *_, watch, trace = run(loop, 60)
    assert trace == list(range(60))
    assert also[0].history == watch.history
    assert also[0].error is None


@pytest.mark.slow
def test_a_race_leaves_no_trace_in_what_it_does_not_train():
    """A parameter without an optimizer, a buffer that no checkpoint has, and the gradients."""

    def loop(steps):
        running = plain(steps)
        model, *rest = next(running)
        model.loose = nn.Parameter(torch.zeros(1))
        model.register_buffer("calls", torch.zeros(()), persistent=False)
        model.register_forward_hook(lambda m, args, z: (m.calls.add_(1), z + m.loose)[1])
        yield model, *rest
        for step in running:
            yield step, float(model.loose.grad), int(model.calls)

    *_, watch, trace = run(loop, 30, action="rescue")
    *_, lone = run(loop, 30, watched=False)
    assert watch.events[0].race is not None
    at = watch.events[0].step
    assert trace[: at - 1] == lone[: at - 1]
    assert trace[at - 1][:2] == lone[at - 1][:2]
    assert trace[at - 1][2] == max(score.steps for score in watch.events[0].race.scores)


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("until", "loop"),
    [
        (4, plain),
        (9, plain),
        (25, plain),
        (9, string_labels),
        (9, numpy_labels),
        (9, reused_buffers),
    ],
)
def test_a_resumed_watch_goes_on_as_the_one_that_was_not_interrupted(until, loop):
    model, _, _, whole, _ = run(loop, 40, action="rescue")
    assert whole.events[0].race is not None
    *parts, watch, _ = run(loop, until, action="rescue")
    states = through_a_file([part.state_dict() for part in (*parts, watch)])
    seed_all(1)
    running = loop(40, start=until)
    parts = next(running)[:3]
    watch = uc.watch(*parts, action="rescue")
    for part, state in zip((*parts, watch), states, strict=True):
        part.load_state_dict(state)
    list(running)
    assert watch.error is None
    assert watch.events == whole.events
    assert watch.history == whole.history
    for a, b in zip(model.parameters(), parts[0].parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
def test_a_guard_resumed_before_its_rescue_chooses_as_the_one_that_was_not_interrupted():
    def guarded(steps, start=0, states=None):
        seed_all(start)
        model, criterion, optimizer, _ = next(plain(0))
        guard = Guard(model, optimizer, criterion)
        parts = (model, optimizer, guard)
        for part, state in zip(parts, states or (), strict=states is not None):
            part.load_state_dict(state)
        for step in range(start, steps):
            z = model(noise(step))
            loss = criterion(z, LABELS)
            fit(loss, optimizer)
            guard.after_step(z, LABELS, loss)
        return guard, through_a_file([part.state_dict() for part in parts])

    whole, _ = guarded(30)
    assert whole.events[0].race is not None
    early, states = guarded(whole.events[0].step - 1)
    assert early.events == []
    resumed, _ = guarded(30, whole.events[0].step - 1, states)
    assert resumed.events == whole.events
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_copies_and_pickles_of_watched_parts_are_not_watched():
    model, criterion = network(), triplet()
    optimizer = adam(model)
    watch = uc.watch(model, criterion, optimizer, action="rescue", layer="2")
    twins = [copy.deepcopy(part) for part in (model, criterion)]
    twins += [pickle.loads(pickle.dumps(part)) for part in (model, criterion)]
    for twin, loss in (twins[:2], twins[2:]):
        fit(loss(twin(noise(0)), LABELS), adam(twin))
    assert watch.health is None
    fit(criterion(model(noise(0)), LABELS), optimizer)
    assert watch.health.n == ROWS
    assert b"uncollapse" not in pickle.dumps(model)  # read where this package is not installed


def test_hooks_do_not_pile_up_on_embeddings_that_are_parameters():
    model, criterion = nn.Embedding(ROWS, DIM), triplet()
    optimizer = adam(model)
    uc.watch(model, criterion, optimizer)
    for _ in range(5):
        fit(criterion(model.weight, LABELS), optimizer)
    assert not model.weight._backward_hooks


@pytest.mark.parametrize("no_grad", [True, False])
def test_a_validation_between_the_steps_is_not_judged(no_grad):
    model, criterion, seeing = network(), triplet(), Seeing()
    optimizer = adam(model)
    uc.watch(model, criterion, optimizer, monitor=seeing)
    for step in range(6):
        with torch.set_grad_enabled(not no_grad):
            criterion(model(noise(100, 16)), torch.arange(16) % 4)
        loss = criterion(model(noise(step)), LABELS)
        value = loss.item()
        fit(loss, optimizer)
        assert len(seeing.seen[0]) == ROWS
        assert float(seeing.seen[2]) == value


def test_a_loss_that_is_scaled_in_place_is_read_before():
    model, criterion, seeing = network(), triplet(), Seeing()
    optimizer = adam(model)
    uc.watch(model, criterion, optimizer, monitor=seeing)
    loss = criterion(model(noise(0)), LABELS)
    value = loss.item()
    loss /= 4
    fit(loss, optimizer)
    assert float(seeing.seen[2]) == value


def test_each_batch_of_a_closure_is_kept_once_for_races():
    seed_all()
    running = lbfgs(6)
    model, criterion, optimizer, _ = next(running)
    watch = uc.watch(model, criterion, optimizer, action="rescue")
    list(running)
    assert len(watch.guard._trial.batches) == 6


def test_a_divergence_whose_rollback_fails_is_undone(monkeypatch):
    watch, running, _, states = broken_run(
        monkeypatch, race.Trial, "restore", 1, RuntimeError("out of luck"), action="rescue"
    )
    next(running)
    watch.after_step(torch.full((4, 2), torch.nan))
    before, after = states
    assert_equal_bit_for_bit(after, before)
    assert "out of luck" in watch.error
    assert watch.guard.lr_factor == 1.0


def test_what_the_criterion_remembers_is_rolled_back_with_the_network():
    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("centre", torch.zeros(DIM))

        def forward(self, z, labels):
            self.centre = 0.9 * self.centre + 0.1 * z.detach().mean(0)
            return (z - self.centre).square().mean()

    model, criterion = network(), Centred()
    optimizer = adam(model)
    watch = uc.watch(model, criterion, optimizer, action="rescue")
    x = noise(0)
    x[0] = torch.nan
    fit(criterion(model(x), LABELS), optimizer)
    assert [event.kind for event in watch.events] == ["rescue"]
    assert torch.equal(criterion.centre, torch.zeros(DIM))
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())


def test_a_run_that_nothing_helps_is_let_go_on():
    """From a last layer of zeros: to roll back again and again would hold it there."""
    from pytorch_metric_learning.losses import TripletMarginLoss

    seed_all()
    model, criterion = network(), TripletMarginLoss()
    nn.init.zeros_(model[2].weight)
    nn.init.zeros_(model[2].bias)
    optimizer = adam(model)
    watch = uc.watch(model, criterion, optimizer, action="rescue")
    for step in range(40):
        fit(criterion(model(noise(step)), LABELS), optimizer)
    assert watch.error is None
    assert [event.kind for event in watch.events][-1] == "warning"
    assert len(watch.events) <= 3
    assert int(optimizer.state[model[0].weight]["step"]) >= 30


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0.0, torch.nan], ids=["collapse", "divergence"])
def test_a_loop_that_does_not_stop_is_asked_once(lost):
    model, criterion = network(), triplet()
    watch = uc.watch(model, criterion, adam(model), action="stop")
    watch.after_step(noise(0), LABELS)
    for _ in range(9):
        watch.after_step(lost * noise(0), LABELS)
    assert [event.kind for event in watch.events].count("stop") == 1
    assert watch.stopped


def test_an_optimizer_that_never_steps_is_named():
    model, criterion = network(), nn.TripletMarginLoss()
    watch, other = uc.watch(model, criterion, adam(model)), adam(model)
    rows = noise(0, 6)
    for _ in range(330):
        fit(criterion(*model(rows).chunk(3)), other)
    assert "InputError: optimizer: " in watch.error


def test_batches_without_triplets_in_a_rescue_are_not_warned_of():
    """Warnings are errors here: the alternatives of a collapsed start find no triplets."""
    seed_all()
    model, criterion = network(), triplet()
    nn.init.zeros_(model[2].weight)
    nn.init.zeros_(model[2].bias)
    optimizer = adam(model)
    watch = uc.watch(model, criterion, optimizer, action="rescue")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(30):
            z = model(noise(step))
            loss = criterion(z, LABELS)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                fit(loss, optimizer)
    assert watch.error is None
    assert watch.events


# Without labels.


class TwoHeads(nn.Module):
    """A projector and a predictor, as in SimSiam."""

    def __init__(self):
        super().__init__()
        self.projector, self.predictor = (
            nn.Sequential(
                nn.Linear(32, inner), nn.BatchNorm1d(inner), nn.ReLU(), nn.Linear(inner, 32)
            )
            for inner in (64, 16)
        )

    def forward(self, x):
        z = self.projector(x)
        return z, self.predictor(z)


class Aligned(nn.Module):
    """The negative cosine of two views, as lightly has it: who wants a stop-gradient detaches."""

    def forward(self, x0, x1):
        return -functional.cosine_similarity(x0, x1).mean()


@pytest.mark.slow
@pytest.mark.parametrize("layer", [None, "projector"])
@pytest.mark.parametrize("stop_gradient", [True, False])
def test_a_loss_that_pulls_directions_together_is_reported_once(stop_gradient, layer):
    seed_all()
    model, criterion = TwoHeads(), Aligned()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    watch = uc.watch(model, criterion, optimizer, layer=layer)
    for _ in range(100):
        x = torch.randn(128, 32)
        (z, p), (other, q) = (model(x + 0.3 * torch.randn_like(x)) for _ in range(2))
        if stop_gradient:
            z, other = z.detach(), other.detach()
        optimizer.zero_grad()
        (0.5 * (criterion(p, other) + criterion(q, z))).backward()
        optimizer.step()
    assert watch.error is None
    if stop_gradient:
        assert not watch.events
        assert watch.history[-1]["direction_drift"] < 0.1
        return
    (event,) = watch.events
    assert event.step >= 60
    assert "of the spread of directions is left" in event.text
    assert "stop-gradient" in event.text
    assert "positives" not in event.text


def test_rows_without_labels_that_turn_to_one_direction_become_a_cone():
    seen = CollapseMonitor(patience=2)
    z = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    for step in range(60):
        seen.update(z + (0.0 if step < 20 else 30.0), step=step)
    assert seen.verdict == "cone"
    assert "predictor" in seen.advice


def test_token_ids_are_not_taken_for_labels():
    z, labels = torch.randn(4, 2, requires_grad=True), torch.tensor([0, 0, 1, 1])
    features = {"input_ids": torch.arange(4), "sentence_embedding": z}
    call = read_call(nn.Identity(), ([features], labels), {}, z.sum())
    assert call.labels is labels or torch.equal(call.labels, labels)


def test_a_loss_that_rests_while_rows_differ_is_reported_once():
    seed_all()
    model, criterion = nn.Linear(IN, DIM), uc.SupConLoss(temperature=1e4)  # all pairs count alike
    optimizer = torch.optim.SGD(model.parameters(), 1e-9)
    watch = uc.watch(model, criterion, optimizer, every=1)
    for step in range(120):
        optimizer.zero_grad()
        criterion(model(noise(step)), LABELS).backward()
        optimizer.step()
    (event,) = watch.events
    assert event.kind == "warning"
    assert f"ln {ROWS - 1}" in event.text
    assert "not learning" in event.text
