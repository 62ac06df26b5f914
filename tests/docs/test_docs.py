"""The Python of the documentation runs, page by page, from top to bottom."""

import doctest
import re
import tomllib
import warnings
from importlib.metadata import PackageNotFoundError, version

import pytest
import torch

from docs.pages import DOCS, ROOT, blocks
from uncollapse.losses import TripletLoss
from uncollapse.mining import Miner

pytestmark = pytest.mark.slow

_NEEDS = re.compile(r"uncollapse\[([\w,]+)\]")
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(autouse=True)
def _a_place_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNCOLLAPSE_CACHE", str(tmp_path / "cache"))
    torch.manual_seed(0)


@pytest.mark.parametrize("page", [p for p in DOCS if blocks(p, "python")], ids=lambda p: p.stem)
def test_the_python_of_a_page_runs_as_far_as_its_extras_are_installed(page):
    names = readers_own()
    for block in blocks(page, "python"):
        extras = {extra for match in _NEEDS.findall(block.text) for extra in match.split(",")}
        with warnings.catch_warnings():
            if extras:
                warnings.simplefilter("ignore")  # those of other packages
            if all(map(installed, extras)):
                run(block, names)


def run(block, names):
    """Run a block as it stands, with the page's own line numbers in any traceback."""
    if ">>>" not in block.text:
        exec(compile("\n" * (block.line - 1) + block.text, str(block.page), "exec"), names)
        return
    parser = doctest.DocTestParser()
    test = parser.get_doctest(block.text, names, block.name, str(block.page), block.line - 1)
    output = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    result = runner.run(test, out=output.append, clear_globs=False)
    names.update(test.globs)
    assert not result.failed, "".join(output)


def readers_own():
    """What pages call the reader's own: 96 embeddings with their labels, and a loss of them."""
    labels = torch.arange(96) % 8
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(8, 16, generator=generator)
    z = centres[labels] + torch.randn(96, 16, generator=generator)
    loss_fn = TripletLoss(margin=0.2, miner=Miner("easy", "semihard"))
    own = {"embeddings": z, "labels": labels, "z": z, "loss_fn": loss_fn}
    return {"__name__": "__page__", **own, "loss": loss_fn(z, labels)}


def installed(extra):
    """Whether the packages of an extra are there."""
    try:
        for need in _PROJECT["optional-dependencies"][extra]:
            version(re.split(r"[\[<>=~!; ]", need)[0])
    except PackageNotFoundError:
        return False
    return True
