"""What a study asks for and says of its runs, without training any."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from support.errors import refused
from uncollapse.papers.items import Request
from uncollapse.papers.study import Setup, Study, Trained, about
from uncollapse.training import TrainingError

SETUP = Setup(
    config={"data": {"name": "digits"}, "model": {"backbone": "mlp", "dim": 2}},
    seeds=2,
    words="small",
    differs="all of it",
)
CELLS = {"A + b": {"model": {"dim": 4}}, "c": {}}


def test_the_command_names_what_was_asked_for(tmp_path):
    request = Request(
        "table1", tmp_path, "laptop", seed=2, seeds=5, weights=tmp_path / "weights.pth"
    )
    lines = about([Trained({}, [2, 3], 130.0, "digits", SETUP)], request)
    command = "uncollapse reproduce table1 --scale laptop --seed 2 --seeds 5 --weights weights.pth"
    assert lines["command"] == f"`{command}`"
    assert lines["seeds"] == "2, 3"
    assert lines["time"].startswith("2 min of training")
    assert str(tmp_path) not in "".join(lines.values())


def test_a_cell_changes_the_config_of_its_runs_and_names_them(tmp_path):
    jobs = SETUP.jobs(CELLS, Request("x", tmp_path, "smoke", seed=3))
    names = {name: [job.name for job in of_cell] for name, of_cell in jobs.items()}
    assert names == {"A + b": ["a-b-s3", "a-b-s4"], "c": ["c-s3", "c-s4"]}
    assert [job.config.model.dim for job in jobs["A + b"] + jobs["c"]] == [4, 4, 2, 2]
    assert [job.config.seed for job in jobs["c"]] == [3, 4]
    with refused("--weights"):  # of a protocol that starts from them
        replace(SETUP, pretrained=True).jobs(CELLS, Request("x", tmp_path, "smoke"))


@pytest.mark.parametrize("partial", [False, True])
def test_a_failed_run_ends_a_table_and_is_missing_from_a_figure(partial, tmp_path, monkeypatch):
    asked = {}

    def run_jobs(jobs, folder, **options):
        asked.update(options)
        first, *others = (
            SimpleNamespace(name=job.name, status="finished", error=None, seconds=1.0, run=job.name)
            for job in jobs
        )
        first.status, first.error = "failed", "no memory"
        return [first, *others]

    monkeypatch.setattr("uncollapse.papers.study.run_jobs", run_jobs)
    study = Study("some", {"smoke": [SETUP]}, partial=partial)
    request = Request("x", tmp_path, "smoke")
    if not partial:
        with pytest.raises(TrainingError, match=r"1 of 4 runs of some .* a-b-s0: no memory\."):
            study.train(request, CELLS)
        assert asked["retry_failed"]
        return
    trained = study.train(request, CELLS)
    assert trained.runs == {"A + b": ["a-b-s1"], "c": ["c-s0", "c-s1"]}
    assert "1 of 4 runs did not finish and are missing. a-b-s0: no memory." in trained.notes[1]
    assert trained.seconds == 4.0
    assert not asked["retry_failed"]
