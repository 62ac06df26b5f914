"""The Python of the documentation runs; its commands and configs exist and are accepted."""

import doctest
import re
import shlex
import tomllib
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
import torch
import typer
from typer.main import get_command

from docs.pages import DOCS, README, ROOT, WRITTEN, blocks, prose, shelf
from uncollapse.cli import app
from uncollapse.losses import TripletLoss
from uncollapse.mining import Miner
from uncollapse.papers import CATALOGUE
from uncollapse.sweep import parse_sweep
from uncollapse.training.config import apply_overrides, parse_config

pytestmark = pytest.mark.slow

_NEEDS = re.compile(r"uncollapse\[([\w,]+)\]")
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_COMMANDS = get_command(app)
_TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
_USAGE = typer.BadParameter.__base__  # click's own, or typer's copy of it
_INLINE = re.compile(r"`uncollapse ([a-z]+)([^`]*)`")


@pytest.fixture(autouse=True)
def _a_place_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("UNCOLLAPSE_CACHE", str(tmp_path / "cache"))
    torch.manual_seed(0)


@pytest.mark.parametrize("page", [p for p in DOCS if blocks(p, "python")], ids=lambda p: p.stem)
def test_the_python_of_a_page_runs_as_far_as_its_extras_are_installed(page):
    names, guides = readers_own(), shelf("Guides")
    for block in blocks(page, "python"):
        if page in guides:  # a snippet of a guide can be copied alone; files stay
            names = readers_own()
        if block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")
        extras = {extra for match in _NEEDS.findall(block.text) for extra in match.split(",")}
        with warnings.catch_warnings():
            if extras:
                warnings.simplefilter("ignore")  # those of other packages
            if all(map(installed, extras)):
                run(block, names)


def test_the_readme_and_the_guide_show_what_the_watch_logs(caplog):
    """Figures may differ on another processor; words may not."""
    guide = ROOT / "docs" / "watch.md"
    run(blocks(guide, "python")[0], {"__name__": "__page__"})
    logged = [without_figures(record.getMessage()) for record in caplog.records]
    for page in (guide, README):
        text = "".join(b.text for b in blocks(page, "text") if "uncollapse, step" in b.text)
        for message in re.split(r"(?=uncollapse, step)", text):
            assert not message.strip() or without_figures(message) in logged, message


def without_figures(text):
    return re.sub(r"[+-]?[\d.]*\d", "#", " ".join(text.split()))


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


def shown():
    """(where, words) of every command in a fence of no language, `sh` or `console`, or a sweep."""
    found = []
    for path in sorted((ROOT / "sweeps").glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        for command in re.findall(r"^#\s+(?:\w+=\S+ )?(uncollapse [a-z]+ .*)$", text, re.MULTILINE):
            found.append((path.name, shlex.split(command)))
    for page in WRITTEN:
        for block in blocks(page, "", "sh", "console"):
            # A backslash breaks a line; `$ ` is a prompt.
            for line in block.text.replace("\\\n", " ").splitlines():
                line = line.removeprefix("$ ").strip()
                if re.match(r"(uncollapse|torchrun|python|make)\s", line):
                    found.append((block.name, shlex.split(line, comments=True)))
    return found


@pytest.mark.parametrize(
    ("where", "words"), [pytest.param(w, c, id=f"{w} {' '.join(c)}") for w, c in shown()]
)
def test_a_command_can_be_typed_as_it_is_shown(where, words):
    check(words)


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.stem)
def test_commands_named_in_a_sentence_exist(page):
    for name, rest in _INLINE.findall(prose(page)):
        assert name in _COMMANDS.commands, f"uncollapse {name}{rest}"
        known = {word for option in _COMMANDS.commands[name].params for word in option.opts}
        assert set(re.findall(r"(?<!\S)--[a-z-]+", rest)) <= known, f"uncollapse {name}{rest}"


@pytest.mark.parametrize(
    "block", [b for p in WRITTEN for b in blocks(p, "toml")], ids=lambda block: block.name
)
def test_a_config_is_accepted(block):
    values = tomllib.loads(block.text)
    if {"grid", "search"} & set(values):  # a sweep; the file its base names is the reader's
        base = values.get("base", {})
        parse_sweep(values | {"base": {} if isinstance(base, str) else base})
    else:
        parse_config(values)


def check(words):
    """Parse a command line as the program would, without running it."""
    program, *rest = words
    if program == "torchrun" or rest[:2] == ["-m", "uncollapse"]:
        _check_uncollapse(words[words.index("uncollapse") + 1 :])
    elif program == "uncollapse":
        _check_uncollapse(rest)
    elif program == "make":
        assert {word for word in rest if "=" not in word} <= _TARGETS
    elif program == "python" and rest[0].endswith(".py"):
        text = (ROOT / rest[0]).read_text(encoding="utf-8")
        assert all(word.split("=")[0] in text for word in rest[1:] if word.startswith("--"))


def _check_uncollapse(words):
    name, *rest = words
    assert name in _COMMANDS.commands, f"uncollapse {name}"
    try:
        context = _COMMANDS.commands[name].make_context(name, rest)
    except typer.BadParameter as error:
        if "does not exist" in str(error):  # a path of the reader's; all options are known
            return
        raise
    changes = context.params.get("changes")
    if changes:
        parse_config(apply_overrides({}, changes))
    if name == "reproduce" and context.params["item"] is not None:
        assert context.params["item"] in CATALOGUE
