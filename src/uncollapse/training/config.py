"""The config of a run: a TOML file, checked key by key, and `--set a.b=c` on top of it."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, get_args

import tomlkit
from pydantic import BaseModel, Field, ValidationError

from uncollapse._base.check import InputError, did_you_mean
from uncollapse._base.files import read_toml, write_text
from uncollapse.training import sections
from uncollapse.training.measures import dotted
from uncollapse.training.sections import Section


class Config(Section):
    """A whole run. Every key has a default; unknown keys and impossible values are refused.

    >>> Config().batch.p
    8
    """

    seed: int = Field(0, ge=0, lt=2**63)
    data: sections.DataConfig = sections.DataConfig()
    model: sections.ModelConfig = sections.ModelConfig()
    batch: sections.BatchConfig = sections.BatchConfig()
    mining: sections.MiningConfig = sections.MiningConfig()
    loss: sections.AnyLoss = sections.LOSSES["triplet"]()
    guard: sections.GuardConfig = sections.GuardConfig()
    optimizer: sections.OptimizerConfig = sections.OptimizerConfig()
    evaluate: sections.EvaluateConfig = sections.EvaluateConfig()
    train: sections.TrainConfig = sections.TrainConfig()
    distributed: sections.DistributedConfig = sections.DistributedConfig()

    def with_root(self, root: str | Path | None) -> Config:
        """The same config with another `data.root`; None leaves it as it is."""
        return self if root is None else self.with_changes({"data.root": str(root)})

    def with_changes(self, changes: Mapping[str, Any]) -> Config:
        """The same config with other values: `{"batch": {"p": 4}}` or `{"batch.p": 4}`.

        With another `loss.name`, the keys that nobody set take the new loss's defaults.
        """
        return parse_config(set_keys(self.to_values(), dotted(changes)))

    def to_values(self) -> dict[str, Any]:
        """Nested values with defaults resolved; keys of the loss that nobody set are left out.

        So `loss.name` can be changed alone, in a run's own config too.
        """
        loss = self.loss.model_dump(exclude_unset=True, exclude_none=True)
        return {**self.model_dump(exclude_none=True), "loss": {"name": self.loss.name, **loss}}

    def to_toml(self) -> str:
        """The config as TOML, as in `to_values`."""
        return tomlkit.dumps(self.to_values())

    def flat(self) -> dict[str, Any]:
        """Every key by its dotted name, with values as JSON has them.

        >>> Config().flat()["batch.p"]
        8
        """
        return dotted(self.model_dump(mode="json"))

    def defaults(self) -> dict[str, Any]:
        """What each key of this config is where nobody sets it, with this loss; None for nothing.

        >>> Config().with_changes({"batch": {"p": 3}}).defaults()["batch.p"]
        8
        """
        usual = Config()
        loss = type(self.loss.checked()).model_construct(name=usual.loss.name)
        flat = dotted(usual.model_dump(mode="json") | {"loss": loss.model_dump(mode="json")})
        return {key: flat.get(key) for key in flat | self.flat()}


def load_config(path: str | Path, overrides: Iterable[str] = ()) -> Config:
    """Read a TOML file, apply `a.b=c` overrides, and check the result, as `parse_config` does.

    Raises `DamagedFileError` for a file that is not TOML.
    """
    return parse_config(apply_overrides(read_toml(Path(path)), overrides))


def parse_config(values: Mapping[str, Any]) -> Config:
    """Check nested values; an `InputError` names each wrong key, what was given, what is allowed.

    >>> parse_config({"guard": {"action": "resuce"}})
    Traceback (most recent call last):
    uncollapse._base.check.InputError: guard.action: expected 'off', 'warn', 'stop' or 'rescue',
    got 'resuce' (did you mean 'rescue'?)
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise explain(error, Config) from None


# Dotted keys.


def set_keys(values: dict[str, Any], flat: Mapping[str, Any]) -> dict[str, Any]:
    """Set dotted keys in nested values, in place, and return them.

    Raises `InputError` for a key below one that is not a section.

    >>> set_keys({}, {"batch.p": 2, "batch.k": 4, "seed": 1})
    {'batch': {'p': 2, 'k': 4}, 'seed': 1}
    """
    for key, value in flat.items():
        section: MutableMapping[str, Any] = values
        *parents, last = key.split(".")
        for parent in parents:
            section = section.setdefault(parent, {})
            if not isinstance(section, MutableMapping):
                raise InputError(key, "a key inside a value", f"{parent} to be a section")
        section[last] = value
    return values


def apply_overrides(values: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Nested values with dotted keys set: `batch.p=18`, `evaluate.ks=[1,5]`; a new dictionary.

    A value is read as TOML, or as plain text if it is not TOML. Raises `InputError` for anything
    but `key=value`, and for a key below one that is not a section.

    >>> apply_overrides({"batch": {"p": 4}}, ["batch.p=18", "model.backbone=conv2"])
    {'batch': {'p': 18}, 'model': {'backbone': 'conv2'}}
    """
    return set_keys(copy.deepcopy(dict(values)), _read_overrides(overrides))


def _read_overrides(overrides: Iterable[str]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for override in overrides:
        key, equals, text = (part.strip() for part in override.partition("="))
        if not equals or not key:
            raise InputError("--set", repr(override), "key=value, such as mining.positives=easy")
        try:
            flat[key] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            flat[key] = text
    return flat


# A config with some keys changed, written beside the file it came from.


def better_path(path: Path) -> Path:
    """`run.better.toml` beside `run.toml`; `InputError` where that file exists already."""
    better = path.with_name(f"{path.stem}.better.toml")
    if better.exists():
        allowed = f"no {better.name} beside {path.name}: train it, move it away or delete it"
        raise InputError("--race", str(better), allowed)
    return better


def save_better_config(
    path: Path, changes: Mapping[str, Any], overrides: Iterable[str] = ()
) -> Path:
    """Write the config of `path` beside it, with `a.b=c` overrides and `changes` by dotted keys.

    All other lines, comments among them, stay as they are.
    """
    better = better_path(path)
    document = tomlkit.parse(path.read_text(encoding="utf-8-sig"))
    set_keys(document, {**_read_overrides(overrides), **changes})
    write_text(better, tomlkit.dumps(document))
    return better


# What is wrong with a config, all of it at once.

# What pydantic's kinds of error mean; the others say it themselves.
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
    "union_tag_invalid": f"one of {', '.join(map(repr, sections.LOSSES))} or module.path:Class",
    "model": "a section of keys",
    "missing": "a value",
    "too_short": "at least {min_length} of them",
    "value_error": "{error}",
}
_LISTS_WORDS = ("literal_error", "union_tag_invalid")
_LONGEST = 80  # characters shown of a wrong value


class WrongKeysError(InputError):
    """Several invalid keys in a config; `errors` has one error for each."""

    def __init__(self, errors: Sequence[InputError]) -> None:
        lines = "".join(f"\n- {error}" for error in errors)
        ValueError.__init__(self, f"{len(errors)} keys are wrong:{lines}")
        self.errors = tuple(errors)


def explain(error: ValidationError, config: type[BaseModel]) -> InputError:
    """An error for each wrong key: its path, the value, what is allowed, and a suggestion."""
    errors = [_explained(wrong, config) for wrong in error.errors(include_url=False)]
    return errors[0] if len(errors) == 1 else WrongKeysError(errors)


def _explained(error: Any, config: type[BaseModel]) -> InputError:
    path, section, name = _locate(error["loc"], config)
    key, kind, given = ".".join(path), error["type"], error["input"]
    if kind == "extra_forbidden":
        return _no_such_key(path, section, name, config)
    context = {k: f"{v:g}" if isinstance(v, float) else v for k, v in error.get("ctx", {}).items()}
    if kind == "union_tag_invalid":
        key, given = f"{key}.name", context["tag"]
    known = _EXPECTED.get(kind) or _EXPECTED.get(kind.split("_")[0])
    allowed = known.format(**context) if known else error["msg"].removeprefix("Input should be ")
    words = re.findall(r"'([^']+)'", allowed) if kind in _LISTS_WORDS else []
    if words and name:
        allowed += f" for {name}"
    shown = repr(given)
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
    return InputError(key, shown + did_you_mean(str(given), words), allowed)


def _no_such_key(
    path: list[str], section: type[BaseModel], name: str | None, config: type[BaseModel]
) -> InputError:
    *inside, last = path
    owners = [
        (top, kind)
        for top in config.model_fields
        for kind in _kinds(config, top)
        if last in kind.model_fields
    ]
    siblings = [kind.model_fields["name"].default for top, kind in owners if [top] == inside]
    what = f"a key of {', '.join(siblings)}" if siblings else "a key that does not exist"
    keys = list(section.model_fields)
    elsewhere = list(dict.fromkeys(f"{top}.{last}" for top, _ in owners if [top] != inside))
    hint = did_you_mean(last, keys)
    if not hint and elsewhere:
        hint = f" (did you mean {' or '.join(map(repr, elsewhere))}?)"
    allowed = (f"a key of {name}: " if name else "one of ") + ", ".join(keys)
    return InputError(".".join(path), what + hint, allowed)


def _locate(
    loc: tuple[int | str, ...], config: type[BaseModel]
) -> tuple[list[str], type[BaseModel], str | None]:
    """The key's path as written, its section, and the loss it belongs to, if any."""
    path: list[str] = []
    name, section, kinds = None, config, [config]
    for part in map(str, loc):
        if len(kinds) > 1:  # of several sections, this word names the one
            name = part
            kinds = [kind for kind in kinds if kind.model_fields["name"].default == name]
            continue
        path.append(part)
        section = kinds[0] if kinds else section
        kinds = _kinds(section, part)
    return path, section, name


def _kinds(section: type[BaseModel], key: str) -> list[type[BaseModel]]:
    """The sections that a key may be."""
    field = section.model_fields.get(key)
    kinds = [] if field is None else get_args(field.annotation) or (field.annotation,)
    kinds = [getattr(kind, "__origin__", kind) for kind in kinds]
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
