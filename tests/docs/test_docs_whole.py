"""Links lead somewhere; every public name and every key of a config is listed."""

import importlib
import pkgutil
import re
import tomllib
from typing import get_args

import pytest

from docs.pages import DOCS, ROOT, WRITTEN, anchors, blocks, links
from uncollapse.training.config import Config
from uncollapse.training.sections import LOSSES, LossConfig, OneOf, Section

BLOCKS = blocks(ROOT / "docs" / "config.md", "toml")
LINE = re.compile(r"(?P<off># )?(?P<key>\w+) = (?P<value>[^#]+?)\s*(?:# (?P<words>.*))?")


def section_of(block):
    ((name, value),) = tomllib.loads(block.text).items()
    if name == "loss" and "name" not in value:
        ((key, _),) = value.items()
        return f"loss.{key}", sub_tables(LossConfig)[key]
    if name == "loss":
        return f"loss {value['name']}", LOSSES[value["name"]]
    if not isinstance(value, dict):
        return name, Config
    section = type(getattr(Config(), name))
    inner = sub_tables(section)
    ((key, _), *others) = value.items()
    return (f"{name}.{key}", inner[key]) if key in inner and not others else (name, section)


def sub_tables(section):
    return {
        key: kind
        for key, field in section.model_fields.items()
        for kind in (field.annotation, *get_args(field.annotation))
        if isinstance(kind, type) and issubclass(kind, Section) and not issubclass(kind, LossConfig)
    }


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: section_of(block)[0])
def test_a_section_is_listed_with_its_defaults_and_words(block):
    name, section = section_of(block)
    wanted = {k: f for k, f in section.model_fields.items() if section is not Config or k == name}
    if section is not Config:
        wanted = {k: f for k, f in wanted.items() if k not in sub_tables(section)}
    if name.startswith("loss ") and name != "loss triplet":  # said once
        wanted = {
            k: f for k, f in wanted.items() if k not in LossConfig.model_fields or k == "name"
        }
    found = dict(map(read, block.text.splitlines()[block.text.startswith("[") :]))
    assert found.keys() == wanted.keys()
    for key, field in wanted.items():
        off, value, words = found[key]
        assert off == (field.default is None), key
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        assert off or field.is_required() or value == default, key
        for word in every_word(field):
            assert (key == "name" and section in LOSSES.values()) or word in f"{value} {words}", key


def test_every_section_is_listed():
    listed = [section_of(block)[0] for block in BLOCKS]
    others = [key for key in Config.model_fields if key != "loss"]
    for key, section in {**sub_tables(Config), "loss": LossConfig}.items():
        others += [f"{key}.{inner}" for inner in sub_tables(section)]
    assert sorted(listed) == sorted([*others, *(f"loss {name}" for name in LOSSES)])


def read(line):
    found = LINE.fullmatch(line)
    assert found, line
    value = tomllib.loads(f"value = {found['value']}")["value"]
    return found["key"], (found["off"] is not None, value, found["words"] or "")


def every_word(field):
    kinds = [field.annotation, *get_args(field.annotation)]
    nested = [word for kind in kinds for word in get_args(kind)]
    own = [
        word for one in (*field.metadata, *nested) if isinstance(one, OneOf) for word in one.words
    ]
    return own + [str(word) for word in get_args(field.annotation) if isinstance(word, str | int)]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere_and_those_of_the_site_stay_inside_it(page):
    broken = []
    for target in links(page):
        if re.match(r"[a-z]+:", target):
            continue  # another site: not looked up, tests have no network
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        outside = page in DOCS and not file.is_relative_to(ROOT / "docs")
        if outside or not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_every_page_of_the_navigation_exists():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    names = {str(page.relative_to(ROOT / "docs")) for page in DOCS}
    assert set(re.findall(r"[\w/-]+\.md", nav)) <= names


def test_every_public_name_is_in_the_reference():
    """A function named as its module is hidden by it, and has to be listed by its full path."""
    for page in (ROOT / "docs" / "api").glob("*.md"):
        listed = re.findall(r"^::: ([\w.]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
        for name in [name for name in listed if name.count(".") == 1]:
            package = importlib.import_module(name)
            modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
            hidden = modules & set(getattr(package, "__all__", ()))
            assert {f"{name}.{word}.{word}" for word in hidden} <= set(listed)
