import tomllib

import pytest

from uncollapse._base.check import InputError
from uncollapse._base.files import DamagedFileError
from uncollapse.sweep import load_sweep, parse_sweep
from uncollapse.sweep.grid import keep_sweep
from uncollapse.sweep.spec import point_name

GRID = {"batch.p": [2, 4], "batch.k": [2, 4]}


def names(**sweep):
    return [job.name for job in parse_sweep(sweep).jobs()]


def test_every_combination_is_a_run_and_seeds_are_the_outermost_loop():
    shapes = ["p=2,k=2", "p=2,k=4", "p=4,k=2", "p=4,k=4"]
    jobs = [f"{shape},seed={seed}" for seed in (3, 1) for shape in shapes]
    assert names(grid=GRID, seeds=[3, 1]) == jobs
    sweep = parse_sweep({"base": {"train": {"steps": 7}}, "grid": {"batch": {"p": [2, 3]}}})
    config = sweep.jobs()[1].config
    assert (config.batch.p, config.batch.k, config.train.steps) == (3, 4, 7)
    base = {"batch": {"p": 2, "k": 2}, "model": {"dim": 16}}
    jobs = names(base=base, grid=[GRID, {"model.dim": [4, 16]}])  # a point is shared
    assert len(jobs) == 5
    assert "p=2,k=2,dim=4,seed=0" in jobs


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        ({"grid": {"batch.q": [1]}}, "batch.q: expected one of"),
        ({"grid": {"batch.p": ["many"]}}, "batch.p: expected a whole number"),
        ({"grid": {"batch.p": []}}, "batch.p: expected a list of values"),
        ({"grid": {"batch.p": [2, 2]}}, "each value once"),
        ({"grid": {"seed": [1]}}, "seeds = "),
        ({"grid": {}}, "grid: expected at least one"),
        ({"grdi": GRID}, "'grid'"),
        ({}, "either a [grid] or a [search]"),
        ({"grid": GRID, "seeds": [1, 1]}, "seeds: expected"),
        ({"grid": GRID, "budget": {"max_days": 1}}, "max_runs, max_hours"),
        ({"grid": GRID, "base": "none.toml"}, "none.toml"),
        ({"search": {"batch.p": [2]}}, "search.trials"),
        ({"search": {"trials": 2}}, "at least one config key"),
        ({"search": {"trials": 2, "batch.p": {"low": 0, "high": 4}}}, "batch.p: expected a number"),
        ({"search": {"trials": 2, "batch.p": {"low": 0, "high": 4, "log": True}}}, "above 0"),
        ({"search": {"trials": 2, "model.hidden": [[16]]}}, "numbers or words"),
        ({"search": {"trials": 2, "batch.p": [2]}, "seeds": 2}, "one seed"),
        ({"grid": {"loss.name": ["triplet", "sup-con"], "loss.margin": [0.1]}}, "loss.margin"),
    ],
)
def test_a_mistake_is_named_before_anything_runs(sweep, words):
    with pytest.raises((InputError, FileNotFoundError)) as caught:
        parse_sweep(sweep)
    assert words in str(caught.value)


def test_names_are_short_enough_for_a_file_system_and_still_differ():
    long = [point_name({"a": "x" * 300, "seed": seed}) for seed in (0, 1)]
    assert max(map(len, long)) <= 120
    assert long[0] != long[1]


def test_the_kept_sweep_is_the_sweep(tmp_path):
    grids = [GRID, {"loss.margin": [0.0, 0.1]}]
    budget = {"max_runs": 3, "max_hours": 0.5}
    grid = {"base": {"model": {"dim": 8}}, "grid": grids, "seeds": 2, "budget": budget}
    search = {"search": {"trials": 3, "optimizer.lr": {"low": 0.1, "high": 1.0}}}
    for name, values in (("grid", grid), ("search", search)):
        keep_sweep(parse_sweep(values), tmp_path / name)
        assert load_sweep(tmp_path / name / "sweep.toml") == parse_sweep(values)


def test_a_sweep_may_grow_in_its_folder_but_not_change(tmp_path):
    for grid in ({"batch.k": [2]}, {"batch.p": [2]}):  # there are no runs yet
        keep_sweep(parse_sweep({"grid": grid}), tmp_path)
    (tmp_path / "runs" / "p=2,seed=0").mkdir(parents=True)
    (tmp_path / "runs" / "p=2,seed=0" / "config.toml").touch()
    keep_sweep(parse_sweep({"grid": {"batch.p": [4, 2]}, "seeds": 2}), tmp_path)
    for sweep in (
        {"grid": {"batch.p": [2]}, "seeds": 2},
        {"base": {"model": {"dim": 3}}, "grid": {"batch.p": [4, 2]}, "seeds": 2},
        {"grid": {"batch.k": [2, 4]}, "seeds": 2},
        {"search": {"trials": 2, "batch.p": [2, 4]}},
    ):
        with pytest.raises(InputError, match="lacks or changes"):
            keep_sweep(parse_sweep(sweep), tmp_path)


def test_the_base_may_be_a_file_beside_the_sweep(tmp_path):
    (tmp_path / "run.toml").write_text("[model]\ndim = 3\n")
    (tmp_path / "sweep.toml").write_text('base = "run.toml"\n[grid]\nbatch.p = [2, 4]\n')
    sweep = load_sweep(tmp_path / "sweep.toml", data_root="there")
    assert (sweep.base.model.dim, sweep.base.data.root) == (3, "there")
    (tmp_path / "sweep.toml").write_text("grid = [")
    with pytest.raises(DamagedFileError, match=r"sweep\.toml is damaged: not TOML"):
        load_sweep(tmp_path / "sweep.toml")


def test_a_loss_can_be_an_axis_and_each_takes_its_own_defaults():
    values = {
        "base": {"loss": {"normalize": True}},
        "grid": [
            {"loss.name": ["triplet", "contrastive"]},
            {"loss.name": ["triplet"], "loss.scale_free": [True]},
        ],
    }
    sweep = parse_sweep(values)
    losses = {job.name: job.config.loss for job in sweep.jobs()}
    margins = [("triplet", 0.2), ("contrastive", 1.0), ("triplet", 0.2)]
    assert [(loss.name, loss.margin) for loss in losses.values()] == margins
    assert all(loss.normalize for loss in losses.values())
    assert "name=contrastive,scale_free=None,seed=0" in losses  # a key that it does not have
    again = parse_sweep(tomllib.loads(sweep.to_toml()))
    assert [job.config for job in again.jobs()] == [job.config for job in sweep.jobs()]
