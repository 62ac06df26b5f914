"""Every file of a run folder, damaged in every way, under every command that reads it.

A command may say what is wrong and end, or go on and warn. It may not show a traceback, and not
give another result in silence.
"""

import itertools
import shutil
import zlib

import numpy as np
import pytest
from safetensors.numpy import load_file

from support.hostile_processes import tiny_config
from uncollapse.cli import app
from uncollapse.cli.printing import run as run_command

pytestmark = pytest.mark.slow

# The run is damaged when it has ended, or when 6 of its 8 steps are made.
COMMANDS = {
    "resume": "half",
    "resume the finished": "whole",
    "evaluate": "whole",
    "evaluate --best": "whole",
    "report": "whole",
    "report the half": "half",
    "embed": "whole",
}
HARMS = ("missing", "empty", "cut", "flipped", "flipped late", "garbage", "another run's")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Three runs of one architecture: `whole`, `half` of it, and `other`, of another seed."""
    home = tmp_path_factory.mktemp("damaged")
    for name, seed, steps in (("whole", 0, 8), ("half", 0, 6), ("other", 1, 8)):
        file = home / f"{name}.toml"
        config = tiny_config(home, seed=seed, steps=steps)
        constant = {"optimizer": {"schedule": "constant"}}  # whatever the number of steps
        file.write_text(config.with_changes(constant).to_toml())
        assert run_command(app, ["train", str(file), "--out", str(home / name)]) == 0
    return home


def files(home, name):
    """The files of a run, relative to it."""
    return sorted(p.relative_to(home / name) for p in (home / name).rglob("*") if p.is_file())


def fresh(home, name):
    """Make `run` a copy of one of the runs."""
    shutil.rmtree(home / "run", ignore_errors=True)
    shutil.copytree(home / name, home / "run")


def damage(path, harm, other):
    content = bytearray(path.read_bytes())
    if harm == "missing":
        path.unlink()
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif harm.startswith("flipped"):
        share = 0.4 if harm == "flipped" else 0.9
        content[int(share * len(content))] ^= 1 << zlib.crc32(path.name.encode()) % 7
        path.write_bytes(content)
    elif harm == "garbage":
        path.write_bytes(np.random.default_rng(1).bytes(len(content)))
    else:
        shutil.copy(other, path)


def counterpart(home, file):
    """The same file of the other run; one of the same kind where it has none of that name."""
    same = home / "other" / file
    if same.is_file():
        return same
    alike = [p for p in (home / "other" / file.parts[0]).rglob("*") if p.is_file()]
    return next((p for p in alike if p.name == file.name), alike[0])


def result(home, command, capsys):
    """Exit code, all that was printed, and what came out."""
    run, out = home / "run", home / "out.npz"
    words = {
        "resume": ["train", str(home / "whole.toml"), "--out", str(run), "--resume"],
        "evaluate": ["evaluate", str(run), *command.split()[1:]],
        "report": ["report", str(run), "--out", str(home / "page.html")],
        "embed": ["embed", str(run), "--out", str(out)],
    }[command.split()[0]]
    capsys.readouterr()
    code = run_command(app, words)
    printed = capsys.readouterr()
    text, outcome = printed.out + printed.err, printed.out
    if code != 0:
        return code, text, outcome
    if command == "embed":
        return code, text, np.load(out)["embeddings"].tobytes()
    if command.startswith("report"):
        return code, text, (home / "page.html").read_text(encoding="utf-8")
    if command.startswith("resume"):
        weights = load_file(run / "checkpoints" / "step-00000008" / "weights.safetensors")
        tensors = {name: tensor.tobytes() for name, tensor in weights.items()}
        log, measures = (run / "metrics.jsonl").read_bytes(), (run / "measures.json").read_bytes()
        return code, text, (tensors, log, measures)
    return code, text, outcome


def wrong(code, text, outcome, expected):
    if code not in (0, 2) or "Traceback" in text or "bug in uncollapse" in text:
        return f"code {code}"
    if "weights_only" in text:
        return "torch's advice to load unsafely"
    if code == 2 and "error: " not in text:
        return "an error without a sentence"
    if code == 0 and outcome != expected and "warning: " not in text:
        return "another result in silence"
    return None


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.night)])
def test_no_damage_gives_a_traceback_or_another_result_in_silence(home, command, every, capsys):
    """Every fifth way to damage a file, another fifth for each command; at night all."""
    source, bad, warned = COMMANDS[command], [], 0
    fresh(home, source)
    code, text, expected = result(home, command, capsys)
    assert (code, "warning: " in text) == (0, False), text
    ways = list(itertools.product(files(home, source), HARMS))[
        list(COMMANDS).index(command) :: every
    ]
    for file, harm in ways:
        fresh(home, source)
        damage(home / "run" / file, harm, counterpart(home, file))
        code, text, outcome = result(home, command, capsys)
        warned += "warning: " in text or code == 2
        fault = wrong(code, text, outcome, expected)
        bad += [f"{file} {harm}: {fault}: {text[-400:]}"] if fault else []
    assert not bad, "\n".join(bad)
    assert warned > len(ways) // 20  # the harm is real


def test_a_whole_checkpoint_of_another_run_is_refused(home, capsys):
    for command in ("resume the finished", "evaluate", "embed"):
        fresh(home, "whole")
        place = home / "run" / "checkpoints" / "step-00000008"
        shutil.rmtree(place)
        shutil.copytree(home / "other" / "checkpoints" / "step-00000008", place)
        code, text, _ = result(home, command, capsys)
        assert code == 0
        assert "step 8 is of another run: it was made with seed = 1" in text
        assert "of step 4" in text


def test_checkpoints_without_a_config_are_not_gone_on_with_under_another(home, capsys):
    fresh(home, "half")
    (home / "run" / "config.toml").unlink()
    before = {p: p.read_bytes() for p in (home / "run").rglob("*") if p.is_file()}
    words = ["train", str(home / "other.toml"), "--out", str(home / "run")]
    assert run_command(app, words) == 2
    assert "a new or empty folder, or --resume" in capsys.readouterr().err
    assert run_command(app, [*words, "--resume"]) == 2
    assert "of another run: it was made with seed = 0" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in (home / "run").rglob("*") if p.is_file()} == before
    words[1] = str(home / "whole.toml")
    assert run_command(app, [*words, "--resume"]) == 0
    assert "config.toml is missing; it is written again" in capsys.readouterr().err
