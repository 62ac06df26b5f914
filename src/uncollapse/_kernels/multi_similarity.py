"""Multi-similarity of a block of anchors, before and after its exponentials.

Together with them the twin of `losses.multi_similarity._in_torch`.
"""

from __future__ import annotations

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._kernels.triplets import add_force, fast, square

_LOW = -80.0  # its exponential counts as 0


@fast
def similarity_before(
    value: Array,  # [B, N] curve_j + β unit² z_i·z_j on entry, exponents to be taken on exit
    start: int,
    low: Array,
    high: Array,
    norm: Array,  # [N] |z|²
    level: Array,  # [N] what makes a value β(s - λ)
    positive: Array,  # [N, K] distances to the positives, -inf where there is none
    unit: float,
    settings: tuple[float, float, float, float, float],  # α, β, λ, ε, share
    rules: tuple[int, bool, bool],  # 0 all, 1 easy, 2 hard positives; hard negatives; both kinds
    pull: Array,  # [N, K] out: minus the derivatives by the positives' cosines
    charge: Array,  # [N] out: loss of the positives
    shift: Array,  # [N] out: what was taken off the exponents; -1 for no negative
    close: Array,  # [N] out: whether a negative may be too close for a product
) -> None:
    """Mine the block, add up the loss of its positives, and prepare its negatives' exponents."""
    alpha, beta, base, epsilon, share = settings
    which, hard_negatives, both = rules
    block, n = value.shape
    nothing = value.dtype.type(-1e30)
    for b in range(block):
        i = start + b
        row, up = value[b], level[i]
        for j in range(low[i], high[i]):
            row[j] = nothing
        top = nothing
        for j in range(n):
            top = max(top, row[j])
        some = top > nothing
        highest = np.float64(top) + up
        size = high[i] - low[i]
        least, nearest = np.inf, -1
        for k in range(size):
            if low[i] + k != i:
                least = min(least, 1.0 - 0.5 * (unit * positive[i, k]) ** 2)
                if nearest < 0 or positive[i, k] < positive[i, nearest]:
                    nearest = k
        bound = beta * (least - epsilon - base) if hard_negatives else -np.inf
        some = some and highest > bound
        limit = highest / beta + base + epsilon
        most, chosen = 0.0, 0
        for k in range(size):
            pull[i, k] = -1.0
            if low[i] + k != i and (which != 1 or k == nearest) and (some or not both):
                cosine = 1.0 - 0.5 * (unit * positive[i, k]) ** 2
                if which != 2 or cosine < limit:
                    pull[i, k] = 0.0
                    most = max(most, -alpha * (cosine - base))
                    chosen += 1
        whole = np.exp(-most)
        for k in range(size):
            if pull[i, k] == 0:
                cosine = 1.0 - 0.5 * (unit * positive[i, k]) ** 2
                pull[i, k] = np.exp(-alpha * (cosine - base) - most)
                whole += pull[i, k]
        for k in range(size):
            pull[i, k] = max(pull[i, k], 0.0) / whole
        charge[i] = (np.log(whole) + most) / alpha
        some = some and (chosen > 0 or not both)
        shift[i] = max(highest, 0.0) if some else -1.0
        spread = 0.5 * beta * unit * unit * share * (norm[i] + 1e-30)
        close[i] = False
        if some:
            touching_negatives = value.dtype.type(0)
            touching = beta * (1.0 - base) - up - spread
            per = 0.5 * beta * unit * unit * share
            for j in range(n):
                touching_negatives += 1.0 if row[j] >= touching - per * norm[j] else 0.0
            close[i] = touching_negatives > 0
            off = value.dtype.type(up - shift[i])
            floor = value.dtype.type(max(bound - up, _LOW - off))
            least_value = value.dtype.type(_LOW)
            for j in range(n):
                row[j] = row[j] + off if row[j] > floor else least_value
        else:
            for j in range(n):
                row[j] = value.dtype.type(_LOW)


@fast
def similarity_after(
    value: Array,  # [B, N] exponentials on entry, derivatives by the cosines on exit
    start: int,
    norm: Array,
    rows: Array,  # [N, d] float64
    beta: float,
    share: float,
    shift: Array,
    close: Array,
    charge: Array,  # [N] += loss of the negatives
    direct: Array,  # [N, d] float64, += gradient of Σ derivative |x_i - x_j|² / 2 of close pairs
) -> None:
    """Add the loss of the block's negatives."""
    block, n = value.shape
    for b in range(block):
        i = start + b
        row = value[b]
        if shift[i] < 0:
            for j in range(n):
                row[j] = 0
        else:
            total = 0.0
            for j in range(n):
                total += np.float64(row[j])
            whole = total + np.exp(-shift[i])  # the 1 of log(1 + Σ), in the same scale
            charge[i] += (np.log(whole) + shift[i]) / beta
            over = value.dtype.type(1.0 / whole)
            for j in range(n):
                row[j] *= over
            if close[i]:
                for j in range(n):
                    if row[j] > 1e-30:
                        gap = square(rows[i], rows[j])
                        if gap <= share * (norm[i] + norm[j]):
                            add_force(direct, rows, i, j, np.float64(row[j]))
                            row[j] = 0
