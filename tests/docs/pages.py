"""The written pages as data: their fenced blocks, headings and links."""

import itertools
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
README = ROOT / "README.md"
WRITTEN = [*DOCS, README, ROOT / "CONTRIBUTING.md"]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*).*$")
_LINK = re.compile(r"(?<!`)!?\[[^\]]*\]\((?P<target>[^)\s]+)[^)]*\)")
_HEADING = re.compile(r"^#{1,6} +(?P<title>.+?) *$", re.MULTILINE)


def shelf(name):
    """The pages of one part of the navigation: Guides, Reference, Studies or API."""
    lines = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").splitlines()
    rest = lines[lines.index(f"  - {name}:") + 1 :]
    listed = [re.fullmatch(r"      - .+: (.+\.md)", line) for line in rest]
    return [ROOT / "docs" / match[1] for match in itertools.takewhile(bool, listed)]


@dataclass(frozen=True)
class Block:
    """A fenced block: `line` is the page's line on which its text starts, from 1.

    `file` is what it is to be saved as, where the paragraph above is just "`NAME.py`:".
    """

    page: Path
    line: int
    language: str
    text: str
    file: str | None = None

    @property
    def name(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page, *languages):
    """The page's fenced blocks of these languages ("" is a fence that names none)."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    start, opened = 0, None
    for number, line in enumerate(lines):
        if opened is None:
            opened, start = _FENCE.match(line), number + 1
        elif line.strip() == "```":
            indent = len(opened["indent"])
            text = "".join(f"{inner[indent:]}\n" for inner in lines[start:number])
            saved = re.fullmatch(r"`(\w+\.py)`:\n*", "\n".join(lines[start - 3 : start - 1]))
            file = saved and saved[1]
            found.append(Block(page, start + 1, opened["language"], text, file))
            opened = None
    if opened is not None:
        raise ValueError(f"{page.name}:{start}: a fence that is never closed")
    return [block for block in found if block.language in languages]


def prose(page):
    """The page without its fenced blocks."""
    kept, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def links(page):
    """What the page links to or shows, in order, as written."""
    text = re.sub(r"`[^`\n]*`", "``", prose(page))
    return [match["target"] for match in _LINK.finditer(text)]


def anchors(page):
    """The names of the page's headings, as mkdocs gives them."""
    return {_slug(match["title"]) for match in _HEADING.finditer(prose(page))}


def _slug(title):
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", title)
    ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())
