import io

import pytest
from rich.console import Console

from uncollapse.sweep.jobs import Board


@pytest.fixture
def board():
    return Board(Console(file=io.StringIO(), width=200))
