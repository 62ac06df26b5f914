"""Loops as people write them: the watch breaks none of them, and changes no healthy one."""

import pytest

from support.loops import LOOPS, compiled_step, run


@pytest.mark.slow
@pytest.mark.parametrize("action", ["warn", "rescue"])
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_a_loop_runs_to_its_end(loop, action):
    *_, watch, _ = run(loop, 60, action=action)
    assert watch.error is None
    assert watch.health is not None


@pytest.mark.slow
def test_a_compiled_step_stays_one_graph_and_is_told_that_nothing_is_seen():
    *_, watch, _ = run(compiled_step, 30, action="rescue")
    assert "criterion" in watch.error
    assert "torch.compile" in watch.error
