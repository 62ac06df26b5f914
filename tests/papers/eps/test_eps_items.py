"""Every table and figure of EPS at smoke scale, and the paper's own protocols on tiny copies."""

import csv
import struct

import numpy as np
import pytest
import torch
from PIL import Image

from uncollapse._base.check import InputError
from uncollapse._base.files import read_json
from uncollapse.backbones import build
from uncollapse.cli import app
from uncollapse.cli.errors import run as run_command
from uncollapse.data import DataError
from uncollapse.papers import CATALOGUE, get_item
from uncollapse.papers.eps import tables
from uncollapse.papers.eps.scores import METHODS, STUDIES, TABLES
from uncollapse.papers.items import Request
from uncollapse.training import Run, parse_config, train
from uncollapse.training.config import apply_overrides
from uncollapse.training.measurer import start_network

pytestmark = pytest.mark.slow

TABLE_ITEMS = ["table1", "table2", "table3", "table4", "table5", "table6"]
FIGURES = ["eps-fig2", "eps-fig3a", "eps-fig3b", "eps-fig4", "eps-fig5", "eps-fig6"]


@pytest.fixture(autouse=True)
def nothing_from_outside(tmp_path, monkeypatch):
    monkeypatch.setenv("UNCOLLAPSE_CACHE", str(tmp_path / "cache-of-this-test"))
    monkeypatch.delenv("UNCOLLAPSE_DATA", raising=False)


def rows_of(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_item_of_eps_is_made_at_smoke_scale_and_no_run_twice(tmp_path, monkeypatch):
    pytest.importorskip("mlxtend")
    rebuilt = []

    def counted(run):
        rebuilt.append(run)
        return start_network(run)

    monkeypatch.setattr("uncollapse.papers.eps.scores.start_network", counted)
    out, made, starts = tmp_path / "out", {}, {}
    for name in TABLE_ITEMS + FIGURES:
        rebuilt.clear()
        made[name] = get_item(name).run(out, 0, "smoke", processes=1).files
        starts[name] = len(rebuilt)
        assert all(path.stat().st_size > 100 for path in made[name])
        assert {path.parent for path in made[name]} == {out / name / "smoke"}
    others = {"claims-eps", "fig-noise", "coarse-to-fine"}
    assert {*made, *others} == {
        name for name, item in CATALOGUE.items() if item.make.startswith("eps.")
    }

    rows = rows_of(made["table3"][1])
    assert len(rows) == 7 * 10  # methods, columns
    assert {row["metric"] for row in rows} >= {"letters R@1", "letters NMI", "languages NMI+"}
    best = next(r for r in rows if (r["what"], r["metric"]) == ("EPS + MS", "letters R@1"))
    assert best["paper"] == "68.7"
    assert len(best["by seed"].split()) == 2
    assert all(0 <= float(value) <= 100 for r in rows for value in r["by seed"].split())
    assert best["reproduced"].split()[0] in ("yes", "partly", "NO")
    page = made["table3"][0].read_text(encoding="utf-8")
    assert "`uncollapse reproduce table3 --scale smoke`" in page
    assert "What differs from the paper: Smoke" in page
    assert "| letters R@1: MS → EPS + MS | 57.7 → 68.7 (+11.0) |" in page
    assert page.count("| before training | **ours** |") == 1
    # Seven methods begin alike: a network before training is built again once per seed.
    assert starts["table3"] == 2
    # R@1 was measured when the runs began.
    assert {starts[name] for name in ("table5", *FIGURES)} == {0}

    before = {(r["metric"], r["before training"]) for r in rows}
    assert {metric for metric, _ in before} == {row["metric"] for row in rows}
    assert len(before) == 10
    first = next(Run(out / "runs" / "omniglot" / "smoke" / "ms-s1").metrics())
    letters = dict(before)["letters R@1"].split()
    assert float(letters[1]) == pytest.approx(100 * first["test/fine/recall@1"], abs=1e-4)

    for name in ("eps-fig2", "eps-fig3a", "eps-fig3b", "eps-fig5", "eps-fig6"):
        assert {path.suffix for path in made[name]} >= {".png", ".svg"}
    assert {path.name for path in made["table2"]} == {
        *("table2-cars196.md", "table2-cars196.csv", "table2-cub200.md", "table2-cub200.csv")
    }

    for name in ("eps-fig4", "eps-fig5"):
        page = made[name][0].read_text(encoding="utf-8")
        assert f"]({name}.png)" in page
        assert "| method | score | before training | at the end | end − before |" in page
    shown = read_json(out / "eps-fig4" / "smoke" / "made.json")
    assert shown["private"] == ["eps-fig4.png"]  # photographs
    assert read_json(out / "eps-fig5" / "smoke" / "made.json")["private"] == []
    assert [(one["data"], one["real"]) for one in shown["used"]] == [("digits", False)]
    assert len(shown["used"][0]["runs"]) == 4

    runs = out / "runs" / "omniglot" / "smoke"
    untouched = {path: path.stat().st_mtime_ns for path in runs.glob("*/summary.json")}
    # Seven methods, one more number of positives, and three that are trimmed: two seeds each.
    assert len(untouched) == 2 * (7 + 1 + 3)
    again = get_item("table3").run(out, 0, "smoke", processes=1).files
    assert rows_of(again[1]) == rows
    assert {path: path.stat().st_mtime_ns for path in untouched} == untouched


def test_more_seeds_add_their_runs_to_those_that_exist(tmp_path):
    pytest.importorskip("mlxtend")
    table1 = get_item("table1")
    first, second = (
        rows_of(table1.run(tmp_path, 3, "smoke", seeds=count, processes=1).files[1])
        for count in (1, 2)
    )
    assert first[0]["std"] == ""
    assert second[0]["by seed"].split()[0] == first[0]["by seed"]
    assert sorted(p.name for p in (tmp_path / "runs/mnist/smoke").iterdir()) == [
        *("eps-triplet-s3", "eps-triplet-s4", "triplet-s3", "triplet-s4")
    ]


@pytest.mark.parametrize(("item", "where"), [("table2", "jkrause"), ("table3", "brendenlake")])
def test_a_missing_dataset_is_named_with_where_to_get_it(item, where, tmp_path, capsys):
    assert run_command(app, ["reproduce", item, "--out", str(tmp_path / "out")]) == 2
    assert where in capsys.readouterr().err
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=where):
        get_item(item).run(tmp_path / "out", 0, data_root=empty)


def test_the_paper_scale_asks_for_the_weights_it_starts_from(tmp_path):
    with pytest.raises(InputError, match="--weights: expected a file of ImageNet weights for resn"):
        get_item("table3").run(tmp_path, 0, "paper")


def paint(path, seed, mode="L", size=(20, 20)):
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (*size, 3) if mode == "RGB" else size
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)).save(path)


def tiny_birds(root):
    images, labels, classes = [], [], []
    for number in (1, 2, 101, 102):
        classes.append(f"{number} {number:03d}.Bird")
        for place in range(3):
            key = len(images) + 1
            path = f"{number:03d}.Bird/{place}.png"
            images.append(f"{key} {path}")
            labels.append(f"{key} {number}")
            paint(root / "cub200" / "images" / path, key, "RGB")
    files = {"images": images, "image_class_labels": labels, "classes": classes}
    for name, lines in files.items():
        (root / "cub200" / f"{name}.txt").write_text("\n".join(lines) + "\n")


def tiny_letters(root):
    for part, names in (("background", "AB"), ("evaluation", "CD")):
        for place, alphabet in enumerate(names):
            for letter in range(2):
                for image in range(2):
                    seed = 100 * place + 10 * letter + image
                    folder = root / "omniglot" / f"images_{part}" / alphabet / f"character{letter}"
                    paint(folder / f"{image}.png", seed)


def tiny_digits(root):
    (root / "mnist").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (40, 28, 28), dtype=np.uint8)
    for part in ("train", "t10k"):
        head = struct.pack(">BBBBIII", 0, 0, 8, 3, *pixels.shape)
        (root / "mnist" / f"{part}-images-idx3-ubyte").write_bytes(head + pixels.tobytes())
        digits = (np.arange(40) % 10).astype(np.uint8)
        head = struct.pack(">BBBBI", 0, 0, 8, 1, len(digits))
        (root / "mnist" / f"{part}-labels-idx1-ubyte").write_bytes(head + digits.tobytes())


@pytest.mark.parametrize("name", ["mnist", "omniglot", "cub200-512"])
def test_the_papers_own_protocol_takes_its_first_steps_on_a_tiny_copy(name, tmp_path):
    for fill in (tiny_birds, tiny_letters, tiny_digits):
        fill(tmp_path)
    (setup,) = STUDIES[name].setups["paper"]
    weights = None
    if setup.pretrained:
        body = build(setup.config["model"]["backbone"], 2, shape=(3, 64, 64)).trunk
        weights = tmp_path / "weights.pth"
        torch.save(body.state_dict(), weights)
    request = Request("item", tmp_path, "paper", data_root=tmp_path, weights=weights)
    method = "EPS + Trip. + SH" if name == "mnist" else "EPS + Dist-Margin"
    config = setup.run_config(METHODS[method], 0, request)
    assert config.model.dim == {"mnist": 2, "cub200-512": 512}.get(name, 128)
    assert config.optimizer.lr == (1e-3 if name == "mnist" else 1e-5)
    small = ["batch.p=2", "batch.k=2", "train.steps=2", "evaluate.ks=[1]", "data.workers=0"]
    values = apply_overrides(config.model_dump(exclude_none=True), small)
    run = train(parse_config(values), tmp_path / "run")
    assert run.finished
    losses = [line["loss"] for line in run.metrics() if "loss" in line]
    assert all(np.isfinite(losses))


@pytest.mark.parametrize("name", STUDIES)
def test_each_protocol_parses_for_every_method_at_every_scale(name, tmp_path):
    for scale, (setup,) in STUDIES[name].setups.items():
        request = Request("item", tmp_path, scale, weights=tmp_path / "weights.pth")
        for sections in METHODS.values():
            config = setup.run_config(sections, 7, request)
            assert config.seed == 7
            given = config.model.weights == str(tmp_path / "weights.pth")
            assert given == setup.pretrained  # the laptop's come with a package


def test_coarse_to_fine_is_made_at_smoke_scale_with_a_test_over_pairs(tmp_path, monkeypatch):
    pytest.importorskip("mlxtend")
    some = ("Trip. + SH", "SupCon")
    names = [*some, "ProxyNCA", *(f"EPS + {name}" for name in some)]
    monkeypatch.setattr(tables, "LOSSES", some)
    made = get_item("coarse-to-fine").run(tmp_path, scale="smoke", processes=1)
    rows = rows_of(next(path for path in made.files if path.suffix == ".csv"))
    scores = {(row["what"], row["metric"]): row for row in rows if row["metric"]}
    assert {what for what, _ in scores} == set(names)
    assert {metric for _, metric in scores} == {"digit R@1", "parity R@1"}
    assert all(len(row["by seed"].split()) == 2 for row in scores.values())
    assert all(row["before training"] for row in scores.values())
    judged = [row for row in rows if not row["metric"]]
    assert [row["what"].split(":")[0] for row in judged][-1] == "the four losses together"
    assert all("p = " in row["ours"] for row in judged)


def test_every_set_of_coarse_to_fine_has_a_config_that_holds():
    for dataset in TABLES["coarse"]:
        setup = STUDIES[dataset["study"]].setups["laptop"][0]
        for cell in METHODS.values():
            config = setup.run_config(cell, 0, Request("coarse-to-fine", None, "laptop"))
            assert dataset["split"] in config.data.eval_splits
