import pytest

from uncollapse.training.config import apply_overrides, load_config, parse_config


def test_a_config_survives_the_way_to_toml_and_back(tmp_path):
    config = parse_config({"seed": 7, "mining": {"positives": "hard"}, "evaluate": {"ks": [1, 5]}})
    file = tmp_path / "run.toml"
    file.write_text(config.to_toml())
    assert load_config(file) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"minning": {}}, r"minning: expected one of seed, .*got a key.*did you mean 'mining'"),
        ({"batch": {"kk": 2}}, "batch.kk: expected one of sampler, p, k, size, got a key"),
        ({"batch": {"p": 0}}, "batch.p: expected greater than or equal to 1, got 0"),
        ({"batch": {"p": "many"}}, "batch.p: expected a valid integer.*got 'many'"),
        ({"mining": {"negatives": "soft"}}, "mining.negatives: expected 'hard', .* got 'soft'"),
        ({"optimiser": {"lr": -1}}, "optimiser.lr: expected greater than 0, got -1"),
        ({"evaluate": {"ks": []}}, "evaluate: expected ks must be whole numbers"),
        ({"loss": 3}, "loss: expected a valid dictionary.*got 3"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_what_is_allowed(values, message):
    with pytest.raises(ValueError, match=message):
        parse_config(values)


def test_overrides_are_read_as_toml_and_else_as_text():
    values = apply_overrides({}, ["a.b=3", "a.c=x y", "d=[1, 2]", "e=true", "f=0.5", "g="])
    assert values == {"a": {"b": 3, "c": "x y"}, "d": [1, 2], "e": True, "f": 0.5, "g": ""}


def test_overrides_leave_the_given_values_alone():
    given = {"a": {"b": 1}}
    apply_overrides(given, ["a.b=2"])
    assert given == {"a": {"b": 1}}


@pytest.mark.parametrize("override", ["batch.p", "=3"])
def test_an_override_without_key_or_value_is_refused(override):
    with pytest.raises(ValueError, match="--set: expected key=value"):
        apply_overrides({}, [override])


def test_an_override_below_a_value_is_refused():
    with pytest.raises(ValueError, match="seed to be a section"):
        apply_overrides({"seed": 1}, ["seed.x=2"])


def test_broken_files_are_named(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("seed = = 3")
    with pytest.raises(ValueError, match=r"run\.toml: expected a valid TOML file"):
        load_config(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"run\.toml: expected a TOML file"):
        load_config(file)
    with pytest.raises(FileNotFoundError):
        load_config(tmp_path / "none.toml")
