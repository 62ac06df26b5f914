"""Numbers that published code gives for one fixed embedding.

From running it: Roth et al.'s metrics/rho_spectrum.py and dists.py, Wang & Isola's align_uniform,
the PCA of open-metric-learning. From its expressions, written out on these rows: the notebook of
neuralcollapse, `stringer_get_powerlaw` (used by α-ReQ), the LiDAR callback of stable-pretraining.
"""

from __future__ import annotations

import numpy as np
import pytest

from uncollapse import metrics

ROW, COLUMN = np.arange(120)[:, None], np.arange(1, 9)
LABELS = np.arange(120) % 5
X = np.sin(1 + 0.7 * ROW * COLUMN) / COLUMN + np.cos(LABELS[:, None] * (COLUMN + 1)) + 0.2
W = np.sin(np.arange(40).reshape(5, 8) + 1.0)


def test_wang_and_isola():
    assert metrics.uniformity(X) == pytest.approx(-1.8534762888783276, rel=1e-12)
    views = np.arange(120) % 60  # rows i and i + 60 are a positive pair
    assert metrics.alignment(X, views) == pytest.approx(0.3152366490722649, rel=1e-12)


def test_roth_et_al():
    assert metrics.rho_spectrum(X) == pytest.approx(0.26651584067192163, rel=1e-12)
    assert metrics.rho_spectrum(X, skip=1) == pytest.approx(0.23066738633820894, rel=1e-12)
    found = metrics.pi_ratio(X / np.linalg.norm(X, axis=1, keepdims=True), LABELS)
    assert found.intra == pytest.approx(0.12517365711040232, rel=1e-12)
    assert found.inter == pytest.approx(0.9119524258219535, rel=1e-12)
    assert found.ratio == pytest.approx(0.13725897707611429, rel=1e-12)


def test_open_metric_learning():
    assert [metrics.pcf(X, variance=share) for share in (0.5, 0.9)] == [0.25, 0.5]


def test_papyan_et_al():
    assert metrics.nc1(X, LABELS) == pytest.approx(0.34467539893570903 / 5, rel=1e-9)
    found = metrics.nc2(X, LABELS)
    assert found.equinorm == pytest.approx(0.1112908810279696, rel=1e-9)
    assert found.maximal_angle == pytest.approx(0.11064788536227468, rel=1e-7)  # part float32
    assert metrics.nc3(X, LABELS, W) == pytest.approx(1.61087386913101, rel=1e-9)
    predicted = (X @ W.T).argmax(axis=1)
    assert metrics.nc4(X, LABELS, predicted) == pytest.approx(0.7083333333333333, rel=1e-12)


def test_agrawal_et_al():
    assert metrics.alpha_req(X) == pytest.approx(6.633566141307044, rel=1e-9)


def test_thilak_et_al():
    # That code has (λ + eps)/Σ(λ + eps) for λ/Σλ + eps: the same but for eps, 1e-8.
    assert metrics.lidar(X, LABELS) == pytest.approx(3.25561442147439, rel=1e-6)
