import inspect
import tomllib

import pytest
import tomlkit

from uncollapse.mining import FalseNegatives, Miner
from uncollapse.training.config import load_config, parse_config, with_new_names
from uncollapse.training.sections import (
    LOSSES,
    FalseNegativesConfig,
    MiningConfig,
)


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
    assert parse_config(with_new_names(config.to_values())) == config


def test_another_loss_can_be_asked_of_a_written_config(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(parse_config({"loss": {"name": "triplet", "normalize": True}}).to_toml())
    assert tomllib.loads(file.read_text())["loss"] == {"name": "triplet", "normalize": True}
    loss = load_config(file, ["loss.name=contrastive"]).loss
    assert loss == LOSSES["contrastive"](normalize=True)


def test_a_loss_without_a_name_is_the_triplet_loss():
    assert parse_config({"loss": {"margin": 0.5}}).loss == LOSSES["triplet"](margin=0.5)
    assert parse_config({}).loss == LOSSES["triplet"]()


def test_the_keys_of_mining_are_those_of_the_miner():
    miner = inspect.signature(Miner).parameters
    assert MiningConfig.model_fields.keys() == miner.keys() - {"generator"}
    rules = inspect.signature(FalseNegatives).parameters
    assert FalseNegativesConfig.model_fields.keys() == rules.keys()
    for key in ("pool", "epsilon", "fallback", "keep"):
        assert MiningConfig.model_fields[key].default == miner[key].default
    assert tuple(MiningConfig().cutoffs) == miner["cutoffs"].default


def test_overrides_come_on_top_of_the_file(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("[batch]\np = 4\nk = 3")
    config = load_config(file, ["batch.p=2", "loss.name=sup-con"])
    assert (config.batch.p, config.batch.k, config.loss.name) == (2, 3, "sup-con")


def test_changes_of_a_loss_keep_what_was_set_and_take_the_other_defaults_of_the_new_one():
    base = parse_config({"loss": {"normalize": True}, "batch": {"p": 2}})
    changed = base.with_changes({"loss": {"name": "contrastive"}, "batch": {"k": 3}, "seed": 5})
    assert changed.loss == LOSSES["contrastive"](normalize=True)
    assert changed.loss.margin == 1.0
    assert (changed.batch.p, changed.batch.k, changed.seed) == (2, 3, 5)
    kept = parse_config(tomllib.loads(tomlkit.dumps(base.to_values())))
    assert kept.with_changes({"loss": {"name": "contrastive"}}).loss == changed.loss
    with pytest.raises(ValueError, match=r"loss\.normalize: expected a key of sup-con"):
        base.with_changes({"loss": {"name": "sup-con"}})


def test_a_dotted_key_has_a_value_and_none_where_only_another_loss_has_it():
    config = parse_config({"loss": {"name": "sup-con"}, "data": {"name": "digits"}})
    keys = ("seed", "data.name", "loss.temperature", "loss.margin", "mining.pool")
    assert [config.value(key) for key in keys] == [0, "digits", 0.1, None, None]


def test_another_root_leaves_the_rest_alone():
    config = parse_config({"data": {"name": "digits"}})
    assert config.with_root(None) is config
    moved = config.with_root("elsewhere")
    assert (moved.data.root, moved.data.name) == ("elsewhere", "digits")


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:1", "mps"])
def test_a_config_may_name_a_device_that_this_machine_has_not(device):
    assert parse_config({"train": {"device": device}}).train.device == device


def test_a_class_has_two_samples_or_more_in_a_batch():
    with pytest.raises(ValueError, match=r"batch\.k: expected a number of at least 2"):
        parse_config({"batch": {"k": 1}})


def test_broken_files_are_named(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("seed = = 3")
    with pytest.raises(ValueError, match=r"run\.toml is damaged: not TOML .*line 1"):
        load_config(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"run\.toml is damaged: not UTF-8"):
        load_config(file)
    with pytest.raises(FileNotFoundError):
        load_config(tmp_path / "none.toml")
