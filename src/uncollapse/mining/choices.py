"""Which positives an anchor is paired with: EPS §4.3 and the baselines it is compared to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from uncollapse.distances.tiles import exp_, log_
from uncollapse.mining.blocks import Block, draw_weighted, pick, uniform

__all__ = [
    "FALLBACKS",
    "NEGATIVES",
    "POSITIVES",
    "Settings",
    "choose_negatives",
    "choose_positives",
    "inside_positives",
]


# Which positives an anchor is paired with: EPS §4.3 and the baselines it is compared to.

POSITIVES = ("easy", "hard", "random", "semihard", "all", "inside", "multi_similarity")


def choose_positives(kind: str, block: Block, epsilon: float) -> tuple[Tensor, Tensor]:
    """`(row, column)`: for rows of the block, ascending, the columns of `own` chosen.

    `inside` waits for its negative (`inside_positives`); until then it stands on the nearest.
    """
    if kind in ("easy", "inside"):  # EPS §4.3
        return block.every, block.plain.nearest_own()
    if kind == "hard":
        return block.every, block.plain.extreme_own(block.valid, farthest=True)
    if kind == "random":
        return block.every, pick(block.valid, block.generator)
    if kind == "semihard":
        limit = block.plain.squares(block.every, block.plain.nearest_negative())
        violating = block.valid & (block.plain.own_squares_near(limit) > limit[:, None])
        some = violating.any(dim=1, keepdim=True)
        return block.every, pick(torch.where(some, violating, block.valid), block.generator)
    allowed = block.valid
    if kind == "multi_similarity":
        # Wang et al. 2019 (9): s_ap < max s_an + ε, where a cosine s is 1 − d²/2 on the sphere.
        look = block.sphere
        limit = look.squares(block.every, look.nearest_negative())
        limit -= 2 * epsilon * look.frame.zoom**2
        allowed = block.valid & (look.own_squares_near(limit) > limit[:, None])
    row, column = allowed.nonzero(as_tuple=True)
    return row, column


def inside_positives(block: Block, rows: Tensor, negative: Tensor) -> Tensor:
    """For each (row, negative) the farthest positive nearer than it, else the nearest positive."""
    chosen = torch.empty_like(negative)
    step = max(1, (1 << 21) // block.own.shape[1])
    for start in range(0, len(rows), step):
        part = block.take(rows[start : start + step])
        limit = part.plain.squares(part.every, negative[start : start + step])
        nearer = part.valid & (part.plain.own_squares_near(limit) < limit[:, None])
        column = part.plain.extreme_own(nearer, farthest=True)
        none = (~nearer.any(dim=1)).nonzero().flatten()
        if len(none):
            column[none] = part.take(none).plain.nearest_own()
        chosen[start : start + step] = part.own.gather(1, column[:, None]).flatten()
    return chosen


# Which negatives an (anchor, positive) pair is set against: EPS §4.3 (a)–(d), HNM §2.1.

NEGATIVES = ("hard", "semihard", "random", "distance", "multi_similarity", "easy", "all")
FALLBACKS = ("nearest-outside", "farthest", "skip")
_NEVER = 1e30  # a log-weight this far below the others


@dataclass(frozen=True)
class Settings:
    """What the strategies need to know besides the batch; as in `Miner`."""

    margin: float
    epsilon: float
    fallback: str
    cutoffs: tuple[float, float]


def choose_negatives(
    kind: str, block: Block, rows: Tensor, column: Tensor, settings: Settings
) -> tuple[Tensor | None, Tensor]:
    """`(pair, negative)`: negatives of the pairs of `rows` with `own[rows, column]`, in order.

    A pair of None stands for all, one negative each.
    """
    if kind in ("hard", "easy"):
        negative = block.plain.nearest_negative(farthest=kind == "easy")
        return None, negative if rows is block.every else negative[rows]
    if kind == "semihard":
        return _semihard(block, rows, column, settings)
    if kind == "random":
        return None, _random(block, rows)
    if kind == "distance":
        return _distance(block, rows, settings.cutoffs)
    allowed = block.negatives() if kind == "all" else _similar(block, settings.epsilon)
    pair, negative = allowed[rows].nonzero(as_tuple=True)
    return pair, negative


def _semihard(
    block: Block, rows: Tensor, column: Tensor, settings: Settings
) -> tuple[Tensor | None, Tensor]:
    """FaceNet §3.2: the nearest negative with d_ap < d_an < d_ap + margin."""
    look = block.plain
    positive = block.at_own(block.own, rows, column)
    values = look.products()
    product = block.at_own(look.own_products, rows, column)
    if rows is block.every:
        negative, found = look.search(look.spend_products(), rows, beyond=(positive, product))
    else:
        negative, found = torch.empty_like(rows), torch.empty_like(rows, dtype=torch.bool)
        for start in range(0, len(rows), len(block.anchors)):
            pairs = slice(start, start + len(block.anchors))
            some, beyond = rows[pairs], (positive[pairs], product[pairs])
            negative[pairs], found[pairs] = look.search(values[some], some, beyond=beyond)
    if settings.fallback == "skip":
        found &= look.distances(rows, negative) < look.distances(rows, positive) + settings.margin
    elif settings.fallback == "farthest":
        missing = (~found).nonzero().flatten()
        if len(missing):
            negative[missing] = look.nearest_negative(farthest=True)[rows[missing]]
        return None, negative
    return _where(found, negative)


def _where(found: Tensor, negative: Tensor) -> tuple[Tensor | None, Tensor]:
    """The pairs that have a negative."""
    pair = found.nonzero().flatten()
    return (None, negative) if len(pair) == len(found) else (pair, negative[pair])


def _random(block: Block, rows: Tensor) -> Tensor:
    """Uniform over the anchor's negatives; by counting alone where there is no pool."""
    if block.pool is not None:
        most = 1 if rows is block.every else block.own.shape[1]
        return draw_weighted(block.pool.float(), rows, most, block.generator)
    classes, anchors = block.batch.classes, block.anchors[rows]
    low, count = classes.low[anchors], (classes.high - classes.low)[anchors]
    draw = uniform(len(rows), block.generator, rows.device)
    place = (draw * (len(classes.order) - count)).long()
    place += count * (place >= low)  # `order` lists class after class: step over the own one
    return classes.order[place]


def _distance(
    block: Block, rows: Tensor, cutoffs: tuple[float, float]
) -> tuple[Tensor | None, Tensor]:
    """Wu et al. 2017 §4: probability ∝ 1/q(d), q(d) ∝ d^(n−2) (1 − d²/4)^((n−3)/2), n the dim."""
    look, dim = block.sphere, block.batch.frame.dim
    area = 1 / look.frame.zoom**2
    low, high = (c * c / area for c in cutoffs)
    square = look.spend_products().add_(look.frame.norms[block.anchors][:, None])
    kept = torch.lt(square, high, out=torch.empty_like(square))  # what is hidden is at infinity
    square.clamp_(low, min(high, 4 * (1 - 1e-6) / area)).mul_(area)
    weight = log_(square.mul(-0.25).add_(1.0)).mul_((3 - dim) / 2)
    weight.add_(log_(square), alpha=(2 - dim) / 2)
    # The largest of the row, not of the batch: one close pair elsewhere must not silence it.
    weight.add_(torch.sub(kept, 1.0, out=square), alpha=_NEVER)
    top = weight.amax(dim=1, keepdim=True)
    weight = exp_(weight.sub_(top).clamp_(min=-80.0)).mul_(kept)
    most = 1 if rows is block.every else block.own.shape[1]
    negative = draw_weighted(weight, rows, most, block.generator)
    return _where(top[rows, 0] > -_NEVER / 2, negative)


def _similar(block: Block, epsilon: float) -> Tensor:
    """Wang et al. 2019 (8): s_an > min s_ap − ε, where a cosine s is 1 − d²/2 on the sphere."""
    look = block.sphere
    column = look.extreme_own(block.valid, farthest=True)
    farthest = look.squares(block.every, block.at_own(block.own, block.every, column))
    return look.negatives_within(farthest + 2 * epsilon * look.frame.zoom**2)
