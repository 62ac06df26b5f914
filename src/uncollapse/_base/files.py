"""Files: written beside their target and renamed into place; damaged ones raise a clear error.

Nothing else opens a file for writing but what `written_aside` yields. A reader of what is written
here sees the old file or the new one, never a part of it, whatever happens to the writer.
"""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
import sys
import tempfile
import tomllib
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

from uncollapse._base.check import InputError


class DamagedFileError(ValueError):
    """A file that cannot be read as what it should be; the message names it and says why."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is damaged: {why}")
        self.path, self.why = path, why


@contextmanager
def written_aside(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield a path beside `path` to write to; it replaces `path` on success, is removed on error.

    With `folder` the path yielded is a new folder; an old one at `path` stays whole until it is
    replaced. A missing parent folder is created; the file (each file of the folder) is on
    disk before the rename. A link stays one: its target is written. A device or pipe is never
    replaced: it gets the bytes once all are written. An error of the disk names `path`.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with written_aside(target) as aside:
    ...     _ = aside.write_text("whole")
    >>> target.read_text(), [p.name for p in target.parent.iterdir()]
    ('whole', ['a.txt'])
    """
    if path.is_dir() and not folder:
        raise InputError("output", f"{path}, a folder", "the name of a file")
    # A device, a pipe or an open file of this process.
    is_open = str(path).startswith(("/dev/fd/", "/dev/std", "/proc/"))
    direct = path.exists() and (is_open or not (path.is_file() or path.is_dir()))
    target = Path(os.path.realpath(path)) if path.is_symlink() and not direct else path
    aside = _beside(Path(tempfile.gettempdir()) / path.name if direct else target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if folder:
            aside.mkdir()
        yield aside
        for part in filter(Path.is_file, [aside, *aside.rglob("*")]):
            sync(part)
        (_pour if direct else _put)(aside, target)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # a full disk
            error.filename = str(path)
        raise
    except Exception as error:
        full = os.strerror(errno.ENOSPC)
        if full not in str(error):
            raise
        raise OSError(errno.ENOSPC, full, str(path)) from error  # as safetensors words it
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, UTF-8, as `written_aside` does."""
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="")


def write_json(path: Path, value: object) -> None:
    """Write a JSON file, as `written_aside` does."""
    write_text(path, json.dumps(value, indent=1))


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file with a header, as `written_aside` does."""
    with written_aside(path) as aside, aside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def open_log(path: Path, keep: int = 0) -> TextIO:
    """Open a file to append lines to; what is past `keep` bytes is cut off first.

    A log grows where it is: a line cut short by a crash lies past the offset that the last
    checkpoint kept.
    """
    with path.open("ab") as file:
        os.truncate(file.fileno(), min(keep, file.tell()))
    return path.open("a", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """The object of a JSON file; `DamagedFileError` if it holds anything else."""
    value = _parsed(path, json.loads, "JSON")
    if not isinstance(value, dict):
        raise DamagedFileError(path, f"expected a dict, found {type(value).__name__}")
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file; `DamagedFileError` if it is not TOML."""
    return cast(dict[str, Any], _parsed(path, tomllib.loads, "TOML"))


def read_jsonl(
    path: Path, complaints: list[str] | None = None, *, whole: bool = False
) -> Iterator[dict[str, Any]]:
    """The rows of a JSONL file; a last line cut short by a crash is skipped, unless `whole`.

    Any other line that is not a JSON object raises `DamagedFileError` with its number; with
    `complaints` it is skipped as well, and the error message is appended to that list.
    """
    lines = path.read_bytes().split(b"\n")  # each decoded by itself: a cut may split a character
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        why = f"line {number} is not a JSON object"
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == len(lines) and not whole:  # no newline: being written, or cut short
                return
            row, why = None, f"line {number} is not JSON ({error})"
        if isinstance(row, dict):
            yield row
        elif complaints is None:
            raise DamagedFileError(path, why)
        else:
            complaints.append(str(DamagedFileError(path, why)))


def csv_rows(path: Path, *, fill: bool = False, separator: str = ",") -> Iterator[list[str]]:
    """The rows of a CSV file, the header first; all have as many cells as it, or it raises.

    With `fill` a short row gets empty cells at its end.
    """
    width = 0
    with path.open(encoding="utf-8-sig", newline="") as file:  # a quoted cell may hold line ends
        reader = csv.reader(file, strict=True, delimiter=separator)
        try:
            for row in filter(None, reader):  # an empty line is no row
                width = width or len(row)
                if fill:
                    row += [""] * (width - len(row))
                if len(row) != width:
                    why = f"line {reader.line_num} has {len(row)} cells, the header {width}"
                    raise DamagedFileError(path, why)
                yield row
        except (csv.Error, UnicodeDecodeError) as error:
            raise DamagedFileError(path, f"from line {reader.line_num} on: {error}") from None
    if not width:
        raise DamagedFileError(path, "it is empty")


def sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    if os.name != "posix":  # Windows syncs no folder, and no file opened for reading
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _parsed(path: Path, parse: Callable[[str], object], kind: str) -> object:
    try:
        return parse(path.read_bytes().decode("utf-8-sig"))
    except ValueError as error:
        raise DamagedFileError(path, f"not {kind} in UTF-8 ({error})") from None


def _beside(path: Path) -> Path:
    # The suffix stays last: some writers choose their format by it.
    return path.with_name(f".{path.stem}.{uuid.uuid4().hex[:12]}{path.suffix}")


def _put(aside: Path, path: Path) -> None:
    """Rename into place; a folder, which cannot be renamed over, is moved out of the way first."""
    old = _beside(path)
    if path.is_dir():
        os.replace(path, old)
    try:
        os.replace(aside, path)
    except BaseException:
        if old.exists():
            os.replace(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)
    sync(path.parent)


def _pour(aside: Path, path: Path) -> None:
    """Write the bytes of a file to a device, a pipe or an open file, which is not truncated."""
    sys.stdout.flush()  # its text comes first
    own = {"/dev/stdout": 1, "/dev/stderr": 2}.get(str(path))  # opened again it would be at byte 0
    with aside.open("rb") as file, open(own or path, "ab", closefd=own is None) as out:
        shutil.copyfileobj(file, out)
