"""What an item of a paper shows: its pages on the screen, and the rows of its CSV files."""

import csv
import io

from rich.console import Console

from uncollapse.cli.reproduce import show_page


def printed(made):
    """The pages as the terminal shows them."""
    console = Console(file=io.StringIO(), width=200)
    for page in made.pages:
        show_page(console, page)
    return console.file.getvalue()


def rows_of(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
