"""HNM figures 5 to 12: the protocols, the rules by which claims are judged, and every figure."""

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image
from rich.console import Console

from uncollapse.cli.reproduce import show_page
from uncollapse.data import DataError, load
from uncollapse.geometry import diameter
from uncollapse.papers import get_item, study
from uncollapse.papers.hnm.diameters import (
    FIGURES,
    STUDIES,
    Panel,
    Point,
    below_start,
    beyond,
    bound_claim,
    claims_of,
    grid_cells,
    margin_claims,
    measure,
    threshold,
    threshold_claims,
    through_training,
    unsettled,
)
from uncollapse.papers.items import Request
from uncollapse.sweep import run_jobs
from uncollapse.training import Run, TrainingError, train
from uncollapse.training.assemble import build_model

pytestmark = pytest.mark.slow

NAMES = ("fig5a", "fig5b", "fig6", "fig7", "fig8", "fig9", "fig10", "fig11", "fig12")


def asked(scale, out="out", **options):
    return Request("item", Path(out), scale, **options)


def cells_of(panel, grid):
    return grid_cells(grid, panel["axis"], panel.get("margin", 0.0))


def jobs_of(name, scale):
    found = []
    for panel in FIGURES[name]["panels"]:
        grid = STUDIES[panel["study"]].setups[scale][0]
        jobs = grid.jobs(cells_of(panel, grid), asked(scale))
        found.append([job for mine in jobs.values() for job in mine])
    return found


def printed(made):
    console = Console(file=io.StringIO(), width=150)
    for page in made.pages:
        show_page(console, page)
    return console.file.getvalue()


@pytest.fixture(autouse=True)
def no_data_from_outside(monkeypatch, tmp_path):
    monkeypatch.delenv("UNCOLLAPSE_DATA", raising=False)
    monkeypatch.setenv("UNCOLLAPSE_CACHE", str(tmp_path / "cache"))


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
    values = dict.fromkeys(Point.__dataclass_fields__, 0.0)
    values |= {"run": "r", "p": 2, "k": 2, "batch": 4, "dim": 8, "seed": 0, "start": 1.0}
    return Point(**(values | changes))


def line(ends, axis="batch", **changes):
    points = [point(**{axis: 2**place, "end": end, **changes}) for place, end in enumerate(ends)]
    return panel_of(points, axis)


def panel_of(points, axis="batch"):
    return Panel(axis, "heading", "A", points)


def test_a_diameter_that_falls_with_the_batch_is_reproduced_and_one_that_rises_is_a_miss():
    falling = [0.9, 0.8, 0.5, 0.2, 0.1, 0.05]
    trend, *_ = claims_of(line(falling))
    assert trend.holds is True
    assert "ρ = -1.00 over 6 runs (p = 0.0028)" in trend.ours  # 2 of 720 orders
    assert claims_of(line(falling[::-1]))[0].holds is False
    # The same numbers along the dimension are the other way round.
    assert claims_of(line(falling, "dim"))[0].holds is False
    assert claims_of(line(falling[::-1], "dim"))[0].holds is True


def test_three_runs_in_order_are_no_trend():
    trend = claims_of(line([0.9, 0.5, 0.1]))[0]
    assert trend.ours == "ρ = -1.00 over 3 runs (p = 0.33)"  # 2 of 6 orders
    assert trend.holds is False


def test_a_trend_that_chance_explains_is_a_miss():
    trend = claims_of(line([0.5, 0.6, 0.4, 0.55]))[0]
    assert trend.holds is False
    assert "p = " in trend.ours


def test_collapse_is_counted_in_the_two_halves_of_the_axis():
    ends = [0.5, 0.5, 0.5, 0.5, 0.005, 0.005, 0.009, 0.0]
    claim = claims_of(line(ends))[1]
    assert "0 of 4 runs with N < 16, 4 of 4 with N ≥ 16" in claim.ours
    assert claim.holds is True  # 1 / 70
    assert claims_of(line(ends[::-1]))[1].holds is False
    assert claims_of(line(ends[::-1], "dim"))[1].holds is True


def test_the_bound_is_judged_where_it_says_something():
    points = [point(end=0.5, bound=0.4), point(end=0.5, bound=-1.0)]
    claim = bound_claim("b", points, "bound")
    assert (claim.ours, claim.holds) == ("held in 1 of 1 runs; vacuous in 1", True)
    broken = bound_claim("b", [*points, point(end=0.1, bound=0.2)], "bound")
    assert (broken.ours, broken.holds) == ("held in 1 of 2 runs; vacuous in 1", False)
    assert bound_claim("b", points[1:], "bound").holds is None


def test_a_direction_that_turns_on_the_way_is_told():
    points = [
        point(dim=2**n, batch_start=n, batch_quarter=n, batch_half=1.0, batch_end=-n)
        for n in range(1, 5)
    ]
    told = through_training(panel_of(points, "dim"))
    assert "before +1.00, after a quarter +1.00, after half -, at the end -1.00." in told


def test_a_run_too_short_for_its_batch_norm_is_told():
    # Found with a GoogLeNet of 40 steps: 0.3 % of the diameter left, and batches as large as ever.
    points = [
        point(batch=4, end=0.003, batch_start=5.0, batch_after=7.0),
        point(batch=16, end=0.003, batch_start=5.0, batch_after=0.015),
    ]
    assert [p.unsettled for p in points] == [True, False]
    assert "in 1 of 2 runs (N = 4) the images keep" in unsettled(panel_of(points))
    assert unsettled(panel_of(points[1:])) == ""


def test_a_run_that_retrieves_worse_than_untrained_is_named():
    points = [
        point(dim=4, recall_start=0.2, recall=0.1),
        point(dim=4, recall_start=0.2, recall=0.3),
        point(dim=64, recall_start=0.2, recall=0.3),
    ]
    told = below_start(panel_of(points, "dim"))
    assert "1 of 3 runs end below their own start in R@1 (d = 4)." in told
    assert "no run ends below its own start" in below_start(panel_of(points[1:], "dim"))
    assert below_start(panel_of([point(recall=math.nan, recall_start=math.nan)])) == ""


def test_margins_are_compared_run_by_run():
    low, high = line([0.1] * 6), line([0.2] * 6)
    (claim,) = margin_claims([low, high])
    assert "6 of 6 pairs" in claim.ours
    assert claim.holds is True
    assert margin_claims([high, low])[0].holds is False


def test_the_threshold_is_where_half_the_runs_collapse():
    first, second = line([0.5, 0.005, 0.005], seed=0), line([0.5, 0.5, 0.005], seed=1)
    panel = panel_of([*first.points, *second.points])
    assert threshold(panel) == 2
    assert threshold(line([0.5, 0.5])) is None
    (same,) = threshold_claims([panel, panel])
    assert same.holds is True
    assert "N = 2" in same.ours
    assert threshold_claims([panel, line([0.5, 0.5])])[0].holds is False


def test_what_is_left_is_asked_beside_the_diameter():
    # Diameters that grow with the dimension only because they begin larger.
    points = [point(dim=2**n, start=2.0**n, end=0.1 * 1.5**n, drift=0.1 * n) for n in range(1, 8)]
    assert claims_of(panel_of(points, "dim"))[0].holds is True
    told = beyond(panel_of(points, "dim"))
    assert "against the dimension ρ = -1.00 over 7 runs (p < 0.001), not as expected" in told
    assert "drift at the start ρ = -1.00 over 7 runs (p < 0.001), as expected" in told


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
    found = measure(train(short, tmp_path / "run")).start
    assert found == pytest.approx(as_trained, rel=0.2)
    assert untouched < 0.5 * found


# Every figure, on embedded digits.


def test_every_figure_is_made_at_smoke_scale(tmp_path, monkeypatch):
    every = {job.name: job for name in NAMES for p in jobs_of(name, "smoke") for job in p}
    folder = asked("smoke", tmp_path).runs("hnm")
    outcomes = run_jobs(every.values(), folder, processes=1)
    assert {one.status for one in outcomes} == {"finished"}
    for name in NAMES:
        made = get_item(name).run(tmp_path, 0, "smoke", processes=1)
        paths = made.files
        assert [p.name for p in paths] == [f"{name}{end}" for end in _ENDS]
        page = paths[0].read_text(encoding="utf-8")
        told = printed(made)
        for words in (
            "reproduced?",
            "(17), hardest triplet",
            "Retrieval beside the untrained",
            "Through training",
            "Beyond the paper",
            "Rules.",
        ):
            assert words in page
            assert words in told
        assert f"uncollapse reproduce {name} --scale smoke" in page
        panels = jobs_of(name, "smoke")
        rows = list(csv.DictReader(paths[2].read_text(encoding="utf-8").splitlines()))
        assert [row["run"] for row in rows] == [job.name for panel in panels for job in panel]
        for row in rows:
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

    # A run that fails is told of, and the others are drawn; when all fail there is no figure.
    def failing(broken):
        def run(jobs, out, **options):
            found = run_jobs(jobs, out, **options)
            return [
                replace(one, status="failed", error="out of memory") if broken(one.name) else one
                for one in found
            ]

        return run

    monkeypatch.setattr(study, "run_jobs", failing(lambda name: "p2k2" in name))
    made = get_item("fig5a").run(tmp_path, 0, "smoke", processes=1)
    for words in (printed(made).replace("\n", " "), made.files[0].read_text(encoding="utf-8")):
        assert "1 of 3 runs did not finish and are missing." in words
        assert "p2k2-d16-s0: out of memory" in words
    monkeypatch.setattr(study, "run_jobs", failing(lambda name: True))
    with pytest.raises(TrainingError, match=r"3 of 3 runs of hnm did not finish; .*out of memory"):
        get_item("fig5a").run(tmp_path, 0, "smoke", processes=1)
    monkeypatch.setattr(study, "run_jobs", failing(lambda name: "-m0.05-" in name))
    with pytest.raises(TrainingError, match=r"no run of 'batch size.*finished: out of memory"):
        get_item("fig6").run(tmp_path, 0, "smoke", processes=1)


_ENDS = (".md", ".csv", "-runs.csv", ".png", ".svg")


# The paper's protocol, for its first steps, on generated images in the official layouts.


def paint(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def market(base):
    for person in range(8):
        for shot in range(2):
            name = f"{person + 1:04d}_c{shot + 1}s1_{shot:06d}_00.jpg"
            paint(base / "market1501" / "bounding_box_train" / name, 2 * person + shot)
            if person < 2:
                paint(base / "market1501" / "query" / name, 100 + 2 * person + shot)
                paint(base / "market1501" / "bounding_box_test" / name, 200 + 2 * person + shot)
    paint(base / "market1501" / "bounding_box_test" / "0000_c1s1_000009_00.jpg", 300)


def sop(base):
    for split, first, count in (("train", 1, 16), ("test", 11_319, 8)):
        lines = ["image_id class_id super_class_id path"]
        for place in range(count):
            name = f"chair_final/{split}_{place}.JPG"
            paint(base / "sop" / name, place)
            lines.append(f"{place + 1} {first + place // 4} 1 {name}")
        (base / "sop" / f"Ebay_{split}.txt").write_text("\n".join(lines) + "\n")


def cub200(base):
    images, labels = [], []
    for place in range(20):  # 16 to train on, 4 to test
        number = place // 8 + 1 if place < 16 else 101 + place // 18
        name = f"{number:03d}.Bird/Bird_{place:04d}.jpg"
        paint(base / "cub200" / "images" / name, place)
        images.append(f"{place + 1} {name}")
        labels.append(f"{place + 1} {number}")
    classes = [f"{number} {number:03d}.Bird" for number in range(1, 201)]
    for file, lines in (("images", images), ("image_class_labels", labels), ("classes", classes)):
        (base / "cub200" / f"{file}.txt").write_text("\n".join(lines) + "\n")


def cars196(base):
    names = [f"car_ims/{place:06d}.jpg" for place in range(20)]
    for place, name in enumerate(names):
        paint(base / "cars196" / name, place)
    columns = {
        "relative_im_path": names,
        "bbox_x1": [1] * 20,
        "class": [place // 4 + 1 if place < 16 else 99 + place // 18 for place in range(20)],
        "test": [0] * 20,
    }
    table = np.zeros((1, 20), [(name, object) for name in columns])
    for name, values in columns.items():
        table[name][0] = values
    kinds = np.empty(196, object)
    kinds[:] = [f"Car {number}" for number in range(1, 197)]
    mat = {"annotations": table, "class_names": kinds}
    scipy.io.savemat(base / "cars196" / "cars_annos.mat", mat)


@pytest.mark.parametrize(
    ("name", "panel", "make_copy"),
    [
        ("fig5a", 0, market),
        ("fig6", 1, market),
        ("fig8", 0, sop),
        ("fig9", 0, cub200),
        ("fig9", 1, cars196),
        ("fig10", 0, market),
        ("fig11", 0, market),
        ("fig12", 0, market),
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
        found = measure(Run.open(run.path))
        assert found.start > 0.0
        assert (found.batch, found.dim, found.anchors) == (4, 128, 1.0)
        assert 0.0 < found.mean_ap <= 1.0  # queries against the gallery
        assert 0.0 < found.mean_ap_start <= 1.0


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
    for part in ("images_background", "images_evaluation"):
        paint(tmp_path / "omniglot" / part / "Greek" / "character01" / "0001_01.png", 0)
    request = asked("laptop", tmp_path, data_root=tmp_path)
    protocol = STUDIES[FIGURES["fig12"]["panels"][0]["study"]]
    assert protocol.setup(request).config["data"]["name"] == "omniglot"
    market(tmp_path)
    assert protocol.setup(request).config["data"]["name"] == "market1501"
    exact = replace(request, scale="paper")
    assert protocol.setup(exact).config["data"]["name"] == "market1501"
