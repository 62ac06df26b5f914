"""The comparison of two versions, in words, tables and on a page."""

import numpy as np
import pytest

from support.errors import refuses
from uncollapse.report.comparison_page import aligned, compare


@pytest.fixture
def versions():
    """Rows of four classes, a copy in which every second row of class 1 is noise, and labels."""
    rng = np.random.default_rng(0)
    labels = np.arange(160) % 4
    z = 3 * rng.normal(size=(4, 6))[labels] + rng.normal(size=(160, 6))
    new = z.copy()
    new[1::8] = 9 * rng.normal(size=(20, 6))
    return z, new, labels


def test_it_says_what_changed_and_which_classes_and_rows_lost(versions):
    z, new, labels = versions
    names = np.array([f"item {i}" for i in range(160)])
    result = compare(z, new, labels, names=names, titles=("a.npz", "b.npz"))
    assert result.sentences()[0].startswith("R@1 falls: ")
    assert "160 rows" in result.about
    table = result.class_table(1)
    assert [row[0] for row in table.rows] == ["1"]
    lost = [row[0] for row in result.row_table(5).rows]
    assert all(int(text.split()[1]) % 8 == 1 and text.endswith(" (1)") for text in lost)
    assert result.to_dict()["figures"]["R@1"] < result.to_dict()["figures"]["R@1_old"]


def test_the_same_rows_have_nothing_to_list_and_no_labels_leave_recall_out(versions):
    z, new, labels = versions
    same = compare(z, z, labels)
    assert same.class_table() is None
    assert same.row_table() is None
    assert same.sentences()[0].startswith("R@1 may be the same")
    assert not any("R@1" in line or "threshold" in line for line in compare(z, new).sentences())
    assert "Rows that changed most" not in same.page().render()


def test_the_page_marks_lost_rows_and_uses_the_same_rows_in_both_maps(versions):
    z, new, labels = versions
    drawn = compare(z, new @ np.eye(6, 9), labels, metric="cosine")._map()
    old, turned = drawn["data"]["views"]
    assert old["labels"] == turned["labels"]
    assert len(old["places"]) == len(turned["places"]) == 160
    assert drawn["data"]["flags"]["lost"]


def test_a_rotated_and_mirrored_map_is_turned_back():
    plane = np.random.default_rng(1).normal(size=(30, 2)) * [3, 1]
    turn = np.array([[np.cos(2), np.sin(2)], [np.sin(2), -np.cos(2)]])
    np.testing.assert_allclose(aligned(plane @ turn + 5, plane), plane - plane.mean(0), atol=1e-9)


def test_wrong_arguments_are_refused(versions):
    z, new, labels = versions
    right = {"old": z, "new": new, "labels": labels}
    refuses(compare, right, metric=["dot"], labels=[labels[:3]])
