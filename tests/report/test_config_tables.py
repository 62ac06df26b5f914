from uncollapse.report.run_page import config_content, config_differences
from uncollapse.training.config import parse_config


def changed(values: dict[str, object]) -> dict[str, str]:
    """What differs from the defaults."""
    return config_content(parse_config(values))["changed"]


def test_a_loss_is_compared_with_its_own_defaults():
    shown = changed({"loss": {"name": "contrastive", "margin": 1.0, "pos_margin": 0.25}})
    assert shown == {"loss.name": "contrastive", "loss.pos_margin": "0.25"}


def test_nothing_is_changed_in_a_run_of_defaults():
    assert changed({}) == {}
    assert config_content(parse_config({}))["every"]["batch.p"] == "8"


def test_several_configs_are_split_into_what_differs_and_what_is_the_same():
    runs = {"a": parse_config({"batch": {"p": 2}}), "b": parse_config({"batch": {"p": 4}})}
    found = config_differences(runs)
    assert found["differences"].head == ["key", "a", "b"]
    assert found["differences"].rows == [["batch.p", "2", "4"]]
    assert "batch.k" in found["same"]
    assert "batch.p" not in found["same"]
    assert config_differences({"a": runs["a"], "c": runs["a"]})["differences"] is None
