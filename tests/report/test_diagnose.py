"""Diagnoses: the verdict of health, figures of metrics, and a page that says what was sampled."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from uncollapse._base.check import InputError
from uncollapse.health import measure
from uncollapse.metrics import clustering, retrieval
from uncollapse.report import Diagnosis, diagnose


def blobs(
    spread: float, *, classes: int = 6, each: int = 20, dim: int = 8, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), each)
    centres = rng.normal(size=(classes, dim))
    return centres[labels] + spread * rng.normal(size=(len(labels), dim)), labels


@pytest.mark.parametrize(
    ("state", "verdict", "words"),
    [
        ("healthy", "healthy", "Healthy: no collapse found"),
        ("class", "class-collapse", "Class collapse: classes have become points"),
        ("network", "network-collapse", "Network collapse: all embeddings have gone to one point"),
        ("flat", "dimensional-collapse", "Dimensional collapse: few of the axes are used"),
        ("nan", "diverging", "Diverging: the embedding grows without bound"),
        ("small", "network-collapse", "Network collapse: all embeddings have gone to one point"),
    ],
)
def test_the_verdict_comes_first_on_the_page_in_words(state: str, verdict: str, words: str):
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
    found = diagnose(z, labels, reference=reference)
    assert found.verdict == verdict == measure(z, labels, reference=reference).verdict
    assert str(found).startswith(verdict)
    text = found.page().render()
    assert re.findall(r"<h2 [^>]*>.*?<span>(.*?)</span></h2>", text)[0] == words
    assert all(reason.split(" (")[0] in str(found) for reason in found.reasons)


def test_scores_are_those_of_the_metrics():
    z, labels = blobs(0.8)
    fine = labels * 2 + np.arange(len(labels)) % 2
    found = diagnose(z, labels, fine)
    for kind, by in (("label", labels), ("fine label", fine)):
        ranked = retrieval(z, by, ks=(1, 2, 4, 8))
        assert found.scores[kind]["R@1"] == ranked.recall[1]
        assert found.scores[kind]["MAP@R"] == ranked.map_at_r
        assert found.scores[kind]["NMI"] == clustering(z, by).nmi
    assert found.scores["label"]["NMI+"] == clustering(z, labels, multiplier=10).nmi
    assert "NMI+" not in found.scores["fine label"]  # 120 clusters for 120 rows say nothing


def test_classes_stand_in_the_order_of_their_collapse():
    z, labels = blobs(0.5, classes=20)
    z[labels == 13] = z[labels == 13].mean(0)
    text = diagnose(z, labels).page().render()
    order = re.findall(r'<th scope="row" class="n" data-v="(\d+)">', text)
    assert order[0] == "13"
    assert len(order) == 20
    assert text.count('<tr class="more">') == 8


def test_without_labels_it_works_and_says_nothing_of_classes():
    z, _ = blobs(0.5)
    found = diagnose(z)
    text = found.page().render()
    assert found.scores == {}
    assert "all pairs" in text
    for title in ("Classes", "Retrieval and clustering", "Nearest neighbours"):
        assert title not in text


def test_fine_labels_alone_are_scored_and_drawn():
    z, labels = blobs(0.5)
    found = diagnose(z, fine_labels=labels)
    assert list(found.scores) == ["fine label"]
    assert "By fine label" in found.page().render()


def test_what_was_sampled_is_stated():
    z, labels = blobs(0.5, each=400)
    text = diagnose(z, labels, max_rows=60).page().render()
    assert "On 60 of 2,400 rows" in text
    assert ", 2,000 of 2,400 rows" in text  # the map
    z, labels = blobs(0.5, each=40)
    assert "rows, classes as even" not in diagnose(z, labels).page().render()


def test_the_rows_used_stand_beside_the_figure_in_the_text_and_on_the_page():
    z, labels = blobs(0.5, each=40)
    for most, words in ((60, "60 of 240 rows, the limit"), (240, "all 240 rows")):
        found = diagnose(z, labels, labels // 2, max_rows=most)
        for line, kind in zip(str(found).splitlines()[-2:], ("label", "fine label"), strict=True):
            assert line.startswith(f"  by {kind}, on {words}: R@1 ")
        page = re.sub(r"<[^>]*>", " ", found.page().render())
        assert f"R@1, by label, on {words}" in page
        assert re.search(rf"\blabel\s+{re.escape(words.replace(' rows', ''))}", page)


def test_many_rows_are_scored_whole_and_as_retrieval_scores_them():
    rng = np.random.default_rng(0)
    labels = np.arange(10_400) // 2  # pairs: too many classes to cluster
    z = rng.normal(size=(5200, 4))[labels] + 0.05 * rng.normal(size=(10_400, 4))
    found = diagnose(z, labels)
    assert len(found.scored) == 10_400
    assert found.scores["label"]["R@1"] == retrieval(z, labels).recall[1]
    assert "by label, on all 10,400 rows: R@1" in str(found)


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
    found = diagnose(torch.from_numpy(z).bfloat16(), names)
    assert found.verdict == "healthy"
    assert "bird 3" in found.page().render()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"embeddings": np.zeros(4)}, "embeddings: expected a 2-D array"),
        ({"labels": [0, 1]}, "labels: expected 120"),
        ({"images": np.zeros((3, 4, 4))}, "images: expected 120"),
        ({"max_rows": 2}, "max_rows"),
    ],
)
def test_mistakes_are_named(given: dict[str, object], message: str):
    z, labels = blobs(0.5)
    with pytest.raises(InputError, match=message):
        diagnose(**({"embeddings": z, "labels": labels} | given))  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_handful_of_rows_is_no_error(rows: int, tmp_path: Path):
    found = diagnose(np.eye(3)[:rows], np.arange(rows))
    assert isinstance(found, Diagnosis)
    assert found.save(tmp_path / "page.html").stat().st_size > 1000


def test_total_collapse_is_drawn_and_scored_as_such():
    found = diagnose(np.ones((30, 5)), np.arange(30) % 3)
    assert found.verdict == "network-collapse"
    assert found.scores["label"]["R@1"] == 0.0
    assert "nan" not in re.sub(r"<style>.*?</style>", "", found.page().render(), flags=re.DOTALL)


def test_the_same_input_gives_the_same_page():
    z, labels = blobs(0.5)
    assert diagnose(z, labels).page().render() == diagnose(z, labels).page().render()
