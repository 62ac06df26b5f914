"""HNM figures 5 to 12: the protocols, the rules by which claims are judged, and every figure."""

import csv
import io
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console

from support import small_copies
from uncollapse.cli.reproduce import show_page
from uncollapse.data import DataError, load
from uncollapse.geometry import diameter
from uncollapse.papers import get_item, study
from uncollapse.papers.hnm import diameters
from uncollapse.papers.hnm.diameters import FIGURES, STUDIES
from uncollapse.papers.items import Request
from uncollapse.training import Run, TrainingError, train
from uncollapse.training.assemble import build_model

NAMES = ("fig5a", "fig5b", "fig6", "fig7", "fig8", "fig9", "fig10", "fig11", "fig12")


def asked(scale, out="out", **options):
    return Request("item", Path(out), scale, **options)


def cells_of(panel, grid):
    return diameters.grid_cells(grid, panel["axis"], panel.get("margin", 0.0))


def jobs_of(name, scale):
    by_panel = []
    for panel in FIGURES[name]["panels"]:
        grid = STUDIES[panel["study"]].setups[scale][0]
        jobs = grid.jobs(cells_of(panel, grid), asked(scale))
        by_panel.append([job for of_cell in jobs.values() for job in of_cell])
    return by_panel


def printed(made):
    console = Console(file=io.StringIO(), width=150)
    for page in made.pages:
        show_page(console, page)
    return console.file.getvalue()


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
    for name in ("fig6", "fig7"):
        assert [p[0].config.loss.margin for p in jobs_of(name, "paper")] == [0.01, 0.05]
    networks = {"fig10": "resnet50", "fig11": "googlenet", "fig12": "conv2"}
    for name, network in networks.items():
        panels = jobs_of(name, "paper")
        assert [len(panel) for panel in panels] == [60, 27]
        assert {job.config.model.backbone for panel in panels for job in panel} == {network}
    sets = {"fig8": ["sop", "sop"], "fig9": ["cub200", "cars196"]}
    for name, datasets in sets.items():
        panels = jobs_of(name, "paper")
        assert [panel[0].config.data.name for panel in panels] == datasets
        assert {job.config.batch.sampler for panel in panels for job in panel} == {"uniform"}


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
    values = dict.fromkeys(diameters.Point.__dataclass_fields__, 0.0)
    values |= {"run": "r", "p": 2, "k": 2, "batch": 4, "dim": 8, "seed": 0, "start": 1.0}
    return diameters.Point(**(values | changes))


def line(ends, axis="batch", **changes):
    points = [point(**{axis: 2**place, "end": end, **changes}) for place, end in enumerate(ends)]
    return panel_of(points, axis)


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
        ([0.9, 0.5, 0.1], "batch", False, "ρ = -1.00 over 3 runs (p = 0.33)"),  # 2 of 6 orders
        ([0.5, 0.6, 0.4, 0.55], "batch", False, "p = "),  # chance explains it
    ],
)
def test_a_trend_is_reproduced_if_its_sign_is_the_papers_and_chance_is_unlikely(
    ends, axis, holds, words
):
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


def test_the_bound_is_judged_where_it_says_something():
    points = [point(end=0.5, bound=0.4), point(end=0.5, bound=-1.0)]
    claim = diameters.bound_claim("b", points, "bound")
    assert (claim.ours, claim.holds) == ("held in 1 of 1 runs; vacuous in 1", True)
    broken = diameters.bound_claim("b", [*points, point(end=0.1, bound=0.2)], "bound")
    assert (broken.ours, broken.holds) == ("held in 1 of 2 runs; vacuous in 1", False)
    assert diameters.bound_claim("b", points[1:], "bound").holds is None


def test_a_direction_that_turns_on_the_way_is_noted():
    points = [
        point(dim=2**n, batch_start=n, batch_quarter=n, batch_half=1.0, batch_end=-n)
        for n in range(1, 5)
    ]
    note = diameters.through_training(panel_of(points, "dim"))
    assert "before +1.00, after a quarter +1.00, after half -, at the end -1.00." in note


def test_a_run_too_short_for_its_batch_norm_is_noted():
    # Found with a GoogLeNet of 40 steps: 0.3 % of the diameter left, and batches as large as ever.
    points = [
        point(batch=4, end=0.003, batch_start=5.0, batch_after=7.0),
        point(batch=16, end=0.003, batch_start=5.0, batch_after=0.015),
    ]
    assert [p.unsettled for p in points] == [True, False]
    assert "in 1 of 2 runs (N = 4) the images keep" in diameters.unsettled(panel_of(points))
    assert diameters.unsettled(panel_of(points[1:])) == ""


def test_a_run_that_retrieves_worse_than_untrained_is_named():
    points = [
        point(dim=4, recall_start=0.2, recall=0.1),
        point(dim=4, recall_start=0.2, recall=0.3),
        point(dim=64, recall_start=0.2, recall=0.3),
    ]
    note = diameters.below_start(panel_of(points, "dim"))
    assert "1 of 3 runs end below their own start in R@1 (d = 4)." in note
    assert "no run ends below its own start" in diameters.below_start(panel_of(points[1:], "dim"))
    assert diameters.below_start(panel_of([point(recall=math.nan, recall_start=math.nan)])) == ""


def test_margins_are_compared_run_by_run():
    low, high = line([0.1] * 6), line([0.2] * 6)
    (claim,) = diameters.margin_claims([low, high])
    assert "6 of 6 pairs" in claim.ours
    assert claim.holds is True
    assert diameters.margin_claims([high, low])[0].holds is False


def test_the_threshold_is_where_half_the_runs_collapse():
    first, second = line([0.5, 0.005, 0.005], seed=0), line([0.5, 0.5, 0.005], seed=1)
    panel = panel_of([*first.points, *second.points])
    assert diameters.threshold(panel) == 2
    assert diameters.threshold(line([0.5, 0.5])) is None
    (same,) = diameters.threshold_claims([panel, panel])
    assert same.holds is True
    assert "N = 2" in same.ours
    assert diameters.threshold_claims([panel, line([0.5, 0.5])])[0].holds is False


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
    rows = list(csv.DictReader(made.files[2].read_text(encoding="utf-8").splitlines()))
    names = [job.name for panel in jobs_of(name, "smoke") for job in panel]
    assert [row["run"] for row in rows] == names
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
        for moment in ("start", "quarter", "half", "end", "after"):
            assert float(row[f"batch_{moment}"]) > 0.0


@pytest.fixture
def untrained(monkeypatch):
    """Runs that are over at once: `untrained(lost)` makes those fail whose name is `lost`."""

    def measured(run):
        config = run.config
        uniform = config.batch.sampler == "uniform"
        p, k = (None, None) if uniform else (config.batch.p, config.batch.k)
        size = config.batch.size if uniform else p * k
        values = {"p": p, "k": k, "batch": size, "dim": config.model.dim, "end": 0.5}
        return point(run=run.name, recall=0.5, recall_start=0.6, **values)

    def patch(lost=lambda name: False):
        def run_jobs(jobs, out, **options):
            return [
                SimpleNamespace(
                    name=job.name,
                    status="failed" if lost(job.name) else "finished",
                    error="out of memory" if lost(job.name) else None,
                    seconds=1.0,
                    run=job,
                )
                for job in jobs
            ]

        monkeypatch.setattr(study, "run_jobs", run_jobs)

    monkeypatch.setattr(diameters, "measure", measured)
    return patch


@pytest.mark.slow
def test_every_figure_has_its_page_whatever_its_runs(tmp_path, untrained):
    untrained()
    for name in NAMES:
        check_page(name, get_item(name).run(tmp_path, 0, "smoke"))


@pytest.mark.slow
def test_a_run_that_fails_is_named_and_without_any_there_is_no_figure(tmp_path, untrained):
    untrained(lambda name: "p2k2" in name)
    made = get_item("fig5a").run(tmp_path, 0, "smoke")
    for words in (printed(made).replace("\n", " "), made.files[0].read_text(encoding="utf-8")):
        assert "1 of 3 runs did not finish and are missing." in words
        assert "p2k2-d16-s0: out of memory" in words
    untrained(lambda name: True)
    with pytest.raises(TrainingError, match=r"3 of 3 runs of hnm did not finish; .*out of memory"):
        get_item("fig5a").run(tmp_path, 0, "smoke")
    untrained(lambda name: "-m0.05-" in name)
    with pytest.raises(TrainingError, match=r"no run of 'batch size.*finished: out of memory"):
        get_item("fig6").run(tmp_path, 0, "smoke")


# The paper's protocol, for its first steps, on generated images in the official layouts.


def market(base):
    people = [(person, camera) for person in range(1, 9) for camera in (1, 2)]
    small_copies.write_market(base / "market1501", people, people[:4], [*people[:4], (0, 1)])


def sop(base):
    products = [1 + place // 4 for place in range(16)]
    small_copies.write_products(base / "sop", products, [11_319 + place // 4 for place in range(8)])


def cub200(base):
    small_copies.write_birds(base / "cub200", [1] * 8 + [2] * 8 + [101] * 2 + [102] * 2)


def cars196(base):
    small_copies.write_cars(
        base / "cars196", [1 + place // 4 for place in range(16)] + [99] * 2 + [100] * 2
    )


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
    request = asked("paper", tmp_path, data_root=tmp_path / "data", seeds=1)
    grid = STUDIES[wanted["study"]].setup(request)
    job = next(iter(grid.jobs(cells_of(wanted, grid), request).values()))[0]
    # Two steps of the 40,000, read in this process.
    short = job.config.model_copy(
        update={
            "train": job.config.train.model_copy(update={"steps": 2, "log_every": 1}),
            "data": job.config.data.model_copy(update={"workers": 0}),
        }
    )
    run = train(short, tmp_path / "run")
    assert run.finished
    losses = [entry["loss"] for entry in run.metrics() if "loss" in entry]
    assert len(losses) == 2
    assert all(np.isfinite(losses))
    if name == "fig12":
        measured = diameters.measure(Run.open(run.path))
        assert measured.start > 0.0
        assert (measured.batch, measured.dim, measured.anchors) == (4, 128, 1.0)
        assert 0.0 < measured.mean_ap <= 1.0  # queries against the gallery
        assert 0.0 < measured.mean_ap_start <= 1.0


# What is missing.


def test_a_laptop_without_the_papers_data_is_told_what_to_get_and_where(tmp_path):
    for name, missing, home in (
        ("fig5a", "market1501", "zheng-lab"),
        ("fig8", "sop", "cvgl.stanford.edu"),
        ("fig9", "cub200", "vision.caltech.edu"),
    ):
        with pytest.raises(
            DataError, match=rf"{name} --scale laptop needs data\. {missing}.*{home}"
        ):
            get_item(name).run(tmp_path, 0, "laptop", data_root=tmp_path)
    with pytest.raises(DataError, match=r"market1501.*Or: omniglot.*brendenlake"):
        get_item("fig12").run(tmp_path, 0, "laptop")


def test_fig12_takes_letters_on_a_laptop_without_market(tmp_path):
    small_copies.write_letters(tmp_path / "omniglot", {"Greek": 1}, {"Latin": 1})
    request = asked("laptop", tmp_path, data_root=tmp_path)
    protocol = STUDIES[FIGURES["fig12"]["panels"][0]["study"]]
    assert protocol.setup(request).config["data"]["name"] == "omniglot"
    market(tmp_path)
    assert protocol.setup(request).config["data"]["name"] == "market1501"
    exact = replace(request, scale="paper")
    assert protocol.setup(exact).config["data"]["name"] == "market1501"
