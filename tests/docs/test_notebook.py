"""The notebook of examples/: it runs, what it shows is what is stored, and it names no machine."""

import json
import re
import subprocess
import sys

import pytest

from docs.pages import ROOT

NOTEBOOK = ROOT / "examples" / "file_of_embeddings.ipynb"


def outputs(path):
    """What the cells gave, in order: pages as text without their markup, or plain text."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    given = [output for cell in cells for output in cell.get("outputs", [])]
    assert not [output for output in given if output["output_type"] == "error"]
    texts = ["".join(o.get("data", {}).get("text/html", o.get("text", ""))) for o in given]
    return [re.sub(r"\s*<[^>]+>\s*", " ", text) for text in texts]


def test_what_is_stored_are_cards_without_paths_or_hosts():
    shown = outputs(NOTEBOOK)
    for words in ("Healthy: no collapse found", "Network collapse:", "recall@1", " suspect"):
        assert any(words in text for text in shown)
    assert not re.search(r"/(home|tmp|work|usr|root)\b|localhost|Traceback", NOTEBOOK.read_text())


@pytest.mark.slow
@pytest.mark.processes
def test_running_it_gives_what_is_stored(tmp_path):
    pytest.importorskip("nbconvert")
    pytest.importorskip("ipykernel")
    convert = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute"]
    limit = "--ExecutePreprocessor.timeout=120"
    command = [*convert, limit, "--output-dir", tmp_path, NOTEBOOK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    fresh, stored = outputs(tmp_path / NOTEBOOK.name), outputs(NOTEBOOK)
    assert len(fresh) == len(stored)
    digits = re.compile(r"[\d.,–e-]+")  # which another version of a library may change
    assert [digits.sub("", text) for text in fresh] == [digits.sub("", text) for text in stored]
