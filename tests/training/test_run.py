"""A run folder as others read it: scores before training, and code that its config names."""

import math
import shutil
import sys
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from support.configs import small_config
from support.runs import canonical
from uncollapse.cli import app
from uncollapse.data.sources import StartScale
from uncollapse.training import Run, UntrustedCodeError, embed, parse_config, train
from uncollapse.training.assemble import load_eval_data
from uncollapse.training.measurer import measure_run, start_network
from uncollapse.training.measures import ends_below, start_scores
from uncollapse.training.run import check_trusted

# A network whose import leaves a mark.
MODULE = """
from pathlib import Path
from torch import nn

Path({marker!r}).write_text("imported")


def build(dim):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, dim))
"""
COMMANDS = {
    "evaluate": ["evaluate", "{run}"],
    "measure": ["report", "{run}", "--measure"],
    "embed": ["embed", "{run}", "--split", "test", "--out", "{home}/z.npz"],
    "search": ["search", "{run}", "0", "--split", "test"],
    "export": ["export", "{run}", "--out", "{home}/m.onnx"],
    "resume": ["train", "{run}/config.toml", "--out", "{run}", "--resume"],
    "train": ["train", "{run}/config.toml", "--out", "{home}/again"],
    "forecast": ["forecast", "{run}/config.toml", "--p", "2", "--k", "2"],
}


@pytest.mark.slow
def test_the_start_is_built_again_as_it_was_measured_and_logged(tmp_path):
    run = Run.open(canonical("plain") / "run")
    rows = run.rows("before", "test")
    z = embed(start_network(run), load_eval_data(run.config, "test").subset(rows.rows))
    assert torch.equal(z, rows.embeddings)
    assert not torch.equal(z, run.rows("after", "test").embeddings)
    first = next(run.metrics())
    assert first.pop("step") == 0
    assert start_scores(run) == first
    copy = shutil.copytree(run.path, tmp_path / "copy")
    (copy / "measures.json").unlink()
    assert start_scores(Run.open(copy)) == {}


def test_the_scale_at_the_start_is_that_of_the_split_or_of_the_first_that_was_measured(monkeypatch):
    run = Run.open(canonical("plain") / "run")
    measures = run.measures()
    before = measures.before.splits["test"]
    figures = {"diameter": 2.0, "spread": 0.5, "cdnv": 0.25, "fine_agreement": 0.75}

    def start(split="test", **changes):
        health = replace(before.health, **{**figures, "fine_chance": 0.125, **changes})
        moment = replace(measures.before, splits={"test": replace(before, health=health)})
        monkeypatch.setattr(Run, "measures", lambda _: replace(measures, before=moment))
        return run.start_scale(split)

    assert start() == StartScale(2.0, 0.5, 0.25, "test", measures.splits["test"].rows, 0.75, 0.125)
    assert start("train") == replace(start(), fine_agreement=None, fine_chance=None)
    for unusable in (0.0, -1.0, math.inf, math.nan, None):
        assert start(diameter=unusable) is None
        assert start(spread=unusable, cdnv=unusable) == replace(start(), spread=None, cdnv=None)


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
    (text,) = ends_below({"t/recall@1": 0.50002}, {"t/recall@1": 0.49999})
    assert text.endswith("49.999 % against 50.002 %.")  # it is not rounded away


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a run whose network is code of the user's."""
    folder = tmp_path_factory.mktemp("home")
    module = MODULE.format(marker=str(folder / "my_net.imported"))
    (folder / "my_net.py").write_text(module, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        model = {"backbone": "my_net:build", "hidden": None}
        train(small_config(model=model, train={"steps": 2}), folder / "run")
        yield folder
    sys.modules.pop("my_net", None)


@pytest.fixture
def run(home):
    """Its run, as if this were another process: nothing is imported, nothing marked."""
    sys.modules.pop("my_net", None)
    (home / "my_net.imported").unlink(missing_ok=True)
    return Run.open(home / "run")


def imported(home):
    return (home / "my_net.imported").exists()


@pytest.mark.slow
def test_a_run_whose_config_names_code_imports_it_only_with_trust(run, home):
    for use in (run.load_model, lambda: measure_run(run)):
        with pytest.raises(UntrustedCodeError, match=r"my_net:build.*--trust"):
            use()
    assert not imported(home)
    trusted = Run.open(run.path, trust=True)
    assert trusted.load_model()(torch.rand(2, *run.sample_shape)).shape == (2, 4)
    assert imported(home)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_it(run, home, name):
    words = [word.format(run=run.path, home=home) for word in COMMANDS[name]]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, UntrustedCodeError)
    assert not imported(home)


@pytest.mark.slow
def test_a_report_needs_no_trust_and_a_command_with_trust_goes_on(run, home):
    for words, imports in ((["report"], False), (["evaluate", "--trust"], True)):
        result = CliRunner().invoke(app, [*words, str(run.path)])
        assert result.exit_code == 0, result.output
        assert imported(home) is imports


@pytest.mark.parametrize("key", ["loss.name", "data.name"])
@pytest.mark.parametrize("name", ["timm:Net", "sentence:Net"])
def test_the_prefix_of_a_network_hides_no_code_of_a_loss_or_dataset(tmp_path, key, name):
    section, _, word = key.partition(".")
    for file in ("config.toml", "metrics.jsonl"):
        (tmp_path / file).touch()
    with pytest.raises(UntrustedCodeError, match=name):
        check_trusted(tmp_path, parse_config({section: {word: name}}))


@pytest.mark.parametrize("name", ["mlp", "timm:resnet10t", "sentence:all-MiniLM-L6-v2"])
def test_a_run_of_a_built_in_network_needs_no_trust(tmp_path, name):
    own = parse_config({"model": {"backbone": "a.b:c"}})
    (tmp_path / "config.toml").touch()
    check_trusted(tmp_path, own)  # one's own config beside nothing of a run is not judged
    (tmp_path / "metrics.jsonl").touch()
    check_trusted(tmp_path, parse_config({"model": {"backbone": name}}))
    with pytest.raises(UntrustedCodeError):
        check_trusted(tmp_path, own)
