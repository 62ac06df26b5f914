"""The figures by which the literature tells collapse, all of them for one embedding."""

from __future__ import annotations

import numpy as np

from uncollapse._base.arrays import ArrayLike, numbers64, points64
from uncollapse._base.check import InputError
from uncollapse._base.classes import ClassLayout
from uncollapse.metrics.class_density import pi_ratio
from uncollapse.metrics.discriminant_rank import lidar
from uncollapse.metrics.hypersphere import alignment, anisotropy, uniformity
from uncollapse.metrics.neural_collapse import cdnv, nc1, nc2, nc3, nc4
from uncollapse.metrics.principal import effective_rank
from uncollapse.metrics.spectral import alpha_req, pcf, rankme, rho_spectrum

__all__ = ["field_figures"]


def field_figures(
    x: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    sample: int | None = 2048,
    seed: int = 0,
) -> dict[str, float]:
    """Every published figure of collapse that these rows allow, by name, each with its defaults.

    Without labels those of the spectrum and of the directions; with them also LiDAR, NC1, NC2, the
    error of the nearest class mean (`ncc_error`), CDNV, alignment and π; with a classifier's
    `weight` `[C, dim]`, rows in the order of the sorted labels, and `bias` also NC3 and NC4. What
    takes all pairs, uniformity and the quantiles of the cosine, is taken of `sample` rows chosen by
    `seed` (of all with None). A figure that has no value for these rows is NaN; the functions say
    when.

    >>> list(field_figures([[1.0, 0.0], [0.0, 1.0]]))[:4]
    ['rankme', 'effective_rank', 'alpha_req', 'rho_spectrum']
    """
    rows = points64(x, min_rows=2)
    cosines = anisotropy(rows, sample=sample, seed=seed)
    figures = {
        "rankme": rankme(rows),
        "effective_rank": effective_rank(rows),
        "alpha_req": alpha_req(rows),
        "rho_spectrum": rho_spectrum(rows),
        "pcf": pcf(rows),
        "uniformity": uniformity(rows, sample=sample, seed=seed),
        "cosine_mean": cosines.mean,
        **{f"cosine_q{100 * level:02.0f}": value for level, value in cosines.quantiles.items()},
    }
    if labels is None:
        if weight is not None or bias is not None:
            raise InputError("labels", "None", "labels, where a classifier is given")
        return figures
    layout = ClassLayout.of(labels, len(rows))
    simplex, density = nc2(rows, layout.ids), pi_ratio(rows, layout.ids)
    figures |= {
        "lidar": lidar(rows, layout.ids),
        "nc1": nc1(rows, layout.ids),
        "nc2_equinorm": simplex.equinorm,
        "nc2_equiangular": simplex.equiangular,
        "nc2_maximal_angle": simplex.maximal_angle,
        "ncc_error": nc4(rows, layout.ids, layout.ids),
        "cdnv": cdnv(rows, layout.ids),
        "alignment": alignment(rows, layout.ids),
        "pi_intra": density.intra,
        "pi_inter": density.inter,
        "pi_ratio": density.ratio,
    }
    if weight is None:
        if bias is not None:
            raise InputError("weight", "None", "the weight that the bias belongs to")
        return figures
    figures["nc3"] = nc3(rows, layout.ids, weight)
    logits = rows @ points64(weight, "weight").T
    if bias is not None:
        shift = numbers64(bias, "bias")
        if len(shift) != logits.shape[1]:
            allowed = f"{logits.shape[1]}, one for each row of weight"
            raise InputError("bias", f"{len(shift)} numbers", allowed)
        logits = logits + shift
    return figures | {"nc4": nc4(rows, layout.ids, np.argmax(logits, axis=1))}
