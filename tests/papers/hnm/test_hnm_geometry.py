from importlib import import_module

import numpy as np
import pytest
from PIL import Image, ImageColor

from support.errors import refused
from support.pages import printed, rows_of
from uncollapse.charts.marks import LIGHT
from uncollapse.cli.reproduce import listing_table
from uncollapse.geometry.triplet_separation import hard_mined_loss, is_triplet_separated, separation
from uncollapse.papers import CATALOGUE, get_item
from uncollapse.papers.hnm import claims
from uncollapse.papers.plane import COLORS, edge, reach

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["fig1", "fig2", "fig3", "fig4"])
def test_each_figure_is_a_picture_in_two_formats(name, tmp_path):
    made = get_item(name).run(tmp_path, 0)
    names = [f"{name}{end}" for end in ("-made.json", ".png", ".svg")]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    assert sorted(p.name for p in made.files) == names[1:]
    picture = np.asarray(Image.open(tmp_path / f"{name}.png").convert("RGB")).astype(int)
    assert min(picture.shape[:2]) > 800
    for color in COLORS[:2]:  # both classes are there
        distance = np.abs(picture - np.array(ImageColor.getrgb(LIGHT[color]))).max(axis=2)
        assert (distance < 3).sum() > 200
    assert "<svg" in (tmp_path / f"{name}.svg").read_text()[:600]
    if name == "fig4":
        text = printed(made)
        assert "50 gradient descent steps: d_haus = 1.733, diameter 3.81 → 1.23" in text
        assert "nearest separated points found: d_haus = 1.368, diameter 3.81 → 2.22" in text


def test_the_same_seed_draws_the_same_file(tmp_path):
    first, second = (get_item("fig1").run(tmp_path / k, 1).files for k in "ab")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    other = get_item("fig1").run(tmp_path / "c", 2).files
    assert other[0].read_bytes() != first[0].read_bytes()


def test_the_truth_table_is_printed_and_saved(tmp_path):
    made = get_item("claims-hnm").run(tmp_path, 0)
    markdown, table, by_claim = made.files
    rows, lines = rows_of(table), rows_of(by_claim)
    found = {line["claim"]: (line["status"], line["examples"]) for line in lines}
    assert found["Theorem 3.3, upper bound"] == (
        "false for α > 0",
        "violated in 1; holds in 2, 3, 8, 9",
    )
    assert found["Corollary 3.4, lower bound"][0] == "true"
    assert next(iter(found)) == "Theorem 3.2, lower bound"
    assert [*found][-2:] == ["(16)", "(17)"]
    verdicts = {(row["example"], row["claim"]): row["verdict"] for row in rows}
    assert (
        verdicts.items()
        >= {
            ("1. 4 classes of one point, all at 0 in R¹", "Thm 3.3, upper"): "violated",
            ("2. A = {0, 3}, B = {-1} in R¹", "Cor. 3.4, lower"): "holds",
            ("6. 2 simplices of 7 points, one centre, R¹²", "Cor. 3.4, upper"): "violated",
            ("7. separated at first, all at one point after", "(16)"): "violated",
            ("8. 5 points of Figs. 2 and 3", "Thm 3.3, upper"): "holds",
        }.items()
    )
    text = markdown.read_text(encoding="utf-8")
    assert text.count("\n| ") == len(rows) + len(lines) + 4  # headings and the rules under them
    for part in (printed(made), text):
        assert "violated" in part
        assert "random draws of 5 points" in part


def test_an_item_or_a_scale_that_does_not_exist_is_refused_and_what_does_is_listed(tmp_path):
    with refused("item"):
        get_item("fig99")
    with refused("scale"):
        get_item("fig1").run(tmp_path, 0, scale="paper")
    assert all(name == item.name and item.summary and item.time for name, item in CATALOGUE.items())
    assert len(listing_table().rows) == len(CATALOGUE)
    for item in CATALOGUE.values():
        module, _, name = item.make.partition(":")
        assert callable(getattr(import_module(f"uncollapse.papers.{module}"), name))


@pytest.mark.parametrize("seed", range(4))
def test_the_toys_are_what_the_figures_say(seed):
    x, ids = claims.separated_pair(seed, 0.25)
    assert is_triplet_separated(x, ids, 0.25)
    x, ids = claims.five_points(seed)
    assert 0.3 < hard_mined_loss(x, ids) / np.ptp(x, axis=0).max() < 1.0
    assert ids.tolist() == [0, 0, 0, 1, 1]
    assert claims.twenty_points(seed)[0].shape == (20, 2)


def test_the_triplet_drawn_is_the_hardest():
    for seed in range(5):
        x, ids = np.random.default_rng(seed).standard_normal((8, 2)), np.arange(8) % 2
        anchor, positive, negative = claims.hardest_triplet(x, ids)
        loss = np.linalg.norm(x[anchor] - x[positive]) - np.linalg.norm(x[anchor] - x[negative])
        assert loss == pytest.approx(-separation(x, ids).margin)
        assert ids[claims.hardest_triplet(x, ids, of_class=1)[0]] == 1


def test_the_boundary_of_a_class_is_where_the_tightest_anchor_is_just_satisfied():
    box = reach(np.array([[0.0, 0.0], [3.0, 4.0]]), alpha=1.0)  # as far as the farthest positive
    assert (box.min(axis=0).tolist(), box.max(axis=0).tolist()) == ([-6.0, -6.0], [9.0, 10.0])
    points = np.random.default_rng(0).standard_normal((4, 2))
    within = np.linalg.norm(points[:, None] - points, axis=2).max(axis=1)
    for z in edge(points, alpha=0.3)[::7]:
        room = np.linalg.norm(points - z, axis=1) - within - 0.3
        assert room.min() == pytest.approx(0.0, abs=1e-9)


def test_concentric_simplices_are_regular_and_concentric():
    x, ids = claims.concentric_simplices(4)
    assert x.shape == (8, 6)
    for c in (0, 1):
        simplex = x[ids == c]
        np.testing.assert_allclose(simplex.mean(axis=0), 0, atol=1e-12)
        gaps = np.linalg.norm(simplex[:, None] - simplex, axis=2)[np.triu_indices(4, 1)]
        np.testing.assert_allclose(gaps, np.sqrt(2))
