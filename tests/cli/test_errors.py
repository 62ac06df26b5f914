import subprocess
import sys
from types import SimpleNamespace

import pytest
import typer

from uncollapse import __version__
from uncollapse._base.check import InputError
from uncollapse._base.extras import MissingExtraError
from uncollapse.cli import app
from uncollapse.cli.embed import usual_split
from uncollapse.cli.errors import run
from uncollapse.training import parse_config


def app_that_raises(error: BaseException) -> typer.Typer:
    broken = typer.Typer()

    @broken.command()
    def go() -> None:
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
    ],
)
def test_a_failure_is_one_line_and_an_exit_code(error, code, line, capsys):
    assert run(app_that_raises(error), []) == code
    assert capsys.readouterr().err == line


def test_a_bug_of_ours_says_so_and_how_to_report_it(capsys):
    assert run(app_that_raises(ZeroDivisionError("x")), []) == 1
    assert "bug in uncollapse: run again with --debug" in capsys.readouterr().err


def test_debug_lets_the_traceback_through():
    with pytest.raises(InputError):
        run(app_that_raises(InputError("p", 0, "1")), ["--debug"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["reproduce", "--seed", "x"], "Invalid value for '--seed'"),
        (["reproduce", "--no-such-option"], "No such option"),
        (["train"], "Missing argument"),
        (["train", "none.toml"], "none.toml: No such file"),
        (
            ["evaluate", "none"],
            "run: expected a run directory or a file of embeddings (.npz, .npy, .safetensors, ",
        ),
        (["reproduce", "fig99"], "fig99"),
        (["reproduce", "tabel1"], "got 'tabel1' (did you mean 'table1'?)"),
        (["datasets", "nope"], "expected one of 'digits'"),
    ],
)
def test_a_users_mistake_is_one_red_line_with_exit_code_two(words, told, capsys):
    assert run(app, words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert told in error
    assert error.count("\n") == 1


def test_every_wrong_key_of_a_config_has_a_line_of_its_own(tmp_path, capsys):
    (tmp_path / "run.toml").write_text(
        '[data]\nnam = "digits"\n[model]\ndimm = 16\n[guard]\naction = "resuce"\n'
    )
    assert run(app, ["train", str(tmp_path / "run.toml"), "--set", "batch.p=0"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "error: 4 keys are wrong:"
    for line, key, meant in zip(
        lines[1:],
        ("data.nam", "model.dimm", "batch.p", "guard.action"),
        ("did you mean 'name'?", "did you mean 'dim'?", "at least 1", "did you mean 'rescue'?"),
        strict=True,
    ):
        assert line.startswith(f"- {key}: expected ")
        assert meant in line


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 149. GiB for an array"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"
        ),
        type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory."),
    ],
)
def test_too_little_memory_is_no_bug_of_ours(error, capsys):
    assert run(app_that_raises(error), []) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: out of memory: try smaller batches (batch.p, batch.k")
    assert "bug" not in told


def test_the_version_is_shown(capsys):
    assert run(app, ["--version"]) == 0
    assert capsys.readouterr().out == f"uncollapse {__version__}\n"


def test_without_words_the_help_page_is_shown(capsys):
    assert run(app, []) == 0
    shown = capsys.readouterr().out
    assert "Train embeddings that don't collapse" in shown
    for command in ("train", "evaluate", "datasets", "reproduce"):
        assert command in shown


def test_the_help_page_does_not_load_torch():
    code = (
        "import sys; sys.argv = ['uncollapse', '--help']\n"
        "from uncollapse.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_the_module_runs_as_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "uncollapse", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, f"uncollapse {__version__}\n")


@pytest.mark.parametrize(
    ("splits", "usual"), [([], "all"), (["test"], "test"), (["val", "test"], "test")]
)
def test_embed_and_search_take_the_last_split_a_run_is_evaluated_on(splits, usual):
    config = parse_config({"data": {"train_split": "all", "eval_splits": splits}})
    assert usual_split(SimpleNamespace(config=config)) == usual
