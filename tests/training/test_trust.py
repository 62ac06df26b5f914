"""A run's config may name code: it is imported only where the user trusts it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from uncollapse.cli import app
from uncollapse.training import Run, UntrustedCodeError, parse_config, train
from uncollapse.training.manifest import record_files
from uncollapse.training.measurer import measure_run
from uncollapse.training.run import check_trusted

pytestmark = pytest.mark.slow

MODULE = """
from pathlib import Path
from torch import nn

Path({marker!r}).write_text("imported")


def build(dim):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, dim))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with modules whose import leaves a mark."""
    code = tmp_path / "code"
    code.mkdir()
    for name in ("my_net", "evil_net"):
        marker = str(tmp_path / f"{name}.imported")
        (code / f"{name}.py").write_text(MODULE.format(marker=marker), encoding="utf-8")
    monkeypatch.syspath_prepend(str(code))
    yield tmp_path
    for name in ("my_net", "evil_net"):
        sys.modules.pop(name, None)


@pytest.fixture
def run(home: Path) -> Run:
    values = {
        "data": {"name": "digits", "eval_splits": ["test"]},
        "model": {"backbone": "my_net:build", "dim": 4},
        "batch": {"p": 4, "k": 2},
        "train": {"steps": 2},
        "evaluate": {"max_samples": 60},
    }
    made = train(parse_config(values), home / "run")
    forget(home)
    return made


def forget(home: Path) -> None:
    """As if this were another process: nothing is imported, nothing marked."""
    for name in ("my_net", "evil_net"):
        sys.modules.pop(name, None)
        (home / f"{name}.imported").unlink(missing_ok=True)


def imported(home: Path) -> list[str]:
    return sorted(path.stem for path in home.glob("*.imported"))


def test_a_run_whose_config_names_code_imports_nothing(run: Run, home: Path):
    for use in (run.load_model, lambda: measure_run(run)):
        with pytest.raises(UntrustedCodeError, match=r"my_net:build.*--trust"):
            use()
    assert imported(home) == []


def test_trust_imports_it(run: Run, home: Path):
    trusted = Run.open(run.path, trust=True)
    assert trusted.load_model()(torch.rand(2, *run.sample_shape)).shape == (2, 4)
    assert imported(home) == ["my_net"]


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


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_it(run: Run, home: Path, name: str):
    words = [word.format(run=run.path, home=home) for word in COMMANDS[name]]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, UntrustedCodeError)
    assert imported(home) == []


def test_a_command_with_trust_goes_on(run: Run, home: Path):
    result = CliRunner().invoke(app, ["evaluate", str(run.path), "--trust"])
    assert result.exit_code == 0, result.output
    assert imported(home) == ["my_net"]


def test_a_report_reads_and_imports_nothing(run: Run, home: Path):
    result = CliRunner().invoke(app, ["report", str(run.path)])
    assert result.exit_code == 0, result.output
    assert imported(home) == []


@pytest.mark.parametrize("name", ["mlp", "timm:resnet10t", "sentence:all-MiniLM-L6-v2"])
def test_a_run_of_a_built_in_network_needs_no_trust(tmp_path: Path, name: str):
    (tmp_path / "config.toml").touch()
    (tmp_path / "metrics.jsonl").touch()
    check_trusted(tmp_path, parse_config({"model": {"backbone": name}}))
    with pytest.raises(UntrustedCodeError):
        check_trusted(tmp_path, parse_config({"model": {"backbone": "a.b:c"}}))


def test_a_config_of_one_s_own_beside_nothing_of_a_run_is_not_judged(tmp_path: Path):
    check_trusted(tmp_path, parse_config({"model": {"backbone": "a.b:c"}}))


def test_pickles_are_never_loaded(run: Run, home: Path):
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.write_text, (home / "bomb.imported", "ran")

    place = next((run.path / "checkpoints").glob("*/state.pt"))
    torch.save({"step": Bomb()}, place)
    record_files(run.path, str(place.relative_to(run.path)))
    with pytest.raises(Exception, match=r"(?i)weights|checkpoint"):
        Run.open(run.path, trust=True).load_model()
    assert "bomb" not in imported(home)
