"""`uncollapse stuck`: what a number means, on one screen; nonsense is one line."""

import pytest

from uncollapse.health.resting import STATES


@pytest.mark.parametrize(
    ("words", "formula", "loss"),
    [
        ("6.920 --batch 64 --views 2", "6.9203 = ln 127 · 0.1/0.07", "SupContrast"),
        ("8.909 --batch 256", "8.9091 = ln 511 · 0.1/0.07", "SupContrast"),
        ("5.5597 --batch 25", "5.5597 = ln 49 · 0.1/0.07", "SupContrast"),
        ("4.85 --batch 128", "4.852 = ln 128", "CLIP"),
        ("11.09 --queue 65536", "11.09 = ln 65537", "MoCo"),
        ("6.9287 --batch 512", "6.9305 = ln 1023", "SimCLR"),
        ("4.1 --classes 64", "4.1589 = ln 64", "GE2E"),
        ("0.693", "0.69315 = ln 2", "soft-margin triplet"),
        ("0.2", "0.2 = margin", "triplet loss"),
    ],
)
def test_the_likeliest_meaning_comes_first_with_what_to_check(cli, folder, words, formula, loss):
    said = cli("stuck", *words.split())
    lines = [line for line in said.out.splitlines() if not line.startswith("no known value")]
    assert lines[0] == f"{formula}: {STATES['equal']}"
    assert loss in lines[1]
    assert "uncollapse diagnose" in lines[-1]
    assert "not learning" in lines[-1]
    assert ("no known value agrees with 6.9287" in said.text) == (words == "6.9287 --batch 512")


def test_a_negative_loss_is_a_number_and_a_start_is_called_normal(cli, folder):
    assert cli("stuck", "-1").out.startswith("-1: the views of each sample agree")
    assert "next: normal at the start of training" in cli("stuck", "20").text
    assert "more agree; give what you know" in cli("stuck", "20").text


def test_a_number_that_means_nothing_is_said_to(cli, folder):
    assert (
        "is no value at which a loss is known to rest" in cli("stuck", "7.77", "--batch", "12").text
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["abc"], "such as 6.920, got 'abc'"),
        (["nan"], "such as 6.920, got 'nan'"),
        (["1.0", "--batch", "0"], "--batch"),
        (["1.0", "--margin", "-1"], "margin: expected"),
        (["1.0", "--bacth", "64"], "--bacth"),
        ([], "LOSS"),
    ],
)
def test_nonsense_is_one_line(cli, folder, words, message):
    said = cli("stuck", *words, code=2)
    assert message in said.err
    assert len(said.err.splitlines()) == 1
