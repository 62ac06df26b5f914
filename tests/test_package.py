import ast
import importlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import uncollapse


def test_every_name_at_the_top_exists_once():
    names = dir(uncollapse)
    assert max(Counter(names).values()) == 1
    for name in names:
        assert getattr(uncollapse, name) is not None


@pytest.mark.parametrize("name", sorted(uncollapse._HOME_OF))
def test_a_name_at_the_top_is_public_in_its_package(name):
    module = importlib.import_module(f"uncollapse.{uncollapse._HOME_OF[name]}")
    assert name in module.__all__
    assert getattr(uncollapse, name) is getattr(module, name)


def test_type_checkers_see_the_names_that_are_there():
    tree = ast.parse(Path(uncollapse.__file__).read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = [name.name for node in guarded.body for name in node.names]
    assert sorted(seen) == sorted(uncollapse._HOME_OF)


def test_a_name_of_a_package_is_not_found_at_the_top_but_where_it_is_is_said():
    with pytest.raises(AttributeError, match=r"it is uncollapse\.geometry\.best_isometry"):
        uncollapse.best_isometry  # noqa: B018


def test_packages_can_be_reached_from_the_top():
    assert uncollapse.noise is importlib.import_module("uncollapse.noise")


def test_what_the_design_says_users_type_is_there():
    for name in ("Miner", "TripletLoss", "PKSampler", "CollapseMonitor", "forecast", "diagnose"):
        assert callable(getattr(uncollapse, name))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        uncollapse.nonsense  # noqa: B018


def test_importing_the_package_does_not_load_torch():
    code = "import sys, uncollapse; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
