"""What several tests of pages are about: a sweep that has ended, a forecast, a race, runs."""

import csv
import json
import shutil
import tomllib

from support.runs import canonical
from uncollapse.health.drifts import Probe
from uncollapse.health.forecasts import Forecast, ForecastCell
from uncollapse.health.race import Race, RaceScore
from uncollapse.health.strategy import Strategy
from uncollapse.sweep import parse_sweep
from uncollapse.training import Run
from uncollapse.training.manifest import record_files
from uncollapse.training.predictions import Entrant, RaceResult

HARD, EASY = Strategy("hard", "hard", scale_free=False), Strategy("easy", "hard", scale_free=False)
RACE = Race(
    (
        RaceScore("inside x hard, scale-free", 6, 0.5),
        RaceScore("easy x hard", 6, 0.625),
        RaceScore("hard x hard", 6, 0.0),
        RaceScore("inside x hard, scale-free", 20, 0.75),
        RaceScore("easy x hard", 20, 0.625),
    ),
    "inside x hard, scale-free",
    96,
    57.0,
)
FALLING = Probe((1.0,) * 5 + (0.5,) * 5, (1.0,) * 10, (0.4,) * 5 + (0.2,) * 5)
SWEEP = """
seeds = 2
[base.data]
name = "digits"
[base.model]
backbone = "linear"
[[grid]]
batch.p = [2, 8]
batch.k = [2, 4]
[[grid]]
model.dim = [4, 16]
"""


def copy_run(folder, mining=""):
    """The plain run in a folder of its own, with other lines in the section `[mining]`."""
    run = Run(shutil.copytree(canonical("plain") / "run", folder))
    text = run.config_file.read_text(encoding="utf-8")
    run.config_file.write_text(text.replace("[mining]", f"[mining]\n{mining}"), encoding="utf-8")
    record_files(folder, "config.toml")
    return run


def log(run, *lines):
    """Append lines to what the run logged."""
    with run.metrics_file.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def log_races(run, *races):
    """Append races to what the run logged, from step 3 on."""
    log(run, *({"step": i, "loss": 0.5, "race": race} for i, race in enumerate(races, start=3)))


def write_sweep(folder, *, error="out of memory"):
    """The folder of a sweep that has ended: large batches collapsed, one run failed."""
    folder.mkdir(parents=True)
    sweep = parse_sweep(tomllib.loads(SWEEP)).to_toml()
    (folder / "sweep.toml").write_text(sweep, encoding="utf-8")
    head = ["run", "batch.p", "batch.k", "model.dim", "seed", "status", "verdict", "collapsed"]
    head += ["diameter_init", "diameter", "bound", "test/recall@1", "error"]
    rows = []
    for p, k, dim in [(p, k, 128) for p in (2, 8) for k in (2, 4)] + [(8, 4, 4), (8, 4, 16)]:
        for seed in (0, 1):
            ends = ["healthy", False, 2.0, 1.5 - 0.1 * seed, 1.0, 0.9]
            if p * k > 16:
                ends = ["network-collapse", True, 2.0, 0.01, -1.0, 0.1]
            name = f"p={p},k={k},dim={dim},seed={seed}"
            rows.append([name, p, k, dim, seed, "finished", *ends, ""])
    rows[-1][5:] = ["failed", "", "", "", "", "", "", error]
    with (folder / "results.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    return folder


def cell(p, k, dim, drift, strategy=HARD, probe=None):
    """The forecast of one shape."""
    return ForecastCell(p, k, dim, strategy, drift, 0.01, 0.5, 2.0, 0.7, 2.0 - 2 * 0.7, probe)


def forecast_of(probe=None, dims=(4, 64)):
    """Four batch shapes in each dimension, and easy positives as the alternative."""
    shapes = [(p, k, dim) for dim in dims for p in (2, 8) for k in (2, 4)]
    own = [cell(p, k, dim, 0.01 * p * k / dim, probe=probe) for p, k, dim in shapes]
    return Forecast(tuple(own), tuple(cell(*shape, -0.1, EASY) for shape in shapes), 2.0)


def raced():
    """Easy positives win, the own strategy shrank, and one had no room."""
    scores = (RaceScore("easy x hard", 9, 0.5), RaceScore("hard x hard", 9, 0.2))
    free = Strategy("hard", "hard", scale_free=True)
    entrants = (
        Entrant(EASY, -0.1, 9, 0.5, 1.5, "wins"),
        Entrant(HARD, 0.9, 9, 0.2, 0.042, "out"),
        Entrant(free, 0.0, None, None, None, "no room"),
    )
    return RaceResult(Race(scores, "easy x hard", 96, 20.0, start=0.3), HARD, entrants)
