"""Is this tree fit to be released? `make release-check`, or `python tools/release_check.py`.

Builds sdist and wheel into dist/, checks both, installs the wheel alone into a new environment
outside the checkout, and there runs the commands a newcomer types, the demo in short, and some of
the tests that the sdist carries. Needs build and twine; prints sizes and what was installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PACKAGE = ROOT / "src" / "uncollapse"
TESTS = (  # of the sdist, run against the installed wheel
    "tests/test_package.py",
    "tests/mining/test_miner_oracle.py",
    "tests/backbones/test_build.py",
    "tests/training/test_config.py",
    "tests/training/test_checkpoint.py",
    "tests/cli/test_errors.py",
    "tests/cli/test_diagnose.py",
)
ROWS = "label,f0,f1,f2\n" + "\n".join(
    f"{i % 4},{i % 4},{i * 7 % 5},{i * 3 % 11}" for i in range(40)
)


def main() -> None:
    """Check everything; the first thing that is wrong ends it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20, help="training steps of the demo's runs")
    parser.add_argument("--keep", type=Path, help="work in this new folder, and leave it")
    asked = parser.parse_args()
    wheel, sdist = build()
    check_contents(wheel, sdist)
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        python = install(folder / "venv", wheel)
        smoke(python, folder / "smoke", asked.steps)
        run_tests(python, folder / "sdist", sdist)
    print(f"release-check: {wheel.name} and {sdist.name} are fit to be released")


def build() -> tuple[Path, Path]:
    """The wheel, made from the sdist, and the sdist; metadata and README checked."""
    shutil.rmtree(DIST, ignore_errors=True)
    run([sys.executable, "-m", "build", "--outdir", DIST, ROOT])
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run([sys.executable, "-m", "twine", "check", "--strict", wheel, sdist])
    for path in (wheel, sdist):
        say(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """Every file of the package is in the wheel, and nothing else; tests are in the sdist."""
    wanted = {
        f"uncollapse/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as held:
        found = {name for name in held.namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as held_too:
        inside = {name.partition("/")[2] for name in held_too.getnames()}
    lost = {"wheel": wanted - found, "sdist": {*TESTS, "LICENSE", "README.md"} - inside}
    for kind, names in lost.items():
        if names:
            raise SystemExit(f"not in the {kind}: {', '.join(sorted(names))}")
    if found - wanted:
        raise SystemExit(f"in the wheel by mistake: {', '.join(sorted(found - wanted))}")
    say(f"wheel: all {len(wanted)} files of the package")


def install(folder: Path, wheel: Path) -> Path:
    """A new environment with the wheel and what it needs, at the versions of constraints.txt."""
    venv.create(folder, with_pip=True, clear=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    held = ["-c", ROOT / "constraints.txt"]
    before = set(_packages(python))
    begun = time.monotonic()
    run([*pip, "install", "--quiet", *held, wheel])
    spent = time.monotonic() - begun
    site = Path(_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]))
    sizes = {path.name: _size(path) for path in site.iterdir()}
    torch = sum(
        size for name, size in sizes.items() if name.startswith(("torch", "nvidia", "triton"))
    )
    rest = sum(size for name, size in sizes.items() if not name.startswith("pip")) - torch
    names = sorted(set(_packages(python)) - before)
    say(f"installed in {spent:.0f} s: torch {torch / 1e6:.0f} MB, all else {rest / 1e6:.0f} MB")
    say(f"{len(names)} packages: {', '.join(names)}")
    run([*pip, "check"])
    return python


def smoke(python: Path, folder: Path, steps: int) -> None:
    """What a newcomer types, far from the checkout: help, a diagnosis with its page, the demo."""
    folder.mkdir(parents=True)
    (folder / "rows.csv").write_text(ROWS, encoding="utf-8")
    where = _output([python, "-c", "import uncollapse; print(uncollapse.__file__)"], folder)
    if not Path(where).is_relative_to(python.parents[1]):
        raise SystemExit(f"the package is imported from {where}, not from the wheel")
    uncollapse = python.with_name("uncollapse")
    version = _output([uncollapse, "--version"], folder)
    if version.split()[-1] not in next(DIST.glob("*.whl")).name:
        raise SystemExit(f"--version says {version!r}")
    for words in (
        "--help",
        "reproduce --list",
        "datasets",
        "diagnose rows.csv --labels label --html page.html --fail-on network-collapse",
        "reproduce fig1 --out figure",
        f"demo --out demo --steps {steps}",
    ):
        run([uncollapse, *words.split()], folder)
    pages = [folder / "page.html", *(folder / "demo").glob("*.html")]
    if len(pages) < 2 or any("</html>" not in page.read_text("utf-8") for page in pages):
        raise SystemExit("the diagnosis or the demo wrote no whole page")


def run_tests(python: Path, folder: Path, sdist: Path) -> None:
    """Some tests of the unpacked sdist that need no extra; the wheel is what they import."""
    with tarfile.open(sdist) as held:
        held.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c",
         ROOT / "constraints.txt", "pytest", "hypothesis"])  # fmt: skip
    run([python, "-m", "pytest", "-p", "no:cacheprovider", *TESTS], tree)


def run(words: Sequence[str | Path], folder: Path = ROOT) -> None:
    """Run a command, shown, in a folder; a failure ends the check."""
    shown = " ".join(str(word) for word in words)
    print(f"$ {shown}", flush=True)
    code = subprocess.run([str(w) for w in words], cwd=folder, env=_clean(), check=False).returncode
    if code:
        raise SystemExit(f"exit code {code}: {shown}")


def say(text: str) -> None:
    """One line of the record."""
    print(f"release-check: {text}", flush=True)


def _output(words: Sequence[str | Path], folder: Path = ROOT.parent) -> str:
    found = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=_clean(),
        check=True,
        capture_output=True,
        text=True,
    )
    return found.stdout.strip()


def _packages(python: Path) -> list[str]:
    listed = _output(
        [python, "-m", "pip", "--disable-pip-version-check", "list", "--format=freeze"]
    )
    return [line.replace("==", " ") for line in listed.splitlines()]


def _clean() -> dict[str, str]:
    """The environment without what would put the checkout, or data of ours, in reach."""
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "UNCOLLAPSE_DATA")}


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


if __name__ == "__main__":
    main()
