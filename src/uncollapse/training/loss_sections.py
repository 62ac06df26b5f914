"""`[loss]`: one section for each loss, whose keys are the loss's own, with its bounds and defaults.

A new loss is added here, and to `AnyLoss`; a test holds each section to the signature of its loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator
from torch import Generator, nn

from uncollapse import losses
from uncollapse.losses import CrossBatchMemory, IdentityLoss, Loss, MultipleLosses, TrimmedLoss
from uncollapse.losses.identity import NECKS
from uncollapse.losses.memory import REFERENCES, remembers
from uncollapse.losses.spread import STAND_INS
from uncollapse.training.section_base import OneOf, Section

__all__ = [
    "LOSSES",
    "REGULARISERS",
    "AnyLoss",
    "ArcFaceConfig",
    "CircleConfig",
    "ContrastiveConfig",
    "CosFaceConfig",
    "LossConfig",
    "MarginConfig",
    "MultiSimilarityConfig",
    "NPairConfig",
    "NTXentConfig",
    "ProxyAnchorConfig",
    "ProxyNCAConfig",
    "SmoothAPConfig",
    "SoftTripleConfig",
    "SpreadConfig",
    "SupConConfig",
    "TrainingSize",
    "TripletConfig",
]

Distance = Literal["euclidean", "squared", "cosine"]


@dataclass(frozen=True)
class TrainingSize:
    """What a loss with parameters of its own must know: how many, and what they start from.

    `unit` says that the network ends in a normalisation.
    """

    classes: int
    samples: int
    dim: int
    generator: Generator | None = None
    unit: bool = False


def _spread(directions: bool, size: TrainingSize) -> Loss:
    return losses.VarianceCovarianceLoss(normalize=directions)


def _volume(directions: bool, size: TrainingSize) -> Loss:
    return losses.CodingRateLoss()  # always of directions, as published


def _gaussian(directions: bool, size: TrainingSize) -> Loss:
    return losses.SIGRegLoss(normalize=directions, generator=size.generator)


# Each made for what the loss beside it sees: rows, or their directions alone.
REGULARISERS: Mapping[str, Callable[[bool, TrainingSize], Loss]] = {
    "variance-covariance": _spread,
    "coding-rate": _volume,
    "sigreg": _gaussian,
}


class LossConfig(Section):
    """What every loss has: `trim` keeps that share of the cheapest tuples (EPS appendix C).

    `trim_on` says which tuples are trimmed. `memory` is the number of the newest embeddings to
    compare with, `losses.CrossBatchMemory`, from the step `memory_after` on. `id_weight` is the
    weight of the cross-entropy of a classifier, `losses.IdentityLoss`, over all samples.
    `regulariser` adds `regulariser_weight` of one; it sees directions alone where the loss does, or
    where the network ends in a normalisation.
    """

    kind: ClassVar[type[Loss]]

    name: str
    trim: float | None = Field(None, gt=0, le=1)
    trim_on: Literal["all", "positives"] = "all"
    memory: int = Field(0, ge=0)
    memory_after: int = Field(0, ge=0)
    memory_references: Annotated[str, OneOf(REFERENCES)] = "moving"
    id_weight: float = Field(0.0, ge=0)
    id_neck: Annotated[str, OneOf(NECKS)] = "none"
    label_smoothing: float = Field(0.0, ge=0, le=1)
    regulariser: Annotated[str, OneOf(("none", *REGULARISERS))] = "none"
    regulariser_weight: float = Field(0.1, ge=0)

    @field_validator("id_neck", "label_smoothing")
    @classmethod
    def _of_a_classifier(cls, value: str | float, info: ValidationInfo) -> str | float:
        off = cls.model_fields[str(info.field_name)].default
        if value != off and info.data.get("id_weight") == 0:
            raise ValueError(f"{off!r} where loss.id_weight is 0")
        return value

    @field_validator("regulariser_weight")
    @classmethod
    def _of_a_regulariser(cls, value: float, info: ValidationInfo) -> float:
        off = cls.model_fields["regulariser_weight"].default
        if value != off and info.data.get("regulariser") == "none":
            raise ValueError(f"{off!r} where loss.regulariser is 'none'")
        return value

    @field_validator("memory")
    @classmethod
    def _compares_rows(cls, value: int) -> int:
        if value and not remembers(cls.kind):
            raise ValueError("0: this loss compares no rows with rows")
        return value

    @field_validator("memory_after", "memory_references")
    @classmethod
    def _of_a_memory(cls, value: int | str, info: ValidationInfo) -> int | str:
        off = cls.model_fields[str(info.field_name)].default
        if value != off and info.data.get("memory") == 0:
            raise ValueError(f"{off!r} where loss.memory is 0")
        return value

    def build(self, miner: nn.Module | None, size: TrainingSize) -> Loss:
        """The loss, trimmed, with a memory, a classifier and a regulariser if asked."""
        options = self.model_dump(exclude=set(LossConfig.model_fields))
        loss = self.kind(**options, **self.sized(size), miner=miner)
        if self.trim is not None:
            loss = TrimmedLoss(loss, fraction=self.trim, on=self.trim_on)
        if self.memory:
            loss = CrossBatchMemory(
                loss, self.memory, after=self.memory_after, references=self.memory_references
            )
        if self.id_weight > 0:
            loss = IdentityLoss(
                loss,
                num_classes=size.classes,
                dim=size.dim,
                weight=self.id_weight,
                label_smoothing=self.label_smoothing,
                neck=self.id_neck,
                generator=size.generator,
            )
        if self.regulariser == "none":
            return loss
        more = REGULARISERS[self.regulariser](self.normalizes or size.unit, size)
        return MultipleLosses([loss, more], weights=[1.0, self.regulariser_weight])

    def sized(self, size: TrainingSize) -> dict[str, Any]:
        """The arguments of the loss that are no keys: they follow from the training data."""
        return {}

    @property
    def mining_margin(self) -> float:
        """The margin of a miner that is given none: the loss's, or 0.2 where it has none."""
        return 0.2

    @property
    def hinge_margin(self) -> float | None:
        """The margin of the plain triplet hinge, HNM (4), or None if the loss is another one."""
        return None

    @property
    def normalizes(self) -> bool:
        """Whether the loss sees directions only; a section without a key for it always does."""
        return bool(getattr(self, "normalize", True)) or getattr(self, "distance", "") == "cosine"

    @property
    def wants_sample_ids(self) -> bool:
        """Whether each sample has a parameter of its own."""
        return False


class TripletConfig(LossConfig):
    """`name = "triplet"`: `losses.TripletLoss`."""

    kind = losses.TripletLoss

    name: Literal["triplet"] = "triplet"
    margin: float = Field(0.2, ge=0)
    soft: bool = False
    scale_free: bool | Literal["mean", "hardest-negative"] = False
    normalize: bool = False
    reduction: Annotated[str, OneOf(losses.TripletLoss.reductions)] = "mean"
    distance: Distance = "euclidean"
    swap: bool = False

    @field_validator("distance")
    @classmethod
    def _scale_free_is_euclidean(cls, value: str, info: ValidationInfo) -> str:
        if value != "euclidean" and info.data.get("scale_free"):
            raise ValueError("'euclidean' where loss.scale_free is set")
        return value

    @property
    def mining_margin(self) -> float:
        """Its own."""
        return self.margin

    @property
    def hinge_margin(self) -> float | None:
        """Its own, if nothing but the margin is changed."""
        changed = self.soft or self.scale_free or self.normalize or self.swap
        return None if changed or self.distance != "euclidean" else self.margin


class MarginConfig(LossConfig):
    """`name = "margin"`: `losses.MarginLoss`."""

    kind = losses.MarginLoss

    name: Literal["margin"] = "margin"
    margin: float = Field(0.2, ge=0)
    beta: float = 1.2
    beta_per: Literal["global", "class", "sample"] = "global"
    learn_beta: bool = True
    nu: float = Field(0.0, ge=0)
    normalize: bool = False
    reduction: Annotated[str, OneOf(losses.MarginLoss.reductions)] = "nonzero"

    def sized(self, size: TrainingSize) -> dict[str, Any]:
        """How many β there are."""
        return {"size": {"class": size.classes, "sample": size.samples}.get(self.beta_per)}

    @property
    def mining_margin(self) -> float:
        """Its own."""
        return self.margin

    @property
    def wants_sample_ids(self) -> bool:
        """With one β per sample."""
        return self.beta_per == "sample"


class ContrastiveConfig(LossConfig):
    """`name = "contrastive"`: `losses.ContrastiveLoss`."""

    kind = losses.ContrastiveLoss

    name: Literal["contrastive"] = "contrastive"
    margin: float = Field(1.0, ge=0)
    pos_margin: float = Field(0.0, ge=0)
    normalize: bool = False
    reduction: Annotated[str, OneOf(losses.ContrastiveLoss.reductions)] = "mean"
    distance: Distance = "euclidean"

    @property
    def mining_margin(self) -> float:
        """Its own."""
        return self.margin


class MultiSimilarityConfig(LossConfig):
    """`name = "multi-similarity"`: `losses.MultiSimilarityLoss`."""

    kind = losses.MultiSimilarityLoss

    name: Literal["multi-similarity"] = "multi-similarity"
    alpha: float = Field(2.0, ge=1e-6)
    beta: float = Field(50.0, ge=1e-6)
    base: float = 1.0


class ProxyNCAConfig(LossConfig):
    """`name = "proxy-nca"`: `losses.ProxyNCALoss`."""

    kind = losses.ProxyNCALoss

    name: Literal["proxy-nca"] = "proxy-nca"
    scale: float = Field(3.0, ge=1e-6)
    exclude_positive: bool = True
    per_class: int = Field(1, ge=1)

    def sized(self, size: TrainingSize) -> dict[str, Any]:
        """How many proxies there are, and what they start from."""
        return {"num_classes": size.classes, "dim": size.dim, "generator": size.generator}


class NPairConfig(LossConfig):
    """`name = "n-pair"`: `losses.NPairLoss`."""

    kind = losses.NPairLoss

    name: Literal["n-pair"] = "n-pair"
    normalize: bool = False
    l2: float = Field(0.0, ge=0)


class SupConConfig(LossConfig):
    """`name = "sup-con"`: `losses.SupConLoss`."""

    kind = losses.SupConLoss

    name: Literal["sup-con"] = "sup-con"
    temperature: float = Field(0.1, ge=1e-6)


class ProxyAnchorConfig(LossConfig):
    """`name = "proxy-anchor"`: `losses.ProxyAnchorLoss`."""

    kind = losses.ProxyAnchorLoss

    name: Literal["proxy-anchor"] = "proxy-anchor"
    margin: float = Field(0.1, ge=0)
    alpha: float = Field(32.0, ge=1e-6)

    def sized(self, size: TrainingSize) -> dict[str, Any]:
        """How many proxies there are, and what they start from."""
        return {"num_classes": size.classes, "dim": size.dim, "generator": size.generator}


class CircleConfig(LossConfig):
    """`name = "circle"`: `losses.CircleLoss`."""

    kind = losses.CircleLoss

    name: Literal["circle"] = "circle"
    margin: float = Field(0.4, ge=0, le=1)
    gamma: float = Field(80.0, ge=1e-6)
    reduction: Annotated[str, OneOf(losses.CircleLoss.reductions)] = "mean"


class NTXentConfig(LossConfig):
    """`name = "nt-xent"`: `losses.NTXentLoss`."""

    kind = losses.NTXentLoss

    name: Literal["nt-xent"] = "nt-xent"
    temperature: float = Field(0.07, ge=1e-6)


class ArcFaceConfig(LossConfig):
    """`name = "arcface"`: `losses.ArcFaceLoss`."""

    kind = losses.ArcFaceLoss

    name: Literal["arcface"] = "arcface"
    margin: float = Field(0.5, ge=0, le=math.pi / 2)
    scale: float = Field(64.0, ge=1e-6)
    sub_centers: int = Field(1, ge=1)

    def sized(self, size: TrainingSize) -> dict[str, Any]:
        """How many class vectors there are, and what they start from."""
        return {"num_classes": size.classes, "dim": size.dim, "generator": size.generator}


class CosFaceConfig(LossConfig):
    """`name = "cosface"`: `losses.CosFaceLoss`."""

    kind = losses.CosFaceLoss

    name: Literal["cosface"] = "cosface"
    margin: float = Field(0.35, ge=0, le=2)
    scale: float = Field(64.0, ge=1e-6)
    sub_centers: int = Field(1, ge=1)

    def sized(self, size: TrainingSize) -> dict[str, Any]:
        """How many class vectors there are, and what they start from."""
        return {"num_classes": size.classes, "dim": size.dim, "generator": size.generator}


class SoftTripleConfig(LossConfig):
    """`name = "soft-triple"`: `losses.SoftTripleLoss`."""

    kind = losses.SoftTripleLoss

    name: Literal["soft-triple"] = "soft-triple"
    centers_per_class: int = Field(10, ge=1)
    la: float = Field(20.0, ge=1e-6)
    gamma: float = Field(0.1, ge=1e-6)
    margin: float = Field(0.01, ge=0)
    tau: float = Field(0.0, ge=0)

    def sized(self, size: TrainingSize) -> dict[str, Any]:
        """How many centres there are, and what they start from."""
        return {"num_classes": size.classes, "dim": size.dim, "generator": size.generator}


class SmoothAPConfig(LossConfig):
    """`name = "smooth-ap"`: `losses.SmoothAPLoss`."""

    kind = losses.SmoothAPLoss

    name: Literal["smooth-ap"] = "smooth-ap"
    temperature: float = Field(0.01, ge=1e-6)


class SpreadConfig(LossConfig):
    """`name = "spread"`: `losses.SpreadLoss`; runs have no views, `stand_in` takes their place."""

    kind = losses.SpreadLoss

    name: Literal["spread"] = "spread"
    temperature: float = Field(0.5, ge=1e-6)
    alpha: float = Field(0.5, ge=0, le=1)
    stand_in: Annotated[str, OneOf(STAND_INS)] = "nearest"


def _named(given: Any) -> Any:
    """A `[loss]` without a name is the triplet loss's."""
    return {"name": "triplet", **given} if isinstance(given, Mapping) else given


_Sections = (
    TripletConfig
    | MarginConfig
    | ContrastiveConfig
    | MultiSimilarityConfig
    | ProxyNCAConfig
    | NPairConfig
    | SupConConfig
    | ProxyAnchorConfig
    | CircleConfig
    | NTXentConfig
    | ArcFaceConfig
    | CosFaceConfig
    | SoftTripleConfig
    | SmoothAPConfig
    | SpreadConfig
)
AnyLoss = Annotated[
    Annotated[_Sections, Field(discriminator="name")],
    BeforeValidator(_named),
]
LOSSES: dict[str, type[LossConfig]] = {
    section.model_fields["name"].default: section for section in get_args(_Sections)
}
