"""A run's config may name code: it is imported only where one has trained the run oneself."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from uncollapse.cli import app
from uncollapse.training import Run, UntrustedCodeError, noise_probe_run, parse_config, train
from uncollapse.training.measurer import measure_run
from uncollapse.training.run import SIGNATURE, check_trusted, names_code

MODULE = """
from pathlib import Path
from torch import nn

Path({marker!r}).write_text("imported")


def build(dim):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, dim))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An account of its own, and a module whose import leaves a mark."""
    monkeypatch.setenv("UNCOLLAPSE_STATE", str(tmp_path / "state"))
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


def foreign(run: Run, home: Path) -> Run:
    """The same folder as another account made it: its key signed it."""
    folder = home / "from-elsewhere"
    shutil.copytree(run.path, folder)
    (folder / SIGNATURE).write_text("0" * 64, encoding="utf-8")
    return Run.open(folder)


def test_one_s_own_run_gives_its_network(run: Run, home: Path):
    assert run.load_model()(torch.rand(2, *run.sample_shape)).shape == (2, 4)
    assert imported(home) == ["my_net"]


def test_one_s_own_run_may_be_moved(run: Run, home: Path):
    moved = Run.open(run.path.rename(home / "elsewhere"))
    assert moved.load_model() is not None


@pytest.mark.parametrize("signature", ["other", "none"])
def test_a_run_from_elsewhere_imports_nothing(run: Run, home: Path, signature: str):
    other = foreign(run, home)
    if signature == "none":
        (other.path / SIGNATURE).unlink()
    for use in (other.load_model, lambda: measure_run(other), lambda: noise_probe_run(other)):
        with pytest.raises(UntrustedCodeError, match=r"my_net:build.*--trust"):
            use()
    assert imported(home) == []


def test_an_account_without_a_key_owns_no_run(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("UNCOLLAPSE_STATE", str(home / "another"))
    with pytest.raises(UntrustedCodeError):
        run.load_model()
    assert not (home / "another").exists()


def test_a_config_made_to_name_something_else_is_not_one_s_own(run: Run, home: Path):
    text = run.config_file.read_text(encoding="utf-8").replace("my_net:build", "evil_net:build")
    run.config_file.write_text(text, encoding="utf-8")
    with pytest.raises(UntrustedCodeError, match="evil_net"):
        run.load_model()
    assert imported(home) == []


def test_trust_imports_it(run: Run, home: Path):
    other = foreign(run, home)
    assert Run.open(other.path, trust=True).load_model() is not None
    assert imported(home) == ["my_net"]


COMMANDS = {
    "evaluate": ["evaluate", "{run}"],
    "measure": ["evaluate", "{run}", "--measure"],
    "embed": ["embed", "{run}", "--split", "test", "--out", "{home}/z.npz"],
    "search": ["search", "{run}", "0", "--split", "test"],
    "export": ["export", "{run}", "--out", "{home}/m.onnx"],
    "resume": ["train", "{run}/config.toml", "--out", "{run}", "--resume"],
    "train": ["train", "{run}/config.toml", "--out", "{home}/again"],
    "forecast": ["forecast", "{run}/config.toml", "--p", "2", "--k", "2"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_a_run_from_elsewhere(run: Run, home: Path, name: str):
    other = foreign(run, home)
    words = [word.format(run=other.path, home=home) for word in COMMANDS[name]]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, UntrustedCodeError)
    assert imported(home) == []


def test_a_command_with_trust_goes_on(run: Run, home: Path):
    other = foreign(run, home)
    result = CliRunner().invoke(app, ["evaluate", str(other.path), "--trust"])
    assert result.exit_code == 0, result.output
    assert imported(home) == ["my_net"]


def test_a_report_reads_and_imports_nothing(run: Run, home: Path):
    other = foreign(run, home)
    result = CliRunner().invoke(app, ["report", str(other.path)])
    assert result.exit_code == 0, result.output
    assert imported(home) == []


def test_the_key_is_private_and_not_in_the_run(run: Run, home: Path):
    key = home / "state" / "key"
    assert key.parent.stat().st_mode & 0o077 == 0
    secret = key.read_text().strip()
    for path in run.path.rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes()


def test_a_run_of_a_built_in_network_needs_no_signature(tmp_path: Path):
    config = parse_config({"model": {"backbone": "mlp"}})
    assert not names_code(config)
    assert names_code(parse_config({"model": {"backbone": "a.b:c"}}))
    for name in ("timm:resnet10t", "sentence:all-MiniLM-L6-v2"):
        assert not names_code(parse_config({"model": {"backbone": name}}))
    (tmp_path / "config.toml").touch()
    (tmp_path / "metrics.jsonl").touch()
    check_trusted(tmp_path, config)


def test_a_config_of_one_s_own_beside_nothing_of_a_run_is_not_judged(tmp_path: Path):
    check_trusted(tmp_path, parse_config({"model": {"backbone": "a.b:c"}}))


def test_pickles_are_never_loaded(run: Run, home: Path):
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.write_text, (home / "bomb.imported", "ran")

    place = next((run.path / "checkpoints").glob("*/state.pt"))
    torch.save({"step": Bomb()}, place)
    manifest = place.parent / "manifest.json"
    sums = json.loads(manifest.read_text(encoding="utf-8"))
    digest = hashlib.sha256(place.read_bytes()).hexdigest()
    text = json.dumps(_replaced(sums, "state.pt", digest))
    manifest.write_text(text, encoding="utf-8")
    with pytest.raises(Exception, match=r"(?i)weights|checkpoint"):
        run.load_model()
    assert "bomb" not in imported(home)


def _replaced(value: object, name: str, digest: str) -> object:
    """A manifest that vouches for the file as it is now, whatever its layout."""
    if isinstance(value, dict):
        return {
            k: digest if k == name and isinstance(v, str) else _replaced(v, name, digest)
            for k, v in value.items()
        }
    return value
