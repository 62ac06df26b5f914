"""Figures of collapse: against loops over their formulas, published code's numbers, known cases."""

import math

import numpy as np
import pytest

from support.errors import refuses
from uncollapse import metrics
from uncollapse.metrics import (
    alignment,
    anisotropy,
    effective_rank,
    modes_per_class,
    nc1,
    rankme,
    uniformity,
)

ONE_POINT = np.full((80, 12), 0.1)


def gaussian(seed=0, n=200, dim=8, scales=1.0):
    return np.random.default_rng(seed).normal(size=(n, dim)) * scales


def labelled(seed=0, count=4, dim=6, spread=0.5):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.r_[np.arange(count).repeat(2), rng.integers(0, count, 50)])
    inside = spread * rng.normal(size=(len(labels), dim))
    return rng.normal(size=(count, dim))[labels] + inside, labels


# ---- numbers that published code gives for one fixed embedding
#
# From running it: Roth et al.'s metrics/rho_spectrum.py and dists.py, Wang & Isola's align_uniform,
# the PCA of open-metric-learning. From its expressions, written out on these rows: the notebook of
# neuralcollapse.

COLUMN = np.arange(1, 9)
WAVE_LABELS = np.arange(120) % 5
WAVES = np.sin(1 + 0.7 * np.arange(120)[:, None] * COLUMN) / COLUMN
WAVES = WAVES + np.cos(WAVE_LABELS[:, None] * (COLUMN + 1)) + 0.2


def test_the_numbers_of_published_code():
    for value, published, digits in [
        (uniformity(WAVES), -1.8534762888783276, 1e-12),  # Wang & Isola
        # rows i and i + 60 are a positive pair
        (alignment(WAVES, np.arange(120) % 60), 0.3152366490722649, 1e-12),
        (nc1(WAVES, WAVE_LABELS), 0.34467539893570903 / 5, 1e-9),  # Papyan et al.
    ]:
        assert value == pytest.approx(published, rel=digits)


# ---- all of them at once

X, LABELS = labelled(count=4, dim=12, spread=0.3)
LABELS = np.array(list("abcd"))[LABELS]
# What each is for one point, without labels and with them.
WITHOUT = {"rankme": 1, "effective_rank": 0, "uniformity": 0}
WITH = {"nc1": math.inf, "cdnv": 0, "alignment": 0}


def every_figure(x, labels):
    figures = {name: getattr(metrics, name)(x) for name in WITHOUT}
    return figures | {name: getattr(metrics, name)(x, labels) for name in WITH}


def test_one_point_gives_every_figure_a_documented_value():
    figures = every_figure(ONE_POINT, np.arange(80) % 4)
    assert figures == pytest.approx(WITHOUT | WITH, abs=1e-4, nan_ok=True)


def test_a_cone_is_seen_in_directions_and_uncentred_spectra_alone():
    plain, cone = every_figure(X, LABELS), every_figure(X + 1e3, LABELS)
    assert anisotropy(X + 1e3).quantiles[0.05] > 0.999 > anisotropy(X).quantiles[0.95]
    assert cone["uniformity"] > -1e-3 > -1 > plain["uniformity"]
    assert cone["rankme"] < 1.2 < 3 < plain["rankme"]
    assert cone["alignment"] < 1e-4 * plain["alignment"]  # a cone aligns
    for name in ("effective_rank", "nc1", "cdnv"):
        assert cone[name] == pytest.approx(plain[name], rel=1e-6)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_scale_changes_none(scale):
    scaled, plain = every_figure(scale * X, LABELS), every_figure(X, LABELS)
    assert scaled == pytest.approx(plain, rel=1e-7)


# ---- neural collapse


def simplex(count, dim, seed=0):
    """Corners of a regular simplex about the origin, turned at random."""
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, dim)))[0]
    return (np.eye(count, dim) - np.r_[np.full(count, 1 / count), np.zeros(dim - count)]) @ turn


def means_by_loops(x, labels):
    means = np.array([x[labels == c].mean(axis=0) for c in np.unique(labels)])
    return means - means.mean(axis=0)


@pytest.mark.parametrize("count", [2, 7])
def test_classes_that_are_points_have_no_nc1(count):
    corners, labels = simplex(count, 8), np.repeat(np.arange(count), 5)
    x = 3.0 * corners[labels] + 17.0
    assert nc1(x, labels) == pytest.approx(0, abs=1e-25)


@pytest.mark.parametrize("seed", range(2))
def test_nc1_is_that_of_loops_over_rows(seed):
    x, labels = labelled(seed)
    means = means_by_loops(x, labels)
    within = np.zeros((6, 6))
    for row, label in zip(x, labels, strict=True):
        left = row - x[labels == label].mean(axis=0)
        within += np.outer(left, left) / len(x)
    between = np.linalg.pinv(means.T @ means / 4, rcond=1e-10)
    assert nc1(x, labels) == pytest.approx(np.trace(within @ between) / 4, rel=1e-9)


# ---- directions


def sphere(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


PAIRS = [(i, j) for i in range(40) for j in range(i + 1, 40)]
ROWS = gaussian(n=40, dim=5) + 0.3


def test_alignment_is_the_mean_over_positive_pairs():
    labels, u = np.random.default_rng(1).integers(0, 5, 40), sphere(ROWS)
    gaps = [np.linalg.norm(u[i] - u[j]) ** 2 for i, j in PAIRS if labels[i] == labels[j]]
    for scale in (1.0, 1e-200, 1e200):
        assert alignment(scale * ROWS, labels) == pytest.approx(np.mean(gaps), rel=1e-9)
    near = np.array([[1.0, 0.0], [1.0, 1e-9]])
    assert alignment(near, [0, 0]) == pytest.approx(1e-18, rel=1e-6)
    assert math.isnan(alignment(ROWS, np.arange(40)))


@pytest.mark.parametrize("t", [0.5, 2.0, 2000.0])
def test_uniformity_is_the_log_of_the_mean_over_pairs_also_in_blocks(t, monkeypatch):
    u = sphere(ROWS)
    logs = [-t * float(((u[i] - u[j]) ** 2).sum()) for i, j in PAIRS]
    top = max(logs)
    expected = top + math.log(sum(math.exp(v - top) for v in logs) / len(logs))
    assert uniformity(7e180 * u, t=t) == pytest.approx(expected, rel=1e-9)
    monkeypatch.setattr("uncollapse.metrics.collapse._BLOCK", 6)
    assert uniformity(u, t=t) == pytest.approx(expected, rel=1e-9)


def test_anisotropy_is_that_of_all_pairs():
    u = sphere(ROWS)
    cosines = [float(u[i] @ u[j]) for i, j in PAIRS]
    result = anisotropy(1e-200 * ROWS)
    assert result.mean == pytest.approx(np.mean(cosines), abs=1e-12)
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    expected = {level: np.quantile(cosines, level) for level in levels}
    assert result.quantiles == pytest.approx(expected, abs=1e-12)


def test_anisotropy_of_a_cone_is_right_to_what_is_missing_to_1():
    x = np.c_[np.ones(300), 1e-5 * np.random.default_rng(0).normal(size=(300, 50))]
    u = x[:, 1:] - x[:, 1:].mean(axis=0)
    result = anisotropy(x)
    assert 1 - result.mean == pytest.approx((u**2).sum() / 299, rel=1e-4)
    assert 0 < 1 - result.quantiles[0.95] < 1 - result.quantiles[0.05] < 2e-8


def test_a_row_of_zeros_has_cosine_0():
    result = anisotropy([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]], quantiles=(0.0, 1.0))
    assert result.mean == pytest.approx(1 / 3)
    assert result.quantiles == {0.0: 0.0, 1.0: 1.0}
    assert anisotropy(np.zeros((4, 2))).mean == 0.0


def test_a_sample_is_one_of_the_rows_chosen_by_the_seed():
    x = gaussian(n=300, dim=5) + 0.3
    some = uniformity(x, sample=100, seed=3)
    assert some == uniformity(x, sample=100, seed=3) != uniformity(x, sample=100, seed=4)
    assert some == pytest.approx(uniformity(x), abs=0.3)
    assert uniformity(x, sample=300) == uniformity(x, sample=None)
    assert anisotropy(x, sample=100).mean == anisotropy(x).mean  # of all rows, always


# ---- class density


def mean_pair(rows):
    cosines = [a @ b / math.sqrt((a @ a) * (b @ b)) for a in rows for b in rows if a is not b]
    return 1 - float(np.mean(cosines))


# ---- the spectrum


def orthogonal(values, rows, seed=0):
    """Centred rows whose singular values are these, in random directions."""
    rng = np.random.default_rng(seed)
    dim = len(values)
    about = rng.normal(size=(rows, dim))
    left = np.linalg.qr(about - about.mean(axis=0))[0]
    right = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    return left * values @ right.T


@pytest.mark.parametrize("seed", range(2))
def test_rankme_is_the_sum_of_its_paper(seed):
    x = gaussian(seed, 50, 7) + seed
    values = np.sqrt(np.linalg.eigvalsh(x.T @ x))
    p = values / values.sum() + 1e-7
    assert rankme(x) == pytest.approx(math.exp(-(p * np.log(p)).sum()), rel=1e-9)


def test_rankme_sees_place_and_effective_rank_does_not():
    x = gaussian()
    for scale in (1e-200, 1e200):
        assert rankme(x * scale) == pytest.approx(rankme(x), rel=1e-12)
    assert rankme(x + 1e6) < 1.01
    assert effective_rank(x + 1e6) == pytest.approx(effective_rank(x), rel=1e-6)
    assert rankme(ONE_POINT, eps=0) == 1.0
    assert rankme(np.zeros((20, 5))) == 0.0


@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.7, 1e300, 1e-300])
@pytest.mark.parametrize("n", [3, 7, 12, 80, 300])
def test_one_point_anywhere_has_effective_rank_0_and_no_axis_in_use(value, n):
    """The mean of equal numbers need not be that number: what is left is not an axis."""
    x = np.full((n, 3), value)
    assert effective_rank(x) == 0.0


# ---- modes


def lumps(seed, m, dim, per=40):
    """m Gaussian lumps, all at the same distance from each other (on a circle in the plane)."""
    rng = np.random.default_rng(seed)
    apart = 8 + 1.5 * np.sqrt(dim)
    if dim == 2:
        angle = 2 * np.pi * np.arange(m) / m
        radius = apart / 2 / np.sin(np.pi / max(m, 2))
        middles = radius * np.c_[np.cos(angle), np.sin(angle)]
    else:
        middles = np.linalg.qr(rng.normal(size=(dim, m)))[0].T * apart / np.sqrt(2)
    return np.repeat(middles, per, axis=0) + rng.normal(size=(m * per, dim))


@pytest.mark.parametrize(("dim", "size"), [(2, 12), (8, 60), (32, 250), (128, 12), (128, 60)])
def test_one_gaussian_lump_is_one_mode(dim, size):
    x = np.random.default_rng(dim + size).normal(size=(3 * size, dim))
    assert modes_per_class(x, np.repeat(np.arange(3), size)).modes.tolist() == [1.0] * 3


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "m"), [(2, 5), (8, 2), (32, 3), (128, 5)])
def test_lumps_that_are_apart_are_counted(dim, m):
    x = np.concatenate([lumps(seed, m, dim) for seed in range(2)])
    labels = np.repeat(np.arange(2), m * 40)
    assert modes_per_class(x, labels).modes.tolist() == [float(m)] * 2


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["uniform", "heavy tails", "on a sphere", "skewed", "a cigar"])
@pytest.mark.parametrize("dim", [2, 32])
def test_a_single_lump_of_another_shape_is_one_mode(shape, dim):
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(200, dim))
    x = {
        "uniform": rng.uniform(size=(200, dim)),
        "heavy tails": rng.standard_t(5, size=(200, dim)),
        "on a sphere": sphere(normal + 4 * np.eye(dim)[0]),
        "skewed": np.exp(normal / 2),
        "a cigar": normal * np.r_[20, np.ones(dim - 1)],
    }[shape]
    assert modes_per_class(x, np.repeat([0, 1], 100)).modes.tolist() == [1.0] * 2


def test_the_number_of_modes_does_not_depend_on_scale_or_place():
    x = lumps(0, 3, 8, per=20)
    for moved in (x, 1e-6 * x + 1, 1e6 * x):
        assert modes_per_class(moved, np.zeros(len(x), int)).modes.tolist() == [3.0]


def test_a_few_stray_points_are_no_mode():
    x = np.concatenate([np.random.default_rng(0).normal(size=(100, 4)), np.full((2, 4), 50.0)])
    assert modes_per_class(x, [0] * 102).modes.tolist() == [1.0]


def test_a_collapsed_class_has_one_mode_and_a_tiny_class_is_unknown():
    result = modes_per_class(np.zeros((27, 3)), [0] * 20 + [1] * 7)
    assert result.modes.tolist() == pytest.approx([1.0, math.nan], nan_ok=True)
    assert result.to_dict()["classes_unknown"] == 1


def test_fine_classes_apart_are_modes_and_merged_ones_are_one():
    rng = np.random.default_rng(0)
    fine, labels = np.tile(np.repeat(np.arange(4), 25), 3), np.repeat(np.arange(3), 100)
    middles = np.zeros((3, 4, 2))
    middles[0] = [[0, 0], [50, 0], [0, 50], [50, 50]]  # four apart
    middles[1] = [[0, 0], [50, 0], [0, 0], [0, 0]]  # one apart, three merged
    x = middles[labels, fine] + rng.normal(size=(300, 2))
    result = modes_per_class(x, labels, fine)
    assert result.modes.tolist() == [4.0, 2.0, 1.0]
    assert result.separation[0] == 1.0
    assert result.separation[2] < 0.2


def test_exact_collapse_keeps_one_mode_whatever_the_fine_labels():
    result = modes_per_class(np.ones((40, 3)), [0] * 40, np.arange(40) % 4)
    assert (result.modes.tolist(), result.separation.tolist()) == ([1.0], [0.0])


def test_fine_classes_of_one_sample_are_left_out():
    result = modes_per_class([[0.0], [0.1], [9.0], [9.1], [30.0]], [0] * 5, list("aabbc"))
    assert (result.fine_classes.tolist(), result.modes.tolist()) == ([2], [2.0])
    assert np.isnan(modes_per_class([[0.0], [1.0]], [0, 0], ["a", "b"]).modes).all()


def test_what_cannot_be_used_is_refused_by_name():
    x = {"x": gaussian(dim=3)}
    refuses(rankme, x, eps=[-1], x=[[[math.nan]]])
    refuses(uniformity, x, t=[-1], sample=[1], x=[[[1.0]]])
    refuses(anisotropy, x, quantiles=[[1.5], 0.5], x=[[[1.0]]])
    refuses(alignment, x, labels=[[0, 1]])
