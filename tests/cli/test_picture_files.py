"""Names in a file and the folder they lie in: found as a whole, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from uncollapse._base.check import InputError
from uncollapse.data.sources import Source


def find_pictures(folder: Path, names: np.ndarray | None):
    return Source(np.zeros((1, 2)), names=names).find_pictures(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("shop/cup/0.png", "shop/plate/0.png", "secret.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return tmp_path / "shop"


@pytest.mark.parametrize("before", ["", "shop/", "/home/other/shop/", "../up/shop/", "./"])
def test_what_stands_before_the_names_does_not_matter(folder: Path, before: str) -> None:
    names = np.array([f"{before}cup/0.png", f"{before}plate/0.png"])
    assert find_pictures(folder, names) == [folder / "cup/0.png", folder / "plate/0.png"]


@pytest.mark.parametrize("how", ["absolute", "up"])
def test_no_picture_outside_the_folder_is_taken(folder: Path, how: str) -> None:
    secret = folder.parent / "secret.png"
    name = str(secret) if how == "absolute" else "cup/../../secret.png"
    with pytest.raises(InputError, match=r"no image file for '.*secret\.png' below it"):
        find_pictures(folder, np.array(["cup/0.png", name]))


def test_two_names_never_become_one_file(folder: Path) -> None:
    names = np.array(["spoon/0.png", "fork/0.png"])
    with pytest.raises(InputError, match=r"no image file for 'spoon"):
        find_pictures(folder / "cup", names)


def test_one_that_is_missing_is_named(folder: Path) -> None:
    names = np.array(["shop/cup/0.png", "shop/cup/1.png"])
    with pytest.raises(InputError, match=r"for 'shop/cup/1\.png'"):
        find_pictures(folder, names)


@pytest.mark.parametrize("content", [b"", b"junk"])
def test_a_damaged_array_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(InputError, match=r"--images: expected an \.npy array"):
        find_pictures(tmp_path / "x.npy", None)
