"""Omniglot (Lake et al. 2015): EPS §5.2, label = alphabet, fine label = letter."""

from __future__ import annotations

import zipfile
from pathlib import Path, PurePosixPath

from uncollapse.data.listing import (
    DataError,
    DatasetInfo,
    ImageRef,
    Listing,
    Row,
    find_root,
    is_image,
)

# Folder, first alphabet number, first letter number: labels do not clash between the splits.
_PARTS = {"train": ("images_background", 0, 0), "test": ("images_evaluation", 30, 964)}


def listing(info: DatasetInfo, root: Path | None, split: str) -> Listing:
    """`train`: the 30 background alphabets; `test`: the 20 evaluation alphabets; or `all`."""
    markers = [f"{folder}{end}" for folder, _, _ in _PARTS.values() for end in ("", ".zip")]
    base = find_root(info, root, markers)
    rows: list[Row] = []
    ignored: list[str] = []
    alphabets: dict[int, str] = {}
    letters: dict[int, str] = {}
    for part in _PARTS if split == "all" else (split,):
        folder, first_alphabet, first_letter = _PARTS[part]
        files, others = _files(base, folder)
        ignored += others
        # <alphabet>/<character>/<image>: the last three parts, whatever stands before them.
        letter_of = {image: "/".join(path.parts[-3:-1]) for path, image in files}
        names = sorted(set(letter_of.values()))
        numbers = {name: first_letter + i for i, name in enumerate(names)}
        groups = sorted({name.split("/")[0] for name in names})
        group_of = {name: first_alphabet + i for i, name in enumerate(groups)}
        alphabets |= {number: name for name, number in group_of.items()}
        letters |= {number: name for name, number in numbers.items()}
        for image, letter in letter_of.items():
            rows.append(Row(image, group_of[letter.split("/")[0]], numbers[letter]))
    return Listing.of_rows(
        rows, class_names=alphabets, fine_names=letters, ignored=tuple(ignored), origin=str(base)
    )


def _files(base: Path, folder: str) -> tuple[list[tuple[PurePosixPath, ImageRef]], list[str]]:
    """Image files of a folder or zip in order, and the names of files that are not images."""
    files: list[tuple[PurePosixPath, ImageRef]] = []
    if (base / folder).is_dir():
        for path in sorted(p for p in (base / folder).rglob("*") if p.is_file()):
            files.append((PurePosixPath(path.relative_to(base).as_posix()), ImageRef(path)))
    elif (archive := base / f"{folder}.zip").is_file():
        try:
            with zipfile.ZipFile(archive) as zipped:
                members = sorted(m for m in zipped.namelist() if not m.endswith("/"))
        except (OSError, zipfile.BadZipFile) as error:
            raise DataError(f"{archive}: damaged zip file ({error})") from None
        files = [(PurePosixPath(member), ImageRef(archive, member)) for member in members]
    else:
        raise DataError(f"omniglot: neither {folder} nor {folder}.zip in {base}")
    images = [(path, ref) for path, ref in files if is_image(str(path)) and len(path.parts) >= 3]
    kept = {ref for _, ref in images}
    return images, [ref.name for _, ref in files if ref not in kept]
