"""Nearest neighbours: sheets of pictures with marks that need no color, and lists of words."""

import numpy as np
import pytest
import torch
from PIL import Image

from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse.report import contact_sheet
from uncollapse.report.neighbours import Neighbourhood, picture_of, thumbnail, word_lists

GREY = Image.new("L", (8, 8), 128)


def test_right_and_wrong_differ_without_colour():
    sheet = contact_sheet([GREY], [[GREY, GREY]], [[True, False]])
    pixels = np.asarray(sheet)
    step = 72 + 6 + 6
    right, wrong = (pixels[3:81, j * step + 14 : j * step + 14 + 78] for j in (1, 2))
    tops = [cell[0, :, 3] for cell in (right, wrong)]
    assert (tops[0] == 255).all()  # a whole frame
    assert 0.3 < (tops[1] == 255).mean() < 0.8  # a broken one
    corners = [
        np.asarray(Image.fromarray(c).convert("L"))[-20:, -20:] > 200 for c in (right, wrong)
    ]
    assert (corners[0] != corners[1]).mean() > 0.1  # a tick is no cross


def test_where_it_is_not_known_nothing_is_marked_and_small_pictures_are_not_blurred():
    plain = np.asarray(contact_sheet([GREY], [[GREY]]))
    colours = {tuple(p) for p in plain[plain[..., 3] > 0][:, :3].tolist()}
    assert colours == {(128, 128, 128), (0x8A, 0x93, 0xA3)}
    sharp = np.asarray(thumbnail(picture_of(np.array([[0, 255]], np.uint8)), 40))
    assert set(np.unique(sharp).tolist()) == {0, 255}


def test_rows_may_differ_in_length_and_marks_must_match_them():
    short = contact_sheet([GREY, GREY], [[GREY], [GREY, GREY]], [[True], [None, False]])
    assert short.size == contact_sheet([GREY] * 2, [[GREY] * 2] * 2).size
    for sheet in (([GREY], [[GREY]], [[True, False]]), ([], [], [])):
        with refused("queries"):
            contact_sheet(*sheet)


def test_every_usual_layout_gives_the_same_picture():
    shapes = [(6, 4), (1, 6, 4), (3, 6, 4), (6, 4, 3)]
    samples = [np.full(shape, 200, np.uint8) for shape in shapes]
    for sample in (*samples, torch.full((3, 6, 4), 200 / 255), Image.new("L", (4, 6), 200)):
        assert picture_of(sample).size == (4, 6)
        assert picture_of(sample).getpixel((1, 1)) == (200, 200, 200)


def test_normalised_images_are_stretched_into_view_and_what_is_no_picture_is_refused():
    for values in ([[-2.0, 0.0, 2.0]], [[0.0, 1.0, 2.0]]):
        assert np.asarray(picture_of(np.array(values)))[0, :, 0].tolist() == [0, 128, 255]
    with pytest.raises(InputError, match=r"shape \(7,\)"):
        picture_of(np.zeros(7))


# Lists of words.

NEAR = Neighbourhood(np.array([0]), np.array([[1, 2]]), np.array([[True, False]]))


def test_each_neighbour_has_its_text_its_labels_and_a_mark():
    words = {0: "freeze my card", 1: "block it", 2: "rain"}
    coarse, fine = np.array(["cards", "cards", "weather"]), np.array(["a", "b", "c"])
    lists = word_lists(NEAR, words, coarse, fine, title="run")
    (asked,) = lists["asked"]
    assert (asked["text"], asked["label"], asked["right"]) == ("freeze my card", "cards / a", None)
    near = [(one["text"], one["label"], one["right"]) for one in asked["near"]]
    assert near == [("block it", "cards / b", True), ("rain", "weather / c", False)]
    assert lists["title"] == "run"
    assert lists["words"] == "1 of 2 neighbours share the query's label"


def test_without_labels_nothing_is_marked_and_a_long_text_is_one_line_that_ends_in_dots():
    lists = word_lists(Neighbourhood(NEAR.queries, NEAR.rows), np.array(["a", "b", "c"]), None)
    near = lists["asked"][0]["near"]
    assert [(entry["label"], entry["right"]) for entry in near] == [("", None)] * 2
    words = np.array(["first\nsecond", "x" * 500, "y" * 240])
    near = word_lists(NEAR, words)["asked"][0]
    assert near["text"] == "first second"
    assert near["near"][0]["text"] == "x" * 239 + "…"
    assert near["near"][1]["text"] == "y" * 240
