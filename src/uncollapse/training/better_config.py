"""A config with some keys changed, written beside the file it came from."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from uncollapse._base.check import InputError
from uncollapse._base.files import write_text
from uncollapse.training.config import Config, load_config, parse_config
from uncollapse.training.overrides import apply_overrides

__all__ = ["better_path", "save_better_config", "with_keys"]

_SECTION = re.compile(r"\s*\[\s*([\w.-]+)\s*\]\s*(#.*)?$")
_KEY = re.compile(
    r"(?P<left>\s*(?P<name>[\w.-]+)\s*=\s*)"
    r"(?P<value>\"[^\"\\]*\"|'[^']*'|\[[^\[\]#\"']*\]|[^\s#\"'\[\]{}]+)"
    r"(?P<right>\s*(#.*)?)$"
)


def better_path(path: Path) -> Path:
    """`run.better.toml` beside `run.toml`; `InputError` where that file is there already."""
    better = path.with_name(f"{path.stem}.better.toml")
    if better.exists():
        allowed = f"no {better.name} beside {path.name}: train it, move it away or delete it"
        raise InputError("--race", str(better), allowed)
    return better


def save_better_config(
    path: Path, changes: Mapping[str, Any], overrides: Iterable[str] = ()
) -> Path:
    """Write the config of `path` beside it, with `a.b=c` overrides and `changes` by dotted keys.

    All other lines, comments among them, stay as they are. Where the file spells a changed key in a
    way that is not understood here, the config is written anew, with its defaults filled in.
    """
    better, given = better_path(path), list(overrides)
    wanted = load_config(path, given).with_changes(_nested(changes))
    keys = {**dict(_dotted(apply_overrides({}, given))), **changes}
    text = with_keys(path.read_text(encoding="utf-8-sig"), keys)
    write_text(better, text if _says(text, wanted) else wanted.to_toml())
    return better


def with_keys(text: str, changes: Mapping[str, Any]) -> str:
    """TOML with keys set in their sections, each on a line of its own; other lines stay.

    >>> print(with_keys("[loss]\\nmargin = 0.1  # small", {"loss.margin": 0.2, "mining.pool": 8}))
    [loss]
    margin = 0.2  # small
    <BLANKLINE>
    [mining]
    pool = 8
    """
    left, lines, section, ends = dict(changes), [], "", {"": 0}
    for line in text.rstrip().split("\n") if text.strip() else []:
        if head := _SECTION.match(line):
            section = head[1]
        elif found := _KEY.match(line):
            key = f"{section}.{found['name']}".removeprefix(".")
            if key in left:
                line = found["left"] + _value(left.pop(key)) + found["right"]
        lines.append(line)
        if line.strip():
            ends[section] = len(lines)
    grouped: dict[str, list[str]] = {}
    for key, value in left.items():
        within, _, name = key.rpartition(".")
        grouped.setdefault(within, []).append(f"{name} = {_value(value)}")
    for within in sorted(grouped.keys() & ends.keys(), key=ends.__getitem__, reverse=True):
        lines[ends[within] : ends[within]] = grouped.pop(within)
    for within, added in grouped.items():
        lines += ["", f"[{within}]", *added]
    return "\n".join(lines).lstrip("\n") + "\n"


def _value(value: Any) -> str:
    return tomli_w.dumps({"x": value}).removeprefix("x = ").strip()


def _says(text: str, wanted: Config) -> bool:
    try:
        return parse_config(tomllib.loads(text)).model_dump() == wanted.model_dump()
    except (tomllib.TOMLDecodeError, InputError):
        return False


def _nested(changes: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in changes.items():
        section, _, name = key.rpartition(".")
        (found.setdefault(section, {}) if section else found)[name] = value
    return found


def _dotted(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value
