"""What is wrong with a config, all of it at once, in the words of the one who wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from uncollapse._base.check import InputError, did_you_mean

__all__ = ["WrongKeysError", "explain"]

# What pydantic's kinds of error mean; the rest say it themselves.
_EXPECTED = {
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "string": "text",
    "finite_number": "a finite number",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "literal_error": "{expected}",
    "union_tag_invalid": "one of {expected_tags}",
    "model": "a section of keys",
    "value_error": "{error}",
}
_WORDS = ("literal_error", "union_tag_invalid")  # kinds that list what is allowed
_LONGEST = 80  # characters shown of a wrong value


class WrongKeysError(InputError):
    """Several keys of a config that cannot be used; `errors` has each."""

    def __init__(self, errors: Sequence[InputError]) -> None:
        lines = "".join(f"\n- {error}" for error in errors)
        ValueError.__init__(self, f"{len(errors)} keys are wrong:{lines}")
        self.errors = tuple(errors)


def explain(error: ValidationError, config: type[BaseModel]) -> InputError:
    """Each wrong key with its path, what was given, what is allowed and what may be meant."""
    found = [_explained(one, config) for one in error.errors(include_url=False)]
    return found[0] if len(found) == 1 else WrongKeysError(found)


def _explained(error: Any, config: type[BaseModel]) -> InputError:
    path, section, name = _place(error["loc"], config)
    kind, given = error["type"], error["input"]
    if kind == "extra_forbidden":
        return _no_such_key(path, section, name, config)
    context = {k: f"{v:g}" if isinstance(v, float) else v for k, v in error.get("ctx", {}).items()}
    if kind == "union_tag_invalid":
        path, given = [*path, "name"], context["tag"]
    known = _EXPECTED.get(kind) or _EXPECTED.get(kind.split("_")[0])
    allowed = known.format(**context) if known else error["msg"].removeprefix("Input should be ")
    words = re.findall(r"'([^']+)'", allowed) if kind in _WORDS else []
    if words and name:
        allowed += f" for {name}"
    return InputError(".".join(path), _shown(given) + _meant(str(given), words), allowed)


def _no_such_key(
    path: list[str], section: type[BaseModel], name: str | None, config: type[BaseModel]
) -> InputError:
    *inside, key = path
    has = [(at, one) for at, one in _sections(config) if key in one.model_fields]
    siblings = [one.model_fields["name"].default for at, one in has if [at] == inside]
    what = f"a key of {', '.join(siblings)}" if siblings else "a key that does not exist"
    keys = list(section.model_fields)
    near = _meant(key, keys) or _meant(key, [f"{at}.{key}" for at, _ in has if [at] != inside])
    allowed = (f"a key of {name}: " if name else "one of ") + ", ".join(keys)
    return InputError(".".join(path), what + near, allowed)


def _meant(given: str, words: Sequence[str]) -> str:
    moved = list(dict.fromkeys(word for word in words if word.endswith(f".{given}")))
    if not moved:
        return did_you_mean(given, words)
    return f" (did you mean {' or '.join(map(repr, moved))}?)"


def _shown(given: object) -> str:
    text = repr(given)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _place(
    loc: tuple[int | str, ...], config: type[BaseModel]
) -> tuple[list[str], Any, str | None]:
    """The key's path as it is written, its section, and that one's name if it is one of several."""
    path: list[str] = []
    name: str | None = None
    section: Any = config
    rest = list(loc)
    while rest:
        key = str(rest.pop(0))
        path.append(key)
        kinds = _kinds(section, key)
        if len(kinds) > 1 and rest:  # of several sections, the next word names the one
            name = str(rest.pop(0))
            kinds = [kind for kind in kinds if kind.model_fields["name"].default == name]
        section = kinds[0] if kinds and rest else section
    return path, section, name


def _sections(config: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    for key in config.model_fields:
        for kind in _kinds(config, key):
            yield key, kind


def _kinds(section: Any, key: str) -> list[type[BaseModel]]:
    """The sections that a key may be."""
    field = section.model_fields.get(key)
    kinds = [] if field is None else get_args(field.annotation) or (field.annotation,)
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
