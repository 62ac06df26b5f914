"""What several pages show: maps that keep distances, and races with a line per strategy."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.examples import RACE
from uncollapse.charts import png
from uncollapse.charts.marks import Points, Polyline
from uncollapse.health.race import Race, RaceScore
from uncollapse.report.parts import MapView, pointed_map, project, race_chart, race_table


def distances(x):
    return np.array([[np.linalg.norm(a - b) for b in x] for a in x])


@given(
    st.integers(3, 20), st.integers(3, 12), st.sampled_from([1e-6, 1.0, 1e6]), st.integers(0, 99)
)
def test_a_plane_in_many_dimensions_is_drawn_without_distortion(n, dim, scale, seed):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(dim, 2)))[0]
    plane = rng.normal(size=(n, 2)) * scale
    drawn = project(plane @ basis.T + 5.0)
    np.testing.assert_allclose(
        distances(drawn), distances(plane), rtol=1e-6, atol=1e-8 + 1e-7 * scale
    )


def test_few_dimensions_few_rows_and_equal_rows_can_be_drawn():
    rows = [[1.0, 2.0], [3.0, 5.0]]
    assert project(rows).tolist() == rows
    assert project([[1.0], [4.0]]).tolist() == [[1.0, 0.0], [4.0, 0.0]]

    assert project(np.eye(5)[:2]).shape == (2, 2)
    assert np.array_equal(project(np.ones((4, 5))), np.zeros((4, 2)))


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-6, 1.0])
def test_tsne_keeps_two_far_groups_apart_and_is_repeatable(scale):
    rng = np.random.default_rng(0)
    rows = scale * (rng.normal(size=(40, 6)) + 30 * (np.arange(40) % 2)[:, None])
    drawn = project(rows, tsne=True, seed=3)
    gap = distances(drawn) + np.diag(np.full(40, np.inf))
    assert (gap.argmin(1) % 2 == np.arange(40) % 2).all()
    assert np.array_equal(drawn, project(rows, tsne=True, seed=3))


def test_each_strategy_is_a_line_that_ends_where_it_is_out():
    chart = race_chart(RACE, "Race")
    lines = [mark for mark in chart.marks if isinstance(mark, Polyline)]
    ends = [line.points[-1][0] for line in lines]
    assert ends[0] == ends[1] > ends[2]
    nbsp = "\N{NO-BREAK SPACE}"
    assert f"easy x hard: 62.5{nbsp}% at 6 and 62.5{nbsp}% at 20" in chart.description
    started = race_chart(replace(RACE, start=0.25), "Race").description
    assert f"hard x hard: 25{nbsp}% at 0 and 0{nbsp}% at 6" in started
    names = [entry.name for entry in chart.legend]
    assert names == ["inside x hard, scale-free (chosen)", "easy x hard", "hard x hard"]
    assert chart.note == "R@1 of 96 held-out training samples; chosen: inside x hard, scale-free"


@pytest.mark.parametrize("recall", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("steps", [0, 1, 10**12])
def test_a_race_of_one_round_or_of_equals_can_be_drawn(recall, steps):
    laps = RaceScore("a", steps, recall), RaceScore("b", steps, recall)
    chart = race_chart(Race(laps, "b", 96, 1.0), "Race")
    assert png(chart)[:4] == b"\x89PNG"
    assert "<svg" in chart.__html__()


def test_the_table_has_the_last_lap_of_each_the_chosen_one_first():
    rows = [[str(cell.text) for cell in line] for line in race_table(RACE).lines]
    assert [row[0] for row in rows] == ["inside x hard, scale-free", "easy x hard", "hard x hard"]
    assert [row[1] for row in rows] == ["20", "20", "6"]
    assert [row[-1] for row in rows] == ["✓ chosen", "out", "out"]


def test_a_pointed_map_names_the_rows_it_maps_and_their_neighbours():
    labels = np.array(["b", "a", "b", "c", "b", "a"])
    rows = np.array([5, 0, 3])
    old = MapView(
        "old", np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([[1], [2], [0]]), labels
    )
    new = MapView("new", old.plane[::-1], np.array([[0], [4], [5]]))
    drawn = pointed_map(
        [old, new], rows, names=np.array(list("UVWXYZ")), flags={"hub": np.array([3, 4])}
    )
    data = drawn["data"]
    assert data["rows"] == [5, 0, 3, 1, 2, 4]
    assert data["names"] == ["Z", "U", "X", "V", "W", "Y"]
    assert data["flags"] == {"hub": [2]}  # row 4 is no point of the map
    for view, own in zip(data["views"], (old, new), strict=True):
        assert [[data["rows"][i] for i in near] for near in view["near"]] == own.near.tolist()
    first = data["views"][0]
    assert [first["classes"][i] for i in first["labels"]] == ["a", "b", "c", "a", "b", "b"]
    assert first["classes"] == ["b", "a", "c"]  # the largest first, as in the legend
    assert [entry.name for entry in drawn["charts"][0].legend] == first["classes"]
    assert first["colors"] == ["s0", "s1", "s2"]
    assert "labels" not in data["views"][1]
    assert first["places"] == [list(p) for cloud in (1, 0, 2) for p in clouds(drawn)[cloud].places]


def clouds(drawn):
    return [mark for mark in drawn["charts"][0].marks if isinstance(mark, Points)]


@pytest.mark.slow
def test_a_map_of_5000_long_texts_stays_small():
    rng = np.random.default_rng(0)
    names = np.array(["\N{CJK UNIFIED IDEOGRAPH-6587}" * 400] * 40_000)
    near = rng.integers(0, 40_000, (5000, 5))
    view = MapView("map", rng.normal(size=(5000, 2)), near, rng.integers(0, 300, 40_000))
    data = pointed_map([view], np.arange(5000), names=names)["data"]
    assert len(json.dumps(data, ensure_ascii=False).encode()) < 5_000_000
    assert len(data["names"][0]) >= 40
