"""Each script of examples/ runs as it stands and ends as it says, where its extra is installed."""

import importlib.util
import os
import subprocess
import sys

import pytest

from docs.pages import ROOT

# What it needs besides the package, and words that it prints.
EXAMPLES = {
    "plain_loop": ([], ["ends network-collapse", "ends healthy"]),
    "pml": (["pytorch_metric_learning"], ["steps: network-collapse", "steps: healthy"]),
    "lightning_callback": (["lightning"], ["Rolled back", "ends healthy"]),
    "sentence_trainer": (["sentence_transformers", "datasets"], ["ends healthy"]),
    "file_of_embeddings": ([], ["cone", "centred: healthy"]),
    "ray_sweep": (["ray"], ["positives=easy", "finished"]),
}


def test_every_script_is_listed():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_from_another_directory(name, tmp_path):
    needs, words = EXAMPLES[name]
    for package in needs:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}: make test-callbacks")
    command = [sys.executable, "-W", "default", str(ROOT / "examples" / f"{name}.py")]
    quiet = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=os.environ | quiet, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [word for word in words if word not in done.stdout] == [], done.stdout
    ours = [line for line in done.stderr.splitlines() if "DeprecationWarning" in line]
    assert [line for line in ours if "uncollapse" in line or "examples" in line] == []
