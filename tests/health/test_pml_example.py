"""The example with pytorch-metric-learning does what it says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from pytorch_metric_learning import distances, miners

_EXAMPLE = Path(__file__).parents[2] / "examples" / "pml_monitor.py"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_example_shows_a_collapse_and_a_healthy_run(capsys):
    train = runpy.run_path(str(_EXAMPLE))["train"]
    distance = distances.LpDistance(normalize_embeddings=False)
    assert train(miners.BatchHardMiner(distance=distance)).verdict == "network-collapse"
    assert "hard positives mined over 80 samples" in capsys.readouterr().out
    gentle = miners.BatchEasyHardMiner("easy", "semihard", distance=distance)
    assert train(gentle).verdict == "healthy"
