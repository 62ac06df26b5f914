from uncollapse.report.config_table import config_table
from uncollapse.training.config import parse_config


def changed(values: dict[str, object]) -> str:
    """The part of the table that is about what differs from the defaults."""
    return str(config_table(parse_config(values))).split("All keys")[0]


def test_a_loss_is_compared_with_its_own_defaults():
    shown = changed({"loss": {"name": "contrastive", "margin": 1.0, "pos_margin": 0.25}})
    assert "contrastive" in shown
    assert "loss.pos_margin" in shown
    assert "loss.margin" not in shown


def test_nothing_is_changed_in_a_run_of_defaults():
    assert "All defaults." in changed({})
