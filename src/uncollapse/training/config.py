"""What a run is made of: a TOML file, checked key by key, and `--set a.b=c` on top of it."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from uncollapse._base.check import InputError

__all__ = [
    "BatchConfig",
    "Config",
    "DataConfig",
    "DistributedConfig",
    "EvaluateConfig",
    "GuardConfig",
    "LossConfig",
    "MiningConfig",
    "ModelConfig",
    "OptimiserConfig",
    "TrainConfig",
    "apply_overrides",
    "load_config",
    "parse_config",
    "read_toml",
]

Positives = Literal["easy", "inside", "hard", "semihard", "random", "all", "multi_similarity"]
Negatives = Literal["hard", "semihard", "random", "distance", "multi_similarity", "easy", "all"]
LossName = Literal[
    "triplet", "margin", "contrastive", "multi-similarity", "proxy-nca", "n-pair", "sup-con"
]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


class DataConfig(_Section):
    """`[data]`: which samples. `labels = "fine"` trains on the fine labels instead."""

    name: str = "mnist-parity"
    root: str | None = None
    train_split: str = "train"
    eval_splits: list[str] = ["test"]
    labels: Literal["coarse", "fine"] = "coarse"
    size: int | None = Field(None, ge=1)
    channels: Literal[1, 3] | None = None
    augment: Literal["none", "paper"] = "none"
    strict: bool = False
    workers: int = Field(0, ge=0)


class ModelConfig(_Section):
    """`[model]`: the network and its embedding dimension."""

    backbone: str = "mnist-cnn"
    dim: int = Field(128, ge=1)
    normalize: bool = False
    hidden: list[int] = [512]
    weights: str | None = None
    freeze_bn: bool = False
    init: Literal["hnm", "eps"] = "hnm"


class BatchConfig(_Section):
    """`[batch]`: P classes of K samples (`pk`), or `size` samples drawn at random (`uniform`)."""

    sampler: Literal["pk", "uniform"] = "pk"
    p: int = Field(8, ge=1)
    k: int = Field(4, ge=1)
    size: int = Field(128, ge=2)


class MiningConfig(_Section):
    """`[mining]`: which positives, which negatives, and among how many (`pool`).

    With neither named, the triplet loss mines easy positives and semi-hard negatives, and the other
    losses charge all their tuples. With one named, the other is `easy` or `semihard`. The pool
    grows from `pool_start`, if set, to `pool` (or the whole batch) over `pool_steps`.

    `scope` matters on several ranks: `global` mines and charges the whole batch as one process
    would, `rank` each rank's share by itself, and takes the mean of the ranks' losses.
    """

    positives: Positives | None = None
    negatives: Negatives | None = None
    pool: int | None = Field(None, ge=2)
    pool_start: int | None = Field(None, ge=2)
    pool_steps: int = Field(1000, ge=1)
    margin: float | None = Field(None, ge=0)
    epsilon: float = Field(0.1, ge=0)
    scope: Literal["global", "rank"] = "global"


class GuardConfig(_Section):
    """`[guard]`: what to do about collapse: nothing, `warn`, `stop` the run, or `rescue` it."""

    action: Literal["off", "warn", "stop", "rescue"] = "warn"
    every: int = Field(50, ge=1)
    tolerance: float = Field(0.02, ge=0)
    probation: int = Field(200, ge=1)


class LossConfig(_Section):
    """`[loss]`: what the tuples cost. Keys left out take the loss's own default.

    `trim` keeps that share of the cheapest tuples (EPS appendix C), of `trim_on` kind.
    """

    name: LossName = "triplet"
    margin: float | None = Field(None, ge=0)
    soft: bool | None = None
    scale_free: bool | None = None
    normalize: bool | None = None
    reduction: Literal["mean", "nonzero", "max"] | None = None
    alpha: float | None = None
    beta: float | None = None
    base: float | None = None
    beta_per: Literal["global", "class", "sample"] | None = None
    learn_beta: bool | None = None
    nu: float | None = Field(None, ge=0)
    scale: float | None = Field(None, gt=0)
    per_class: int | None = Field(None, ge=1)
    l2: float | None = Field(None, ge=0)
    temperature: float | None = Field(None, gt=0)
    trim: float | None = Field(None, gt=0, le=1)
    trim_on: Literal["all", "positives"] = "all"


class OptimiserConfig(_Section):
    """`[optimiser]`: the optimiser, its learning-rate schedule and gradient clipping."""

    name: Literal["adam", "adamw", "sgd"] = "adam"
    lr: float = Field(1e-3, gt=0)
    loss_lr: float | None = Field(None, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    schedule: Literal["constant", "cosine", "step"] = "constant"
    warmup: int = Field(0, ge=0)
    decay_every: int = Field(1000, ge=1)
    decay: float = Field(0.1, gt=0, le=1)
    clip: float | None = Field(None, gt=0)


class EvaluateConfig(_Section):
    """`[evaluate]`: what is measured on each evaluation split."""

    ks: list[int] = [1, 2, 4, 8]
    clustering: bool = False
    multiplier: int = Field(1, ge=1)
    max_samples: int | None = Field(None, ge=2)
    batch: int = Field(256, ge=1)

    @model_validator(mode="after")
    def _whole_positive(self) -> EvaluateConfig:
        if not self.ks or min(self.ks) < 1:
            raise ValueError("ks must be whole numbers of at least 1")
        return self


class TrainConfig(_Section):
    """`[train]`: how long, how often to look, and on what."""

    steps: int = Field(1000, ge=1)
    log_every: int = Field(10, ge=1)
    evaluate_every: int = Field(200, ge=1)
    checkpoint_every: int = Field(100, ge=1)
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    device: str = "auto"
    threads: int | None = Field(None, ge=1)
    tensorboard: Literal["auto", "off"] = "auto"


class DistributedConfig(_Section):
    """`[distributed]`: several ranks; `timeout` is the seconds one waits for one that hangs."""

    timeout: float = Field(1800.0, gt=0)


class Config(_Section):
    """A whole run. Every key has a default; unknown keys and impossible values are refused.

    >>> Config().batch.p
    8
    """

    seed: int = Field(0, ge=0, lt=2**63)
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    batch: BatchConfig = BatchConfig()
    mining: MiningConfig = MiningConfig()
    loss: LossConfig = LossConfig()
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
        """The resolved config as TOML; keys that are unset are left out."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


def load_config(path: str | Path, overrides: Iterable[str] = ()) -> Config:
    """Read a TOML file, apply `a.b=c` overrides, and check the result."""
    return parse_config(apply_overrides(read_toml(path), overrides))


def read_toml(path: str | Path) -> dict[str, Any]:
    """What a TOML file holds; an error names the file and where it goes wrong."""
    file = Path(path)
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InputError(str(file), f"{error}", "a valid TOML file") from None
    except UnicodeDecodeError:
        raise InputError(str(file), "a file that is not UTF-8 text", "a TOML file") from None


def apply_overrides(values: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Set dotted keys: `mining.positives=easy`, `batch.p=18`, `evaluate.ks=[1,5]`.

    The value is read as TOML, and as plain text where it is none.

    >>> apply_overrides({"batch": {"p": 4}}, ["batch.p=18", "model.backbone=conv2"])
    {'batch': {'p': 18}, 'model': {'backbone': 'conv2'}}
    """
    result = {key: dict(v) if isinstance(v, Mapping) else v for key, v in values.items()}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise InputError("--set", repr(override), "key=value, such as mining.positives=easy")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text.strip()
        *sections, last = key.strip().split(".")
        place: dict[str, Any] = result
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise InputError("--set", repr(key), f"{section} to be a section, not a value")
        place[last] = value
    return result


def parse_config(values: Mapping[str, Any]) -> Config:
    """Check nested values; an error names the key, what was given and what is allowed.

    >>> parse_config({"mining": {"positives": "esy"}})
    Traceback (most recent call last):
    uncollapse._base.check.InputError: mining.positives: expected 'easy', 'inside', 'hard',
    'semihard', 'random', 'all' or 'multi_similarity', got 'esy'
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise _explain(error) from None


def _explain(error: ValidationError) -> InputError:
    """The first thing that is wrong, in the project's form."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        allowed = _keys_beside(first["loc"])
        near = difflib.get_close_matches(str(first["loc"][-1]), allowed, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        return InputError(key, f"a key that does not exist{hint}", "one of " + ", ".join(allowed))
    expected = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    given = first["input"]
    return InputError(key, repr(given) if not isinstance(given, BaseModel) else "these", expected)


def _keys_beside(loc: tuple[int | str, ...]) -> list[str]:
    model: Any = Config
    for part in loc[:-1]:
        annotation = model.model_fields[str(part)].annotation
        model = next((a for a in get_args(annotation) if a is not type(None)), annotation)
    return list(model.model_fields)
