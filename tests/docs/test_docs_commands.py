"""The commands and configs that the documentation shows exist and are accepted."""

import re
import shlex
import tomllib

import pytest
import typer
from typer.main import get_command

from docs.pages import ROOT, WRITTEN, blocks, prose
from uncollapse.cli import app
from uncollapse.papers import CATALOGUE
from uncollapse.sweep import parse_sweep
from uncollapse.training.config import apply_overrides, parse_config

pytestmark = pytest.mark.slow

_COMMANDS = get_command(app)
_TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
_USAGE = typer.BadParameter.__base__  # click's own, or typer's copy of it
_INLINE = re.compile(r"`uncollapse ([a-z]+)([^`]*)`")


def shown():
    """(where, words) of every command in a fence of no language, `sh` or `console`."""
    found = []
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
