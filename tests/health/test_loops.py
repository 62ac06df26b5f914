"""Loops as people write them: the watch breaks none of them, and changes no healthy one."""

import copy
from functools import cache

import pytest

from support.loops import (
    HEALTHY,
    LABELS,
    LOOPS,
    ODD,
    assert_equal_bit_for_bit,
    compiled_step,
    fit,
    random_miner,
    run,
    samples,
    traces,
)
from uncollapse.health import Guard


@pytest.mark.slow
@pytest.mark.parametrize("action", ["warn", "rescue"])
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_a_loop_runs_to_its_end(loop, action):
    *_, watch, _ = run(loop, 60, action=action)
    assert watch.error is None
    assert watch.health is not None


@pytest.mark.night
@pytest.mark.parametrize("action", ["warn", "rescue"])
@pytest.mark.parametrize("name", ODD)
def test_an_odd_loop_runs_to_its_end(name, action):
    *_, watch, _ = run(ODD[name], 30, action=action)
    assert watch.error is None
    assert watch.health is not None
    assert watch.step >= 15


@pytest.mark.slow
def test_a_compiled_step_stays_one_graph_and_is_told_that_nothing_is_seen():
    *_, watch, _ = run(compiled_step, 30, action="rescue")
    assert "criterion" in watch.error
    assert "torch.compile" in watch.error


@cache
def unwatched(loop):
    """The traces of a loop, made once for all actions."""
    model, criterion, optimizer, _, trace = run(loop, 200, watched=False)
    return copy.deepcopy(traces(model, criterion, optimizer, trace))


@pytest.mark.slow
@pytest.mark.parametrize("action", ["warn", "stop", "rescue"])
@pytest.mark.parametrize("loop", HEALTHY, ids=lambda loop: loop.__name__)
def test_a_healthy_run_is_the_unwatched_one_bit_for_bit(loop, action):
    model, criterion, optimizer, watch, trace = run(loop, 200, action=action)
    assert watch.error is None
    assert not [event for event in watch.events if event.kind != "warning"]
    assert_equal_bit_for_bit(traces(model, criterion, optimizer, trace), unwatched(loop))


@pytest.mark.slow
def test_a_guard_called_by_hand_draws_nothing_from_the_random_streams():
    def loop(steps):
        running = random_miner(steps)
        model, criterion, optimizer, _ = next(running)
        yield model, criterion, optimizer, {}
        guard = Guard(model, optimizer, criterion)
        for step in range(steps):
            z = model(samples(step))
            loss = criterion(z, LABELS)
            fit(loss, optimizer)
            guard.after_step(z, LABELS, loss)

    model, criterion, optimizer, _, trace = run(loop, 200, watched=False)
    assert_equal_bit_for_bit(traces(model, criterion, optimizer, trace), unwatched(random_miner))
