"""Diagnoses: the verdict of health, figures of metrics, and a page that says what was sampled."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from support.errors import refuses
from uncollapse.health import VERDICTS, measure
from uncollapse.metrics import Interval, clustering, confidence, retrieval
from uncollapse.metrics.repair import cone_effects
from uncollapse.report import diagnose
from uncollapse.report.diagnosis import cone_lines

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
        z[::3, 2] = np.nan
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
        known = confidence(ranked, "recall@1")
        assert result.intervals[kind]["R@1"] == known
        assert f"R@1 {100 * known.value:.3g}\N{NO-BREAK SPACE}% ({100 * known.low:.3g} to" in str(
            result
        )


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
    z, labels = blobs(0.5, each=900)
    text = diagnose(z, labels, max_rows=60, modes=False).page().render()
    assert "A sample of 60 of 5,400 rows searches all rows" in text
    assert "a sample of 5,000 of 5,400 rows, evenly over classes" in text  # the map


def test_the_rows_used_stand_beside_the_figure_in_the_text_and_on_the_page():
    z, labels = blobs(0.5, classes=3)
    for most, words in ((30, "a sample of 30 of 60 rows"), (60, "all 60 rows")):
        result = diagnose(z, labels, labels % 2, max_rows=most, modes=False)
        for line, kind in zip(str(result).splitlines()[-2:], ("label", "fine label"), strict=True):
            assert line.startswith(f"  by {kind}, on {words}: R@1 ")
        page = re.sub(r"<[^>]*>", " ", result.page().render())
        assert f"R@1, by label, on {words}" in page
        assert re.search(rf"\blabel\s+{re.escape(words)}", page)


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


def test_of_a_cone_only_what_is_known_is_said():
    z, labels = cone(20, n=20)
    assert not any("R@1" in line for line in cone_lines(cone_effects(z), len(z)))
    assert len(cone_effects(z)) == 2  # whitening takes more rows than dimensions
    assert "whitened" not in cone_lines(cone_effects(z, labels), len(z))[-1]


@pytest.mark.slow
def test_a_diagnosis_says_what_the_cone_does_and_is_silent_otherwise():
    z, labels = cone(20)
    result = diagnose(z, labels)
    assert result.verdict == "cone"
    text = str(result)
    for words in ("Of 300 rows: 80 % of cosines", "float16", "int8 index:", "R@1 by label:"):
        assert words in text
    assert "What the cone does to searches" in result.page().render()
    assert not diagnose(cone(0)[0], labels).cone
    assert diagnose(5 * z, labels, cosine=False).verdict == "healthy"  # compared by distance


def test_an_uninformative_embedding_is_said_in_text_and_page():
    rng = np.random.default_rng(0)
    result = diagnose(rng.normal(size=(400, 16)), rng.integers(5, size=400))
    assert result.verdict == "uninformative"
    assert "shuffled labels give" in str(result)
    assert "Uninformative: neighbours share labels no more" in result.page().render()


# What the page says first, to someone who knows nothing of embeddings; and rows to look at.

JARGON = ["R@1", "recall", "diameter", "cosine", "NC1", "CDNV", "rank", "axes", "variance"]


def summary(result):
    return result.page().content["summary"]


@pytest.mark.parametrize("verdict", VERDICTS)
def test_each_verdict_is_said_in_plain_words_with_what_to_do(verdict):
    result = diagnose(*blobs(0.1), modes=False)
    result = replace(result, health=replace(result.health, verdict=verdict))
    words = summary(result)
    text = " ".join(words.values())
    assert ("Not good" in words) == (verdict != "healthy")
    assert (words["What to do"] == "Nothing.") == (verdict == "healthy")
    assert [word for word in JARGON if re.search(rf"\b{word}\b", text)] == []
    first = result.page().render().partition('<p class="plain">')[2].partition("</p>")[0]
    assert "<b>What to do:</b>" in first


def test_the_summary_has_the_share_its_interval_and_what_guessing_gives():
    z, labels = blobs(0.1)
    result = diagnose(z, labels, modes=False)
    result = replace(
        result, intervals={"label": {"R@1": Interval(1.0, 0.97, 1.0, 0.95, 0, 6, "t")}}
    )
    good = summary(result)["Good"].replace("\N{NO-BREAK SPACE}", " ")
    assert "For 100 % of the rows (between 97 % and 100 %) the most similar one has the" in good
    assert "guessing would give 17 %" in good
    rng = np.random.default_rng(0)
    poor = diagnose(rng.normal(size=(120, 8)), labels, modes=False)
    assert "the most similar one has the same label" in summary(poor)["Not good"]
    assert "Give labels" in summary(diagnose(z))["What to do"]
    assert "NaN" not in str(summary(diagnose(np.full((9, 2), np.nan))))


def test_rows_amid_another_label_and_spoiled_ones_are_counted_and_can_be_filtered():
    z, labels = blobs(0.1, each=20)
    labels[3], labels[50] = 5, 0
    spoiled = SimpleNamespace(
        sentences=lambda names: {},
        hubs=np.array([7]),
        duplicates=np.array([], np.int64),
        zero=np.array([1, 2]),
    )
    result = replace(diagnose(z, labels, modes=False), spoiled=spoiled)
    content = result.page().content
    data = content["map"]["data"]
    flagged = {kind: [data["rows"][i] for i in rows] for kind, rows in data["flags"].items()}
    assert flagged == {"suspect": [3, 50], "hub": [7], "zero": [1, 2]}
    bad = content["summary"]["Not good"]
    assert "2 of the rows on the map lie amid rows of another label" in bad
    assert "2 of zeros, 1 similar to very many" in bad
    few = np.arange(len(labels)) // 2  # pairs: ten neighbours cannot outvote anyone
    assert "suspect" not in diagnose(z, few, modes=False).page().content["map"]["data"]["flags"]


@pytest.mark.slow
def test_spoiled_rows_are_on_the_map_of_a_sample():
    z, labels = blobs(0.5, each=1000)
    rows = np.array([5998, 5999])
    spoiled = SimpleNamespace(
        sentences=lambda names: {}, hubs=rows, duplicates=rows[:0], zero=rows[:0]
    )
    result = replace(diagnose(z, labels, max_rows=60, modes=False), spoiled=spoiled)
    data = result.page().content["map"]["data"]
    assert [data["rows"][i] for i in data["flags"]["hub"]] == rows.tolist()
    assert len(data["views"][0]["places"]) <= 5000


def test_technical_figures_are_folded_away():
    text = diagnose(*blobs(0.5), modes=False).page().render()
    folded = text.partition('id="figures"')[2].partition("</details>")[0]
    for name in ("NC1", "CDNV", "thickness", "rounding error of a distance"):
        assert f"<dt>{name}" in folded
        assert text.count(f"<dt>{name}") == 1
    assert "<details>" in folded
