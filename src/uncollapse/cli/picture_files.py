"""The pictures of a file's rows: an array beside it, or image files below a folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from uncollapse._base.check import InputError

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array
    from uncollapse.report.neighbours import Images

__all__ = ["find_pictures"]

_ALLOWED = "an .npy array, or a folder that has the file's names"


def find_pictures(source: Path, names: Array | None) -> Images:
    """The array of an .npy file, or for each name an image file below the folder `source`.

    Names are paths as they were where the file was made (relative to some folder, or absolute): as
    many of their first parts are left out as it takes to find all of them below `source`, and the
    same for all. None is looked for elsewhere: a page shows no picture outside the folder given.
    """
    if source.suffix == ".npy" and source.is_file():
        return _array(source)
    if names is None or not source.is_dir():
        given = f"{source}" + (", but the file has no names" if source.is_dir() else "")
        raise InputError("--images", given, _ALLOWED)
    paths = [PurePath(os.path.normpath(str(name))) for name in names]
    plain = [[part for part in path.parts if part not in ("..", path.anchor)] for path in paths]
    for cut in range(max(map(len, plain), default=0)):
        found = _below(source, plain, cut)
        if found is not None:
            return found
    lost = next((p for p, parts in zip(paths, plain, strict=True) if _lost(source, parts)), None)
    name = str(paths[0] if lost is None else lost)
    raise InputError("--images", source, f"{_ALLOWED} (no image file for '{name[-200:]}' below it)")


def _array(source: Path) -> Images:
    import numpy as np

    try:
        array: Images = np.load(source, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise InputError("--images", f"{source} ({error})", _ALLOWED) from None
    return array


def _below(folder: Path, names: Sequence[Sequence[str]], cut: int) -> list[Path] | None:
    """All names without their first `cut` parts, if all are files and none became another's."""
    short = [tuple(parts[cut:]) for parts in names]
    if len(set(short)) < len({tuple(parts) for parts in names}):
        return None
    found = [folder.joinpath(*parts) for parts in short]
    return found if all(short) and all(path.is_file() for path in found) else None


def _lost(folder: Path, parts: Sequence[str]) -> bool:
    return not any(folder.joinpath(*parts[cut:]).is_file() for cut in range(len(parts)))
