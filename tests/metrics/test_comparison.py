"""Two embeddings of the same rows: known answers, and brute force."""

import numpy as np
import pytest
import torch

from support.errors import refuses
from uncollapse.metrics import compare_embeddings, retrieval
from uncollapse.metrics.comparison import paired_recall


def blobs(n=300, classes=6, dim=8, noise=0.6, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    return rng.normal(size=(classes, dim))[labels] + noise * rng.normal(size=(n, dim)), labels


def rotation(dim, wide=None, seed=1):
    """An orthogonal matrix, or its first rows: dim dimensions in `wide`."""
    size = wide or dim
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0][:dim]


@pytest.mark.parametrize("wide", [None, 20], ids=["same dimensions", "more dimensions"])
def test_a_rotated_scaled_and_shifted_copy_keeps_everything(wide):
    z, labels = blobs()
    result = compare_embeddings(z, 7 * z @ rotation(8, wide) + 3, labels)
    figures = result.figures
    assert (figures["kept_neighbours"], figures["cka"]) == pytest.approx((1, 1))
    assert figures["procrustes"] == pytest.approx(0, abs=1e-9)
    assert figures["R@1_drop"] == figures["R@1_drop_low"] == figures["R@1_drop_high"] == 0
    assert figures["threshold"] == pytest.approx(7 * figures["threshold_old"])
    assert figures["tar"] == pytest.approx(figures["tar_old"], abs=0.01)


def test_noise_loses_neighbours_shape_and_recall_beyond_the_interval():
    z, labels = blobs()
    noisy = z + 3 * np.random.default_rng(2).normal(size=z.shape)
    figures = compare_embeddings(z, noisy, labels).figures
    assert figures["kept_neighbours"] < 0.5
    assert figures["procrustes"] > 0.3
    assert figures["cka"] < 0.7
    assert 0 < figures["R@1_drop_low"] < figures["R@1_drop"] < figures["R@1_drop_high"]
    assert figures["tar"] < figures["tar_old"]


def test_procrustes_and_cka_are_those_of_their_definitions_also_with_more_dimensions_than_rows():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(12, 20)), rng.normal(size=(12, 5))
    figures = compare_embeddings(x, y).figures
    a, b = (z - z.mean(0) for z in (x, y))
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    left, _, right = np.linalg.svd(b.T @ a, full_matrices=False)
    turned = b @ left @ right  # the best orthogonal map of b into a's space
    scale = (turned * a).sum()
    assert figures["procrustes"] == pytest.approx(((a - scale * turned) ** 2).sum())
    grams = [z @ z.T for z in (a, b)]
    hsic = (grams[0] * grams[1]).sum()
    assert figures["cka"] == pytest.approx(hsic / np.prod([np.linalg.norm(g) for g in grams]))


def test_kept_neighbours_are_counted_by_brute_force_and_the_most_changed_rows_come_first():
    z, labels = blobs(60)
    other = z.copy()
    other[:5] = z[:5] + 4
    result = compare_embeddings(z, other, labels, k=4)
    for at, row in enumerate(result.queries):
        near = []
        for side in (z, other):
            distances = np.linalg.norm(side - side[row], axis=1)
            distances[row] = np.inf
            near.append(set(np.argsort(distances)[:4].tolist()))
        assert result.kept[at] == len(near[0] & near[1]) / 4
    order = result.most_changed()
    lost = result.recall.changes[order]
    assert lost.tolist() == sorted(lost.tolist())
    ties = result.kept[order][lost == 0]
    assert ties.tolist() == sorted(ties.tolist())


def test_recall_is_that_of_retrieval_on_the_same_sample_and_the_paired_interval_is_narrow():
    z, labels = blobs(400, noise=1.2)
    moved = z + 0.05 * np.random.default_rng(4).normal(size=z.shape)
    result = compare_embeddings(z, moved, labels, max_queries=150)
    assert len(result.queries) == 150
    for side, figure in ((z, "R@1_old"), (moved, "R@1")):
        known = retrieval(side, labels, rows=result.queries).recall[1]
        assert result.figures[figure] == pytest.approx(known)
    gain = result.recall.difference
    assert gain.low <= result.figures["R@1"] - result.figures["R@1_old"] <= gain.high
    assert gain.high - gain.low < 0.1  # two of 150 queries by themselves: about 0.15 each


@pytest.mark.parametrize("cosine", [False, True])
def test_the_new_threshold_accepts_as_many_different_pairs_as_the_old_one(cosine):
    z, labels = blobs(200)
    other = 2 * z @ rotation(8, 12)[:, :10] + 0.5
    old = 0.8 if cosine else 2.0
    figures = compare_embeddings(z, other, labels, normalize=cosine, threshold=old).figures
    assert figures["threshold_old"] == pytest.approx(old)
    for side, name in ((z, "_old"), (other, "")):
        unit = side / np.linalg.norm(side, axis=1, keepdims=True)
        values = unit @ unit.T if cosine else -np.linalg.norm(side[:, None] - side, axis=2)
        limit = figures[f"threshold{name}"] * (1 if cosine else -1)
        for rate, pairs in (("far", labels[:, None] != labels), ("tar", labels[:, None] == labels)):
            pairs = pairs & ~np.eye(200, dtype=bool)
            share = (values[pairs] >= limit).mean()
            # Drawn pairs: 200,000 of two labels, one for each row of one label.
            assert figures[f"{rate}{name}"] == pytest.approx(
                share, abs=0.003 if rate == "far" else 0.1
            )


def test_what_cannot_be_known_is_none():
    z, _ = blobs(30)
    figures = compare_embeddings(z, z).figures
    assert figures["R@1"] is figures["threshold"] is figures["tar_old"] is None
    alone = compare_embeddings(z, z, np.arange(30))
    assert alone.recall is alone.figures["R@1"] is alone.figures["threshold_old"] is None
    assert compare_embeddings(z, z * 0).figures["procrustes"] is None
    strict = compare_embeddings(z, 2 * z, np.arange(30) % 3, threshold=0.0).figures
    assert strict["far_old"] == 0
    assert strict["threshold"] is None


def test_half_precision_is_compared_without_a_foreign_error():
    z, labels = blobs(60)
    half = torch.from_numpy(z).half()
    assert compare_embeddings(z.astype(np.float32), half, labels).figures["kept_neighbours"] > 0.9


def test_wrong_arguments_are_refused_by_name():
    z, labels = blobs(30)
    right = {"old": z, "new": z, "labels": labels}
    wrong = {"old": [z[:2], z[0]], "new": [z[:9], z * np.nan], "labels": [labels[:5]], "k": [0]}
    refuses(compare_embeddings, right, **wrong, threshold=[-1.0, np.nan], max_queries=[2])
    with_zero = np.vstack([z[:-1], 0 * z[:1]])
    refuses(compare_embeddings, right | {"normalize": True}, threshold=[1.5], new=[with_zero])


def test_no_query_with_a_match_gives_no_recall():
    z, _ = blobs(20)
    assert paired_recall(z, z, np.arange(20), np.arange(20), normalize=False) is None
