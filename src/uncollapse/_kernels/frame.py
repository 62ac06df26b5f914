"""The frame of a batch, and gradients back from the sphere: twin of `distances.frame`."""

from __future__ import annotations

import math

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._kernels.loops import fast

__all__ = ["frame_rows", "tangent"]

_EPS = float(np.finfo(np.float64).eps)


@fast
def frame_rows(
    x: Array, sphere: bool, factor: Array, centre: Array, wide: Array, z: Array, norms: Array
) -> tuple[float, float]:
    """Fill a frame's arrays; returns its reach, and its zoom: 0 where all rows coincide."""
    n, dim = x.shape
    for i in range(n):
        factor[i] = 1.0
        if sphere:
            norm = 0.0
            for k in range(dim):
                norm += np.float64(x[i, k]) ** 2
            factor[i] = 1.0 / np.sqrt(norm) if norm > 0 else 0.0
    centre[:] = 0.0
    for i in range(n):
        for k in range(dim):
            wide[i, k] = np.float64(x[i, k]) * factor[i]
            centre[k] += wide[i, k] - wide[0, k]
    for k in range(dim):
        centre[k] = wide[0, k] + centre[k] / n
    peak = np.zeros(dim)  # by column, which the compiler does several at a time
    for i in range(n):
        for k in range(dim):
            peak[k] = max(peak[k], abs(wide[i, k] - centre[k]))
    reach = peak.max()
    # Rows of length 1 that differ by no more than their rounding are one point.
    one_point = reach <= (4 * _EPS if sphere else 0.0)
    zoom = 1.0 if one_point else 1.0 / math.ldexp(1.0, math.frexp(reach)[1])
    for k in range(dim):
        centre[k] *= zoom
    for i in range(n):
        factor[i] *= zoom
        norm = 0.0
        for k in range(dim):
            wide[i, k] = 0.0 if one_point else wide[i, k] * zoom - centre[k]
            z[i, k] = wide[i, k]
            norm += np.float64(z[i, k]) ** 2
        norms[i] = norm
    return reach, 0.0 if one_point else zoom


@fast
def tangent(gradient: Array, x: Array, inverse: Array) -> None:
    """Take the part along x out of each row, and multiply by the inverse norm, in place."""
    for i in range(len(x)):
        radial = 0.0
        for k in range(x.shape[1]):
            radial += gradient[i, k] * x[i, k] * inverse[i]
        for k in range(x.shape[1]):
            along = radial * x[i, k] * inverse[i]
            gradient[i, k] = (gradient[i, k] - along) * inverse[i]
