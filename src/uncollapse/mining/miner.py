"""Which tuples a loss sees: a choice of positives and, independently, a choice of negatives."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, points
from uncollapse._base.check import InputError, check_choice, check_int, check_number
from uncollapse._base.classes import ClassLayout
from uncollapse.mining._at_once import at_once
from uncollapse.mining._batch import Batch
from uncollapse.mining._compose import compose
from uncollapse.mining.negatives import FALLBACKS, NEGATIVES, Settings
from uncollapse.mining.positives import POSITIVES
from uncollapse.mining.triplets import Triplets

__all__ = ["Miner", "NoTripletsWarning"]

_KEEP = ("all", "violating", "hard", "semihard")


class NoTripletsWarning(UserWarning):
    """A batch gave no triplet; the message says why. Given once a miner and reason."""


@dataclass
class Miner:
    """Choose triplets of a batch: which positives, and independently which negatives.

    Distances are Euclidean between the embeddings as given (normalise them first if the loss does);
    `distance` and `multi_similarity` measure on the unit sphere, as their papers do. The choice is
    the one float64 differences would make, at any spread and around any centre; of equals the
    lowest index is taken. No gradient is tracked.

    **How the two compose.** Each anchor gets its positives; each (anchor, positive) pair gets its
    negatives. Only `inside` turns this round: the negatives are chosen as for the nearest positive,
    and each (anchor, negative) gets its positive. Anchors without a positive or a negative are left
    out; a batch without a triplet gives empty tensors and, once, a `NoTripletsWarning`.

    `positives`, with the drift each has (`drift > 0` shrinks the embedding; for a triplet hinge it
    is the mean of d_ap − d_an over active triplets):

    - `"easy"`: the nearest of the anchor's class, never the anchor (EPS §4.3). Keeps the modes of a
      class apart; with any negatives the least shrinking choice. Start here.
    - `"inside"`: the farthest that is still nearer than the negative, else the nearest: as hard as
      a positive can be without pulling the embedding together. For classes of one mode.
    - `"hard"`: the farthest. With hard negatives this is batch-hard, whose drift is positive
      whenever the farthest positive is beyond the nearest negative: it collapses networks (HNM).
    - `"semihard"`: a random one among those farther than the nearest negative, else any random one:
      what the baselines of EPS do (Roth & Brattoli's framework). Positive drift, less than `hard`.
    - `"random"`: uniform. The "regular" loss of EPS §5.1; pulls the modes of a class together.
    - `"all"`: every one. As `random`, with K − 1 times the triplets.
    - `"multi_similarity"`: those with s_ap < max s_an + epsilon (Wang et al. 2019): hard positives.

    `negatives`:

    - `"hard"`: the nearest. Strongest signal and, with hard positives, the one that collapses.
    - `"semihard"`: the nearest with d_ap < d_an < d_ap + margin (FaceNet). Its drift is never
      positive. Where that window is empty, `fallback` says what is done.
    - `"random"`: uniform. Soon most triplets are inactive.
    - `"distance"`: random with probability inverse to how common that distance is on the sphere
      (Wu et al. 2017), distances below `cutoffs[0]` counting as that, negatives beyond `cutoffs[1]`
      never chosen. Spreads over all distances: made for the margin loss.
    - `"multi_similarity"`: all with s_an > min s_ap − epsilon (Wang et al. 2019).
    - `"easy"`: the farthest. For ablations.
    - `"all"`: every one: N² K triplets in all.

    Args:
        pool: each anchor mines among a random `pool` of the other rows, not all. Collapse grows
            with the number mined over (HNM §3.3): a large batch with a small pool has the drift of
            a small batch. The expected share of positives is the batch's; one positive and one
            negative are always kept.
        margin: the width of the semi-hard window; also used by `keep`.
        epsilon: the slack of `multi_similarity`, in cosine.
        generator: source of all random choices; None is torch's default generator. The same
            generator state and input give the same triplets, on any number of threads.
        fallback: for an empty semi-hard window: `"nearest-outside"`: the nearest negative beyond
            the positive, whatever the margin, and no triplet where there is none (as in PML);
            `"farthest"`: as before, but the farthest negative where there is none (TensorFlow
            Addons; drift > 0 there); `"skip"`: no triplet, so the window is strict (FaceNet).
        cutoffs: for `distance`; 0.5 and 1.4 are the paper's.
        keep: which of the triplets are given back: `"all"`; `"violating"`: d_an < d_ap + margin;
            `"hard"`: d_an <= d_ap; `"semihard"`: d_ap < d_an < d_ap + margin. With positives and
            negatives `"all"` this is PML's `TripletMarginMiner`.

    >>> z = torch.tensor([[0.0], [1.0], [5.0], [2.0], [9.0]])
    >>> labels = torch.tensor([0, 0, 0, 1, 1])
    >>> Miner("easy", "hard")(z, labels)
    Triplets(anchor=tensor([0, 1, 2, 3, 4]), positive=tensor([1, 0, 1, 4, 3]),
             negative=tensor([3, 3, 3, 1, 2]))
    >>> Miner("inside", "easy")(z, labels).positive
    tensor([2, 2, 1, 4, 3])
    """

    positives: str = "easy"
    negatives: str = "semihard"
    pool: int | None = None
    margin: float = 0.2
    epsilon: float = 0.1
    generator: torch.Generator | None = None
    fallback: str = "nearest-outside"
    cutoffs: tuple[float, float] = (0.5, 1.4)
    keep: str = "all"
    _warned: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_choice("positives", self.positives, POSITIVES)
        check_choice("negatives", self.negatives, NEGATIVES)
        check_choice("fallback", self.fallback, FALLBACKS)
        check_choice("keep", self.keep, _KEEP)
        check_number("margin", self.margin, 0.0)
        check_number("epsilon", self.epsilon, 0.0)
        if self.pool is not None:
            check_int("pool", self.pool, 2)
        low, high = self.cutoffs
        if not 0.0 < check_number("cutoffs", low) < check_number("cutoffs", high):
            raise InputError("cutoffs", self.cutoffs, "two numbers, 0 < first < second")

    def __call__(self, embeddings: Tensor, labels: ArrayLike) -> Triplets:
        """Triplets of the rows of `embeddings` `[N, dim]` with their `labels` `[N]`."""
        x = points(embeddings.detach(), "embeddings").contiguous()
        layout = ClassLayout.of(labels, len(x))
        if not layout.usable.any():
            return self._nothing(_why_unusable(layout), x.device)
        settings = Settings(self.margin, self.epsilon, self.fallback, self.cutoffs)
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            batch = Batch(x, layout, self.generator)
            choice = self.positives, self.negatives
            whole = at_once(*choice, batch, settings) if self.pool is None else None
            if whole is None:
                blocks = batch.blocks(self.pool)
                parts = [self._kept(batch, compose(*choice, block, settings)) for block in blocks]
                triplets = Triplets(*(torch.cat(index) for index in zip(*parts, strict=True)))
            else:
                triplets = self._kept(batch, whole)
        return triplets if len(triplets.anchor) else self._nothing(self._why_empty(), x.device)

    def _kept(self, batch: Batch, triplets: Triplets) -> Triplets:
        if self.keep == "all":
            return triplets
        frame = batch.plain
        near = frame.squares(triplets.anchor, triplets.positive).sqrt() * frame.scale
        far = frame.squares(triplets.anchor, triplets.negative).sqrt() * frame.scale
        kept = far <= near if self.keep == "hard" else far < near + self.margin
        if self.keep == "semihard":
            kept &= far > near
        return Triplets(*(index[kept] for index in triplets))

    def _nothing(self, why: str, device: torch.device) -> Triplets:
        if why not in self._warned:
            self._warned.add(why)
            warnings.warn(f"no triplets: {why}", NoTripletsWarning, stacklevel=3)
        return Triplets(*(torch.empty(0, dtype=torch.int64, device=device) for _ in range(3)))

    def _why_empty(self) -> str:
        if self.keep != "all":
            return f"no triplet is {self.keep!r} (keep) with margin {self.margin:g}"
        if self.negatives == "semihard":
            strict = f" < d_ap + {self.margin:g}" if self.fallback == "skip" else ""
            return f"semi-hard window empty for all anchors (no negative with d_ap < d_an{strict})"
        if self.negatives == "distance":
            return f"every negative is beyond the cutoff {self.cutoffs[1]:g} on the unit sphere"
        return f"every anchor's classes are more than epsilon {self.epsilon:g} apart in cosine"


def _why_unusable(layout: ClassLayout) -> str:
    if layout.size == 1:
        return "the batch has one sample"
    if len(layout.classes) == 1:
        return f"all {layout.size} samples have one label"
    return f"no label occurs twice among the {layout.size} samples"
