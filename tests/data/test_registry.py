import pytest

from support.small_copies import paint, write_market
from uncollapse.data import Counts, check, survey


@pytest.fixture
def market(tmp_path):
    return write_market(tmp_path / "market1501", [(2, 1), (7, 2)], [(3, 1)])


def test_a_copy_is_compared_with_the_official_counts_split_by_split(market):
    result = check("market1501", market)
    assert result.origin == str(market)
    assert not result.complete
    assert result.found == {"train": Counts(2, 2), "query": Counts(1, 1)}
    assert result.official("train") == Counts(12_936, 751)
    assert "no folder bounding_box_test" in result.missing["gallery"]


def test_what_is_here_is_complete_and_what_is_not_is_an_answer_not_a_crash():
    assert check("digits").complete
    result = check("cub200")
    assert not result.complete
    assert result.origin is None
    assert "no folder given" in result.missing["train"]


def test_your_own_data_has_no_official_counts_but_may_lack_files_it_lists(tmp_path):
    for name in ("cat", "dog"):
        paint(tmp_path / "own" / name / "1.jpg")
    result = check("folder", tmp_path / "own")
    assert result.complete
    assert result.found == {"all": Counts(2, 2)}
    assert not check("folder", tmp_path / "nothing").complete
    (tmp_path / "own" / "list.csv").write_text("path,label\ncat/1.jpg,x\nb.jpg,y\n")
    result = check("manifest", tmp_path / "own" / "list.csv")
    assert not result.complete
    assert "1 files are listed but not there" in result.missing["all"]


def test_the_survey_lists_every_dataset_and_where_it_is(market, monkeypatch):
    monkeypatch.setattr("uncollapse.data.mnist.packaged_file", lambda *_: None)
    assert "no folder given" in survey()[-1].missing["train"]
    monkeypatch.setenv("UNCOLLAPSE_DATA", str(market.parent))
    entries = {entry.info.name: entry for entry in survey()}
    assert entries["digits"].origin == "scikit-learn"
    assert entries["market1501"].origin == str(market)
    assert set(entries["market1501"].found) == {"train", "query"}
    assert entries["sop"].origin is None
    assert "none of sop, Stanford_Online_Products in" in entries["sop"].missing["train"]
