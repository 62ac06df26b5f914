"""Which triplets a loss sees: a choice of positives and, independently, a choice of negatives."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, eager
from uncollapse._base.check import Choice, InputError, Number, Setting, check_int, check_number
from uncollapse._base.extras import compiled
from uncollapse.distances.frame import Batch, Classes, on_host, short_squares, true_entries
from uncollapse.distances.tiles import BLOCK
from uncollapse.mining.blocks import AnchorBlock, anchor_blocks
from uncollapse.mining.false_negatives import (
    FalseNegatives,
    agreed_labels,
    check_rules,
    without_suspects,
)
from uncollapse.mining.random import SeededModule, check_generator, draw_weighted, pick, uniform
from uncollapse.mining.tuples import Triplets

POSITIVES = ("easy", "hard", "random", "semihard", "all", "inside", "multi_similarity")
NEGATIVES = ("hard", "semihard", "random", "distance", "multi_similarity", "easy", "all")
FALLBACKS = ("nearest-outside", "farthest", "skip")
KEEP = ("all", "violating", "hard", "semihard")
_NEVER = 1e30  # a log-weight this far below the others


class NoTripletsWarning(UserWarning):
    """A batch gave no triplet; the message says why. Given once per miner and reason."""


def _checked_cutoffs(name: str, value: Any) -> tuple[float, float]:
    try:
        low, high = value
    except (TypeError, ValueError):
        low, high = 1.0, 0.0
    if not 0.0 < check_number(name, low) < check_number(name, high):
        raise InputError(name, value, "two numbers, 0 < first < second")
    return (float(low), float(high))


class Miner(SeededModule):
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
            `"farthest"`: the same, but the farthest negative where there is none (TensorFlow
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

    positives = Choice(*POSITIVES)
    negatives = Choice(*NEGATIVES)
    pool = Setting(lambda name, value: None if value is None else check_int(name, value, 2))
    margin = Number(0.0)
    epsilon = Number(0.0)
    generator = Setting(check_generator)
    fallback = Choice(*FALLBACKS)
    cutoffs = Setting(_checked_cutoffs)
    keep = Choice(*KEEP)
    false_negatives = Setting(check_rules)

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
        ref_embeddings: ArrayLike | None = None,
        ref_labels: ArrayLike | None = None,
        *,
        ref_emb: ArrayLike | None = None,
    ) -> Triplets:
        """Triplets of the rows of `embeddings` `[N, dim]` with their `labels` `[N]`.

        With references, anchors are rows of `embeddings`, positives and negatives of
        `ref_embeddings` (PML's `ref_emb`).
        """
        second = ref_emb if ref_embeddings is None else ref_embeddings
        references = second.detach() if isinstance(second, Tensor) else second
        rows = embeddings.detach() if isinstance(embeddings, Tensor) else embeddings
        return self.mine(Batch.of(rows, labels, references, ref_labels))

    @eager
    def mine(self, batch: Batch) -> Triplets:
        """The same of a batch whose frame is known already, as a loss has it."""
        device = batch.rows.device
        if batch.classes.usable == 0:
            return self._no_triplets(_why_unusable(batch.classes), device)
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            triplets = self._compiled(batch) or self._composed(batch)
            if self.keep != "all":
                triplets = self._kept(batch, triplets)
        if len(triplets.anchor):
            return triplets
        return self._no_triplets(self._why_empty(), device)

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
        always = ("positives", "negatives")
        settings = {name: getattr(self, name) for name in _DEFAULTS if name != "generator"}
        return ", ".join(
            f"{name}={value!r}"
            for name, value in settings.items()
            if name in always or value != _DEFAULTS[name]
        )

    def _composed(self, batch: Batch, rows: Tensor | None = None) -> Triplets:
        """Positives, then negatives for them, a block of anchors at a time."""
        parts = [self._choose(block) for block in self._blocks(batch, rows)]
        if not parts:
            return _empty(batch.rows.device)
        return Triplets(*(torch.cat(index) for index in zip(*parts, strict=True)))

    def _blocks(self, batch: Batch, rows: Tensor | None) -> Iterator[AnchorBlock]:
        """Anchors with what they may choose from: first the filter, then the pool."""
        rules = self.false_negatives
        agreed = None
        if rules is not None and rules.agreement is not None:
            agreed = agreed_labels(batch, rules.neighbours, rules.agreement)
        for block in anchor_blocks(batch, self.generator, rows):
            allowed = block if rules is None else without_suspects(block, rules, agreed)
            if self.pool is not None:
                allowed.draw(self.pool)
            if len(allowed.anchors):
                yield allowed

    def _choose(self, block: AnchorBlock) -> Triplets:
        if self.negatives in ("hard", "semihard", "easy"):
            block.plain.products()  # needed anyway: let the positives profit
        own, others = self._positive_set(block), self._negative_set(block)
        pairs, triplets = self._lengths(block, own, others)
        if own is None:
            rows, column = block.every, self._positive(block)
        else:
            rows, column = true_entries(own, pairs)
        pair: Tensor | None
        if others is None:
            pair, negative = self._negative(block, rows, column)
        else:
            pair, negative = true_entries(others[rows], triplets)
        if pair is not None:
            rows, column = rows[pair], column[pair]
        inside = self.positives == "inside"
        positive = _inside(block, rows, negative) if inside else block.own[rows, column]
        return Triplets(block.anchors[rows], positive, negative)

    def _lengths(
        self, block: AnchorBlock, own: Tensor | None, others: Tensor | None
    ) -> tuple[int | None, int | None]:
        """Of the lists of pairs and of triplets, in one look at a device; None: to be counted."""
        classes = block.batch.classes
        whole = self.sees_all and len(block.anchors) == classes.usable
        if whole and self.positives == "all" and (others is None or self.negatives == "all"):
            return classes.pairs, classes.triplets
        if whole and own is None and self.negatives == "all":
            every = len(classes.order) - int(not classes.apart)
            return None, classes.usable * every - classes.pairs
        if own is None or others is None or on_host(own):
            return None, None
        count = own.sum(1)
        pairs, triplets = torch.stack([count.sum(), count @ others.sum(1)]).tolist()
        return pairs, triplets

    def _positive(self, block: AnchorBlock) -> Tensor:
        """For each row of the block the column of `own` chosen.

        `inside` waits for its negative (`_inside`); until then it stands on the nearest.
        """
        plain, every, allowed = block.plain, block.every, block.valid
        if self.positives == "random":
            return pick(allowed, block.generator)
        if self.positives == "semihard":
            limit = plain.squares(every, plain.nearest_negative())
            violating = allowed & (plain.own_squares > limit[:, None])
            some = violating.any(dim=1, keepdim=True)
            return pick(torch.where(some, violating, allowed), block.generator)
        return plain.extreme_own(allowed, farthest=self.positives == "hard")  # EPS §4.3

    def _positive_set(self, block: AnchorBlock) -> Tensor | None:
        """Which of `own` are chosen; None where one is."""
        if self.positives == "all":
            return block.valid
        if self.positives != "multi_similarity":
            return None
        # Wang et al. 2019 (9): s_ap < max s_an + ε, where a cosine s is 1 − d²/2 on the sphere.
        sphere = block.normalized
        limit = sphere.squares(block.every, sphere.nearest_negative())
        limit -= 2 * self.epsilon * sphere.frame.zoom**2
        return block.valid & (sphere.own_squares > limit[:, None])

    def _negative_set(self, block: AnchorBlock) -> Tensor | None:
        """`[b, N]`: which negatives are chosen; None where one is, for each pair."""
        if self.negatives == "all":
            return block.negatives()
        if self.negatives != "multi_similarity":
            return None
        # Wang et al. 2019 (8): s_an > min s_ap − ε.
        sphere, every = block.normalized, block.every
        column = sphere.extreme_own(block.valid, farthest=True)
        farthest = sphere.squares(every, block.own[every, column])
        return sphere.negatives_within(farthest + 2 * self.epsilon * sphere.frame.zoom**2)

    def _negative(
        self, block: AnchorBlock, rows: Tensor, column: Tensor
    ) -> tuple[Tensor | None, Tensor]:
        """`(pair, negative)`: one negative for pairs of `rows` with `own[rows, column]`, in order.

        A pair of None stands for all: EPS §4.3 (a)-(d), HNM §2.1.
        """
        if self.negatives == "semihard":
            return self._semihard(block, rows, column)
        if self.negatives == "random":
            return None, _random(block, rows)
        if self.negatives == "distance":
            return _distance_weighted(block, rows, self.cutoffs)
        negative = block.plain.nearest_negative(farthest=self.negatives == "easy")
        return None, negative if rows is block.every else negative[rows]

    def _semihard(
        self, block: AnchorBlock, rows: Tensor, column: Tensor
    ) -> tuple[Tensor | None, Tensor]:
        """FaceNet §3.2: the nearest negative with d_ap < d_an < d_ap + margin."""
        plain = block.plain
        positive = block.own[rows, column]
        values = plain.products()
        product = plain.own_products[rows, column]
        if rows is block.every:
            values, beyond = plain.spend_products(), (positive, product)
            negative, exists = plain.search(values, rows, beyond=beyond)
        else:
            negative, exists = torch.empty_like(rows), torch.empty_like(rows, dtype=torch.bool)
            for start in range(0, len(rows), len(block.anchors)):
                pairs = slice(start, start + len(block.anchors))
                some, beyond = rows[pairs], (positive[pairs], product[pairs])
                negative[pairs], exists[pairs] = plain.search(values[some], some, beyond=beyond)
        if self.fallback == "skip":
            near, far = plain.distances(rows, positive), plain.distances(rows, negative)
            exists &= far < near + self.margin
        elif self.fallback == "farthest":
            if plain.exact or not bool(exists.all()):
                farthest = plain.nearest_negative(farthest=True)[rows]
                negative = torch.where(exists, negative, farthest)
            return None, negative
        return _with_negative(exists, negative)

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
        given = (classes.order, classes.low, classes.high, error, frame.norms, frame.given, factor)
        arrays = [tensor.numpy() for tensor in given]
        positive, negative = np.empty(n, np.int64), np.empty(n, np.int64)
        exists, doubtful = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        chosen = positive, negative, exists, doubtful
        buffer = frame.norms.new_empty(min(BLOCK, n), n)
        for first in range(0, n, BLOCK):
            values = short_squares(frame, slice(first, first + BLOCK), out=buffer)
            hard = self.positives == "hard"
            kernels.choose(values.numpy(), first, *arrays, hard, semihard, chosen)
        if doubtful.any():
            again = torch.from_numpy(np.flatnonzero(doubtful))
            exists[doubtful] = False
            a, p, m = (index.numpy() for index in self._composed(batch, again))
            positive[a], negative[a], exists[a] = p, m, True
        anchor = np.flatnonzero(exists)
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
        rows = kept.nonzero().flatten()
        return Triplets(*(index[rows] for index in triplets))

    def _no_triplets(self, why: str, device: torch.device) -> Triplets:
        if why not in self._warned:
            self._warned.add(why)
            warnings.warn(f"no triplets: {why}", NoTripletsWarning, stacklevel=3)
        return _empty(device)

    def _why_empty(self) -> str:
        if self.keep != "all":
            why = f"no triplet is {self.keep!r} (keep) with margin {self.margin:g}"
        elif self.negatives == "semihard":
            strict = f" < d_ap + {self.margin:g}" if self.fallback == "skip" else ""
            why = f"semi-hard window empty for all anchors (no negative with d_ap < d_an{strict})"
        elif self.negatives == "distance":
            why = f"every negative is beyond the cutoff {self.cutoffs[1]:g} on the unit sphere"
        elif "multi_similarity" not in (self.positives, self.negatives):
            why = "no anchor has a negative left"
        else:
            why = f"every anchor's classes are more than epsilon {self.epsilon:g} apart in cosine"
        rules = self.false_negatives
        return why if rules is None else f"{why}, where {rules!r} leaves out what is too near"


_DEFAULTS = {name: p.default for name, p in inspect.signature(Miner).parameters.items()}


def _inside(block: AnchorBlock, rows: Tensor, negative: Tensor) -> Tensor:
    """For each (row, negative) the farthest positive nearer than it, else the nearest positive."""
    chosen = torch.empty_like(negative)
    step = max(1, (1 << 21) // block.own.shape[1])
    for start in range(0, len(rows), step):
        part = block.take(rows[start : start + step])
        limit = part.plain.squares(part.every, negative[start : start + step])
        nearer = part.valid & (part.plain.own_squares < limit[:, None])
        column = part.plain.extreme_own(nearer, farthest=True)
        some = nearer.any(dim=1)
        if part.plain.exact or not bool(some.all()):
            nearest = part.plain.extreme_own(part.valid, farthest=False)
            column = torch.where(some, column, nearest)
        chosen[start : start + step] = part.own[part.every, column]
    return chosen


def _random(block: AnchorBlock, rows: Tensor) -> Tensor:
    """Uniform over the anchor's negatives; by counting alone where there is no pool."""
    if block.pool is not None:
        most = 1 if rows is block.every else block.own.shape[1]
        return draw_weighted(block.pool.float(), rows, most, block.generator)
    classes, anchors = block.batch.classes, block.anchors[rows]
    low, count = classes.low[anchors], (classes.high - classes.low)[anchors]
    draw = uniform(len(rows), block.generator, rows.device)
    rank = (draw * (len(classes.order) - count)).long()
    rank += count * (rank >= low)  # `order` lists class after class: step over the own one
    return classes.order[rank]


def _distance_weighted(
    block: AnchorBlock, rows: Tensor, cutoffs: tuple[float, float]
) -> tuple[Tensor | None, Tensor]:
    """Wu et al. 2017 §4: probability ∝ 1/q(d), q(d) ∝ d^(n−2) (1 − d²/4)^((n−3)/2), n the dim."""
    sphere, dim = block.normalized, block.batch.frame.dim
    area = 1 / sphere.frame.zoom**2
    low, high = (c * c / area for c in cutoffs)
    square = sphere.spend_products()
    if not sphere.exact:
        square.add_(sphere.frame.norms[block.anchors][:, None])
    kept = torch.lt(square, high, out=torch.empty_like(square))  # what is hidden is at infinity
    square.clamp_(low, min(high, 4 * (1 - 1e-6) / area)).mul_(area)
    weight = square.mul(-0.25).add_(1.0).log_().mul_((3 - dim) / 2)
    weight.add_(square.log_(), alpha=(2 - dim) / 2)
    # The largest of the row, not of the batch: one close pair elsewhere must not silence it.
    weight.add_(torch.sub(kept, 1.0, out=square), alpha=_NEVER)
    top = weight.amax(dim=1, keepdim=True)
    weight = weight.sub_(top).clamp_(min=-80.0).exp_().mul_(kept)
    most = 1 if rows is block.every else block.own.shape[1]
    negative = draw_weighted(weight, rows, most, block.generator)
    return _with_negative(top[rows, 0] > -_NEVER / 2, negative)


def _with_negative(exists: Tensor, negative: Tensor) -> tuple[Tensor | None, Tensor]:
    """The pairs that have a negative; None for all."""
    pair = exists.nonzero().flatten()
    return (None, negative) if len(pair) == len(exists) else (pair, negative[pair])


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
