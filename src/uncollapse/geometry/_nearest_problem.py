"""What each solver of HNM (13) and (15) is given: points in unit scale, and how to judge others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._base.classes import ClassLayout
from uncollapse.distances import pairwise_distances
from uncollapse.geometry.isometry import isometric_error
from uncollapse.geometry.set_distances import hausdorff_like
from uncollapse.geometry.triplet_separation import separation

__all__ = ["Problem"]


@dataclass(frozen=True)
class Problem:
    """Points centred and of unit scale, their classes, the margin and the distance to minimise."""

    x: Array
    layout: ClassLayout
    alpha: float
    objective: str
    rounding: float  # margin to aim for above alpha, so that the answer is separated in float64

    @cached_property
    def loss(self) -> float:
        """The hard-mined loss L of the points as they are."""
        return max(0.0, self.alpha - self.margin(self.x))

    @cached_property
    def distances(self) -> Array:
        """All distances between the points as they are."""
        return pairwise_distances(self.x).numpy()

    def margin(self, z: Array) -> float:
        """The largest α for which z is α-triplet-separated."""
        return separation(z, self.layout.ids).margin

    def value(self, z: Array) -> float:
        """d_haus (12) or d_iso (14) between the points as they are and z."""
        if self.objective == "iso":
            return isometric_error(self.x, z)
        return hausdorff_like(self.x, z, self.layout.ids)

    def scaled(self, z: Array) -> Array | None:
        """z, scaled up if it must be, so that it is separated; None where scaling cannot do it.

        Scaling by s multiplies the margin by s.
        """
        margin = self.margin(z)
        goal = self.alpha + self.rounding
        if 0.0 < margin < goal and self.alpha > 0.0:
            middle = z.mean(axis=0)
            z = middle + (z - middle) * (goal / margin) * (1.0 + 1e-12)
            margin = self.margin(z)
        return z if margin >= self.alpha else None

    def repaired(self, z: Array) -> Array | None:
        """z moved a little so that it is separated with some rounding to spare, or None.

        Where the margin asked for is 0 the classes are shrunk about their means: if A and B are
        separated then every bisector of an a and a b has A on one side and B on the other, so that
        shrinking takes them farther from each other, relative to their size.
        """
        if self.alpha > 0.0 or self.margin(z) >= self.rounding:
            return self.scaled(z)
        means = self.class_means(z)[self.layout.ids]
        share = self.rounding
        while share < 0.1:
            tight = z + share * (means - z)
            if self.margin(tight) >= self.rounding:
                return tight
            share *= 4.0
        return None

    def class_means(self, z: Array) -> Array:
        """Mean of each class."""
        total = np.zeros((len(self.layout.counts), z.shape[1]))
        np.add.at(total, self.layout.ids, z)
        means: Array = total / self.layout.counts[:, None]
        return means
