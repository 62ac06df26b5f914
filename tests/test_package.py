import importlib
import subprocess
import sys
from collections import Counter

import pytest

import uncollapse


def test_every_name_at_the_top_exists_once():
    names = dir(uncollapse)
    assert max(Counter(names).values()) == 1
    for name in names:
        assert getattr(uncollapse, name) is not None


@pytest.mark.parametrize("package", uncollapse._WHOLE)
def test_the_public_names_of_a_package_are_at_the_top(package):
    module = importlib.import_module(f"uncollapse.{package}")
    for name in module.__all__:
        assert getattr(uncollapse, name) is getattr(module, name)


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
