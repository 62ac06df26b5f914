import io

import pytest
from PIL import Image
from rich.console import Console

from uncollapse.cli.datasets import copy_lines, survey_table
from uncollapse.data import check, survey


@pytest.fixture(autouse=True)
def no_other_copies(monkeypatch):
    monkeypatch.delenv("UNCOLLAPSE_DATA", raising=False)


@pytest.fixture
def market(tmp_path):
    """Two of three splits."""
    base = tmp_path / "market1501"
    for place, name in enumerate(
        (
            "bounding_box_train/0002_c1s1_000451_03.jpg",
            "bounding_box_train/0007_c2s1_000451_01.jpg",
            "query/0003_c1s6_015971_00.jpg",
        )
    ):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((32, 64), 50).convert("L" if place == 1 else "RGB").save(base / name)
    return base


def text(renderable):
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    console.print(renderable)
    return console.file.getvalue()


def test_what_is_printed_of_a_copy_names_the_splits_and_the_official_counts(market):
    shown = text(copy_lines(check("market1501", market)))
    for part in (
        "zheng-lab.cecs.anu.edu.au",
        "licence",
        "bounding_box_train/0002_c1s1_000451_03.jpg",
        f"found in {market}",
        "2 images, 2 classes (official: 12,936 images, 751 classes)",
        "no folder bounding_box_test",
        "not complete",
    ):
        assert part in " ".join(shown.split()) or part in shown.replace("\n", ""), part


def test_a_complete_copy_is_said_to_be_complete():
    lines = text(copy_lines(check("digits"))).split("\n")
    assert "complete" in lines


def test_a_dataset_that_is_not_there_is_an_answer_not_a_crash():
    assert "no folder given" in text(copy_lines(check("cub200")))


def test_the_survey_is_a_table_of_every_dataset(market, monkeypatch):
    monkeypatch.setenv("UNCOLLAPSE_DATA", str(market.parent))
    shown = text(survey_table(survey()))
    for name in ("digits", "mnist-parity", "fashion-mnist", "omniglot", "cars196", "sop"):
        assert name in shown
    assert "not found" in shown
    assert "(official: 12,936" in " ".join(shown.split())


def test_every_dataset_says_where_it_is_from_and_what_it_looks_like():
    for entry in survey():
        info, shown = entry.info, text(copy_lines(entry))
        for field in (info.title, info.licence, info.layout.splitlines()[0].strip()):
            assert " ".join(field.split()) in " ".join(shown.split())
