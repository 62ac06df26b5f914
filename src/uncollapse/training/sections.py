"""The sections of a run's config: their keys, bounds and defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union, get_args

import pydantic
from pydantic import BaseModel, ConfigDict, Discriminator, Field, GetCoreSchemaHandler, Tag
from pydantic_core import CoreSchema, core_schema

from uncollapse._base.extras import is_own
from uncollapse.backbones import HEADS
from uncollapse.data import DATASETS, describe
from uncollapse.data.images import FITS
from uncollapse.integrations.loggers import LOGGERS
from uncollapse.losses import Loss, registry
from uncollapse.losses.base import Choice, Number
from uncollapse.losses.combined import NECKS
from uncollapse.losses.memory import REFERENCES
from uncollapse.losses.registry import always_normalizes, find_loss, loss_settings
from uncollapse.mining.false_negatives import FalseNegatives
from uncollapse.mining.miner import FALLBACKS, KEEP, NEGATIVES, POSITIVES


class Section(BaseModel):
    """Keys with defaults. Unknown keys, invalid values and booleans for numbers are refused.

    A key's validator says what is expected: `raise ValueError("'euclidean' where ...")`.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, str_strip_whitespace=True, allow_inf_nan=False
    )

    @pydantic.model_validator(mode="before")
    @classmethod
    def _truth_is_no_number(cls, given: Any) -> Any:
        """Turn booleans for numbers into text, which is then refused: Python takes True for 1."""
        if not isinstance(given, Mapping):
            return given
        kinds = {key: field.annotation for key, field in cls.model_fields.items()}
        numbers = {key for key, kind in kinds.items() if {int, float} & {kind, *get_args(kind)}}
        wrong = {key for key, value in given.items() if isinstance(value, bool)} & numbers
        return {**given, **{key: str(given[key]).lower() for key in wrong}}


@dataclass(frozen=True)
class OneOf:
    """For `Annotated[str, OneOf(words)]`: a `Literal` whose words another module owns."""

    words: tuple[str, ...]

    def __get_pydantic_core_schema__(
        self, source: type[str], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Accept only these words."""
        return core_schema.literal_schema(list(self.words))


# The sections of a run's config, all but `[loss]`: their keys, bounds and defaults.

AUGMENTATIONS = ("flip", "crop", "colour", "erase")


class DataConfig(Section):
    """`[data]`: which samples, and how images become them.

    `labels = "fine"` trains on the fine labels instead. `size` is `[height, width]`, or one number
    for a square; `middle` the share of height and width that is kept. `augment` is `"none"`,
    `"paper"` or a list of `AUGMENTATIONS`. `pairs` is a file of pairs to verify.
    """

    name: str = "mnist-parity"
    root: str | None = None
    train_split: str = "train"
    eval_splits: list[str] = Field(["test"])
    pairs: str | None = None
    labels: Literal["coarse", "fine"] = "coarse"
    size: int | list[int] | None = None
    fit: Annotated[str, OneOf(FITS)] | None = None
    middle: float | None = Field(None, gt=0, le=1)
    channels: Literal[1, 3] | None = None
    mean: list[float] | None = Field(None, min_length=1)
    std: list[Annotated[float, Field(gt=0)]] | None = Field(None, min_length=1)
    augment: str | list[str] = "none"
    strict: bool = False
    workers: int = Field(0, ge=0)

    @pydantic.field_validator("size", mode="plain")
    @classmethod
    def _pixels(cls, value: Any) -> int | list[int] | None:
        sides = value if isinstance(value, list | tuple) else [value, value]
        whole = len(sides) == 2 and all(type(side) is int and side > 0 for side in sides)
        if value is None or whole:
            return list(value) if isinstance(value, tuple) else value
        raise ValueError("[height, width] or one number for a square, in pixels of at least 1")

    @pydantic.field_validator("augment", mode="plain")
    @classmethod
    def _steps(cls, value: Any) -> str | list[str]:
        if value in ("none", "paper"):
            return str(value)
        names = [value] if isinstance(value, str) else value
        if isinstance(names, list) and all(name in AUGMENTATIONS for name in names):
            return names
        raise ValueError(f"'none', 'paper' or a list of {', '.join(map(repr, AUGMENTATIONS))}")

    @pydantic.model_validator(mode="before")
    @classmethod
    def _queries(cls, given: Any) -> Any:
        """A dataset without `test` that has queries for a gallery is evaluated on those."""
        if not isinstance(given, Mapping) or "eval_splits" in given:
            return given
        name = given.get("name")
        splits = describe(name).splits if name in DATASETS else ()
        searched = "query" in splits and "test" not in splits
        return {**given, "eval_splits": ["query"]} if searched else given


class ModelConfig(Section):
    """`[model]`: the network and its embedding dimension.

    `freeze = true` trains the head alone, a stage's name all that comes after that stage. What is
    frozen is computed once per sample and kept in the cache, unless samples are augmented.
    `head = "pca"` starts at the principal axes of the training samples' features.
    """

    backbone: str = "mnist-cnn"
    dim: int = Field(128, ge=1)
    normalize: bool = False
    hidden: list[int] = Field([512])
    weights: str | None = None
    freeze: bool | str = False
    freeze_bn: bool = False
    head: Annotated[str, OneOf(HEADS)] = "linear"
    init: Literal["hnm", "eps"] = "hnm"


class BatchConfig(Section):
    """`[batch]`: P classes of K samples (`pk`), or `size` samples drawn at random (`uniform`)."""

    sampler: Literal["pk", "uniform"] = "pk"
    p: int = Field(8, ge=1)
    k: int = Field(4, ge=2)
    size: int = Field(128, ge=2)

    @property
    def samples(self) -> int:
        """Samples of a batch, whichever sampler draws it."""
        return self.p * self.k if self.sampler == "pk" else self.size

    @property
    def per_class(self) -> int | None:
        """Samples per class in a batch; None for the uniform sampler."""
        return self.k if self.sampler == "pk" else None


class FalseNegativesConfig(Section):
    """`[mining.false_negatives]`: the rules of `mining.FalseNegatives`; none of them is on."""

    absolute: float | None = Field(None, gt=0)
    relative: float | None = Field(None, gt=0)
    quantile: float | None = Field(None, gt=0, lt=1)
    agreement: float | None = Field(None, ge=0.5, lt=1)
    neighbours: int = Field(3, ge=1)

    def build(self) -> FalseNegatives | None:
        """The filter; None without a rule."""
        rules = self.model_dump(exclude={"neighbours"}, exclude_none=True)
        return FalseNegatives(**rules, neighbours=self.neighbours) if rules else None


class MiningConfig(Section):
    """`[mining]`: the settings of `mining.Miner`.

    With neither named, the triplet loss mines easy positives and semi-hard negatives, and the other
    losses use all their tuples. With one named, the other is `easy` or `semihard`. Without
    `margin` it is the loss's, or 0.2 for a loss that has none.
    """

    positives: Annotated[str, OneOf(POSITIVES)] | None = None
    negatives: Annotated[str, OneOf(NEGATIVES)] | None = None
    pool: int | None = Field(None, ge=2)
    margin: float | None = Field(None, ge=0)
    epsilon: float = Field(0.1, ge=0)
    fallback: Annotated[str, OneOf(FALLBACKS)] = "nearest-outside"
    cutoffs: tuple[float, float] = (0.5, 1.4)
    keep: Annotated[str, OneOf(KEEP)] = "all"
    false_negatives: FalseNegativesConfig = FalseNegativesConfig()


class GuardConfig(Section):
    """`[guard]`: what to do about collapse: nothing, `warn`, `stop` the run, or `rescue` it.

    A rescue lets strategies race for at most a tenth of `train.steps`, unless `race = false`.
    """

    action: Literal["off", "warn", "stop", "rescue"] = "warn"
    every: int = Field(50, ge=1)
    tolerance: float = Field(0.02, ge=0)
    race: bool = True


class OptimizerConfig(Section):
    """`[optimizer]`: the optimiser, its learning-rate schedule and gradient clipping.

    `trunk_lr` is the rate of the backbone below the head, `loss_lr` that of the loss's parameters.
    """

    name: Literal["adam", "adamw", "sgd"] = "adam"
    lr: float = Field(1e-3, gt=0)
    trunk_lr: float | None = Field(None, gt=0)
    loss_lr: float | None = Field(None, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    schedule: Literal["constant", "cosine", "step"] = "constant"
    warmup: int = Field(0, ge=0)
    decay_every: int = Field(1000, ge=1)
    decay: float = Field(0.1, gt=0, le=1)
    clip: float | None = Field(None, gt=0)


class EvaluateConfig(Section):
    """`[evaluate]`: what is measured on each evaluation split.

    Queries that search a gallery with cameras are judged by re-identification.
    """

    ks: list[Annotated[int, Field(ge=1)]] = Field([1, 2, 4, 8], min_length=1)
    clustering: bool = False
    multiplier: int = Field(1, ge=1)
    max_samples: int | None = Field(None, ge=2)
    batch: int = Field(256, ge=1)

    @property
    def clusters(self) -> list[int]:
        """How many clusters per class k-means gets; none without `clustering`."""
        return sorted({1, self.multiplier}) if self.clustering else []


class TrainConfig(Section):
    """`[train]`: steps, intervals, precision, device and loggers."""

    steps: int = Field(1000, ge=1)
    log_every: int = Field(10, ge=1)
    evaluate_every: int = Field(200, ge=1)
    checkpoint_every: int = Field(100, ge=1)
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    device: str = "auto"
    threads: int | None = Field(None, ge=1)
    loggers: list[Annotated[str, OneOf(LOGGERS)]] = Field([])


class DistributedConfig(Section):
    """`[distributed]`: several ranks; `timeout` is the seconds to wait for a rank that hangs."""

    timeout: float = Field(1800.0, gt=0)


# `[loss]`: one section for each loss, whose keys are the loss's own, with its bounds and defaults.


class MemoryConfig(Section):
    """`[loss.memory]`: compare with the newest `size` embeddings, `losses.CrossBatchMemory`.

    It is used from step `after` on.
    """

    size: int = Field(ge=1)
    after: int = Field(0, ge=0)
    references: Annotated[str, OneOf(REFERENCES)] = "moving"


class IdentityConfig(Section):
    """`[loss.identity]`: cross-entropy of a classifier over all samples, `losses.IdentityLoss`."""

    weight: float = Field(1.0, gt=0)
    neck: Annotated[str, OneOf(NECKS)] = "none"
    label_smoothing: float = Field(0.0, ge=0, le=1)


class RegularizerConfig(Section):
    """`[loss.regularizer]`: a regulariser beside the loss.

    It sees directions alone where the loss does, or where the network ends in a normalisation.
    """

    name: Literal["variance-covariance", "coding-rate", "sigreg"]
    weight: float = Field(0.1, ge=0)


class LossConfig(Section):
    """What every loss has: `trim` keeps that share of the cheapest tuples (EPS appendix C).

    `trim_on` says which tuples are trimmed.
    """

    kind: ClassVar[type[Loss]]

    name: str = ""
    trim: float | None = Field(None, gt=0, le=1)
    trim_on: Literal["all", "positives"] = "all"
    memory: MemoryConfig | None = None
    identity: IdentityConfig | None = None
    regularizer: RegularizerConfig | None = None

    def checked(self) -> LossConfig:
        """This section with its loss at hand, which one of your own imports."""
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The keys that are arguments of the loss itself."""
        return self.checked().model_dump(exclude=set(LossConfig.model_fields))

    @property
    def mining_margin(self) -> float:
        """The default margin of the miner: the loss's, or 0.2 if that is not a distance."""
        loss = self.checked()
        return 0.2 if always_normalizes(loss.kind) else getattr(loss, "margin", 0.2)

    @property
    def hinge_margin(self) -> float | None:
        """The margin of the plain triplet hinge, HNM (4), or None if the loss is another one."""
        other_keys = {*LossConfig.model_fields, "margin", "reduction"}
        changed = self.model_dump(exclude=other_keys, exclude_defaults=True)
        return None if changed or self.name != "triplet" else self.mining_margin

    @property
    def normalizes(self) -> bool:
        """Whether the loss sees directions only."""
        loss = self.checked()
        own = getattr(loss, "normalize", False) or getattr(loss, "distance", "") == "cosine"
        return always_normalizes(loss.kind) or own

    @property
    def wants_sample_ids(self) -> bool:
        """Whether each sample has a parameter of its own."""
        return getattr(self, "beta_per", None) == "sample"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name: the classes are generated from the registry."""
        return _loss_section, (self.model_dump(exclude_unset=True) | {"name": self.name},)


class OwnLossConfig(LossConfig):
    """A loss of your own, or of an installed package: nothing is imported to read its keys."""

    model_config = ConfigDict(extra="allow")

    def checked(self) -> LossConfig:
        """The section of its class; imports that, and raises `InputError` for a wrong key."""
        from uncollapse.training.config import explain  # which imports this module

        fields: dict[str, Any] = {"loss": (_section(find_loss(self.name), self.name), ...)}
        config = pydantic.create_model("Config", __base__=Section, **fields)
        try:
            whole: Any = config.model_validate({"loss": self.model_dump(exclude_unset=True)})
        except pydantic.ValidationError as error:
            raise explain(error, config) from None
        return whole.loss  # type: ignore[no-any-return]


def _field(kind: type[Loss], name: str, argument: Parameter) -> Any:
    """A key of a section: the argument's type and default, with the bounds the loss declares."""
    setting, value, default = getattr(kind, name, None), argument.annotation, argument.default
    default = ... if default is argument.empty else default
    if isinstance(setting, Choice):
        return Annotated[str, OneOf(setting.words)], default
    if isinstance(setting, Number):
        low, high = (x if math.isfinite(x) else None for x in (setting.low, setting.high))
        return float, Field(default, ge=low, le=high)
    if value is int and kind in registry.LOSSES.values():
        return int, Field(default, ge=1)
    return Any if value is argument.empty else value, default


def _section(kind: type[Loss], called: str) -> type[LossConfig]:
    """The section of a loss, from what it declares; `called` is its name in a config."""
    fields: dict[str, Any] = {"name": (Literal[called], called)}
    for name, argument in loss_settings(kind).items():
        fields[name] = _field(kind, name, argument)
    section = pydantic.create_model(
        kind.__name__.removesuffix("Loss") + "Config",
        __base__=LossConfig,
        __doc__=f"`name = {called!r}`: `losses.{kind.__name__}`.",
        **fields,
    )
    section.kind = kind
    return section


LOSSES: dict[str, type[LossConfig]] = {
    name: _section(kind, name) for name, kind in registry.LOSSES.items()
}


def _loss_section(values: Mapping[str, Any]) -> LossConfig:
    return LOSSES.get(values["name"], OwnLossConfig)(**values)


def _tag(given: Any) -> str:
    """The name of a `[loss]`, triplet if it has none; "" for one of your own."""
    find = given.get if isinstance(given, Mapping) else partial(getattr, given)
    name = str(find("name", "triplet"))
    return "" if name not in LOSSES and is_own("losses", name) else name


if TYPE_CHECKING:
    AnyLoss = LossConfig
else:
    _TAGGED = {**LOSSES, "": OwnLossConfig}
    AnyLoss = Annotated[
        Union[tuple(Annotated[kind, Tag(tag)] for tag, kind in _TAGGED.items())],  # noqa: UP007
        Discriminator(_tag),
    ]
