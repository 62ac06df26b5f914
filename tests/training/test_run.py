"""The network before training: built again, its scores, and a run that ends below it."""

import shutil

import pytest
import torch

from uncollapse.training import Run, embed, parse_config, train
from uncollapse.training.assemble import load_eval_data
from uncollapse.training.measurer import start_network
from uncollapse.training.run import ends_below, start_scores


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    settings = {
        "data": {"name": "digits"},
        "model": {"backbone": "conv2", "dim": 4},
        "batch": {"p": 4, "k": 4},
        "train": {"steps": 4},
        "evaluate": {"ks": [1, 4]},
    }
    return train(parse_config(settings), tmp_path_factory.mktemp("runs") / "run")


def test_the_network_that_is_built_again_is_the_one_that_was_measured(run):
    rows = run.rows("before", "test")
    data = load_eval_data(run.config, "test").subset(rows.rows)
    found = embed(start_network(run), data)
    assert torch.equal(found, rows.embeddings)
    assert not torch.equal(found, run.rows("after", "test").embeddings)


def test_scores_before_training_are_those_logged_at_step_0(run, tmp_path):
    first = next(run.metrics())
    assert first.pop("step") == 0
    assert start_scores(run) == first
    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    (copy / "measures.json").unlink()
    assert start_scores(Run.open(copy)) == {}


def test_only_the_smallest_k_of_each_split_and_kind_of_label_is_judged():
    start = {"val/recall@1": 0.5, "test/recall@2": 0.6, "test/recall@10": 0.9, "test/map@r": 0.5}
    start |= {"test/fine/recall@2": 0.7, "other/recall@1": 0.9}
    end = dict.fromkeys(start, 0.55)
    del end["other/recall@1"]
    assert ends_below(start, end) == [
        "R@2 on test ends below the network before training: 55.0 % against 60.0 %.",
        "R@2 by fine labels on test ends below the network before training: 55.0 % against 70.0 %.",
    ]
    assert ends_below(start, start) == []


def test_a_small_difference_is_not_rounded_away():
    said = ends_below({"t/recall@1": 0.50002}, {"t/recall@1": 0.49999})
    assert said[0].endswith("49.999 % against 50.002 %.")
