"""What a run is made of: a TOML file, checked key by key, and `--set a.b=c` on top of it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel, Field, ValidationError

from uncollapse._base.check import InputError, did_you_mean
from uncollapse._base.files import read_toml, write_text
from uncollapse.training.sections import (
    AnyLoss,
    BatchConfig,
    DataConfig,
    DistributedConfig,
    EvaluateConfig,
    GuardConfig,
    MiningConfig,
    ModelConfig,
    OptimiserConfig,
    Section,
    TrainConfig,
    TripletConfig,
)

__all__ = [
    "Config",
    "WrongKeysError",
    "apply_overrides",
    "better_path",
    "explain",
    "load_config",
    "parse_config",
    "save_better_config",
    "with_keys",
]


# What is wrong with a config, all of it at once, in the words of the one who wrote it.

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


# `--set a.b=c`: keys of a config changed from the command line.


def apply_overrides(values: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Nested values with dotted keys set: `batch.p=18`, `evaluate.ks=[1,5]`; a new dictionary.

    The value is read as TOML, and as plain text where it is none. Raises `InputError` for what is
    no `key=value`, and for a key below one that is no section.

    >>> apply_overrides({"batch": {"p": 4}}, ["batch.p=18", "model.backbone=conv2"])
    {'batch': {'p': 18}, 'model': {'backbone': 'conv2'}}
    """
    result = {key: dict(v) if isinstance(v, Mapping) else v for key, v in values.items()}
    for override in overrides:
        key, equals, text = (part.strip() for part in override.partition("="))
        if not equals or not key:
            raise InputError("--set", repr(override), "key=value, such as mining.positives=easy")
        *sections, last = key.split(".")
        place: dict[str, Any] = result
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise InputError("--set", repr(key), f"{section} to be a section, not a value")
        place[last] = _value(text)
    return result


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


class Config(Section):
    """A whole run. Every key has a default; unknown keys and impossible values are refused.

    >>> Config().batch.p
    8
    """

    seed: int = Field(0, ge=0, lt=2**63)
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    batch: BatchConfig = BatchConfig()
    mining: MiningConfig = MiningConfig()
    loss: AnyLoss = TripletConfig()
    guard: GuardConfig = GuardConfig()
    optimiser: OptimiserConfig = OptimiserConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    train: TrainConfig = TrainConfig()
    distributed: DistributedConfig = DistributedConfig()

    def with_root(self, root: str | Path | None) -> Config:
        """The same config with another `data.root`; None leaves it as it is."""
        if root is None:
            return self
        data = self.data.model_copy(update={"root": str(root)})
        return self.model_copy(update={"data": data})

    def to_toml(self) -> str:
        """The config as TOML, as in `to_values`."""
        return tomli_w.dumps(self.to_values())

    def with_changes(self, changes: Mapping[str, Any]) -> Config:
        """The same config with other nested values: `{"batch": {"p": 4}}`.

        With another `loss.name`, the keys that nobody set take the new loss's defaults.
        """
        values = self.to_values()
        for key, change in changes.items():
            inner = isinstance(values.get(key), dict) and isinstance(change, Mapping)
            values[key] = values[key] | change if inner else change
        return parse_config(values)

    def to_values(self) -> dict[str, Any]:
        """Nested values with defaults resolved; keys of the loss that nobody set are left out.

        So `loss.name` can be changed alone, in a run's own config too.
        """
        loss = self.loss.model_dump(exclude_unset=True, exclude_none=True)
        return {**self.model_dump(exclude_none=True), "loss": {"name": self.loss.name, **loss}}

    def value(self, key: str) -> Any:
        """What a dotted key has; None for a key that only another loss has.

        >>> Config().value("batch.p"), Config().value("loss.temperature")
        (8, None)
        """
        found: Any = self
        for part in key.split("."):
            found = getattr(found, part, None)
        return found


def load_config(path: str | Path, overrides: Iterable[str] = ()) -> Config:
    """Read a TOML file, apply `a.b=c` overrides, and check the result, as `parse_config` does.

    Raises `DamagedFileError` for a file that is no TOML.
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


# A config with some keys changed, written beside the file it came from.

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
                line = found["left"] + _better_config_value(left.pop(key)) + found["right"]
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


def _better_config_value(value: Any) -> str:
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
