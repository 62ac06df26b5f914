"""The config of a race's winner: the user's own file, with the changed keys and no other."""

from pathlib import Path

import pytest

from uncollapse._base.check import InputError
from uncollapse.training import load_config
from uncollapse.training.config import better_path, save_better_config

TEXT = """# batch-hard, as in the paper
seed = 3

[data]
name = "digits"   # embedded
[mining]
positives = "hard" # the hardest
negatives = 'hard'

[train]
steps = 50
"""
CHANGES = {"mining.positives": "easy", "loss.scale_free": True}


def differing(first, then) -> set[str]:
    pairs = first.model_dump(), then.model_dump()
    return {
        f"{section}.{key}"
        for section, values in pairs[0].items()
        if isinstance(values, dict)
        for key, value in values.items()
        if pairs[1][section][key] != value
    }


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_only_the_changed_keys_differ_and_the_other_lines_stay(tmp_path: Path):
    path = write(tmp_path, TEXT)
    better = save_better_config(path, CHANGES)
    assert better == tmp_path / "run.better.toml"
    assert differing(load_config(path), load_config(better)) == set(CHANGES)
    text = better.read_text(encoding="utf-8")
    expected = TEXT.replace('positives = "hard"', 'positives = "easy"')
    assert text == expected + "\n[loss]\nscale_free = true\n"
    assert {one.name for one in tmp_path.iterdir()} == {"run.toml", "run.better.toml"}


@pytest.mark.parametrize(
    "text",
    [
        'mining = {positives = "hard", negatives = "hard"}\n',  # a table in a line
        'mining.positives = "hard"\nmining.negatives = "hard"\n',
        '["mining"]\n"positives" = "hard"\nnegatives = "hard"\n',
        '[mining]\npositives = """\\\n  hard"""\nnegatives = "hard"\n',
        "\ufeff[mining]\r\npositives = 'hard'\r\nnegatives = 'hard'\r\n",
        '[loss]\nname = "triplet"\n[mining]\npositives = "hard"\nnegatives = "hard"\n',
        '[evaluate]\nks = [\n  1, # [mining]\n  2,\n]\n[mining]\npositives = "hard"\n',
        "",
    ],
)
def test_whatever_way_the_file_is_written_the_result_is_the_same(tmp_path: Path, text: str):
    path = write(tmp_path, text)
    first, then = load_config(path), load_config(save_better_config(path, CHANGES))
    assert differing(first, then) == set(CHANGES)
    assert (then.mining.positives, then.loss.scale_free) == ("easy", True)


def test_overrides_are_written_too_and_the_winner_has_the_last_word(tmp_path: Path):
    path = write(tmp_path, TEXT)
    given = ["optimizer.lr=0.1", "mining.positives=random", "seed=9", "evaluate.ks=[1,5]"]
    then = load_config(save_better_config(path, CHANGES, given))
    assert then == load_config(path, given).with_changes(
        {"mining": {"positives": "easy"}, "loss": {"scale_free": True}}
    )
    assert (then.seed, then.optimizer.lr, then.mining.positives) == (9, 0.1, "easy")


def test_a_file_of_that_name_is_kept(tmp_path: Path):
    path = write(tmp_path, TEXT)
    there = tmp_path / "run.better.toml"
    there.write_text("mine")
    for refused in (lambda: better_path(path), lambda: save_better_config(path, CHANGES)):
        with pytest.raises(InputError, match=r"--race: expected no run\.better\.toml beside"):
            refused()
    assert there.read_text() == "mine"


def test_keys_are_added_to_their_section_and_top_level_keys_to_the_top(tmp_path: Path):
    path = write(tmp_path, "[loss]\nmargin = 0.1\n\n[data]\n")
    better = save_better_config(path, {"loss.soft": True, "seed": 4})
    text = better.read_text(encoding="utf-8")
    assert text == "seed = 4\n\n[loss]\nmargin = 0.1\nsoft = true\n\n[data]\n"
