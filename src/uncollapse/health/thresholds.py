"""When a figure is bad: every threshold of the verdict, with its default and its reason."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from uncollapse._base.check import check_number

__all__ = ["Thresholds"]


@dataclass(frozen=True)
class Thresholds:
    """When a figure is bad. All are ratios, so none depends on the embedding's units.

    Args:
        collapse_ratio: network-collapse below this share of the reference's diameter or spread.
        shrink_ratio: shrinking below this share,
        structure_gain: unless the classes' variability (CDNV) fell to this share as well: structure
            is then learned faster than the scale shrinks, as with batch normalisation.
        diverge_ratio: diverging above this multiple. Healthy runs grow a hundredfold where the
            margin is large beside the first diameter.
        offset_ratio: network-collapse when the diameter is below this share of the distance from
            the origin to the centre: all rows then agree to four digits.
        lost_ratio: the same, where labels are given and neighbours no longer tell them apart.
        unit_diameter: network-collapse of embeddings of length 1 below this diameter (of 2).
        rounding: network-collapse when the diameter is below this many rounding errors of a
            distance in the dtype given.
        margin: the margin of a loss that measures in the embedding's own units, where known.
        margin_ratio: network-collapse below this share of `margin`: such a loss cannot see it.
        tightness: a class has collapsed when three quarters of its pairs are nearer than this share
            of the median distance between classes.
        class_share: class-collapse when at least this share of the classes has.
        fine_kept: class-collapse when less than this share is left of what neighbours inside a
            class share fine labels above chance at the start, and the loss is beyond three standard
            errors. Runs that keep their modes keep nine tenths of it and more.
        modes_kept: the same without fine labels: less than this share of the neighbourhoods of the
            start is left (`inner_structure.modes_kept`).
        axes_share, axes_most: dimensional-collapse when 99 % of the variance lies on at most
            1 + axes_share · (room − 1) axes and on at most `axes_most`, and the classes do not
            explain it (see `judge`).
        cone_median, cone_low: cone when half of all cosines are at least `cone_median` and nine
            tenths at least `cone_low`; quantiles, so that a few outlying rows do not hide it.
            From 0.99 on every fifth nearest neighbour changes when cosines are kept in float16;
            features that no class is lost in, non-negative ones and raw pixels among them, stay
            below 0.96.
        chance_deviations: uninformative when nearest neighbours share a label no more often than
            chance and so many standard deviations of it, for shuffled labels: 2.5 % of embeddings
            that tell labels apart no better than that are let through.
        chance_room, chance_rows: and only where these deviations are at most the share
            `chance_room` of what is left above chance, and there are so many rows: with fewer,
            an embedding of some use could look the same.

    >>> Thresholds(collapse_ratio=0.05).collapse_ratio
    0.05
    """

    collapse_ratio: float = 0.01
    shrink_ratio: float = 0.25
    structure_gain: float = 0.6
    diverge_ratio: float = 1000.0
    offset_ratio: float = 1e-4
    lost_ratio: float = 0.02
    unit_diameter: float = 0.02
    rounding: float = 2.0
    margin: float | None = None
    margin_ratio: float = 0.01
    tightness: float = 0.05
    class_share: float = 0.1
    fine_kept: float = 0.7
    modes_kept: float = 0.25
    axes_share: float = 0.2
    axes_most: int = 4
    cone_median: float = 0.99
    cone_low: float = 0.98
    chance_deviations: float = 1.96
    chance_room: float = 0.15
    chance_rows: int = 100

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                check_number(field.name, value, 0.0)
        check_number("shrink_ratio", self.shrink_ratio, self.collapse_ratio)

    def easier(self, factor: float) -> Thresholds:
        """Thresholds that call more states bad, by `factor`: what a bad verdict is left by."""
        return replace(
            self,
            collapse_ratio=self.collapse_ratio * factor,
            shrink_ratio=self.shrink_ratio * factor,
            structure_gain=self.structure_gain / factor,
            diverge_ratio=self.diverge_ratio / factor,
            offset_ratio=self.offset_ratio * factor,
            lost_ratio=self.lost_ratio * factor,
            unit_diameter=self.unit_diameter * factor,
            margin_ratio=self.margin_ratio * factor,
            tightness=self.tightness * factor,
            class_share=self.class_share / factor,
            cone_median=1 - (1 - self.cone_median) * factor,
            cone_low=1 - (1 - self.cone_low) * factor,
            fine_kept=min(self.fine_kept * factor, 1.0),
            modes_kept=min(self.modes_kept * factor, 1.0),
        )
