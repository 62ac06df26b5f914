"""Diagnoses: the verdict of health, figures of metrics, and a page that says what was sampled."""

import re

import numpy as np
import pytest
import torch

from support.errors import refuses
from uncollapse.health import measure
from uncollapse.metrics import clustering, retrieval
from uncollapse.report import diagnose
from uncollapse.report.diagnosis import cone_effects

POINT = "Network collapse: all embeddings have gone to one point"


def blobs(spread, *, classes=6, each=20, dim=8, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), each)
    centres = rng.normal(size=(classes, dim))
    return centres[labels] + spread * rng.normal(size=(len(labels), dim)), labels


@pytest.mark.parametrize(
    ("state", "verdict", "words"),
    [
        ("healthy", "healthy", "Healthy: no collapse found"),
        ("class", "class-collapse", "Class collapse: classes have become points"),
        ("network", "network-collapse", POINT),
        ("flat", "dimensional-collapse", "Dimensional collapse: few of the axes are used"),
        ("nan", "diverging", "Diverging: the embedding grows without bound"),
        ("small", "network-collapse", POINT),
    ],
)
def test_the_verdict_comes_first_on_the_page_in_words(state, verdict, words):
    z, labels = blobs(0.3)
    reference = None
    if state == "class":
        z, _ = blobs(1e-3)
    elif state == "network":
        z = (1e-5 * z + 7).astype(np.float32)
    elif state == "flat":
        z = np.outer(z[:, 0] + labels % 3, np.arange(1, 9.0))
    elif state == "nan":
        z[3, 2] = np.nan
    elif state == "small":
        z, reference = z * 1e-4, 10.0
    result = diagnose(z, labels, reference=reference)
    assert result.verdict == verdict == measure(z, labels, reference=reference).verdict
    assert str(result).startswith(verdict)
    text = result.page().render()
    assert re.findall(r"<h2 [^>]*>.*?<span>(.*?)</span></h2>", text)[0] == words
    assert all(reason.split(" (")[0] in str(result) for reason in result.reasons)


def test_scores_are_those_of_the_metrics():
    z, labels = blobs(0.8)
    fine = labels * 2 + np.arange(len(labels)) % 2
    result = diagnose(z, labels, fine)
    for kind, by in (("label", labels), ("fine label", fine)):
        ranked = retrieval(z, by, ks=(1, 2, 4, 8))
        assert result.scores[kind]["R@1"] == ranked.recall[1]
        assert result.scores[kind]["MAP@R"] == ranked.map_at_r
        assert result.scores[kind]["NMI"] == clustering(z, by).nmi
    assert result.scores["label"]["NMI+"] == clustering(z, labels, multiplier=10).nmi
    assert "NMI+" not in result.scores["fine label"]  # 120 clusters for 120 rows say nothing


@pytest.mark.slow
def test_classes_stand_in_the_order_of_their_collapse():
    z, labels = blobs(0.5, classes=20)
    z[labels == 13] = z[labels == 13].mean(0)
    text = diagnose(z, labels).page().render()
    order = re.findall(r'<th scope="row" class="n" data-v="(\d+)">', text)
    assert order[0] == "13"
    assert len(order) == 20
    assert text.count('<tr class="more">') == 8
    assert text == diagnose(z, labels).page().render()  # the same input gives the same page


def test_without_labels_nothing_is_said_of_classes_and_fine_labels_alone_are_scored():
    z, labels = blobs(0.5)
    bare = diagnose(z)
    assert bare.scores == {}
    assert "all pairs" in bare.page().render()
    fine = diagnose(z, fine_labels=labels)
    assert list(fine.scores) == ["fine label"]
    assert "By fine label" in fine.page().render()


@pytest.mark.slow
def test_what_was_sampled_is_stated():
    z, labels = blobs(0.5, each=400)
    text = diagnose(z, labels, max_rows=60, modes=False).page().render()
    assert "On 60 of 2,400 rows" in text
    assert ", 2,000 of 2,400 rows" in text  # the map


def test_the_rows_used_stand_beside_the_figure_in_the_text_and_on_the_page():
    z, labels = blobs(0.5, classes=3)
    for most, words in ((30, "30 of 60 rows, the limit"), (60, "all 60 rows")):
        result = diagnose(z, labels, labels % 2, max_rows=most, modes=False)
        for line, kind in zip(str(result).splitlines()[-2:], ("label", "fine label"), strict=True):
            assert line.startswith(f"  by {kind}, on {words}: R@1 ")
        page = re.sub(r"<[^>]*>", " ", result.page().render())
        assert f"R@1, by label, on {words}" in page
        assert re.search(rf"\blabel\s+{re.escape(words.replace(' rows', ''))}", page)


@pytest.mark.slow
def test_many_rows_are_scored_whole_and_as_retrieval_scores_them():
    rng = np.random.default_rng(0)
    labels = np.arange(10_400) // 2  # pairs: too many classes to cluster
    z = rng.normal(size=(5200, 4))[labels] + 0.05 * rng.normal(size=(10_400, 4))
    result = diagnose(z, labels, modes=False)
    assert len(result.scored) == 10_400
    assert result.scores["label"]["R@1"] == retrieval(z, labels).recall[1]
    assert "by label, on all 10,400 rows: R@1" in str(result)


@pytest.mark.slow
def test_pictures_are_inside_the_page_and_names_stand_in_for_them():
    z, labels = blobs(0.5)
    images = np.random.default_rng(0).integers(0, 255, (len(z), 1, 8, 8), dtype=np.uint8)
    text = diagnose(z, labels, labels, images).page().render()
    assert text.count('src="data:image/png;base64,') == 2
    assert "neighbours share the query&#39;s fine label" in text
    named = diagnose(z, labels, names=[f"doc <{i}>" for i in range(len(z))]).page().render()
    assert "doc &lt;" in named
    assert "data:image" not in named


def test_labels_may_be_strings_and_embeddings_tensors_of_low_precision():
    z, labels = blobs(0.5)
    names = np.array([f"bird {i}" for i in labels])
    result = diagnose(torch.from_numpy(z).bfloat16(), names)
    assert result.verdict == "healthy"
    assert "bird 3" in result.page().render()


def test_mistakes_are_named():
    z, labels = blobs(0.5)
    wrong = {"embeddings": [np.zeros(4)], "labels": [[0, 1]], "images": [np.zeros((3, 4, 4))]}
    refuses(diagnose, {"embeddings": z, "labels": labels}, **wrong, max_rows=[2])


def test_total_collapse_and_a_handful_of_rows_are_drawn_and_scored_as_such():
    for rows in (2, 3):
        assert len(diagnose(np.eye(3)[:rows], np.arange(rows)).page().render()) > 1000
    result = diagnose(np.ones((30, 5)), np.arange(30) % 3)
    assert result.verdict == "network-collapse"
    assert result.scores["label"]["R@1"] == 0.0
    assert "nan" not in re.sub(r"<style>.*?</style>", "", result.page().render(), flags=re.DOTALL)


# What a cone does, counted on rows where it is known.


def cone(offset, *, n=300, dim=24):
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 6
    z = rng.normal(size=(6, dim))[labels] + 0.8 * rng.normal(size=(n, dim)) + offset
    return z / np.linalg.norm(z, axis=1, keepdims=True), labels


def test_recall_is_that_of_the_metric_as_they_are_and_centred():
    z, labels = cone(20)
    result = cone_effects(z, labels)
    for treated, rows in zip(result.treatments, (z, z - z.mean(0)), strict=False):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        assert treated.recall == pytest.approx(retrieval(unit, labels, ks=(1,)).recall[1])
    assert [each.name for each in result.treatments] == ["as they are", "centred", "whitened"]


def test_float16_changes_neighbours_in_a_cone_and_not_once_centred():
    shares = [cone_effects(cone(offset)[0]).treatments[0].float16 for offset in (0, 10, 40)]
    assert shares[0] < 0.05 < shares[1] < shares[2]
    assert shares[2] > 0.5
    result = cone_effects(cone(40)[0])
    assert result.treatments[1].float16 < 0.05
    assert result.treatments[1].int8 < result.treatments[0].int8
    # In float16 all cosines of these are 1: each row's nearest is one of two by luck.
    angles = np.array([0.0, 0.001, 0.003])
    z = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert cone_effects(z).treatments[0].float16 == pytest.approx(0.5)


def test_of_a_cone_only_what_is_known_is_said():
    z, labels = cone(20, n=20)
    assert "R@1" not in str(cone_effects(z))
    assert len(cone_effects(z).treatments) == 2  # whitening takes more rows than dimensions
    assert "whitened" not in str(cone_effects(z, labels))


@pytest.mark.slow
def test_a_diagnosis_says_what_the_cone_does_and_is_silent_otherwise():
    z, labels = cone(20)
    result = diagnose(z, labels)
    assert result.verdict == "cone"
    text = str(result)
    for words in ("Of 300 rows: 80 % of cosines", "float16", "int8 index:", "R@1 by label:"):
        assert words in text
    assert "What the cone does to searches" in result.page().render()
    assert diagnose(cone(0)[0], labels).cone is None
    assert diagnose(5 * z, labels, cosine=False).verdict == "healthy"  # compared by distance


def test_an_uninformative_embedding_is_said_in_text_and_page():
    rng = np.random.default_rng(0)
    result = diagnose(rng.normal(size=(400, 16)), rng.integers(5, size=400))
    assert result.verdict == "uninformative"
    assert "shuffled labels give" in str(result)
    assert "Uninformative: neighbours share labels no more" in result.page().render()
