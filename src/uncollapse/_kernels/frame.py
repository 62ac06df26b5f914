"""The frame of a batch and the way back, as `_frame.Frame`."""

from __future__ import annotations

import math

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._kernels.loops import fast

__all__ = ["frame_rows", "tangent"]

_EPS = float(np.finfo(np.float64).eps)


@fast
def frame_rows(x: Array, normalize: bool, y: Array, rows: Array, z: Array, inverse: Array) -> float:
    """Fill y, rows, z and the inverse norms; returns the unit."""
    n, dim = x.shape
    for i in range(n):
        length = 1.0
        if normalize:
            norm = 0.0
            for k in range(dim):
                norm += np.float64(x[i, k]) ** 2
            length = np.sqrt(norm)
        inverse[i, 0] = 1.0 / length if length > 0 else 0.0
        for k in range(dim):
            y[i, k] = np.float64(x[i, k]) / length if length > 0 else 0.0
    mean = np.zeros(dim)
    for i in range(n):
        for k in range(dim):
            rows[i, k] = y[i, k] - y[0, k]
            mean[k] += rows[i, k]
    largest = 0.0
    for i in range(n):
        for k in range(dim):
            rows[i, k] -= mean[k] / n
            largest = max(largest, abs(rows[i, k]))
    # Rows of length 1 that differ by no more than their rounding are one point.
    if normalize and largest <= 4 * _EPS:
        largest = 0.0
    unit = math.ldexp(1.0, math.frexp(largest)[1]) if largest > 0 else 0.0
    over = 1.0 / unit if largest > 0 else 0.0
    for i in range(n):
        for k in range(dim):
            rows[i, k] *= over
            z[i, k] = rows[i, k]
    return unit


@fast
def tangent(gradient: Array, y: Array, inverse: Array) -> None:
    """Take the part along y out of each row, and multiply by the inverse norm, in place."""
    for i in range(len(y)):
        radial = 0.0
        for k in range(y.shape[1]):
            radial += gradient[i, k] * y[i, k]
        for k in range(y.shape[1]):
            gradient[i, k] = (gradient[i, k] - radial * y[i, k]) * inverse[i, 0]
