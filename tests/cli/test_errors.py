"""What a user sees when a command fails, and what the first second of a command loads."""

import subprocess
import sys

import numpy as np
import pytest
import typer

from uncollapse import __version__
from uncollapse._base.check import InputError
from uncollapse._base.extras import MissingExtraError
from uncollapse.cli.printing import run

MEMORY = "error: out of memory: try smaller batches (batch.p"


def app_that_raises(error):
    broken = typer.Typer()

    @broken.command()
    def go():
        raise error

    return broken


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("p", 0, "at least 1"), 2, "error: p: expected at least 1, got 0\n"),
        (MissingExtraError("install\nthis"), 2, "error: install this\n"),
        (FileNotFoundError(2, "No such file", "x.toml"), 2, "error: x.toml: No such file\n"),
        (typer.Abort(), 130, "error: interrupted\n"),
        (KeyboardInterrupt(), 130, ""),
        (MemoryError("Unable to allocate 149. GiB for an array"), 2, MEMORY),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] can't allocate memory"), 2, MEMORY),
        (type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory."), 2, MEMORY),
        (ZeroDivisionError("x"), 1, "bug in uncollapse: run again with --debug"),
    ],
)
def test_a_failure_is_one_line_and_an_exit_code(error, code, line, capsys):
    assert run(app_that_raises(error), []) == code
    message = capsys.readouterr().err
    assert message == line or (line and line in message)


def test_debug_lets_the_traceback_through():
    with pytest.raises(InputError):
        run(app_that_raises(InputError("p", 0, "1")), ["--debug"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("nonsense", "No such command 'nonsense'"),
        ("reproduce --seed x", "Invalid value for '--seed'"),
        ("train", "Missing argument"),
        ("train none.toml", "none.toml: No such file"),
        ("evaluate none", "run: expected a run directory or a file of embeddings (.npz, .npy,"),
        ("reproduce tabel1", "got 'tabel1' (did you mean 'table1'?)"),
    ],
)
def test_a_users_mistake_is_one_red_line_with_exit_code_two(words, told, cli):
    error = cli(*words.split(), code=2).err
    assert error.startswith("error: ")
    assert told in error
    assert error.count("\n") == 1


def test_every_wrong_key_of_a_config_has_a_line_of_its_own(folder, cli):
    text = '[data]\nnam = "digits"\n[model]\ndimm = 16\n[guard]\naction = "resuce"\n'
    (folder / "run.toml").write_text(text)
    head, *lines = cli("train", "run.toml", "--set", "batch.p=0", code=2).err.splitlines()
    assert head == "error: 4 keys are wrong:"
    meanings = [("data.nam", "'name'?"), ("model.dimm", "'dim'?"), ("batch.p", "at least 1")]
    for line, (key, meant) in zip(lines, [*meanings, ("guard.action", "'rescue'?")], strict=True):
        assert line.startswith(f"- {key}: expected ")
        assert meant in line


def test_the_version_and_the_help_page_are_shown(cli):
    assert cli("--version").out == f"uncollapse {__version__}\n"
    assert all(name in cli().out for name in ("train", "evaluate", "datasets", "reproduce"))


# What computes nothing loads nothing slow: torch alone takes a second and more.

SLOW = ("torch", "scipy", "sklearn", "pandas", "numba", "PIL")
HEAVY = ("sklearn", "scipy.stats", "scipy.cluster", "scipy.optimize", "scipy.sparse", "numba")
HEAVY += ("pandas", "tensorboard", "wandb", "mlflow", "transformers", "uncollapse.training")
QUICK = {
    0: ["--help", "--version", "evaluate --help", "reproduce --list", "datasets"],
    2: [
        "reproduce fig99", "datasets nonesuch", "nonesuch", "train", "demo --seed x",
        "diagnose none.npz", "diagnose none.xyz", "evaluate none.npz", "evaluate none",
        "verify none.npz --pairs none.txt", "search none.npz 3", "embed none --out z.npz",
        "export none", "train none.toml", "forecast none.toml", "sweep none.toml", "report none",
    ],
}  # fmt: skip
CODE = f"""
import sys
import uncollapse
from uncollapse.cli import app
from uncollapse.cli.printing import run
loaded = lambda names: [name for name in names if name in sys.modules]
for code, lines in {QUICK}.items():
    for line in lines:
        assert run(app, line.split()) == code, line
        assert not loaded({SLOW}), (line, loaded({SLOW}))
assert run(app, ["diagnose", "z.npz"]) == 0
assert not loaded({HEAVY}), loaded({HEAVY})
import uncollapse.report
assert not loaded({HEAVY[:-1]}), loaded({HEAVY[:-1]})
assert loaded(["torch"])
"""


@pytest.mark.processes
def test_what_computes_nothing_loads_nothing_slow_and_a_small_file_little(folder, monkeypatch):
    monkeypatch.delenv("UNCOLLAPSE_DATA", raising=False)
    rng = np.random.default_rng(0)
    np.savez("z.npz", embeddings=rng.normal(size=(60, 6)), labels=np.arange(60) % 5)
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.processes
def test_the_module_runs_as_a_program():
    words = [sys.executable, "-m", "uncollapse", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"uncollapse {__version__}\n")
