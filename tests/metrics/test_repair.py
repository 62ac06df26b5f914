"""What a cone does to searches by cosine, counted on rows where it is known."""

import numpy as np
import pytest

from support.errors import refused, refuses
from uncollapse.metrics import fit_repair, retrieval
from uncollapse.metrics.repair import cone_effects, fit_transform


def cone(offset, *, n=300, dim=24):
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 6
    z = rng.normal(size=(6, dim))[labels] + 0.8 * rng.normal(size=(n, dim)) + offset
    return z / np.linalg.norm(z, axis=1, keepdims=True), labels


def test_recall_is_that_of_the_metric_as_they_are_and_centred():
    z, labels = cone(20)
    result = cone_effects(z, labels)
    for treated, rows in zip(result, (z, z - z.mean(0)), strict=False):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        assert treated.recall == pytest.approx(retrieval(unit, labels, ks=(1,)).recall[1])
    assert [each.name for each in result] == ["as they are", "centred", "whitened"]


def test_float16_changes_neighbours_in_a_cone_and_not_once_centred():
    shares = [cone_effects(cone(offset)[0])[0].float16 for offset in (0, 10, 40)]
    assert shares[0] < 0.05 < shares[1] < shares[2]
    assert shares[2] > 0.5
    result = cone_effects(cone(40)[0])
    assert result[1].float16 < 0.05
    assert result[1].int8 < result[0].int8
    # In float16 all cosines of these are 1: each row's nearest is one of two by luck.
    angles = np.array([0.0, 0.001, 0.003])
    z = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert cone_effects(z)[0].float16 == pytest.approx(0.5)


# Repairs, fitted on one half.


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_transform_centres_whitens_or_removes_axes(dtype):
    rng = np.random.default_rng(1)
    z = (rng.normal(size=(3000, 6)) * [5, 3, 1, 1, 1, 0.5] + 4).astype(dtype)
    wide = z.astype(np.float64)
    centred = fit_transform(z, "centre").apply(z)
    assert centred.dtype == np.float32
    np.testing.assert_allclose(centred, wide - wide.mean(0), atol=1e-5)
    white = np.cov(fit_transform(z, "whiten").apply(z).T, bias=True)
    variance = np.linalg.eigvalsh(np.cov(wide.T, bias=True))[::-1]
    expected = variance / (variance + 0.1 * variance.mean())
    np.testing.assert_allclose(white, np.diag(expected), atol=1e-4)
    left = fit_transform(z, "remove-top", 2).apply(z)
    axes = np.linalg.svd(wide - wide.mean(0), full_matrices=False)[2]
    kept = (wide - wide.mean(0)) @ (axes[2:].T @ axes[2:])
    np.testing.assert_allclose(left, kept, atol=1e-4)


def test_a_repair_is_judged_on_rows_it_was_not_fitted_on():
    z, labels = cone(20, n=400)
    repair = fit_repair(z, labels)
    order = np.random.default_rng(0).permutation(400)
    fitted, judged = np.sort(order[:200]), np.sort(order[200:])
    np.testing.assert_allclose(repair.transform.mean, z[fitted].mean(0))
    known = retrieval(z[judged], labels[judged], ks=(1,), normalize=True).recall[1]
    assert repair.recalls["cosine"].old.recall[1] == pytest.approx(known)
    assert repair.after.float16 < repair.before.float16
    assert abs(repair.after.cosine) < 0.1 < 0.9 < repair.before.cosine


def test_an_axis_that_drowns_the_classes_is_removed_and_that_helps_beyond_the_interval():
    rng = np.random.default_rng(0)
    labels = np.arange(600) % 10
    z = rng.normal(size=(10, 16))[labels] + 0.7 * rng.normal(size=(600, 16))
    drowned = z + 50 * rng.normal(size=(600, 1))
    helped = fit_repair(drowned, labels, how="remove-top", top=1).recalls
    assert all(recall.difference.low > 0.02 for recall in helped.values())
    recalls = fit_repair(z, labels).recalls
    assert recalls["cosine"].difference.low <= 0 <= recalls["cosine"].difference.high
    shifted = recalls["euclidean"].difference
    assert shifted.value == shifted.low == shifted.high == 0


def test_without_labels_a_repair_has_no_recall_and_says_what_stays():
    z, _ = cone(5)
    repair = fit_repair(z)
    assert repair.recalls == {}
    assert 0 < repair.kept <= 1


def test_what_cannot_be_repaired_is_refused():
    with refused("top"):
        fit_repair(np.eye(40), how="remove-top", top="all")
    z, labels = cone(5, n=60)
    right = {"embeddings": z, "labels": labels, "how": "remove-top", "top": 1}
    wrong = {"embeddings": [z[:15], z * np.nan, 0 * z], "labels": [labels[:9]]}
    refuses(fit_repair, right, **wrong, top=[0, 24], how=["center"])
    with refused("embeddings"):  # 30 rows in each half are few more than 24 dimensions
        fit_repair(z[:40], how="whiten")
    with refused("the repaired rows"):
        fit_repair(np.ones((20, 3)))
