"""Every link inside the documentation leads somewhere, and every page can be reached."""

import importlib
import pkgutil
import re

import pytest

from docs.pages import DOCS, ROOT, WRITTEN, anchors, links


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
