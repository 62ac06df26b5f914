"""Queries against a gallery: runs on a small Market-1501 are judged by its official protocol."""

import json
import math
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from uncollapse.cli import app
from uncollapse.cli.errors import run as command
from uncollapse.data import LabelledImages, TensorSource, load
from uncollapse.data.registry import list_split
from uncollapse.metrics import ReRanking, reid
from uncollapse.report import run_report
from uncollapse.training import Run, embed, measure_run, parse_config, train
from uncollapse.training.evaluation import GallerySearch, evaluate_splits, find_searches
from uncollapse.training.sections import EvaluateConfig

pytestmark = pytest.mark.slow

FOLDERS = {"train": "bounding_box_train", "query": "query", "gallery": "bounding_box_test"}


def by_the_book(z, ids, cameras, there, ids_there, cameras_there, ks):
    """mAP, CMC and mINP query by query, in loops, from the definition; no ties."""
    precisions, firsts, last = [], [], []
    for q in range(len(z)):
        kept = [
            g
            for g in range(len(there))
            if ids_there[g] != -1
            and not (ids_there[g] == ids[q] and cameras_there[g] == cameras[q])
        ]
        squares = ((z[q].double() - there.double()) ** 2).sum(dim=1).tolist()
        kept.sort(key=squares.__getitem__)
        ranks = [place for place, g in enumerate(kept, start=1) if ids_there[g] == ids[q]]
        if ranks:
            precisions.append(sum((n + 1) / rank for n, rank in enumerate(ranks)) / len(ranks))
            firsts.append(ranks[0])
            last.append(len(ranks) / ranks[-1])
    found = {f"recall@{k}": float(np.mean([first <= k for first in firsts])) for k in ks}
    return found | {"mAP": float(np.mean(precisions)), "mINP": float(np.mean(last))}


def points(count, labels, cameras, seed, names=None):
    z = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))
    labels, cameras = torch.tensor(labels), torch.tensor(cameras)
    return LabelledImages(TensorSource(z), labels, cameras=cameras, class_names=names or {})


def example(people=8):
    """Three cameras, two queries and six gallery images a person; junk, distractors, a stranger."""
    ids = [p for p in range(1, people + 1) for _ in range(2)]
    there = [p for p in range(1, people + 1) for _ in range(6)] + [0] * 9 + [-1] * 7 + [99] * 4
    queries = points(len(ids), ids, [1 + i % 3 for i in range(len(ids))], 0)
    return GallerySearch(
        queries, points(len(there), there, [1 + i % 3 for i in range(len(there))], 1)
    )


def oracle(search, sides, ks):
    q, g = search.queries, search.gallery
    z, there = q.source.samples[sides.queries], g.source.samples[sides.gallery]
    asked = q.labels[sides.queries].tolist(), q.cameras[sides.queries].tolist()
    met = g.labels[sides.gallery].tolist(), g.cameras[sides.gallery].tolist()
    return by_the_book(z, *asked, there, *met, ks)


def test_figures_are_those_of_the_definition():
    search, settings = example(), EvaluateConfig(ks=[1, 3])
    found = evaluate_splits(
        torch.nn.Identity(), {"query": search.queries}, settings, judges={"query": search}
    )
    everybody = search.sides
    expected = oracle(search, everybody, (1, 3, 5, 10))
    assert found.scores["query"] == pytest.approx(expected, abs=1e-12)
    assert torch.equal(found.embeddings["query"], search.queries.source.samples)


def test_junk_is_not_embedded_and_distractors_are():
    search = example()
    sides = search.sides
    met = search.gallery.labels[sides.gallery]
    assert len(sides.queries) == 16
    assert sorted(set(met.tolist())) == [0, *range(1, 9), 99]
    said = search.describe()
    assert "16 queries of 8 identities in a gallery of 61" in said
    assert "61, 13 distractors in it; same identity and camera and 7 junk images left out" in said


def test_max_samples_bounds_both_sides_by_whole_identities():
    search = example()
    sides = replace(search, max_samples=30).sides
    assert len(sides.queries) <= 30
    assert 8 <= len(sides.gallery) <= 30
    met = search.gallery.labels[sides.gallery].tolist()
    assert {met.count(p) for p in search.queries.labels[sides.queries].tolist()} == {6}
    assert replace(search, max_samples=2).sides.identities == 2


def test_a_person_whose_name_has_number_0_is_no_distractor():
    names = {0: "ann", 1: "bob"}
    queries = points(4, [0, 0, 1, 1], [1, 2, 1, 2], 0, names)
    search = GallerySearch(queries, points(6, [0, 0, 0, 1, 1, 1], [1, 2, 3] * 2, 1, names))
    assert len(search.sides.queries) == 4
    assert search.matched()


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    """Market-1501 in small: 6 people to train on, 5 to search for, distractors and junk."""
    base = tmp_path_factory.mktemp("data") / "market1501"
    rng = np.random.default_rng(0)

    def paint(split, person, camera, shot):
        pixels = rng.normal(40 + 35 * (person % 6), 30, (32, 16, 3)).clip(0, 255).astype(np.uint8)
        name = f"{person:04d}" if person >= 0 else "-1"
        path = base / FOLDERS[split] / f"{name}_c{camera}s1_{shot:06d}_00.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)

    for person in range(1, 7):
        for shot in range(4):
            paint("train", person, 1 + shot % 3, shot)
    for person in range(11, 16):
        for camera in (1, 2, 3):
            paint("query", person, camera, 0)
            paint("gallery", person, camera, 1)
            paint("gallery", person, camera, 2)
    for shot in range(8):
        paint("gallery", 0, 1 + shot % 3, 100 + shot)
        paint("gallery", -1, 1 + shot % 3, 200 + shot)
    return base.parent


def config(root, **sections):
    small = {
        "data": {"name": "market1501", "root": str(root), "size": 16},
        "model": {"backbone": "conv2", "dim": 8},
        "batch": {"p": 4, "k": 3},
        "train": {"steps": 4, "evaluate_every": 2, "log_every": 1},
    }
    return parse_config(
        {key: small.get(key, {}) | sections.get(key, {}) for key in small | sections}
    )


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("UNCOLLAPSE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def trained(market, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNCOLLAPSE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        return train(config(market), tmp_path_factory.mktemp("r") / "run")


def test_market_is_evaluated_on_its_queries_unless_said_otherwise(market):
    assert config(market).data.eval_splits == ["query"]
    assert parse_config({}).data.eval_splits == ["test"]
    assert parse_config({"data": {"name": "folder"}}).data.eval_splits == ["test"]
    said = parse_config({"data": {"name": "market1501", "eval_splits": ["gallery"]}})
    assert said.data.eval_splits == ["gallery"]


def test_a_run_ends_with_the_figures_of_the_official_protocol(trained, market):
    how = {"size": 16}
    query, gallery = (load("market1501", market, split, **how) for split in ("query", "gallery"))
    model = trained.choose().model
    expected = by_the_book(
        embed(model, query), query.labels.tolist(), query.cameras.tolist(),
        embed(model, gallery), gallery.labels.tolist(), gallery.cameras.tolist(),
        (1, 2, 4, 5, 8, 10),
    )  # fmt: skip
    logged = trained.summary["metrics"]
    assert {f"query/{name}": value for name, value in expected.items()} == pytest.approx(
        {key: value for key, value in logged.items() if key.count("/") == 1}, abs=1e-9
    )
    scores = trained.measures().after.splits["query"].scores
    assert scores["mAP"] == logged["query/mAP"]
    assert scores["mINP"] == logged["query/mINP"]
    assert "mAP" in trained.measures().before.splits["query"].scores


def test_every_evaluation_is_logged_and_what_is_searched_is_said(trained):
    lines = [json.loads(line) for line in trained.metrics_file.read_text().splitlines()]
    wholes = [line["step"] for line in lines if "query/mAP" in line]
    assert wholes == [0, 2, 4]
    said = next(line["event"] for line in lines if "event" in line)
    assert "15 queries of 5 identities in a gallery of 38" in said


def test_evaluate_prints_the_protocol(trained, market, capsys):
    assert command(app, ["evaluate", str(trained.path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for word in ("mAP", "mINP", "R@1", "R@10", "8 junk images left out", "8 distractors in it"):
        assert word in out
    assert f"{100 * trained.summary['metrics']['query/mAP']:.2f}" in out


def test_evaluate_prints_re_ranked_figures_beside_the_plain_ones(
    trained, market, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    assert command(app, ["evaluate", str(trained.path), "--rerank"]) == 0
    said = capsys.readouterr().out
    query, gallery = (load("market1501", market, split, size=16) for split in ("query", "gallery"))
    model = trained.choose().model
    sides = (
        embed(model, query), query.labels.tolist(), query.cameras.tolist(),
        embed(model, gallery), gallery.labels.tolist(), gallery.cameras.tolist(),
    )  # fmt: skip
    plain, better = (reid(*sides, rerank=how) for how in (None, ReRanking()))
    assert "re-ranked by k-reciprocal neighbours: k1 = 20, k2 = 6, λ = 0.3" in said
    assert "query/reranked" in said
    assert all(f"{100 * found.map:.2f}" in said for found in (plain, better))
    rows = [line for line in said.splitlines() if line.startswith(("query ", "query/"))]
    assert max(map(len, rows)) <= 80


def test_re_ranking_needs_queries_and_a_gallery(trained, capsys):
    words = ["evaluate", str(trained.path), "--split", "train", "--rerank"]
    assert command(app, words) == 2
    assert "has no queries that search a gallery" in capsys.readouterr().err


def test_the_page_has_map_and_minp(trained, tmp_path):
    page = run_report([trained], tmp_path / "page.html").read_text(encoding="utf-8")
    for words in ("R@1 on query", "mAP on query", "mINP on query"):
        assert words in page


def test_a_run_can_be_measured_afterwards(trained, market, tmp_path):
    copied = Run.open(shutil.copytree(trained.path, tmp_path / "copy"))
    (copied.path / "measures.json").unlink()
    before = trained.measures().after.splits["query"].scores
    again = measure_run(copied).after.splits["query"].scores
    assert {name: again[name] for name in ("mAP", "mINP", "recall@1")} == pytest.approx(
        {name: before[name] for name in ("mAP", "mINP", "recall@1")}
    )


def test_without_a_gallery_queries_search_themselves_and_it_is_said(market, tmp_path):
    lame = shutil.copytree(market / "market1501", tmp_path / "market1501")
    shutil.rmtree(lame / "bounding_box_test")
    wanted = config(tmp_path)
    splits = {"query": load("market1501", tmp_path, "query", size=16)}
    found, warnings = find_searches(wanted, splits)
    assert found == {}
    assert "query is searched in itself: its gallery is not there" in warnings[0]
    assert "bounding_box_test" in warnings[0]


def test_a_gallery_of_the_same_cameras_only_is_no_search(monkeypatch):
    queries = points(4, [1, 1, 2, 2], [1, 1, 1, 1], 0)
    assert not GallerySearch(queries, points(4, [1, 1, 2, 2], [1, 1, 1, 1], 1)).matched()
    assert GallerySearch(queries, points(4, [1, 1, 2, 2], [1, 2, 1, 1], 1)).matched()


@pytest.mark.skipif(
    not os.environ.get("UNCOLLAPSE_DATA")
    or not os.path.isdir(os.path.join(os.environ["UNCOLLAPSE_DATA"], "market1501")),
    reason="Market-1501 is not there",
)
def test_the_real_market_has_its_official_counts_and_the_definitions_figures():
    sides = []
    for seed, split in enumerate(("query", "gallery")):
        rows = list_split("market1501", None, split)
        z = torch.randn(len(rows.labels), 8, generator=torch.Generator().manual_seed(seed))
        people, cameras = torch.from_numpy(rows.labels), torch.from_numpy(rows.cameras)
        z += 0.15 * (people[:, None] * torch.arange(1, 9) % 17)  # some signal
        sides.append(LabelledImages(TensorSource(z), people, cameras=cameras))
    search = GallerySearch(*sides)
    some = replace(search, max_samples=1_500)
    whole, part = search.sides, some.sides
    assert (len(whole.queries), len(whole.gallery), whole.identities) == (3_368, 15_913, 750)
    assert part.identities < 750
    share = oracle(search, part, (1, 5, 10))
    z = sides[0].source.samples[part.queries], sides[1].source.samples[part.gallery]
    assert some.scores(*z, [1]) == pytest.approx(share, abs=1e-9)
    assert all(math.isfinite(value) for value in share.values())
