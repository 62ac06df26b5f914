import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import uncollapse


def test_a_name_at_the_top_exists_once_and_is_public_in_its_package():
    assert len(set(dir(uncollapse))) == len(dir(uncollapse))
    assert all(getattr(uncollapse, name) is not None for name in dir(uncollapse))
    for name, home in uncollapse._HOME_OF.items():
        module = importlib.import_module(f"uncollapse.{home}")
        assert name in module.__all__, name
        assert getattr(uncollapse, name) is getattr(module, name)


def test_type_checkers_see_the_names_that_are_there():
    tree = ast.parse(Path(uncollapse.__file__).read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    nodes = [node for node in guarded.body if node.module != "uncollapse"]  # not the packages
    seen = [name.name for node in nodes for name in node.names]
    assert sorted(seen) == sorted(uncollapse._HOME_OF)


def test_packages_are_found_an_unknown_name_is_an_error_and_one_of_a_package_says_where_it_is():
    assert uncollapse.noise is importlib.import_module("uncollapse.noise")
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        uncollapse.nonsense  # noqa: B018
    with pytest.raises(AttributeError, match=r"it is uncollapse\.geometry\.best_isometry"):
        uncollapse.best_isometry  # noqa: B018


# What the import contracts cannot say: they see packages, not their parts, and no calls.
SOURCES = Path(uncollapse.__file__).parent


@pytest.fixture(scope="module")
def nodes():
    """(file, node) of everything imported or called in the sources."""
    return [
        (path.relative_to(SOURCES).as_posix(), node)
        for path in sorted(SOURCES.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call)
    ]


def imported(*packages):
    """Imports of these packages or of parts of them, at the top of a file or anywhere in it."""

    def look(node):
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
        else:
            return ""
        return next((n for n in names for p in packages if f"{n}.".startswith(f"{p}.")), "")

    return look


def renamed(node):
    """Calls of os.replace, os.rename, shutil.move and of a path's own rename."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ""
    call = node.func.attr
    path = call == "replace" and len(node.args) == 1  # a string's takes two arguments
    named = ast.unparse(node.func) in {"os.replace", "shutil.move"}
    return call if path or named or call in {"rename", "renames"} else ""


def opened_to_write(node):
    """Calls of open, or of a path's own, with a mode that writes; write_text and write_bytes.

    `aside` is what `written_aside` yields: a library writes there too, by its own name for it.
    """
    if not isinstance(node, ast.Call) or ast.unparse(node.func).startswith("aside."):
        return ""
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    modes = [*node.args, *(word.value for word in node.keywords if word.arg == "mode")]
    if name == "open" and any(
        isinstance(mode, ast.Constant) and str(mode.value) in {"w", "wb", "a", "ab", "x", "xb"}
        for mode in modes
    ):
        return "open to write"
    method = isinstance(node.func, ast.Attribute)
    return name if method and name in {"write_text", "write_bytes"} else ""


@pytest.mark.parametrize(
    ("look", "home"),
    [
        (imported("rich.progress", "tqdm"), ("_base/progress.py",)),
        (renamed, ("_base/files.py", "_base/lock.py")),
        (opened_to_write, ("_base/files.py", "_base/lock.py")),
    ],
    ids=["progress bars", "renames", "files opened to write"],
)
@pytest.mark.slow
def test_what_is_written_once_is_in_its_room_alone(nodes, look, home):
    places = [f"{path}:{node.lineno} {what}" for path, node in nodes if (what := look(node))]
    assert any(place.startswith(home) for place in places)  # the search does find something
    assert [place for place in places if not place.startswith(home)] == []


@pytest.mark.processes
@pytest.mark.parametrize(
    ("options", "most"), [([], "10)"), (["--without-kernels"], "10)"), (["jpeg"], "")], ids=str
)
def test_each_walk_crosses_few_files(options, most):
    """A JPEG on its way to a page: training crosses 70 files at most, the page 30."""
    command = [sys.executable, "tools/walk.py", *options]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"files (at most {most}") == 3


def test_the_page_of_the_api_names_what_is_at_the_top_and_nothing_else():
    page = (Path(__file__).parent.parent / "docs/api/index.md").read_text(encoding="utf-8")
    named = re.findall(r"`uc\.(\w+)`", page)
    assert sorted(named) == [name for name in dir(uncollapse) if name != "__version__"]
