"""Checks of what users pass in, and numbers as messages, tables and pages write them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

_LONGEST = 160  # characters that are shown of what was given


class InputError(ValueError):
    """A user's argument that cannot be used.

    `name` is the argument, `given` what was passed, `allowed` what is accepted. `shown` replaces
    `given` in the message where `str(given)` is unsuitable. All three are None in a `conflict`.

    >>> str(InputError("margin", -1, "a positive number"))
    'margin: expected a positive number, got -1'
    """

    name: str | None = None
    given: object = None
    allowed: str | None = None

    def __init__(self, name: str, given: object, allowed: str, *, shown: str | None = None) -> None:
        text = str(given) if shown is None else shown
        if len(text) > _LONGEST:  # an array in place of a number, say
            text = f"{text[:_LONGEST]}… ({type(given).__name__})"
        super().__init__(f"{name}: expected {allowed}, got {text}")
        self.name, self.given, self.allowed = name, given, allowed

    @classmethod
    def conflict(cls, sentence: str) -> InputError:
        """The error for two arguments that exclude each other: the sentence is the message.

        >>> str(InputError.conflict("pass tuples or a miner, not both"))
        'pass tuples or a miner, not both'
        """
        return cls.__new__(cls, sentence)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle `given` as it is if it is a plain value, otherwise as text."""
        plain = isinstance(self.given, str | int | float | None)
        state = vars(self) if plain else vars(self) | {"given": str(self.given)}
        return type(self).conflict, self.args, state


def check_paired(x: Any, y: Any, names: tuple[str, str]) -> None:
    """Raise unless the two point sets have the same shape."""
    if tuple(x.shape) != tuple(y.shape):
        raise InputError(names[1], f"shape {tuple(y.shape)}", f"{names[0]}'s, {tuple(x.shape)}")


def check_choice(name: str, value: object, allowed: Iterable[str]) -> str:
    """Return `value` if it is one of the allowed words, or raise."""
    words = list(allowed)
    if not isinstance(value, str) or value not in words:
        shown = _shown(value) + (did_you_mean(value, words) if isinstance(value, str) else "")
        raise InputError(name, value, f"one of {', '.join(map(repr, words))}", shown=shown)
    return value


def did_you_mean(given: str, words: Iterable[str]) -> str:
    """The closest word as a hint at the end of a message; empty if none is close.

    >>> did_you_mean("tabel1", ["fig1", "table1"]), did_you_mean("x", ["fig1"])
    (" (did you mean 'table1'?)", '')
    """
    near = difflib.get_close_matches(given, list(words), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


Value = TypeVar("Value")


def check_kind(name: str, value: Value, kinds: type | tuple[type, ...], allowed: str) -> Value:
    """Return `value` if it is an instance of `kinds`, or raise."""
    if not isinstance(value, kinds):
        raise InputError(name, value, allowed, shown=_shown(value))
    return value


def check_bool(name: str, value: object) -> bool:
    """Return `value` as a bool, or raise: "false" and 0 are neither True nor False."""
    return bool(check_kind(name, value, (bool, np.bool_), "True or False"))


def check_int(name: str, value: object, low: int = 1) -> int:
    """Return `value` as an int of at least `low`, or raise."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        raise InputError(name, value, f"a whole number of at least {low}", shown=_shown(value))
    return int(value)


def check_number(name: str, value: object, low: float = -math.inf, high: float = math.inf) -> float:
    """Return `value` as a finite float within [low, high], or raise."""
    ok = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not ok or not math.isfinite(float(value)) or not low <= float(value) <= high:  # type: ignore[arg-type]
        span = "" if (low, high) == (-math.inf, math.inf) else f" in [{low:g}, {high:g}]"
        raise InputError(name, value, f"a finite number{span}", shown=_shown(value))
    return float(value)  # type: ignore[arg-type]


class Setting(Generic[Value]):
    """An attribute checked whenever it is set; `check(name, value)` returns the value to keep."""

    def __init__(self, check: Callable[[str, Any], Value]) -> None:
        self.check = check

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> Value:
        value: Any = self if instance is None else getattr(instance, f"_{self.name}")
        return value  # type: ignore[no-any-return]

    def __set__(self, instance: object, value: Value) -> None:
        setattr(instance, f"_{self.name}", self.check(self.name, value))


class Number(Setting[float]):
    """A number in [low, high]."""

    def __init__(self, low: float = -math.inf, high: float = math.inf) -> None:
        super().__init__(partial(check_number, low=low, high=high))
        self.low, self.high = low, high


class Choice(Setting[str]):
    """One of the given words."""

    def __init__(self, *words: str) -> None:
        super().__init__(partial(check_choice, allowed=words))
        self.words = words


def _shown(value: object) -> str:
    """A value as it was written, an array by its shape."""
    shape = getattr(value, "shape", None)
    if shape is None or shape == ():
        return repr(value)
    return f"{'a tensor' if hasattr(value, 'detach') else 'an array'} of shape {tuple(shape)}"


# Numbers in messages, tables and pages.


def number(value: float | int | None, digits: int = 3) -> str:
    """A number as a person writes it; a dash for what is not known.

    >>> number(0.12345), number(12345.6), number(1e-7), number(12), number(None), number(1e30)
    ('0.123', '12,346', '1e-7', '12', '–', '1e30')
    >>> number(99.4, 2), number(123.4, 2), number(-0.0)
    ('99', '123', '0')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if 10**digits - 0.5 <= abs(value) < 1e7:  # where so many digits would be written as 1e3
        return f"{value:,.0f}"
    mantissa, exponential, exponent = f"{value + 0.0:.{digits}g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if exponential else mantissa


def percent(share: float | None, digits: int = 3) -> str:
    """A share of one in per cent; whole per cents keep all their digits. Ten and more are times.

    >>> [percent(share).replace("\N{NO-BREAK SPACE}", "_") for share in (0.98765, 1.2e-4)]
    ['98.8_%', '0.012_%']
    >>> [percent(share, 2).replace("\N{NO-BREAK SPACE}", "_") for share in (0.98765, 0.996, 1.234)]
    ['99_%', '100_%', '123_%']
    >>> percent(20.09, 2)
    '20 times'
    """
    if share is None or math.isnan(share):
        return "–"
    if share >= 10:
        return f"{number(float(share), digits)} times"
    return f"{number(100 * float(share), digits)}\N{NO-BREAK SPACE}%"


# Text from outside, made safe to show: characters that act on a terminal or page are spelled out.

# Marks that turn the direction of what follows: "exe.\u202egpj" would read "exe.jpg".
_TURNS = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_CONTROLS = [c for c in (*range(0x20), *range(0x7F, 0xA0)) if chr(c) not in "\t\n\r"]
_SHOWN = {code: f"[U+{code:04X}]" for code in (*_TURNS, *_CONTROLS)}


def visible(text: str) -> str:
    """The text with direction marks and control characters replaced by their code points.

    >>> visible("photo\\u202egpj.exe"), visible("\\x1b[2J")
    ('photo[U+202E]gpj.exe', '[U+001B][2J')
    """
    return text.translate(_SHOWN)
