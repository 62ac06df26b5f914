"""Embeddings at the ends of float64: ratios stay what they are, and nothing overflows."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import uncollapse as uc
from uncollapse.metrics import cdnv, nc1
from uncollapse.metrics.collapse import spectrum
from uncollapse.report.parts import project

LABELS = np.repeat([0, 1, 2], 14)
X = np.random.default_rng(0).normal(size=(42, 3)) + 9 * np.eye(3)[LABELS]


@pytest.mark.parametrize("scale", [1e300, 1e200, 1e-200, 1e-300])
def test_a_diagnosis_is_that_of_the_same_shape_at_scale_one(scale: float):
    plain = uc.diagnose(X, LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # overflow is one
        found = uc.diagnose(X * scale, LABELS)
        page = found.page().render()
    assert found.verdict == plain.verdict == "healthy"
    assert found.scores == plain.scores
    for name in ("diameter", "spread", "centre_norm", "separation"):
        assert getattr(found.health, name) / scale == pytest.approx(getattr(plain.health, name))
    for name in ("nc1", "cdnv", "effective_rank", "agreement", "within_share"):
        assert getattr(found.health, name) == pytest.approx(getattr(plain.health, name))
    for name in ("smallest", "mean", "largest"):
        long, short = getattr(found.health.norms, name), getattr(plain.health.norms, name)
        assert long / scale == pytest.approx(short)
    shares = [spectrum(x).shares for x in (X * scale, X)]
    np.testing.assert_allclose(*shares, rtol=1e-9)
    assert np.isfinite(project(X * scale)).all()
    assert "nan" not in page.lower().split()


@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_statistics_and_monitor_do_not_overflow(scale: float):
    assert nc1(X * scale, LABELS) == pytest.approx(nc1(X, LABELS))
    assert cdnv(X * scale, LABELS) == pytest.approx(cdnv(X, LABELS))
    assert uc.CollapseMonitor().update(X * scale, LABELS).verdict == "healthy"


@pytest.mark.parametrize("scale", [1e300, 1e200, 1e150, 1e-150, 1e-200, 1e-300])
@pytest.mark.parametrize("given", [True, False])
def test_clusters_are_found_at_any_scale(scale: float, given: bool):
    def run(x: np.ndarray) -> uc.metrics.KMeansResult:
        return uc.metrics.kmeans(x, 3, init=x[[0, 14, 28]] if given else None)

    plain, found = run(X), run(X * scale)
    assert found.labels.tolist() == plain.labels.tolist()
    np.testing.assert_allclose(found.centres / scale, plain.centres, atol=1e-5)
    if 1e-150 <= scale <= 1e150:
        assert found.inertia / scale / scale == pytest.approx(plain.inertia)
    else:  # no float64 holds it
        assert found.inertia == (np.inf if scale > 1 else 0.0)
    assert uc.clustering(X * scale, LABELS).nmi == uc.clustering(X, LABELS).nmi
