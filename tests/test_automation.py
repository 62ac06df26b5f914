"""What runs elsewhere and is judged here: the action, the hook, CI's versions, the floors."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from uncollapse import __version__

pytestmark = pytest.mark.slow

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def read(name):
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


@pytest.fixture
def embeddings(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "good.npy", rng.normal(size=(60, 8)))
    np.save(tmp_path / "flat.npy", np.ones((60, 8)))
    return tmp_path


def diagnose_as_the_action(folder, files, options="", fail_if="", baseline=""):
    """Run the action's own lines in a folder, as a runner does."""
    step = read("action.yml")["runs"]["steps"][-1]
    commands = folder / "bin"
    commands.mkdir(exist_ok=True)
    command = commands / "uncollapse"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m uncollapse "$@"\n', "utf-8")
    command.chmod(0o755)
    given = {"FILES": files, "FAIL_ON": "network-collapse,cone", "OPTIONS": options}
    given |= {"FAIL_IF": fail_if, "BASELINE": baseline}
    assert set(given) == set(step["env"])
    given |= {"GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "RUNNER_TEMP": str(folder)}
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    return run(["bash", "-c", step["run"]], folder, given | {"PATH": path})


def run(words, folder, variables):
    options = {"capture_output": True, "text": True, "encoding": "utf-8", "check": False}
    return subprocess.run(words, cwd=folder, env=os.environ | variables, **options)


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("bash") is None, reason="the action's lines are bash")
def test_the_action_takes_rules_and_a_baseline(embeddings):
    rules = "zero_rows>0\n\nhubs>9"
    good = diagnose_as_the_action(embeddings, "good.npy", "--json good.json", rules)
    assert good.returncode == 0, good.stderr
    bad = np.load(embeddings / "good.npy")
    bad[:3] = 0
    np.save(embeddings / "bad.npy", bad)
    done = diagnose_as_the_action(embeddings, "bad.npy", "", "zero_rows > 2\nrows<5", "good.json")
    assert done.returncode == 1
    assert "::error::bad.npy: zero_rows is 3, and zero_rows > 2 is refused" in done.stdout
    assert "::error::bad.npy: the verdict is spoiled-rows, it was healthy" in done.stdout


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("bash") is None, reason="the action's lines are bash")
def test_the_action_judges_the_files_and_shows_the_diagnosis(embeddings):
    done = diagnose_as_the_action(embeddings, "g*.npy", "--max-rows 50")
    assert done.returncode == 0, done.stderr
    assert "healthy" in done.stdout
    assert (embeddings / "summary.md").read_text("utf-8").startswith("```text\nhealthy")
    done = diagnose_as_the_action(embeddings, "**/*.npy")
    assert done.returncode == 1
    assert "::error::flat.npy is judged network-collapse" in done.stdout
    assert "::error::good.npy" not in done.stdout
    # It does not pass when nothing was judged.
    for files, reason in (("*.npz", "no file matches"), ("none.npy", "no such file")):
        done = diagnose_as_the_action(embeddings, files)
        assert done.returncode == 2
        assert reason in done.stdout


@pytest.mark.processes
def test_the_hook_fails_on_a_collapsed_file(embeddings):
    (hook,) = read(".pre-commit-hooks.yaml")
    words = [*hook["entry"].split()[1:], *hook["args"], "good.npy", "flat.npy"]
    done = run([sys.executable, "-m", "uncollapse", *words], embeddings, {})
    assert done.returncode == 1
    assert "failed: flat.npy" in done.stderr
    wanted = re.compile(hook["files"])
    assert wanted.search("data/val_embeddings.npz")
    assert not wanted.search("src/embeddings.py")


def test_the_oldest_versions_are_the_floors_of_the_project():
    lines = (ROOT / "constraints-oldest.txt").read_text("utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    extras = PROJECT["optional-dependencies"]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    installed = re.search(r'constraints-oldest\.txt -e "\.\[([a-z,]+)\]"', makefile)
    assert installed is not None
    chosen = [name for name in installed[1].split(",") if name != "digits"]  # of no certain age
    wanted = [*PROJECT["dependencies"], *(word for name in chosen for word in extras[name])]
    floors = dict(word.split(">=") for word in wanted)
    # faiss is a peer of the tests; click is typer's, which warns beside newer ones.
    assert set(pinned) - set(floors) == {"click", "faiss-cpu"}
    for name, floor in floors.items():
        assert pinned[name] in (floor, f"{floor}.0", f"{floor}.0.0"), name


def test_every_python_that_is_claimed_is_tested():
    jobs = read(".github/workflows/ci.yml")["jobs"]
    tested = {
        step["with"]["python-version"]
        for job in jobs.values()
        for step in job["steps"]
        if "setup-python" in step.get("uses", "")
    } | set(jobs["pythons"]["strategy"]["matrix"]["python"])
    claimed = {word.rpartition(" ")[2] for word in PROJECT["classifiers"] if "Python :: 3." in word}
    assert claimed <= tested
    assert PROJECT["requires-python"] == ">=" + min(claimed, key=lambda v: int(v.split(".")[1]))


def test_the_targets_that_ci_makes_exist_and_the_citation_has_the_version():
    made = (ROOT / "Makefile").read_text("utf-8")
    for workflow in ("ci", "release"):
        text = (ROOT / f".github/workflows/{workflow}.yml").read_text("utf-8")
        for target in re.findall(r"run: make ([a-z-]+)", text):
            assert re.search(rf"^{target}:", made, re.MULTILINE), target
    assert read("CITATION.cff")["version"] == __version__


def test_the_extras_that_errors_name_exist():
    sources = ROOT / "src" / "uncollapse"
    pattern = re.compile(r"import_extra\([^()]*?(?:extra=)?\"([a-z-]+)\"\)")
    texts = [path.read_text("utf-8") for path in sources.rglob("*.py")]
    named = {extra for text in texts for extra in pattern.findall(text)}
    assert {"geometry", "pml", "frames"} <= named
    assert named <= set(PROJECT["optional-dependencies"])
