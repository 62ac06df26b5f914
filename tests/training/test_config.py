"""Configs: read, written, overridden, changed; and what is said of a wrong key."""

import inspect
import re
import tomllib

import pytest

from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse.mining import FalseNegatives, Miner
from uncollapse.training.config import (
    WrongKeysError,
    apply_overrides,
    better_path,
    load_config,
    parse_config,
    save_better_config,
)
from uncollapse.training.sections import LOSSES, FalseNegativesConfig, MiningConfig


@pytest.mark.parametrize(
    "values",
    [
        {"seed": 7, "mining": {"positives": "hard"}, "evaluate": {"ks": [1, 5]}},
        {"mining": {"fallback": "skip", "cutoffs": [0.4, 1], "keep": "violating", "pool": 8}},
        {"loss": {"memory": {"size": 64}, "identity": {}, "regularizer": {"name": "sigreg"}}},
        *({"loss": {"name": name}} for name in LOSSES),
        {"loss": {"name": "contrastive", "reduction": "pairs", "pos_margin": 0.1, "trim": 0.5}},
        {"loss": {"margin": 0, "distance": "squared", "swap": True}},
    ],
    ids=str,
)
def test_a_config_survives_the_way_to_toml_and_back(values, tmp_path):
    config = parse_config(values)
    file = tmp_path / "run.toml"
    file.write_text(config.to_toml())
    assert load_config(file) == config
    assert load_config(file).to_toml() == config.to_toml()


def test_the_keys_of_mining_are_those_of_the_miner():
    miner = inspect.signature(Miner).parameters
    assert MiningConfig.model_fields.keys() == miner.keys() - {"generator"}
    rules = inspect.signature(FalseNegatives).parameters
    assert FalseNegativesConfig.model_fields.keys() == rules.keys()
    for key in ("pool", "epsilon", "fallback", "keep"):
        assert MiningConfig.model_fields[key].default == miner[key].default
    assert tuple(MiningConfig().cutoffs) == miner["cutoffs"].default


def test_changes_of_a_loss_keep_what_was_set_and_take_the_other_defaults_of_the_new_one(tmp_path):
    base = parse_config({"loss": {"normalize": True}, "batch": {"p": 2}})
    changed = base.with_changes({"loss": {"name": "contrastive"}, "batch": {"k": 3}, "seed": 5})
    assert changed.loss == LOSSES["contrastive"](normalize=True)
    assert changed.loss.margin == 1.0
    assert (changed.batch.p, changed.batch.k, changed.seed) == (2, 3, 5)
    with refused("loss.normalize"):
        base.with_changes({"loss": {"name": "sup-con"}})
    file = tmp_path / "run.toml"
    file.write_text(base.to_toml())
    assert tomllib.loads(file.read_text())["loss"] == {"name": "triplet", "normalize": True}
    again = load_config(file, ["loss.name=contrastive", "batch.k=3"])
    assert (again.loss, again.batch.p, again.batch.k) == (changed.loss, 2, 3)


def test_a_dotted_key_has_a_value_and_none_where_only_another_loss_has_it():
    config = parse_config({"loss": {"name": "sup-con"}, "data": {"name": "digits"}})
    keys = ("seed", "data.name", "loss.temperature", "loss.margin", "mining.pool")
    assert [config.flat().get(key) for key in keys] == [0, "digits", 0.1, None, None]


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:1", "mps"])
def test_a_config_may_name_a_device_that_this_machine_has_not(device):
    assert parse_config({"train": {"device": device}}).train.device == device


def test_overrides_are_read_as_toml_and_else_as_text():
    given = {"a": {"b": 1}}
    words = ["a.b=1", " a.b = 3 ", "a.c=x y", "d=[1, 2]", "e=true", "f=0.5", "g="]
    expected = {"a": {"b": 3, "c": "x y"}, "d": [1, 2], "e": True, "f": 0.5, "g": ""}
    assert apply_overrides(given, words) == expected
    assert given == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("override", "name"), [("batch.p", "--set"), ("=3", "--set"), ("seed.x=2", "seed.x")]
)
def test_an_override_that_sets_nothing_is_refused(override, name):
    with refused(name):
        apply_overrides({"seed": 1}, [override])


@pytest.mark.parametrize(
    ("values", "key", "words"),
    [
        ({"minning": {}}, "minning", "one of seed, .*did you mean 'mining'"),
        ({"batch": {"kk": 2}}, "batch.kk", "one of sampler, p, k, size, got a key that"),
        ({"batch": {"p": 0}}, "batch.p", "at least 1, got 0$"),
        ({"batch": {"p": "many"}}, "batch.p", "a whole number, got 'many'$"),
        ({"batch": {"p": True}}, "batch.p", "a whole number, got 'true'$"),
        ({"batch": {"k": 1}}, "batch.k", "at least 2"),
        ({"loss": {"margin": False}}, "loss.margin", "a number, got 'false'$"),
        ({"mining": {"pool": True}}, "mining.pool", "a whole number, got 'true'$"),
        ({"data": {"name": True}}, "data.name", "text, got True$"),
        ({"data": {"eval_splits": "test"}}, "data.eval_splits", "a list, got 'test'$"),
        ({"data": {"channels": 2}}, "data.channels", "1 or 3, got 2$"),
        ({"data": {"size": [32]}}, "data.size", "one number"),
        ({"data": {"size": [32, 0]}}, "data.size", "one number"),
        ({"data": {"size": True}}, "data.size", "one number"),
        ({"data": {"size": 12.5}}, "data.size", "one number"),
        ({"data": {"fit": "cove"}}, "data.fit", "'contain' or 'stretch'.*did you mean 'cover'"),
        ({"data": {"std": [0.5, 0.0, 1.0]}}, "data.std.1", "above 0"),
        ({"data": {"std": []}}, "data.std", "at least 1"),
        ({"data": {"augment": ["flip", "rotate"]}}, "data.augment", "a list of"),
        ({"data": {"augment": 3}}, "data.augment", "a list of"),
        ({"data": {"augment": [[1]]}}, "data.augment", "a list of"),
        ({"model": {"normalize": 3}}, "model.normalize", "true or false, got 3$"),
        ({"mining": {"positives": "esy"}}, "mining.positives", "did you mean 'easy'"),
        ({"mining": {"keep": "semi-hard"}}, "mining.keep", "'all', .*mean 'semihard'"),
        ({"optimizer": {"lr": -1}}, "optimizer.lr", "above 0, got -1$"),
        ({"optimizer": {"lr": float("inf")}}, "optimizer.lr", "a finite number, got inf$"),
        ({"optimizer": {"momentum": 1}}, "optimizer.momentum", "below 1, got 1$"),
        ({"evaluate": {"ks": []}}, "evaluate.ks", "at least 1 of them"),
        ({"evaluate": {"ks": [1, "a"]}}, "evaluate.ks.1", "a whole number, got 'a'$"),
        ({"train": {"loggers": ["paper"]}}, "train.loggers.0", "'tensorboard', 'wandb'"),
        ({"seed": 2**70}, "seed", "below 9223372036854775808, got"),
        ({"data": 3}, "data", "a section of keys, got 3$"),
        ({"train": {"lr": 1}}, "train.lr", r"does not exist \(did you mean 'optimizer.lr'\?\)$"),
        ({"margin": 1}, "margin", "did you mean 'mining.margin' or 'loss.margin'"),
        ({"loss": {"margin": 10**400}}, "loss.margin", r"a number, got 10{79}\.\.\.$"),
        ({"loss": {"trim": 1.5}}, "loss.trim", "at most 1, got 1.5$"),
        ({"loss": {"memory": {"size": -1}}}, "loss.memory.size", "at least 1"),
        ({"loss": {"memory": {"after": 5}}}, "loss.memory.size", "a value"),
        ({"loss": {"memory": {"size": 9, "references": ""}}}, "loss.memory.references", "moving"),
        ({"loss": {"regularizer": {"weight": 0.5}}}, "loss.regularizer.name", "a value"),
        ({"loss": {"regularizer": {"name": "vicreg"}}}, "loss.regularizer.name", "sigreg"),
        ({"loss": 3}, "loss", "a section of keys, got 3$"),
        ({"loss": {"name": "tripet"}}, "loss.name", "one of 'circle', .*mean 'triplet'"),
        ({"loss": {"temperature": 1}}, "loss.temperature", "of triplet: .*of nt-xent, .*sup-con$"),
        ({"loss": {"name": "n-pair", "beta": 1}}, "loss.beta", "of margin, multi-similarity$"),
        ({"loss": {"name": "sup-con", "margin": 1}}, "loss.margin", "did you mean 'mining.margin'"),
        ({"loss": {"margn": 1}}, "loss.margn", "a key of triplet: .*did you mean 'margin'"),
        ({"loss": {"reduction": "pairs"}}, "loss.reduction", "or 'max' for triplet, got 'pairs'$"),
        ({"optimiser": {"lr": 1}}, "optimiser", "did you mean 'optimizer'"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_wrong_key_or_value_is_named_with_what_is_allowed(values, key, words):
    with pytest.raises(InputError, match=words) as caught:
        parse_config(values)
    assert caught.value.name == key
    assert not re.search(r"pydantic|https?:|\bInput should\b|valid ", str(caught.value))


def test_all_wrong_keys_are_named_at_once():
    loss = {"name": "contrastive", "reduction": "max", "temperature": 1}
    values = {"minning": {}, "batch": {"kk": 2, "p": 0}, "loss": loss, "train": {"precision": "x"}}
    with pytest.raises(WrongKeysError, match=r"^6 keys are wrong:\n- ") as caught:
        parse_config(values)
    named = {error.name for error in caught.value.errors}
    of_batch_and_loss = {"batch.kk", "batch.p", "loss.reduction", "loss.temperature"}
    assert named == {"minning", "train.precision", *of_batch_and_loss}
    assert all(str(error) in str(caught.value) for error in caught.value.errors)


# The config of a race's winner: the user's own file, with the changed keys and no other.

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


@pytest.fixture
def better(tmp_path):
    """Writes a config, and gives its path and the better one's."""

    def write(text, changes=CHANGES, overrides=()):
        path = tmp_path / "run.toml"
        path.write_text(text, encoding="utf-8")
        return path, save_better_config(path, changes, overrides)

    return write


def test_only_the_changed_keys_differ_and_the_other_lines_stay(better, tmp_path):
    _, new = better(TEXT)
    assert new == tmp_path / "run.better.toml"
    expected = TEXT.replace('positives = "hard"', 'positives = "easy"')
    assert new.read_text(encoding="utf-8") == expected + "\n[loss]\nscale_free = true\n"
    assert {path.name for path in tmp_path.iterdir()} == {"run.toml", "run.better.toml"}


def test_keys_are_added_to_their_section_and_top_level_keys_to_the_top(better):
    _, new = better("[loss]\nmargin = 0.1\n\n[data]\n", {"loss.soft": True, "seed": 4})
    text = new.read_text(encoding="utf-8")
    assert text == "seed = 4\n\n[loss]\nmargin = 0.1\nsoft = true\n\n[data]\n"


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
@pytest.mark.parametrize("overrides", [[], ["optimizer.lr=0.1", "mining.positives=random"]])
def test_whatever_way_the_file_is_written_the_result_is_the_same(better, text, overrides):
    path, new = better(text, overrides=overrides)
    changes = {"mining": {"positives": "easy"}, "loss": {"scale_free": True}}
    assert load_config(new) == load_config(path, overrides).with_changes(changes)


def test_a_better_config_that_is_there_is_kept(better, tmp_path):
    path, new = better(TEXT)
    new.write_text("mine")
    for write in (better_path, lambda file: save_better_config(file, CHANGES)):
        with refused("--race"):
            write(path)
    assert new.read_text() == "mine"
