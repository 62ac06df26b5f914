"""HNM figures 5 to 12: the protocols, the rules by which claims are judged, and every figure."""

import math
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from support import small_copies
from support.pages import printed, rows_of
from uncollapse.data import DataError, load
from uncollapse.geometry import diameter
from uncollapse.papers import get_item, study
from uncollapse.papers.hnm import diameters
from uncollapse.papers.hnm.diameters import FIGURES, STUDIES
from uncollapse.papers.items import Request
from uncollapse.training import Run, TrainingError, parse_config, train
from uncollapse.training.assemble import build_model
from uncollapse.training.config import apply_overrides

NAMES = ("fig5a", "fig5b", "fig6", "fig7", "fig8", "fig9", "fig10", "fig11", "fig12")
asked = partial(Request, "item")


def cells_of(panel, grid):
    return diameters.grid_cells(grid, panel["axis"], panel.get("margin", 0.0))


def jobs_of(name, scale):
    by_panel = []
    for panel in FIGURES[name]["panels"]:
        grid = STUDIES[panel["study"]].setups[scale][0]
        jobs = grid.jobs(cells_of(panel, grid), asked(Path("out"), scale))
        by_panel.append([job for of_cell in jobs.values() for job in of_cell])
    return by_panel


# The protocols.


def test_the_paper_scale_of_fig5_is_the_papers_grid():
    (left,), (right,) = jobs_of("fig5a", "paper"), jobs_of("fig5b", "paper")
    shapes = {(j.config.batch.p, j.config.batch.k) for j in left}
    assert shapes == {(p, k) for p in (2, 4, 8, 18) for k in (2, 4, 8, 16, 32)}
    assert len(left) == 60
    assert {j.config.model.dim for j in left} == {128}
    dims = sorted({j.config.model.dim for j in right})
    assert (dims[0], dims[-1], len(right)) == (4, 1024, 3 * len(dims))
    assert {(j.config.batch.p, j.config.batch.k) for j in right} == {(8, 4)}
    for job in left + right:
        c = job.config
        assert (c.train.steps, c.loss.name, c.loss.margin) == (40_000, "triplet", 0.0)
        assert (c.mining.positives, c.mining.negatives) == ("hard", "hard")
        assert (c.model.backbone, c.model.weights, c.model.init) == ("resnet18", None, "hnm")
        assert (c.data.name, c.guard.action, c.batch.sampler) == ("market1501", "off", "pk")


def test_the_other_figures_change_what_the_paper_changes():
    panels = {name: jobs_of(name, "paper") for name in NAMES}
    for name in ("fig6", "fig7"):
        assert [panel[0].config.loss.margin for panel in panels[name]] == [0.01, 0.05]
    for name, network in {"fig10": "resnet50", "fig11": "googlenet", "fig12": "conv2"}.items():
        assert [len(panel) for panel in panels[name]] == [60, 27]
        assert {job.config.model.backbone for p in panels[name] for job in p} == {network}
    for name, datasets in {"fig8": ["sop", "sop"], "fig9": ["cub200", "cars196"]}.items():
        assert [panel[0].config.data.name for panel in panels[name]] == datasets
        assert {job.config.batch.sampler for p in panels[name] for job in p} == {"uniform"}


@pytest.mark.parametrize("scale", ["smoke", "laptop", "paper"])
def test_runs_of_one_name_are_one_run_whichever_figure_asks(scale):
    named = {}
    for name in NAMES:
        for panel in jobs_of(name, scale):
            assert len({job.name for job in panel}) == len(panel)
            for job in panel:
                assert named.setdefault(job.name, job.config) == job.config
    if scale == "paper":
        (left,), (right,) = jobs_of("fig5a", "paper"), jobs_of("fig5b", "paper")
        shared = {job.name for job in left} & {job.name for job in right}
        assert len(shared) == 3  # P = 8, K = 4, d = 128


# The rules.


def point(**changes):
    values = dict.fromkeys(diameters.DiameterRow.__dataclass_fields__, 0.0)
    values |= {"run": "r", "p": 2, "k": 2, "batch": 4, "dim": 8, "seed": 0, "start": 1.0}
    return diameters.DiameterRow(**(values | changes))


def line(ends, axis="batch", **changes):
    points = [point(**{axis: 2**place, "end": end, **changes}) for place, end in enumerate(ends)]
    return diameters.Panel(axis, "heading", "A", points)


def panel_of(points, axis="batch"):
    return diameters.Panel(axis, "heading", "A", points)


FALLING = [0.9, 0.8, 0.5, 0.2, 0.1, 0.05]


@pytest.mark.parametrize(
    ("ends", "axis", "holds", "words"),
    [
        (FALLING, "batch", True, "ρ = -1.00 over 6 runs (p = 0.0028)"),  # 2 of 720 orders
        (FALLING[::-1], "batch", False, "ρ = +1.00"),
        (FALLING, "dim", False, "ρ = -1.00"),
        (FALLING[::-1], "dim", True, "ρ = +1.00"),
        ([0.9, 0.5, 0.1], "batch", None, "ρ = -1.00 over 3 runs (p = 0.33)"),  # 2 of 6 orders
        ([0.5, 0.6, 0.4, 0.55, 0.3], "batch", False, "p = "),  # chance explains it
    ],
)
def test_a_trend_needs_the_papers_sign_and_more_than_chance(ends, axis, holds, words):
    trend = diameters.claims_of(line(ends, axis))[0]
    assert trend.holds is holds
    assert words in trend.ours


def test_collapse_is_counted_in_the_two_halves_of_the_axis():
    ends = [0.5, 0.5, 0.5, 0.5, 0.005, 0.005, 0.009, 0.0]
    claim = diameters.claims_of(line(ends))[1]
    assert "0 of 4 runs with N < 16, 4 of 4 with N ≥ 16" in claim.ours
    assert claim.holds is True  # 1 / 70
    assert diameters.claims_of(line(ends[::-1]))[1].holds is False
    assert diameters.claims_of(line(ends[::-1], "dim"))[1].holds is True
    assert diameters.claims_of(line(ends[2:6]))[1].holds is None  # 1 / 6 at the least


@pytest.mark.parametrize(
    ("bounds", "ours", "holds"),
    [
        ((0.4, -1.0), "held in 1 of 1 runs; vacuous in 1", True),
        ((0.4, -1.0, 0.6), "held in 1 of 2 runs; vacuous in 1", False),
        ((-1.0,), "", None),
    ],
)
def test_the_bound_is_judged_where_it_says_something(bounds, ours, holds):
    points = [point(end=0.5, bound=bound) for bound in bounds]
    claim = diameters.bound_claim("b", points, "bound")
    assert ours in claim.ours
    assert claim.holds is holds


def test_what_a_probe_predicted_is_counted_beside_what_came():
    ends = (0.005, 0.2, 0.3, 0.6)
    points = [
        point(predicted=v, end=end) for v, end in zip((0.1, 0.2, 0.2, 0.9), ends, strict=True)
    ]
    note = diameters.forecast(panel_of(points))
    assert "at most 25% for 3 runs (1 ended above it, 1 collapsed)" in note
    assert "more than 25% for 1 runs (1 ended above it, 0 collapsed)" in note
    assert diameters.forecast(panel_of([point(predicted=math.nan)])) == ""


def test_every_length_at_which_a_run_may_have_settled_is_logged():
    setups = [setup for s in STUDIES.values() for of in s.setups.values() for setup in of]
    for setup in (setup for setup in setups if setup.settle):
        steps, every = (setup.config["train"][key] for key in ("steps", "log_every"))
        while steps < setup.settle:
            assert steps % every == 0
            steps = min(setup.settle, steps * 3 // 2)
        assert steps % every == 0


@pytest.mark.slow
def test_a_run_goes_on_until_it_has_settled_and_again_gives_the_same(tmp_path):
    config = {"data": {"name": "digits"}, "model": {"backbone": "mlp", "hidden": [8], "dim": 4}}
    config |= {"batch": {"p": 4, "k": 4}, "guard": {"action": "off"}}
    # Everything falls to a point: the rate is high, and only hard positives pull.
    config |= {"mining": {"positives": "hard", "negatives": "hard"}, "optimizer": {"lr": 0.003}}
    config |= {"train": {"steps": 40, "log_every": 1, "evaluate_every": 1000}}
    setup = study.Setup(config=config, seeds=1, words="", settle=90)
    wanted = study.Study("s", {"smoke": [setup]})
    first, again, shown = (
        wanted.train(Request("x", tmp_path, "smoke", processes=n), {"a": {}}) for n in (1, 1, 0)
    )
    (run,) = first.runs["a"]
    assert run.summary["step"] in (40, 60, 90)
    assert (run.summary["step"] == 90) or study.has_settled(
        study.batch_diameters(run), run.measures().before.batches.diameter
    )
    assert first.forecasts == again.forecasts == shown.forecasts
    assert first.forecasts[run.path.name] > 0.0
    assert first.seconds == again.seconds == shown.seconds > 0.0
    row = diameters.measure(run, first.forecasts[run.path.name])
    assert (row.steps, row.predicted) == (run.summary["step"], first.forecasts[run.path.name])


def test_without_processes_nothing_is_trained(tmp_path):
    setup = study.Setup(config={"data": {"name": "digits"}}, seeds=1, words="")
    wanted = study.Study("s", {"smoke": [setup]}, partial=True)
    with pytest.raises(TrainingError, match="1 of 1 runs of s did not finish; a-s0: to come"):
        wanted.train(Request("x", tmp_path, "smoke", processes=0), {"a": {}})


def test_a_run_too_short_for_its_batch_norm_is_noted():
    # Found with a GoogLeNet of 40 steps: 0.3 % of the diameter left, and batches as large as ever.
    sizes = {4: 7.0, 16: 0.015}
    points = [point(batch=n, end=0.003, batch_start=5.0, batch_after=v) for n, v in sizes.items()]
    assert [p.unsettled for p in points] == [True, False]
    assert "in 1 of 2 runs (N = 4) the images keep" in diameters.unsettled(panel_of(points))
    assert diameters.unsettled(panel_of(points[1:])) == ""


def test_margins_and_thresholds_are_compared_between_panels():
    low, high = line([0.1] * 6), line([0.2] * 6)
    (claim,) = diameters.margin_claims([low, high])
    assert (claim.holds, "6 of 6 pairs" in claim.ours) == (True, True)
    assert diameters.margin_claims([high, low])[0].holds is False
    first, second = line([0.5, 0.005, 0.005], seed=0), line([0.5, 0.5, 0.005], seed=1)
    panel, none = panel_of([*first.points, *second.points]), line([0.5, 0.5])
    assert (diameters.threshold(panel), diameters.threshold(none)) == (2, None)  # half collapse
    (same,) = diameters.threshold_claims([panel, panel])
    assert (same.holds, "N = 2" in same.ours) == (True, True)
    assert diameters.threshold_claims([panel, none])[0].holds is False


def test_what_is_left_is_asked_beside_the_diameter():
    # Diameters that grow with the dimension only because they begin larger.
    points = [point(dim=2**n, start=2.0**n, end=0.1 * 1.5**n, drift=0.1 * n) for n in range(1, 8)]
    assert diameters.claims_of(panel_of(points, "dim"))[0].holds is True
    note = diameters.beyond(panel_of(points, "dim"))
    assert "against the dimension ρ = -1.00 over 7 runs (p < 0.001), not as expected" in note
    assert "drift at the start ρ = -1.00 over 7 runs (p < 0.001), as expected" in note


@pytest.mark.slow
def test_batch_norm_before_training_has_the_statistics_of_batches(tmp_path):
    job = next(job for job in jobs_of("fig10", "smoke")[0] if "p8k8-d16" in job.name)
    config = job.config
    assert config.model.backbone == "mnist-cnn"
    test = load("digits", split="test")
    network = build_model(config, test.shape)
    with torch.no_grad():
        untouched = diameter(network.eval()(test[:][0]))
        as_trained = diameter(network.train()(test[:][0]))
    short = config.model_copy(update={"train": config.train.model_copy(update={"steps": 1})})
    start = diameters.measure(train(short, tmp_path / "run")).start
    assert start == pytest.approx(as_trained, rel=0.2)
    assert untouched < 0.5 * start


# Every figure, on embedded digits.


def check_page(name, made):
    """The files of a figure, and the words of its page on paper and on the screen; its runs."""
    ends = (".md", ".csv", "-runs.csv", ".png", ".svg")
    assert [path.name for path in made.files] == [f"{name}{end}" for end in ends]
    page = made.files[0].read_text(encoding="utf-8")
    for words in ("reproduced?", "(17), hardest triplet", "Beyond the paper", "Rules."):
        assert words in page
        assert words in printed(made)
    assert f"uncollapse reproduce {name} --scale smoke" in page
    rows = rows_of(made.files[2])
    assert [row["run"] for row in rows] == [j.name for p in jobs_of(name, "smoke") for j in p]
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["fig5a", *(pytest.param(name, marks=pytest.mark.night) for name in NAMES[1:])]
)
def test_a_figure_is_made_at_smoke_scale(name, tmp_path):
    for row in check_page(name, get_item(name).run(tmp_path, 0, "smoke")):
        first, last = float(row["start"]), float(row["end"])
        assert first > 0.0
        assert float(row["left"]) == pytest.approx(last / first, rel=1e-4)
        bound = first - 2.0 * float(row["hardest"])  # HNM (17)
        assert float(row["bound"]) == pytest.approx(bound, rel=1e-3, abs=1e-5)
        # The hardest triplet costs at least what the mean of them costs.
        assert float(row["hardest"]) >= float(row["loss"]) >= 0.0
        assert row["collapsed"] == str(last < 0.01 * first)
        assert 0.1 < float(row["recall_start"]) < 1.0  # digits tell themselves apart
        assert row["settled"] in ("True", "False")
        for moment in ("start", "after"):
            assert float(row[f"batch_{moment}"]) > 0.0


@pytest.fixture
def untrained(monkeypatch):
    """Runs that are over at once: `untrained(lost)` makes those fail whose name has `lost`."""

    def measured(run, predicted=math.nan):
        batch, dim = run.config.batch, run.config.model.dim
        uniform = batch.sampler == "uniform"
        p, k, size = (None, None, batch.size) if uniform else (batch.p, batch.k, batch.p * batch.k)
        shape = {"p": p, "k": k, "batch": size, "dim": dim}
        shape |= {"run": run.path.name, "predicted": predicted}
        return point(recall=0.5, recall_start=0.6, end=0.5, **shape)

    def ended(job, out, lost):
        failure = ("failed", "out of memory")
        status, error = failure if lost in job.name else ("finished", None)
        run = SimpleNamespace(path=Path(out) / job.name, config=job.config)
        return SimpleNamespace(name=job.name, status=status, error=error, seconds=1.0, run=run)

    def patch(lost):
        def run_jobs(jobs, out, **options):
            return [ended(job, out, lost) for job in jobs]

        monkeypatch.setattr(study, "run_jobs", run_jobs)

    monkeypatch.setattr(diameters, "measure", measured)
    return patch


@pytest.mark.slow
def test_every_figure_has_its_page_whatever_its_runs(tmp_path, untrained):
    untrained("no run of this name")
    for name in NAMES:
        check_page(name, get_item(name).run(tmp_path, 0, "smoke"))


@pytest.mark.slow
def test_a_run_that_fails_is_named_and_without_any_there_is_no_figure(tmp_path, untrained):
    untrained("p2k2")
    made = get_item("fig5a").run(tmp_path, 0, "smoke")
    for words in (printed(made).replace("\n", " "), made.files[0].read_text(encoding="utf-8")):
        assert "1 of 3 runs did not finish and are missing." in words
        assert "p2k2-d16-s0: out of memory" in words
    for name, lost, message in (
        ("fig5a", "", r"3 of 3 runs of hnm did not finish; .*out of memory"),
        ("fig6", "-m0.05-", r"no run of 'batch size.*finished: out of memory"),
    ):
        untrained(lost)
        with pytest.raises(TrainingError, match=message):
            get_item(name).run(tmp_path, 0, "smoke")


# The paper's protocol, for its first steps, on generated images in the official layouts.


PEOPLE = [(person, camera) for person in range(1, 9) for camera in (1, 2)]
FOURS = [1 + place // 4 for place in range(16)]


def market(base):
    small_copies.write_market(base / "market1501", PEOPLE, PEOPLE[:4], [*PEOPLE[:4], (0, 1)])


def sop(base):
    small_copies.write_products(base / "sop", FOURS, [11_318 + number for number in FOURS[:8]])


def cub200(base):
    small_copies.write_birds(base / "cub200", [1] * 8 + [2] * 8 + [101] * 2 + [102] * 2)


def cars196(base):
    small_copies.write_cars(base / "cars196", [*FOURS, 99, 99, 100, 100])


def night(*values):
    return pytest.param(*values, marks=pytest.mark.night)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "panel", "make_copy"),
    [
        ("fig12", 0, market),
        night("fig5a", 0, market),
        night("fig6", 1, market),
        night("fig8", 0, sop),
        night("fig9", 0, cub200),
        night("fig9", 1, cars196),
        night("fig10", 0, market),
        night("fig11", 0, market),
    ],
)
def test_the_papers_protocol_makes_its_first_steps(name, panel, make_copy, tmp_path):
    make_copy(tmp_path / "data")
    wanted = FIGURES[name]["panels"][panel]
    request = asked(tmp_path, "paper", data_root=tmp_path / "data", seeds=1)
    grid = STUDIES[wanted["study"]].setup(request)
    job = next(iter(grid.jobs(cells_of(wanted, grid), request).values()))[0]
    # Two steps of the 40,000, read in this process.
    small = ["train.steps=2", "train.log_every=1", "data.workers=0"]
    values = apply_overrides(job.config.model_dump(exclude_none=True), small)
    run = train(parse_config(values), tmp_path / "run")
    assert run.finished
    losses = [entry["loss"] for entry in run.metrics() if "loss" in entry]
    assert np.isfinite(losses).tolist() == [True, True]
    if name == "fig12":
        measured = diameters.measure(Run.open(run.path))
        assert measured.start > 0.0
        assert (measured.batch, measured.dim, measured.anchors) == (4, 128, 1.0)
        assert 0.0 < measured.mean_ap <= 1.0  # queries against the gallery
        assert 0.0 < measured.mean_ap_start <= 1.0


# What is missing.


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fig5a", "market1501.*zheng-lab"),
        ("fig8", "sop.*cvgl.stanford.edu"),
        ("fig9", "cub200.*vision.caltech.edu"),
        ("fig12", "market1501.*Or: omniglot.*brendenlake"),
    ],
)
def test_a_laptop_without_the_papers_data_is_told_what_to_get_and_where(name, words, tmp_path):
    with pytest.raises(DataError, match=rf"{name} --scale laptop needs data\. {words}"):
        get_item(name).run(tmp_path, 0, "laptop", data_root=tmp_path)


def test_fig12_takes_letters_on_a_laptop_without_market(tmp_path):
    def data(scale):
        request = asked(tmp_path, scale, data_root=tmp_path)
        return STUDIES[FIGURES["fig12"]["panels"][0]["study"]].setup(request).config["data"]["name"]

    small_copies.write_letters(tmp_path / "omniglot", {"Greek": 1}, {"Latin": 1})
    assert data("laptop") == "omniglot"
    market(tmp_path)
    assert (data("laptop"), data("paper")) == ("market1501", "market1501")
