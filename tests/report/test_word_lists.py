import numpy as np

from uncollapse.report.neighbours import Neighbourhood, word_lists

FOUND = Neighbourhood(np.array([0]), np.array([[1, 2]]), np.array([[True, False]]))


def test_each_neighbour_has_its_text_its_labels_and_a_mark():
    words = {0: "freeze my card", 1: "block it", 2: "rain"}
    coarse, fine = np.array(["cards", "cards", "weather"]), np.array(["a", "b", "c"])
    found = word_lists(FOUND, words, coarse, fine, title="run")
    (asked,) = found["asked"]
    assert (asked["text"], asked["label"], asked["right"]) == ("freeze my card", "cards / a", None)
    near = [(one["text"], one["label"], one["right"]) for one in asked["near"]]
    assert near == [("block it", "cards / b", True), ("rain", "weather / c", False)]
    assert found["title"] == "run"
    assert found["words"] == "1 of 2 neighbours share the query's label"


def test_without_labels_nothing_is_marked():
    found = word_lists(Neighbourhood(FOUND.queries, FOUND.rows), np.array(["a", "b", "c"]), None)
    near = found["asked"][0]["near"]
    assert [(one["label"], one["right"]) for one in near] == [("", None)] * 2


def test_a_long_text_is_one_line_that_ends_in_dots():
    words = np.array(["first\nsecond", "x" * 500, "y" * 240])
    near = word_lists(FOUND, words)["asked"][0]
    assert near["text"] == "first second"
    assert near["near"][0]["text"] == "x" * 239 + "…"
    assert near["near"][1]["text"] == "y" * 240
