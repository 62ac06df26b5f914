"""Which positives an anchor is paired with: EPS §4.3 and the baselines it is compared to."""

from __future__ import annotations

import torch
from torch import Tensor

from uncollapse.mining._batch import Block

__all__ = ["POSITIVES", "choose_positives", "inside_positives"]

POSITIVES = ("easy", "hard", "random", "semihard", "all", "inside", "multi_similarity")


def choose_positives(kind: str, block: Block, epsilon: float) -> tuple[Tensor, Tensor]:
    """`(row, column)`: for rows of the block, ascending, the columns of `own` chosen.

    `inside` waits for its negative (`inside_positives`); until then it stands on the nearest.
    """
    frame = block.batch.plain
    if kind in ("easy", "inside"):  # EPS §4.3
        return block.every, block.nearest_own(frame)
    if kind == "hard":
        return block.every, block.extreme_own(frame, block.valid, farthest=True)
    if kind == "random":
        return block.every, block.pick(block.valid)
    if kind == "semihard":
        negative = block.nearest_negative(frame)
        limit = frame.squares(block.at, negative)
        violating = block.valid & (block.own_squares_near(frame, limit) > limit[:, None])
        some = violating.any(dim=1, keepdim=True)
        return block.every, block.pick(torch.where(some, violating, block.valid))
    allowed = block.valid
    if kind == "multi_similarity":
        # Wang et al. 2019 (9): s_ap < max s_an + ε, where a cosine s is 1 − d²/2 on the sphere.
        sphere = block.batch.sphere
        limit = sphere.squares(block.at, block.nearest_negative(sphere))
        limit -= 2 * epsilon / sphere.scale**2
        allowed = block.valid & (block.own_squares_near(sphere, limit) > limit[:, None])
    row, column = allowed.nonzero(as_tuple=True)
    return row, column


def inside_positives(block: Block, rows: Tensor, negative: Tensor) -> Tensor:
    """For each (row, negative) the farthest positive nearer than it, else the nearest positive."""
    frame = block.batch.plain
    chosen = torch.empty_like(negative)
    step = max(1, (1 << 21) // block.own.shape[1])
    for start in range(0, len(rows), step):
        part = block.take(rows[start : start + step])
        limit = frame.squares(part.at, negative[start : start + step])
        nearer = part.valid & (part.own_squares_near(frame, limit) < limit[:, None])
        none = ~nearer.any(dim=1)
        column = part.extreme_own(frame, nearer, farthest=True)
        if bool(none.any()):
            column[none] = part.take(none.nonzero().flatten()).nearest_own(frame)
        chosen[start : start + step] = part.own.gather(1, column[:, None]).flatten()
    return chosen
