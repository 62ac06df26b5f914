"""Every link inside the documentation leads somewhere, and every page can be reached."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

from docs.pages import DOCS, ROOT, WRITTEN, anchors, links


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    broken = []
    for target in links(page):
        if re.match(r"[a-z]+:", target):
            continue  # another site: not looked up, tests have no network
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_links_of_the_site_stay_inside_it():
    site = ROOT / "docs"
    for page in DOCS:
        for target in links(page):
            if not re.match(r"[a-z]+:|#", target):
                file = (page.parent / target.partition("#")[0]).resolve()
                assert file.is_relative_to(site), f"{page.name}: {target}"


def test_every_page_of_the_navigation_exists():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    names = {str(page.relative_to(ROOT / "docs")) for page in DOCS}
    assert set(re.findall(r"[\w/-]+\.md", nav)) <= names


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "api").glob("*.md")), ids=lambda p: p.stem)
def test_every_public_name_is_in_the_reference(page):
    """A function named as its module is hidden by it, and has to be listed by its full path."""
    listed = re.findall(r"^::: ([\w.]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    for name in listed:
        package = importlib.import_module(name) if name.count(".") == 1 else None
        modules = {m.name for m in pkgutil.iter_modules(getattr(package, "__path__", []))}
        hidden = modules & set(getattr(package, "__all__", ()))
        assert {f"{name}.{one}.{one}" for one in hidden} <= set(listed)
