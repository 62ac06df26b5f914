"""Advice followed to the letter: a text that warns of a collapse, parsed into runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from _study import Setting

__all__ = ["advised"]

CODE = re.compile(r"(?:uc\.)?TripletLoss\((?:[^()]|\([^()]*\))*\)")
MINER = re.compile(r"Miner\(\"(\w+)\", \"(\w+)\"\)")
VALUE = re.compile(r"(\w+) ?= ?\"?([\w.+-]+)")
SLOWER = "a tenth of the learning rate"
_KINDS: Mapping[str, Callable[[str], Any]] = {
    "positives": str,
    "negatives": str,
    "lr": float,
    "margin": float,
    "soft": lambda word: word.lower() == "true",
    "scale_free": lambda word: word.lower() == "true",
    "normalize": lambda word: word.lower() == "true",
}


def advised(setting: Setting, text: str) -> list[Setting]:
    """The runs without a guard that the text recommends; what they cannot express is left out.

    >>> run = Setting("letters", "mlp", 16, 4, 64, "hard", "hard")
    >>> [one.strategy for one in advised(run, "all equal; try positives = easy or lr = 0.0003")]
    ['easy x hard', 'hard x hard']
    """
    changes = [one for one in _changes(text.rpartition("try ")[2], setting) if one]
    return [replace(setting, guard="warn", **one) for one in changes]


def _changes(sentence: str, setting: Setting) -> Iterator[dict[str, Any]]:
    for code in CODE.findall(sentence):
        positives, negatives = MINER.search(code).groups()  # type: ignore[union-attr]
        mined = {"positives": positives, "negatives": negatives, "loss": "triplet"}
        yield {"loop": "engine", "scale_free": False} | _values(MINER.sub("", code)) | mined
    for part in re.split(r",? or |, ", CODE.sub("", sentence)):
        changed = _values(part)
        if SLOWER in part:
            changed["lr"] = float(f"{setting.lr / 10:.3g}")
        if set(changed) - {"lr"}:
            changed["loop"] = "engine"
        yield changed


def _values(words: str) -> dict[str, Any]:
    read = {name: _KINDS[name](word) for name, word in VALUE.findall(words) if name in _KINDS}
    return {"unit" if name == "normalize" else name: value for name, value in read.items()}
