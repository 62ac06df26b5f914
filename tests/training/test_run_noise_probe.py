import pytest

from uncollapse.training import noise_probe_run, parse_config, train

pytestmark = pytest.mark.slow

CONFIG = parse_config(
    {
        "data": {"name": "digits"},
        "model": {"backbone": "mlp", "dim": 4, "hidden": [16]},
        "batch": {"p": 5, "k": 4},
        "train": {"steps": 2},
    }
)


def test_the_noise_question_is_asked_of_a_config_and_of_a_run(tmp_path):
    fresh = noise_probe_run(CONFIG, [1.0, 0.8], steps=3, max_samples=200)
    assert [(row.p, row.positives) for row in fresh.rows] == [
        (1.0, "random"),
        (1.0, "easy"),
        (0.8, "random"),
        (0.8, "easy"),
    ]
    run = train(CONFIG, tmp_path / "run")
    tuned = noise_probe_run(run, [1.0], steps=3, max_samples=200, fine_tune=True)
    assert tuned.rows[0] != fresh.rows[0]
