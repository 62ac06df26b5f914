"""Processes killed at every kind of event, and processes that meet; `tools/kills.py` does more."""

import sys

import pytest

import support.hostile_processes as hostile
from support.deadly_network import MORTAL
from uncollapse.training import train

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="forks"),
]


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    """A folder with the data of the runs, and how one ends that is left alone."""
    home = tmp_path_factory.mktemp("undisturbed")
    train(hostile.tiny_config(home), home / "run")
    return home, hostile.outcome(home / "run")


@pytest.mark.parametrize(
    "kills",
    [
        [("measure the start", 1), ("make a step", 3), ("write the weights", 1)],
        [("list a checkpoint that is in place", 4), ("make a step", 5), ("write a line", 4)],
        [("write a line", 16), ("remove old checkpoints", 1), ("measure the end", 1)],
    ],
    ids=str,
)
def test_a_run_killed_at_any_event_ends_as_if_left_alone(truth, tmp_path, kills):
    home, expected = truth
    config, out = hostile.tiny_config(home), tmp_path / "run"
    for event, count in kills:
        assert hostile.train_until(config, out, event, count), event
    train(config, out, resume=True)
    assert hostile.outcome(out) == expected


@pytest.mark.night  # forked ranks die in tests/training/test_distributed.py
def test_a_rank_killed_under_torchrun_costs_the_steps_since_the_last_checkpoint(tmp_path):
    config, file = hostile.tiny_config(tmp_path, backbone=MORTAL), "run.toml"
    (tmp_path / file).write_text(config.to_toml())
    death = f"1 11 {tmp_path / 'over'}"  # rank 1, at its step 11
    code, text = hostile.torchrun(tmp_path / file, tmp_path / "killed", death=death)
    assert code != 0
    assert "rank 0 of 2 cannot reach another rank, which has ended or hangs" in text
    assert "step 8 is saved: go on with the same command and --resume" in text
    code, text = hostile.torchrun(tmp_path / file, tmp_path / "killed", "--resume", death=death)
    assert code == 0, text
    assert text.count("finished at step 24") == 1  # rank 0 alone speaks
    assert (tmp_path / "killed" / "report.html").is_file()
    code, text = hostile.torchrun(tmp_path / file, tmp_path / "undisturbed")
    assert code == 0, text
    assert hostile.outcome(tmp_path / "killed") == hostile.outcome(tmp_path / "undisturbed")


@pytest.mark.parametrize("resumed", [False, True])
def test_of_two_processes_in_one_folder_one_says_why_it_does_not_train(tmp_path, resumed):
    hostile.meet_in_a_folder(tmp_path, resumed=resumed)


@pytest.mark.night
def test_of_two_processes_in_one_sweep_one_says_why_it_does_not_begin(tmp_path):
    hostile.meet_in_a_sweep(tmp_path)
