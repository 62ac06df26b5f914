"""Positives, then negatives for them; at once where numba has a kernel for both."""

from __future__ import annotations

import torch
from torch import Tensor

from uncollapse.mining import _fast
from uncollapse.mining._batch import Block
from uncollapse.mining.negatives import Settings, choose_negatives
from uncollapse.mining.positives import choose_positives

__all__ = ["choose"]


def choose(
    positives: str, negatives: str, block: Block, settings: Settings
) -> tuple[Tensor, Tensor, Tensor]:
    """`(rows, column, negative)`: anchors `rows` of the block, positives `own[rows, column]`."""
    if (
        _fast.kernels is not None
        and positives in ("easy", "hard")
        and (
            negatives == "hard" or (negatives, settings.fallback) == ("semihard", "nearest-outside")
        )
        and block.pool is None
        and isinstance(block.at, slice)
        and block.anchors.device.type == "cpu"
        and block.batch.plain.coarse.rows.dtype == torch.float32
        and not block.batch.plain.collapsed
    ):
        return _at_once(positives, negatives, block, settings)
    return _one_by_one(positives, negatives, block, settings)


def _one_by_one(
    positives: str, negatives: str, block: Block, settings: Settings
) -> tuple[Tensor, Tensor, Tensor]:
    if negatives in ("hard", "semihard", "easy"):
        block.products(block.batch.plain)  # needed anyway: let the positives profit
    rows, column = choose_positives(positives, block, settings.epsilon)
    pair, negative = choose_negatives(negatives, block, rows, column, settings)
    return (rows, column, negative) if pair is None else (rows[pair], column[pair], negative)


def _at_once(
    positives: str, negatives: str, block: Block, settings: Settings
) -> tuple[Tensor, Tensor, Tensor]:
    frame = block.batch.plain
    product = frame.coarse
    chosen = _fast.kernels.choose(  # type: ignore[union-attr]
        block.bare_products(frame).numpy(),
        block.own.numpy(),
        block.valid.numpy(),
        block.at.start,  # type: ignore[union-attr]
        product.error[block.at].numpy(),
        product.square[block.at].numpy(),
        frame.given.numpy(),
        frame.scale,
        positives == "hard",
        negatives == "semihard",
    )
    column, negative, found, doubtful = map(torch.from_numpy, chosen)
    if chosen[3].any():
        again = doubtful.nonzero().flatten()
        rows, c, n = _one_by_one(positives, negatives, block.take(again), settings)
        found[again] = False
        again = again[rows]
        found[again], column[again], negative[again] = True, c, n
    if chosen[2].all():
        return block.every, column, negative
    rows = found.nonzero().flatten()
    return rows, column[rows], negative[rows]
