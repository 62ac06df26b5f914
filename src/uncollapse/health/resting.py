"""Resting values: what a loss is when all rows, or all similarities, are equal, or at random.

Our losses declare the formula (`TupleLoss.resting`), other losses are evaluated, and a bare number
is looked up in `resting.toml`.
"""

from __future__ import annotations

import copy
import math
import re
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse._base.arrays import ArrayLike, class_ids
from uncollapse._base.check import InputError, check_choice, check_number
from uncollapse._base.files import read_toml
from uncollapse.health.strategy import RunSettings, random_streams_kept
from uncollapse.losses import TupleLoss
from uncollapse.losses.proxies import ProxyLoss

__all__ = ["STATES", "Resting", "StuckLoss", "explain_loss", "resting_values"]

_KNOWN = read_toml(Path(__file__).with_name("resting.toml"))
STATES: dict[str, str] = _KNOWN["states"]
_LARGEST, _MOST_ROWS = 1 << 24, 4096  # parameters of a loss, and rows, that are evaluated
_DRAWS, _SEED = 4, 815730721  # of random directions; with a user's own seed they may be proxies


@dataclass(frozen=True)
class Resting:
    """A value of a loss, its formula (empty if only measured), and the state of the rows there.

    `state` is one of `STATES`; `equal` is the value of a point as well, unless that has its own.
    `loss` and `settings` say whose value it is, and `exact` whether it is the number in every
    digit, where a number was explained.
    """

    value: float
    formula: str
    state: str
    loss: str = ""
    settings: str = ""
    exact: bool = True

    def __str__(self) -> str:
        return f"{self.value:.4g}" + f" = {self.formula}" * bool(self.formula)


# Of a loss at hand.


def resting_values(loss_fn: object, labels: ArrayLike | None, rows: int, dim: int) -> list[Resting]:
    """Where a loss may rest, for a batch with these labels; what cannot be known is left out.

    That is at a point, at equal similarities, and at random directions. Our losses without a miner
    declare the first two; otherwise a copy of the loss is evaluated on rows made for it. Neither
    the loss nor a random stream changes.

    >>> from uncollapse.losses import SupConLoss
    >>> [str(level) for level in resting_values(SupConLoss(), torch.arange(64) % 8, 64, 128)]
    ['4.143 = ln 63', '4.5...']
    """
    if rows > _MOST_ROWS:
        return []
    drawn = torch.randn(_DRAWS, rows, dim, generator=torch.Generator().manual_seed(_SEED))
    batches = {"equal": torch.eye(rows)[None], "point": torch.full((1, rows, dim), dim**-0.5)}
    batches["random"] = nn.functional.normalize(drawn, dim=2)
    formula = loss_fn.resting if isinstance(loss_fn, TupleLoss) and not loss_fn.miner else "nan"
    levels: list[Resting] = []
    with random_streams_kept(), torch.no_grad(), warnings.catch_warnings(action="ignore"):
        for state, batch in batches.items():
            names = _sizes(loss_fn, labels, rows) | {"cosine": float(state == "point")}
            if state == "equal" and "num_classes" in names:
                continue  # with class vectors that is how random directions begin
            level = _level(formula, loss_fn, names) if state != "random" else None
            level = level or _evaluated(loss_fn, labels, batch, names)
            if level and not any(math.isclose(level[0], x.value, rel_tol=1e-3) for x in levels):
                levels.append(Resting(*level, state))
    return levels


def _sizes(loss_fn: object, labels: ArrayLike | None, rows: int) -> dict[str, Any]:
    """Sizes of a batch, and of the parameters of a loss, as formulas name them."""
    sizes: dict[str, Any] = {"rows": rows, "batch": rows, "views": 1}
    if isinstance(loss_fn, ProxyLoss):
        n, per_class, _ = loss_fn.proxies.shape
        sizes |= {"num_classes": n, "other_classes": n - 1, "other_proxies": (n - 1) * per_class}
    if labels is not None and len(labels) == rows:
        counts = np.bincount(class_ids(labels, rows)[0])
        sizes["classes"] = len(counts)
        if counts.min() == counts.max():
            sizes |= {"positives": int(counts[0]) - 1, "negatives": rows - int(counts[0])}
    return sizes


def _level(formula: str, loss_fn: object, sizes: dict[str, Any]) -> Level | None:
    """A formula with the settings of a loss; None where one is missing, or it has no value."""
    names = {name: getattr(loss_fn, name, None) for name in names_in(formula)}
    with suppress(TypeError, ValueError, RuntimeError, OverflowError):
        level = evaluate(formula, names | sizes)
        return None if math.isnan(level[0]) else level
    return None


def _evaluated(loss_fn: Any, labels: Any, batches: Tensor, sizes: dict[str, Any]) -> Level | None:
    """The mean loss of some batches, and its formula if it is a known one."""
    is_module = isinstance(loss_fn, nn.Module)
    size = sum(parameter.numel() for parameter in loss_fn.parameters()) if is_module else 0
    if size > _LARGEST or not (is_module or isinstance(loss_fn, FunctionType)):
        return None
    given = labels.cpu() if isinstance(labels, Tensor) else labels
    for rows in (batches, batches[:, :, None]):  # SupContrast's loss takes [rows, views, dim]
        with suppress(Exception):  # whatever another package's loss raises: it has no such value
            trial = copy.deepcopy(loss_fn).cpu() if is_module else loss_fn
            value = sum(float(trial(batch, given)) for batch in rows) / len(rows)
            levels = [_level(known["formula"], loss_fn, sizes) for known in _KNOWN["values"]]
            same = [text for v, text in filter(None, levels) if abs(v - value) <= 1e-5 * abs(v)]
            if math.isfinite(value):
                return value, same[0] if same else ""
    return None


# Of a number alone.


def explain_loss(value: float | str, **known: float) -> list[Resting]:
    """What a loss that sits at this number may be: the likeliest first, without any data.

    Pass the number as it was printed, as text if it ends in zeros, and what is `known` of the run:
    batch (samples, or pairs), views (of each sample), classes (or speakers), temperature,
    base_temperature, margin, queue, scale, dim. Usual values are tried for the others. Values agree
    with the number in every digit, rounded or cut off, or, where none does, to 0.5 % (2 % at random
    directions); first come those that take the fewest guesses.

    >>> best = explain_loss("6.920", batch=64, views=2)[0]
    >>> print(best, best.loss, best.settings, sep="; ")
    6.92 = ln 127 · 0.1/0.07; SupCon as SupContrast has it; batch 64, views 2, temperature 0.1, ...
    """
    if not re.fullmatch(r"-?\d*\.?\d+(e-?\d{1,2})?", str(value)):
        raise InputError("loss", repr(value), "a number as it was printed, such as 6.920")
    number = float(value)
    unit = min(10.0 ** -len(str(value).partition(".")[2]), 0.05 * abs(number))  # of the last digit
    for name, given in known.items():
        check_number(check_choice("option", name, _KNOWN["usual"]), given, 1e-9)
    ranked = []
    for entry in _KNOWN["values"]:
        usual = _KNOWN["usual"] | entry.get("usual", {})
        names = [name for name in usual if name in names_in(entry["formula"])]
        tried = [[known[name]] if name in known else usual[name] for name in names]
        guesses = sum(len(values) > 1 for values in tried) + len(set(known) - set(names))
        for values in product(*tried):
            settings = dict(zip(names, values, strict=True))
            level, text = _level(entry["formula"], None, settings) or (math.nan, "")
            beyond = (level - number) * (-1 if number < 0 else 1)
            exact = -unit / 2 <= beyond < unit or level == number
            if exact or abs(beyond) <= _KNOWN["near"][entry["state"]] * abs(number):
                words = ", ".join(f"{k.replace('_', ' ')} {v:g}" for k, v in settings.items())
                resting = Resting(level, text, entry["state"], entry["loss"], words, exact)
                ranked.append((not exact, guesses, resting))
    ranked.sort(key=lambda entry: (*entry[:2], entry[0] * abs(entry[2].value - number)))
    most = [ranked[0][0], ranked[0][1] + ranked[0][2].exact] if ranked else []
    return [resting for *rank, resting in ranked if rank <= most]


# In a run.


@dataclass
class StuckLoss:
    """Counts for how many updates the loss has stayed within `tolerance` of one value.

    That value is one of `levels`, where the loss may rest, as far as they are known; else the one
    at which it came to rest, which is then compared with all of them.

    >>> watch = StuckLoss([Resting(0.2, "margin", "equal")], needed=3)
    >>> for loss in (0.31, 0.2003, 0.2, 0.1999):
    ...     watch.add(loss)
    >>> watch.words
    'loss has sat at 0.2 = margin for 3 updates: all similarities in the batch are equal'
    """

    levels: list[Resting] = field(default_factory=list)
    needed: int = 20
    tolerance: float = 0.01
    count: int = 0
    value: float = math.nan
    span: tuple[float, float] = (math.inf, -math.inf)  # the lowest and the highest loss
    measured: bool = False

    @classmethod
    def of(cls, settings: RunSettings) -> StuckLoss:
        """With what needs no evaluation: ln 2, and the margin of a loss to which none is added."""
        levels = [Resting(math.log(2.0), "ln 2", "equal")]
        if settings.margin and not settings.soft and not settings.summed:
            levels.insert(0, Resting(settings.margin, "margin", "equal"))
        return cls(levels)

    def add(self, loss: float, batch: tuple[object, Any, int, int] | None = None) -> None:
        """Count one more loss, of a `batch`: the loss function, labels, number of rows, dimension.

        Where that function may rest is found out when the loss has sat still for the first time.
        """
        self.span = min(self.span[0], loss), max(self.span[1], loss)
        level, anchor = self._level_at(loss), self.value
        near_last = abs(loss - self.value) <= self.tolerance * abs(self.value)
        if level or not near_last or self._level_at(self.value):
            anchor = level.value if level else loss
        self.count = self.count + 1 if anchor == self.value else 1
        self.value = anchor
        if self.stuck and not self.measured and batch is not None:
            self.measured = True
            with suppress(Exception):  # whatever labels and loss are like, the monitor goes on
                self.levels = [*self.levels, *resting_values(*batch)]
            self.value = getattr(self._level_at(loss), "value", anchor)

    def _level_at(self, loss: float) -> Resting | None:
        """The level that a loss is at: that of random directions only if it has never left it."""
        moved = self.span[1] - self.span[0]
        for level in self.levels:
            size, chance = abs(level.value), level.state == "random"
            near = self.tolerance * (2 * size if chance else min(size, 1.0))
            if abs(loss - level.value) <= near and not (chance and moved > 5 * near):
                return level
        return None

    @property
    def stuck(self) -> bool:
        """Whether the loss has sat still for long enough. A loss of 0 is no plateau: it is done."""
        return self.count >= self.needed and self.value != 0

    @property
    def level(self) -> Resting | None:
        """The resting value at which it is stuck."""
        return self._level_at(self.value) if self.stuck else None

    @property
    def long_state(self) -> str:
        """The state of that value, once the loss has sat there for longer than a start may take."""
        return self.level.state if self.level and self.count >= 2 * self.needed + 10 else ""

    @property
    def words(self) -> str:
        """Where the loss has sat, and what that means, for a reason; empty if it moves."""
        if not self.stuck:
            return ""
        level = self.level
        means = f": {STATES[level.state]}" if level else ""
        return f"loss has sat at {level or f'{self.value:.4g}'} for {self.count} updates{means}"


# Formulas: what losses declare as `resting`, and `resting.toml` for others.

Level = tuple[float, str]  # a value of a loss, and its formula for a reader
_FUNCTIONS = {name: getattr(math, name) for name in ("exp", "sin", "cos", "acos", "nan")}
_FUNCTIONS |= {"ln": math.log, "__builtins__": {}}


def names_in(formula: str) -> set[str]:
    """The settings and sizes that a formula names."""
    return set(compile(formula, "formula", "eval").co_names) - set(_FUNCTIONS)


def evaluate(formula: str, names: dict[str, Any]) -> Level:
    """The value of one of our own formulas, and how it is written for a reader.

    >>> evaluate("ln(rows - 1) * temperature / 0.07", {"rows": 128, "temperature": 0.1})
    (6.9202..., 'ln 127 · 0.1/0.07')
    >>> evaluate("ln(2) if soft else margin", {"soft": False, "margin": 0.2})
    (0.2, 'margin')
    """
    known = _FUNCTIONS | names
    if choice := re.fullmatch("(.+) if (.+) else (.+)", formula):
        formula = choice[1] if eval(choice[2], known) else choice[3]
    value = float(eval(formula, known))  # our own text, and no builtins
    if formula.isidentifier():
        return value, formula
    shown = {name: f"{v:g}" for name, v in names.items() if isinstance(v, int | float)}
    text = re.sub("[a-z_]+", lambda name: shown.get(name[0], name[0]), formula)
    text = re.sub(r" ?\((\d+( [-+*] \d+)*)\)", lambda m: f" {eval(m[1])}", text)
    return value, text.replace(" / ", "/").replace("**2", "²").replace("*", "·")
