"""The watch: what it finds in calls, what it says where it cannot, and that faults end it alone."""

import copy
import logging
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

import uncollapse as uc
from support.errors import refused
from support.loops import (
    CLASSES,
    DIM,
    IN,
    LABELS,
    NegativeCosine,
    SupCon,
    adam,
    assert_equal_bit_for_bit,
    fit,
    layer_of_noise,
    network,
    noise,
    plain,
    seed_all,
    traces,
    triplet,
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
    "_radial_drift": (watching, (1, 5)),
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
    "drift": (guard, (1, 2)),
    "_take_snapshot": (Guard, (1, 2)),
}
IN_A_RESCUE = {
    "rank_strategies": (guard, (1,)),
    "plan_race": (guard, (1,)),
    "run_race": (guard, (1,)),
    "apply_strategy": (guard, (3, 6)),
    "copy_state": (race.Trial, (1, 2, 4)),
    "restore": (race.Trial, (1, 2, 4)),
    "race_data": (race.LoopTrial, (1,)),
    "train": (race.LoopTrial, (1, 9)),
    "embed": (race.LoopTrial, (1, 2)),
    "_record": (Guard, (1,)),
}
LAYER = {"layer_rows": (watching, (1, 5))}
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
    ],
)
def test_a_fault_ends_the_watching_and_nothing_else(owner, name, at, action, monkeypatch, caplog):
    error = ERRORS[(len(name) + at) % len(ERRORS)]
    loop = layer_of_noise if name in LAYER else plain
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
    if name in IN_A_RESCUE and (name, at) != ("copy_state", 1):
        before, after = states
        assert_equal_bit_for_bit(after, before)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "at"), [("race_data", 1), ("train", 1), ("embed", 1)])
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
    one = uc.watch(student, None, optimizer, layer="2", monitor=sees)
    other = uc.watch(teacher, None, optimizer, layer="2", monitor=sees_other)
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
