"""Which tuples a loss sees: a choice of positives and, independently, a choice of negatives."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, eager, off_graph
from uncollapse._base.check import InputError, check_choice, check_int, check_number
from uncollapse._base.extras import compiled
from uncollapse.distances.batch import Batch, Classes
from uncollapse.distances.frame import on_host
from uncollapse.distances.tiles import BLOCK, short_squares
from uncollapse.mining.blocks import Block, Draws, anchor_blocks
from uncollapse.mining.choices import (
    FALLBACKS,
    NEGATIVES,
    POSITIVES,
    Settings,
    choose_negatives,
    choose_positives,
    inside_positives,
)
from uncollapse.mining.false_negatives import FalseNegatives, leaders, without_false_negatives
from uncollapse.mining.tuples import Triplets

__all__ = ["KEEP", "Miner", "NoTripletsWarning"]


KEEP = ("all", "violating", "hard", "semihard")


class NoTripletsWarning(UserWarning):
    """A batch gave no triplet; the message says why. Given once per miner and reason."""


class Miner(Draws):
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
        pool: each anchor mines among a random `pool` of the other rows (with references or a memory
            of those too), not all. Collapse grows with the number mined over (HNM §3.3): a large
            batch with a small pool has the drift of a small batch. The expected share of positives
            is the batch's; one positive and one negative are always kept.
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
        false_negatives: which negatives are left out, before anything is chosen, because they are
            too near to be true ones; None leaves out nothing.

    >>> z = torch.tensor([[0.0], [1.0], [5.0], [2.0], [9.0]])
    >>> labels = torch.tensor([0, 0, 0, 1, 1])
    >>> Miner("easy", "hard")(z, labels)
    Triplets(anchor=tensor([0, 1, 2, 3, 4]), positive=tensor([1, 0, 1, 4, 3]),
             negative=tensor([3, 3, 3, 1, 2]))
    >>> Miner("inside", "easy")(z, labels).positive
    tensor([2, 2, 1, 4, 3])
    """

    def __init__(
        self,
        positives: str = "easy",
        negatives: str = "semihard",
        *,
        pool: int | None = None,
        margin: float = 0.2,
        epsilon: float = 0.1,
        generator: torch.Generator | None = None,
        fallback: str = "nearest-outside",
        cutoffs: tuple[float, float] = (0.5, 1.4),
        keep: str = "all",
        false_negatives: FalseNegatives | None = None,
    ) -> None:
        super().__init__()
        self._warned: set[str] = set()
        self.positives, self.negatives, self.pool = positives, negatives, pool
        self.margin, self.epsilon, self.generator = margin, epsilon, generator
        self.fallback, self.cutoffs, self.keep = fallback, cutoffs, keep
        self.false_negatives = false_negatives

    def forward(
        self,
        embeddings: ArrayLike,
        labels: ArrayLike,
        ref_emb: ArrayLike | None = None,
        ref_labels: ArrayLike | None = None,
    ) -> Triplets:
        """Triplets of the rows of `embeddings` `[N, dim]` with their `labels` `[N]`.

        With references, anchors are rows of `embeddings`, positives and negatives of `ref_emb`.
        """
        return self.mine(Batch.of(off_graph(embeddings), labels, off_graph(ref_emb), ref_labels))

    @eager
    def mine(self, batch: Batch) -> Triplets:
        """The same of a batch whose frame is known already, as a loss has it."""
        if batch.classes.usable == 0:
            return self._nothing(_why_unusable(batch.classes), batch.rows.device)
        with torch.no_grad(), torch.autocast(batch.rows.device.type, enabled=False):
            triplets = self._compiled(batch) or self._composed(batch)
            if self.keep != "all":
                triplets = self._kept(batch, triplets)
        if len(triplets.anchor):
            return triplets
        return self._nothing(self._why_empty(), batch.rows.device)

    @property
    def sees_all(self) -> bool:
        """Whether every other row may be chosen: no pool, and no filter of false negatives."""
        return self.pool is None and self.false_negatives is None

    def changed(self, **settings: Any) -> Miner:
        """A copy with other settings; the generator is shared.

        >>> Miner("easy", "hard").changed(pool=16)
        Miner(positives='easy', negatives='hard', pool=16)
        """
        return Miner(**{name: getattr(self, name) for name in _DEFAULTS} | settings)

    def extra_repr(self) -> str:
        """Positives, negatives, and every other setting that is not the default."""
        shown = [name for name in _DEFAULTS if getattr(self, name) != _DEFAULTS[name]]
        names = ["positives", "negatives", *(n for n in shown if n not in ("generator",))]
        return ", ".join(f"{n}={getattr(self, n)!r}" for n in dict.fromkeys(names))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, _checked(name, value) if name in _DEFAULTS else value)

    def _composed(self, batch: Batch, rows: Tensor | None = None) -> Triplets:
        """Positives, then negatives for them, a block of anchors at a time."""
        settings = Settings(self.margin, self.epsilon, self.fallback, self.cutoffs)
        parts = [self._compose(block, settings) for block in self._blocks(batch, rows)]
        if not parts:
            return _empty(batch.rows.device)
        return Triplets(*(torch.cat(index) for index in zip(*parts, strict=True)))

    def _blocks(self, batch: Batch, rows: Tensor | None) -> Iterator[Block]:
        """Anchors with what they may choose from: first the filter, then the pool."""
        rules = self.false_negatives
        agreed = None
        if rules is not None and rules.agreement is not None:
            agreed = leaders(batch, rules.neighbours, rules.agreement)
        for block in anchor_blocks(batch, self.generator, rows):
            left = block if rules is None else without_false_negatives(block, rules, agreed)
            if self.pool is not None:
                left.draw(self.pool)
            if len(left.anchors):
                yield left

    def _compose(self, block: Block, settings: Settings) -> Triplets:
        if self.negatives in ("hard", "semihard", "easy"):
            block.plain.products()  # needed anyway: let the positives profit
        rows, column = choose_positives(self.positives, block, settings.epsilon)
        pair, negative = choose_negatives(self.negatives, block, rows, column, settings)
        if pair is not None:
            rows, column = rows[pair], column[pair]
        if self.positives == "inside":
            positive = inside_positives(block, rows, negative)
        else:
            positive = block.at_own(block.own, rows, column)
        return Triplets(block.anchors[rows], positive, negative)

    def _compiled(self, batch: Batch) -> Triplets | None:
        """The common choices by the compiled kernel, its doubts settled here; None without."""
        semihard = self.negatives == "semihard" and self.fallback == "nearest-outside"
        frame, classes = batch.frame, batch.classes
        kernels = compiled.kernels if on_host(batch.rows) else None
        if kernels is None or not self.sees_all or batch.offset or frame.collapsed:
            return None
        if self.positives not in ("easy", "hard") or not (semihard or self.negatives == "hard"):
            return None
        if frame.norms.dtype != torch.float32:
            return None
        n = batch.count
        error = frame.band + frame.band.amax()
        factor = torch.as_tensor(frame.factor, dtype=torch.float64).expand(n).contiguous()
        known = (
            *(x.numpy() for x in (classes.order, classes.low, classes.high)),
            *(x.numpy() for x in (error, frame.norms, frame.given, factor)),
        )
        positive, negative = np.empty(n, np.int64), np.empty(n, np.int64)
        found, doubtful = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        chosen = positive, negative, found, doubtful
        buffer = frame.norms.new_empty(min(BLOCK, n), n)
        for first in range(0, n, BLOCK):
            values = short_squares(frame, slice(first, first + BLOCK), out=buffer)
            hard = self.positives == "hard"
            kernels.choose(values.numpy(), first, *known, hard, semihard, chosen)
        if doubtful.any():
            again = torch.from_numpy(np.flatnonzero(doubtful))
            found[doubtful] = False
            a, p, m = (index.numpy() for index in self._composed(batch, again))
            positive[a], negative[a], found[a] = p, m, True
        anchor = np.flatnonzero(found)
        if len(anchor) < n:
            positive, negative = positive[anchor], negative[anchor]
        return Triplets(*map(torch.from_numpy, (anchor, positive, negative)))

    def _kept(self, batch: Batch, triplets: Triplets) -> Triplets:
        anchor, positive, negative = triplets
        near = batch.frame.distances(anchor, positive + batch.offset)
        far = batch.frame.distances(anchor, negative + batch.offset)
        kept = far <= near if self.keep == "hard" else far < near + self.margin
        if self.keep == "semihard":
            kept &= far > near
        return Triplets(*(index[kept] for index in triplets))

    def _nothing(self, why: str, device: torch.device) -> Triplets:
        if why not in self._warned:
            self._warned.add(why)
            warnings.warn(f"no triplets: {why}", NoTripletsWarning, stacklevel=3)
        return _empty(device)

    def _why_empty(self) -> str:
        rules = self.false_negatives
        left = "" if rules is None else f", where {rules!r} leaves out what is too near"
        if self.keep != "all":
            return f"no triplet is {self.keep!r} (keep) with margin {self.margin:g}{left}"
        if self.negatives == "semihard":
            strict = f" < d_ap + {self.margin:g}" if self.fallback == "skip" else ""
            window = f"(no negative with d_ap < d_an{strict})"
            return f"semi-hard window empty for all anchors {window}{left}"
        if self.negatives == "distance":
            return (
                f"every negative is beyond the cutoff {self.cutoffs[1]:g} on the unit sphere{left}"
            )
        if "multi_similarity" not in (self.positives, self.negatives):
            return f"no anchor has a negative left{left}"
        return (
            f"every anchor's classes are more than epsilon {self.epsilon:g} apart in cosine{left}"
        )


_DEFAULTS: dict[str, Any] = {
    "positives": "easy",
    "negatives": "semihard",
    "pool": None,
    "margin": 0.2,
    "epsilon": 0.1,
    "generator": None,
    "fallback": "nearest-outside",
    "cutoffs": (0.5, 1.4),
    "keep": "all",
    "false_negatives": None,
}
_CHOICES = {"positives": POSITIVES, "negatives": NEGATIVES, "fallback": FALLBACKS, "keep": KEEP}


def _checked(name: str, value: Any) -> Any:
    """A setting as the miner keeps it, or an error that says what it may be."""
    if name in _CHOICES:
        check_choice(name, value, _CHOICES[name])
    elif name in ("margin", "epsilon"):
        return check_number(name, value, 0.0)
    elif name == "pool" and value is not None:
        return check_int(name, value, 2)
    elif name == "generator" and not isinstance(value, torch.Generator | None):
        raise InputError(name, repr(value), "a torch.Generator or None")
    elif name == "false_negatives" and not isinstance(value, FalseNegatives | None):
        raise InputError(name, repr(value), "FalseNegatives(...) or None")
    elif name == "cutoffs":
        try:
            low, high = value
        except (TypeError, ValueError):
            low, high = 1.0, 0.0
        if not 0.0 < check_number(name, low) < check_number(name, high):
            raise InputError(name, value, "two numbers, 0 < first < second")
        return (float(low), float(high))
    return value


def _empty(device: torch.device) -> Triplets:
    return Triplets(*(torch.empty(0, dtype=torch.int64, device=device) for _ in range(3)))


def _why_unusable(classes: Classes) -> str:
    n = len(classes.low)
    if classes.apart:
        return f"no label of the {n} samples occurs among the references beside another one"
    if n == 1:
        return "the batch has one sample"
    if classes.most == n - 1:
        return f"all {n} samples have one label"
    return f"no label occurs twice among the {n} samples"
