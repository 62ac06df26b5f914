"""Guides, reference and studies: short enough to be read, and answers are near the front page."""

import importlib.util
import re

import pytest

from docs.pages import DOCS, README, ROOT, links, shelf

_SPEC = importlib.util.spec_from_file_location("words", ROOT / "tools" / "words.py")
_WORDS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_WORDS)

GUIDES = shelf("Guides")
SHELVES = [page for name in ("Guides", "Reference", "Studies") for page in shelf(name)]
KEPT = [page for page in DOCS if page.parent == ROOT / "docs"]  # not results, not the API

# What a user asks, the page that answers, words of the answer, and how far down it is at most.
QUESTIONS = {
    "my ArcFace loss is at 20": ("numbers.md", "Why does ArcFace start at 20 and more?"),
    "what is my number 6.920": ("numbers.md", "6.920"),
    "my triplet loss is stuck at 0.2": ("stuck.md", "0.2000"),
    "is my text index fine after the upgrade": ("compare.md", "uncollapse compare old.npz new.npz"),
    "how do I watch SimCLR": ("self-supervised.md", "## SimCLR"),
    "what does inside x hard mean": ("choosing.md", '"inside x hard" means'),
    "which batch and dimension": ("choosing.md", "P = 18, K = 8"),
    "which labels are wrong": ("labels.md", "uncollapse suspects embeddings.npz"),
    "does it run on several GPUs": ("scaling.md", "one GPU per rank"),
    "how large a file can it take": ("files.md", "## How large a file?"),
    "how do I add my own loss": ("own-parts.md", "## A loss"),
    "can I use it with Lightning": ("trainers.md", "## Lightning"),
    "does it need labels": ("watch.md", "Labels are optional"),
    "what does it cost per step": ("watch.md", "% of a small convolutional network's step"),
    "is it safe to open a run of somebody else": ("untrusted.md", "Nothing in it is executed"),
    "how do I fail a build": ("ci.md", "--fail-on network-collapse,cone"),
}


def words(text):
    return len(text.split())


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_is_read_in_four_minutes(page):
    assert words(page.read_text(encoding="utf-8")) <= 900


def test_the_whole_is_bounded():
    pages = _WORDS.pages(lambda name: (ROOT / name).read_text(encoding="utf-8"))
    assert sum(_WORDS.words(name, text) for name, text in pages.items()) <= 30_000
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 130


def test_every_page_stands_on_one_shelf():
    assert len(set(SHELVES)) == len(SHELVES)
    assert {*KEPT} - {*SHELVES} == {ROOT / "docs" / "index.md"}


def targets(page):
    """The pages a page links to."""
    paths = [link.partition("#")[0] for link in links(page) if not re.match(r"[a-z]+:", link)]
    return {(page.parent / path).resolve() for path in paths if path.endswith(".md")}


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_two_links_from_the_readme_and_high_on_its_page(question):
    name, answer = QUESTIONS[question]
    page = ROOT / "docs" / name
    near = targets(README)
    assert page in near.union(*(targets(other) for other in near if other.exists()))
    text = page.read_text(encoding="utf-8")
    assert answer in text
    assert words(text[: text.index(answer)]) <= 600
