from __future__ import annotations

import math

import numpy as np
import pytest

from uncollapse import metrics
from uncollapse._base.check import InputError
from uncollapse.metrics import field_figures

RNG = np.random.default_rng(0)
LABELS = np.array(list("abcd"))[np.arange(80) % 4]
MEANS = 3 * RNG.normal(size=(4, 12))
X = MEANS[np.arange(80) % 4] + RNG.normal(size=(80, 12))
WITHOUT = {
    "rankme", "effective_rank", "alpha_req", "rho_spectrum", "pcf", "uniformity", "cosine_mean",
    "cosine_q05", "cosine_q25", "cosine_q50", "cosine_q75", "cosine_q95",
}  # fmt: skip
WITH = {
    "lidar", "nc1", "nc2_equinorm", "nc2_equiangular", "nc2_maximal_angle", "ncc_error", "cdnv",
    "alignment", "pi_intra", "pi_inter", "pi_ratio",
}  # fmt: skip


def test_every_figure_is_there_and_is_that_of_its_function():
    found = field_figures(X, LABELS)
    assert set(found) == WITHOUT | WITH
    assert all(isinstance(v, float) and math.isfinite(v) for v in found.values())
    for name in ("rankme", "effective_rank", "alpha_req", "rho_spectrum", "pcf", "uniformity"):
        assert found[name] == getattr(metrics, name)(X)
    for name in ("lidar", "nc1", "cdnv", "alignment"):
        assert found[name] == getattr(metrics, name)(X, LABELS)
    assert found["pi_ratio"] == metrics.pi_ratio(X, LABELS).ratio
    assert found["cosine_q95"] == metrics.anisotropy(X).quantiles[0.95]


def test_without_labels_there_are_those_that_need_none():
    found = field_figures(X)
    assert set(found) == WITHOUT
    assert found == {name: field_figures(X, LABELS)[name] for name in WITHOUT}


def test_one_point_gives_every_figure_a_documented_value():
    found = field_figures(np.full((80, 12), 0.1), LABELS)
    expected = {
        "rankme": 1, "effective_rank": 0, "alpha_req": math.inf, "rho_spectrum": math.inf,
        "pcf": 0, "uniformity": 0, "cosine_mean": 1, "cosine_q05": 1, "cosine_q25": 1,
        "cosine_q50": 1, "cosine_q75": 1, "cosine_q95": 1, "lidar": 0, "nc1": math.inf,
        "nc2_equinorm": math.nan, "nc2_equiangular": math.nan, "nc2_maximal_angle": math.nan,
        "ncc_error": 1, "cdnv": 0, "alignment": 0, "pi_intra": 0, "pi_inter": 0,
        "pi_ratio": math.nan,
    }  # fmt: skip
    assert found == pytest.approx(expected, abs=1e-4, nan_ok=True)


def test_a_cone_is_seen_in_directions_and_uncentred_spectra_alone():
    plain, cone = field_figures(X, LABELS), field_figures(X + 1e3, LABELS)
    assert cone["cosine_q05"] > 0.999 > plain["cosine_q95"]
    assert cone["uniformity"] > -1e-3 > -1 > plain["uniformity"]
    assert cone["rankme"] < 1.2 < 5 < plain["rankme"]
    assert cone["rho_spectrum"] > 10 * plain["rho_spectrum"]
    for name in ("effective_rank", "alpha_req", "pcf", "lidar", "nc1", "cdnv", "nc2_equinorm"):
        assert cone[name] == pytest.approx(plain[name], rel=1e-6)
    assert cone["alignment"] < 1e-4 * plain["alignment"]  # a cone aligns


def test_unused_axes_are_seen_in_the_spectrum_alone():
    round_about = np.random.default_rng(1).normal(size=(80, 12))
    plain, found = field_figures(round_about), field_figures(round_about * (np.arange(12) < 5))
    assert (found["rho_spectrum"], found["alpha_req"]) == (math.inf, math.inf)
    assert found["pcf"] <= 5 / 12 < 8 / 12 < plain["pcf"]
    assert max(found["rankme"], found["effective_rank"]) < 5.001 < 10 < plain["rankme"]
    assert found["cosine_mean"] == pytest.approx(plain["cosine_mean"], abs=0.05)


def test_classes_that_are_points_are_seen_with_labels_alone():
    found, plain = field_figures(X, LABELS), field_figures(MEANS[np.arange(80) % 4], LABELS)
    for name in ("nc1", "cdnv", "alignment", "pi_intra", "pi_ratio"):
        assert plain[name] < 1e-12 < 1e-3 < found[name]
    assert plain["lidar"] < 3.001
    assert plain["uniformity"] < -0.5


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_scale_changes_lidar_alone(scale):
    found, plain = field_figures(scale * X, LABELS), field_figures(X, LABELS)
    del found["lidar"], plain["lidar"]
    assert found == pytest.approx(plain, rel=1e-7)


def test_labels_of_other_rows_are_an_error():
    with pytest.raises(InputError) as error:
        field_figures(X, LABELS[:5])
    assert error.value.name == "labels"
