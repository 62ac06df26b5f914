from uncollapse.report.config_tables import config_content
from uncollapse.training.config import parse_config


def changed(values: dict[str, object]) -> dict[str, str]:
    """The part of the table that is about what differs from the defaults."""
    return config_content(parse_config(values))["changed"]


def test_a_loss_is_compared_with_its_own_defaults():
    shown = changed({"loss": {"name": "contrastive", "margin": 1.0, "pos_margin": 0.25}})
    assert shown["loss.name"] == "contrastive"
    assert "loss.pos_margin" in shown
    assert "loss.margin" not in shown


def test_nothing_is_changed_in_a_run_of_defaults():
    assert changed({}) == {}
