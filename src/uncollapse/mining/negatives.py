"""Which negatives an (anchor, positive) pair is set against: EPS §4.3 (a)–(d), HNM §2.1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uncollapse.mining._batch import Block
from uncollapse.mining._random import draw_weighted, uniform
from uncollapse.mining._search import search

__all__ = ["FALLBACKS", "NEGATIVES", "Settings", "choose_negatives"]

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
        frame = block.batch.plain
        negative = block.nearest_negative(frame, farthest=kind == "easy")
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
    frame = block.batch.plain
    positive = block.at_own(block.own, rows, column)
    values = block.products(frame)
    coarse = block.at_own(block.own_coarse[id(frame)], rows, column)
    if rows is block.every:
        values = block.spend_products(frame)
        negative, found = search(frame, values, block, beyond=(positive, coarse))
    else:
        negative, found = torch.empty_like(rows), torch.empty_like(rows, dtype=torch.bool)
        for start in range(0, len(rows), len(block.anchors)):
            pairs = slice(start, start + len(block.anchors))
            part, beyond = block.take(rows[pairs]), (positive[pairs], coarse[pairs])
            negative[pairs], found[pairs] = search(frame, values[rows[pairs]], part, beyond=beyond)
    if settings.fallback == "skip":
        anchors = block.anchors[rows]
        near = frame.squares(anchors, positive).sqrt() * frame.scale
        found &= frame.squares(anchors, negative).sqrt() * frame.scale < near + settings.margin
    elif settings.fallback == "farthest" and not bool(found.all()):
        farthest = block.nearest_negative(frame, farthest=True)[rows]
        return None, torch.where(found, negative, farthest)
    return _where(found, negative)


def _where(found: Tensor, negative: Tensor) -> tuple[Tensor | None, Tensor]:
    """The pairs that have a negative."""
    if bool(found.all()):
        return None, negative
    pair = found.nonzero().flatten()
    return pair, negative[pair]


def _random(block: Block, rows: Tensor) -> Tensor:
    """Uniform over the anchor's negatives; by counting alone where there is no pool."""
    batch = block.batch
    if block.pool is not None:
        return draw_weighted(block.pool.float(), rows, batch.generator)
    layout, anchors = batch.layout, block.anchors[rows].cpu()
    ids = torch.from_numpy(layout.ids)[anchors]
    count, start = torch.from_numpy(layout.counts)[ids], torch.from_numpy(layout.starts)[ids]
    draw = uniform(len(rows), batch.generator, torch.device("cpu"))
    place = (draw * (layout.size - count)).long()
    place += count * (place >= start)  # `order` lists class after class: step over the own one
    return torch.from_numpy(layout.order)[place].to(batch.device)


def _distance(
    block: Block, rows: Tensor, cutoffs: tuple[float, float]
) -> tuple[Tensor | None, Tensor]:
    """Wu et al. 2017 §4: probability ∝ 1/q(d), q(d) ∝ d^(n−2) (1 − d²/4)^((n−3)/2), n the dim."""
    sphere, dim = block.batch.sphere, block.batch.x.shape[1]
    low, high = (c * c / sphere.scale**2 for c in cutoffs)
    square = block.spend_products(sphere).add_(sphere.coarse.square[block.at][:, None])
    kept = torch.lt(square, high, out=torch.empty_like(square))  # what is hidden is at infinity
    square.clamp_(low, min(high, 4 * (1 - 1e-6) / sphere.scale**2)).mul_(sphere.scale**2)
    weight = _log_(square.mul(-0.25).add_(1.0)).mul_((3 - dim) / 2)
    weight.add_(_log_(square), alpha=(2 - dim) / 2)
    # The largest of the row, not of the batch: one close pair elsewhere must not silence it.
    weight.add_(torch.sub(kept, 1.0, out=square), alpha=_NEVER)
    top = weight.amax(dim=1, keepdim=True)
    weight = _exp_(weight.sub_(top).clamp_(min=-80.0)).mul_(kept)
    negative = draw_weighted(weight, rows, block.batch.generator)
    return _where(top[rows, 0] > -_NEVER / 2, negative)


def _similar(block: Block, epsilon: float) -> Tensor:
    """Wang et al. 2019 (8): s_an > min s_ap − ε, where a cosine s is 1 − d²/2 on the sphere."""
    sphere = block.batch.sphere
    column = block.extreme_own(sphere, block.valid, farthest=True)
    farthest = sphere.squares(block.at, block.own.gather(1, column[:, None]).flatten())
    limit = (farthest + 2 * epsilon / sphere.scale**2)[:, None]
    product = sphere.coarse
    gap = block.spend_products(sphere)
    gap -= (limit - product.square[block.at][:, None]).to(gap.dtype)
    allowed = gap < 0
    r, c = (gap.abs_() <= product.error[block.at][:, None]).nonzero(as_tuple=True)
    allowed[r, c] = sphere.squares(block.anchors[r], c) < limit[r, 0]
    return allowed


def _log_(x: Tensor) -> Tensor:
    """Logarithm in place; NumPy's takes a third of the time of torch's on the CPU."""
    if x.device.type != "cpu":
        return x.log_()
    np.log(x.numpy(), out=x.numpy())
    return x


def _exp_(x: Tensor) -> Tensor:
    if x.device.type != "cpu":
        return x.exp_()
    np.exp(x.numpy(), out=x.numpy())
    return x
