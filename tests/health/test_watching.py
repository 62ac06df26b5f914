"""The watch: what it finds in calls, what it says where it cannot, and that faults end it alone."""

import copy
import logging
from contextlib import contextmanager

import pytest

import uncollapse as uc
from support.loops import (
    LABELS,
    assert_equal_bit_for_bit,
    fit,
    layer_of_noise,
    noise,
    plain,
    seed_all,
    traces,
)
from uncollapse.health import CollapseMonitor, Guard, guard, monitor, race, watching
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
