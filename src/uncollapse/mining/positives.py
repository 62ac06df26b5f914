"""Which positives an anchor is paired with: EPS §4.3 and the baselines it is compared to."""

from __future__ import annotations

import torch
from torch import Tensor

from uncollapse.mining.blocks import Block
from uncollapse.mining.draws import pick

__all__ = ["POSITIVES", "choose_positives", "inside_positives"]

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
