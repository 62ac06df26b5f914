"""Contact sheets: every usual image layout, marks that need no colour."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from uncollapse._base.check import InputError
from uncollapse.report import contact_sheet
from uncollapse.report.neighbours import picture_of, save_png, thumbnail

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


def test_where_it_is_not_known_nothing_is_marked():
    plain = np.asarray(contact_sheet([GREY], [[GREY]]))
    colours = {tuple(p) for p in plain[plain[..., 3] > 0][:, :3].tolist()}
    assert colours == {(128, 128, 128), (0x8A, 0x93, 0xA3)}


def test_rows_may_have_different_numbers_of_neighbours():
    short = contact_sheet([GREY, GREY], [[GREY], [GREY, GREY]], [[True], [None, False]])
    assert short.size == contact_sheet([GREY] * 2, [[GREY] * 2] * 2).size


def test_marks_that_do_not_match_the_neighbours_are_refused():
    for images, neighbours, right in (([GREY], [[GREY]], [[True, False]]), ([], [], [])):
        with pytest.raises(InputError) as caught:
            contact_sheet(images, neighbours, right)
        assert caught.value.name == "queries"


@pytest.mark.parametrize(
    "sample",
    [
        np.full((6, 4), 200, np.uint8),
        np.full((1, 6, 4), 200, np.uint8),
        np.full((3, 6, 4), 200, np.uint8),
        np.full((6, 4, 3), 200, np.uint8),
        torch.full((3, 6, 4), 200 / 255),
        Image.new("L", (4, 6), 200),
    ],
)
def test_every_usual_layout_gives_the_same_picture(sample: object):
    assert picture_of(sample).size == (4, 6)
    assert picture_of(sample).getpixel((1, 1)) == (200, 200, 200)


def test_normalised_images_are_stretched_into_view():
    assert np.asarray(picture_of(np.array([[-2.0, 0.0, 2.0]])))[0, :, 0].tolist() == [0, 128, 255]


def test_what_is_no_picture_is_refused_by_its_shape():
    with pytest.raises(InputError, match=r"shape \(7,\)"):
        picture_of(np.zeros(7))


def test_small_pictures_are_enlarged_without_blur():
    sharp = np.asarray(thumbnail(picture_of(np.array([[0, 255]], np.uint8)), 40))
    assert set(np.unique(sharp).tolist()) == {0, 255}


def test_a_sheet_is_written_whole_into_a_new_folder(tmp_path: Path):
    target = save_png(contact_sheet([GREY], [[GREY]]), tmp_path / "a" / "sheet.png")
    assert [p.name for p in target.parent.iterdir()] == ["sheet.png"]
    with Image.open(target) as opened:
        assert opened.format == "PNG"
        assert picture_of(target).size == opened.size
