"""Queries against a gallery: runs on a small Market-1501 are judged by its official protocol."""

import os
import shutil
from dataclasses import replace

import pytest
import torch

from support.runs import canonical
from uncollapse.cli import app
from uncollapse.cli.printing import run as command
from uncollapse.data import LabelledImages, TensorSource, load
from uncollapse.data.registry import list_split
from uncollapse.metrics import ReRanking, reid
from uncollapse.report import run_report
from uncollapse.training import Run, embed, parse_config
from uncollapse.training.evaluation import GallerySearch, evaluate_splits, find_judges
from uncollapse.training.sections import EvaluateConfig


def figures(*sides, ks):
    """What a run logs of a search, from the library's own figures, which have their own oracle."""
    values = reid(*sides, ks=ks).to_dict()
    kept = {k: v for k, v in values.items() if k.startswith(("cmc@", "mAP", "mINP"))}
    return {name.replace("cmc@", "recall@"): value for name, value in kept.items()}


def points(labels, cameras, seed, names=None):
    z = torch.randn(len(labels), 6, generator=torch.Generator().manual_seed(seed))
    labels, cameras = torch.tensor(labels), torch.tensor(cameras)
    return LabelledImages(TensorSource(z), labels, cameras=cameras, class_names=names or {})


def example(people=8):
    """Three cameras, two queries and six gallery images a person; junk, distractors, a stranger."""
    ids = [p for p in range(1, people + 1) for _ in range(2)]
    there = [p for p in range(1, people + 1) for _ in range(6)] + [0] * 9 + [-1] * 7 + [99] * 4
    sides = ((labels, [1 + i % 3 for i in range(len(labels))]) for labels in (ids, there))
    return GallerySearch(*(points(*side, seed) for seed, side in enumerate(sides)))


@pytest.mark.parametrize("most", [None, 30])
def test_figures_are_those_of_the_sides(most):
    search, settings = replace(example(), max_samples=most), EvaluateConfig(ks=[1, 3])
    evaluated = evaluate_splits(
        torch.nn.Identity(), {"query": search.queries}, settings, judges={"query": search}
    )
    q, g, sides = search.queries, search.gallery, search.sides
    columns = [column[sides.queries] for column in (q.source.samples, q.labels, q.cameras)]
    columns += [column[sides.gallery] for column in (g.source.samples, g.labels, g.cameras)]
    expected = figures(*columns, ks=(1, 3, 5, 10))
    assert evaluated.scores["query"] == pytest.approx(expected, abs=1e-12)
    assert torch.equal(evaluated.embeddings["query"], columns[0])


def test_clusters_and_fine_labels_are_of_the_queries_among_themselves():
    search, settings = example(), EvaluateConfig(ks=[1], clustering=True)
    queries = replace(search.queries, fine_labels=torch.arange(16) // 4)
    given = {"query": replace(search, queries=queries)}
    scores = evaluate_splits(torch.nn.Identity(), {"query": queries}, settings, judges=given)
    plain = evaluate_splits(torch.nn.Identity(), {"query": queries}, settings).scores["query"]
    for name in ("nmi", "fine/recall@1", "fine/nmi"):
        assert scores.scores["query"][name] == plain[name]


def test_junk_is_not_embedded_and_distractors_are():
    search = example()
    met = search.gallery.labels[search.sides.gallery]
    assert len(search.sides.queries) == 16
    assert sorted(set(met.tolist())) == [0, *range(1, 9), 99]
    text = search.describe()
    assert "16 queries of 8 identities in a gallery of 61, 13 distractors" in text
    assert "7 junk images left out" in text


def test_max_samples_bounds_both_sides_by_whole_identities():
    search = example()
    sides = replace(search, max_samples=30).sides
    assert len(sides.queries) <= 30
    assert 8 <= len(sides.gallery) <= 30
    met = search.gallery.labels[sides.gallery].tolist()
    assert {met.count(p) for p in search.queries.labels[sides.queries].tolist()} == {6}
    few = replace(search, max_samples=2)
    assert len(few.queries.labels[few.sides.queries].unique()) == 2


def test_a_person_whose_name_has_number_0_is_no_distractor():
    names = {0: "ann", 1: "bob"}
    queries = points([0, 0, 1, 1], [1, 2, 1, 2], 0, names)
    search = GallerySearch(queries, points([0, 0, 0, 1, 1, 1], [1, 2, 3] * 2, 1, names))
    assert len(search.sides.queries) == 4
    assert search.matched()


def test_a_gallery_of_the_same_cameras_only_is_no_search():
    queries = points([1, 1, 2, 2], [1, 1, 1, 1], 0)
    assert not GallerySearch(queries, points([1, 1, 2, 2], [1, 1, 1, 1], 1)).matched()
    assert GallerySearch(queries, points([1, 1, 2, 2], [1, 2, 1, 1], 1)).matched()


def test_market_is_evaluated_on_its_queries_unless_said_otherwise():
    gallery = {"name": "market1501", "eval_splits": ["gallery"]}
    expected = {"query": {"name": "market1501"}, "test": {"name": "folder"}, "gallery": gallery}
    for split, data in expected.items():
        assert parse_config({"data": data}).data.eval_splits == [split]


@pytest.fixture
def trained():
    return Run.open(canonical("reid") / "run")


def sides(run):
    """Embeddings, identities and cameras of queries and gallery, from the run's network."""
    model, root = run.choose().model, canonical("reid")
    for split in ("query", "gallery"):
        data = load("market1501", root, split, size=16)
        yield from (embed(model, data), data.labels.tolist(), data.cameras.tolist())


@pytest.mark.slow
def test_a_run_logs_measures_and_shows_the_figures_of_the_official_protocol(trained, tmp_path):
    expected = figures(*sides(trained), ks=(1, 2, 4, 5, 8, 10))
    logged = trained.summary["metrics"]
    assert {f"query/{name}": value for name, value in expected.items()} == pytest.approx(
        {key: value for key, value in logged.items() if key.count("/") == 1}, abs=1e-9
    )
    scores = trained.measures().after.splits["query"].scores
    assert (scores["mAP"], scores["mINP"]) == (logged["query/mAP"], logged["query/mINP"])
    assert "mAP" in trained.measures().before.splits["query"].scores
    lines = list(trained.metrics())
    assert [line["step"] for line in lines if "query/mAP" in line] == [0, 2, 4]
    event = next(line["event"] for line in lines if "event" in line)
    assert "15 queries of 5 identities in a gallery of 38" in event
    page = run_report([trained], tmp_path / "page.html").read_text(encoding="utf-8")
    assert all(f"{name} on query" in page for name in ("R@1", "mAP", "mINP"))


@pytest.mark.slow
def test_evaluate_prints_re_ranked_figures_beside_the_plain_ones(trained, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert command(app, ["evaluate", str(trained.path), "--rerank"]) == 0
    text = capsys.readouterr().out
    columns = list(sides(trained))
    for rerank in (None, ReRanking()):
        assert f"{100 * reid(*columns, rerank=rerank).map:.2f}" in text
    assert "re-ranked by k-reciprocal neighbours: k1 = 20, k2 = 6, λ = 0.3" in text
    for word in ("mINP", "R@1", "R@10", "8 junk images", "8 distractors", "query/reranked"):
        assert word in " ".join(text.split())
    rows = [line for line in text.splitlines() if line.startswith(("query ", "query/"))]
    assert max(map(len, rows)) <= 80
    words = ["evaluate", str(trained.path), "--split", "train", "--rerank"]
    assert command(app, words) == 2
    assert "has no queries that search a gallery" in capsys.readouterr().err


@pytest.mark.slow
def test_without_a_gallery_queries_search_themselves_with_a_warning(trained, tmp_path):
    market = shutil.copytree(canonical("reid") / "market1501", tmp_path / "market1501")
    shutil.rmtree(market / "bounding_box_test")
    splits = {"query": load("market1501", tmp_path, "query", size=16)}
    judges, warnings = find_judges(trained.config.with_root(tmp_path), splits)
    assert judges == {}
    assert "query is searched in itself: its gallery is not there" in warnings[0]
    assert "bounding_box_test" in warnings[0]


@pytest.mark.skipif(
    not os.path.isdir(os.path.join(os.environ.get("UNCOLLAPSE_DATA", ""), "market1501")),
    reason="Market-1501 is not there",
)
def test_the_real_market_has_its_official_counts():
    both = []
    for split in ("query", "gallery"):
        rows = list_split("market1501", None, split)
        people, cameras = torch.from_numpy(rows.labels), torch.from_numpy(rows.cameras)
        both.append(LabelledImages(TensorSource(torch.zeros(len(people))), people, cameras=cameras))
    sides = GallerySearch(*both).sides
    people = len(both[0].labels[sides.queries].unique())
    assert (len(sides.queries), len(sides.gallery), people) == (3_368, 15_913, 750)
