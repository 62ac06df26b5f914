"""Words of each written page: `python tools/words.py [COMMIT]`.

The pages of the navigation without the API, which docstrings give. A word is what `wc -w` counts
that has a letter or a digit. Not counted: fenced code, and on pages below docs/results the tables,
which scripts print. The last column is `wc -w` of the whole file.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def words(name: str, text: str) -> int:
    """Words of a page by its path below docs."""
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = prose.splitlines()
    if name.startswith("results/"):
        lines = [line for line in lines if not line.startswith("|")]
    return sum(bool(re.search(r"\w", word)) for line in lines for word in line.split())


def pages(read: Callable[[str], str]) -> dict[str, str]:
    """The text of each page of the navigation, by its path below docs."""
    nav = read("mkdocs.yml").partition("\nnav:\n")[2]
    names = re.findall(r": ([\w/.-]+\.md)$", nav, re.MULTILINE)
    return {name: read(f"docs/{name}") for name in names if not name.startswith("api/")}


def main() -> None:
    """Print a line for each page, and the sums."""
    commit = sys.argv[1] if len(sys.argv) > 1 else None

    def read(name: str) -> str:
        if commit is None:
            return (ROOT / name).read_text(encoding="utf-8")
        shown = ["git", "-C", str(ROOT), "show", f"{commit}:{name}"]
        return subprocess.run(shown, capture_output=True, text=True, check=True).stdout

    written = pages(read)
    for name, text in written.items():
        print(f"{words(name, text):6,} {len(text.split()):6,}  {name}")
    counted = sum(words(name, text) for name, text in written.items())
    print(f"{counted:6,} {sum(len(text.split()) for text in written.values()):6,}  in all")


if __name__ == "__main__":
    main()
