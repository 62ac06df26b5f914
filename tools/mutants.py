"""Do the tests notice small wrong changes? `python tools/mutants.py` makes them, one at a time.

The changes are those of `tools/mutants.toml`. Each is made in a scratch copy of the checkout, its
tests are run there, and a line says whether one failed (`caught`), whether they never ended
(`hung`, which counts as caught), whether all passed, or that the text to change is gone (`stale`).
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).parents[1]
COLUMNS = ["mutant", "path", "result", "seconds", "by"]
PYTEST = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE"]
PYTEST += ["-m", "not night"]


def main() -> None:
    """Run the changes that are asked for, a line each, and count the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="those with this in their name or path")
    parser.add_argument("--out", type=Path, help="a CSV to add to; what it has is not run again")
    parser.add_argument("--repo", type=Path, default=ROOT, help="the checkout to copy")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=900, help="seconds for a run of tests")
    asked = parser.parse_args()
    mutants = tomllib.loads((ROOT / "tools/mutants.toml").read_text())["mutant"]
    known: dict[str, str] = {}
    if asked.out is not None and asked.out.exists():
        with asked.out.open(newline="") as file:
            known = {row["mutant"]: row["result"] for row in csv.DictReader(file)}
    wanted = [m for m in mutants if asked.only in f"{m['name']} {m['path']}"]
    to_run = [m for m in wanted if m["name"] not in known]
    results = Counter(known[m["name"]] for m in wanted if m["name"] in known)
    with tempfile.TemporaryDirectory(prefix="mut") as scratch:
        free: SimpleQueue[Path] = SimpleQueue()
        for number in range(asked.jobs):
            free.put(copied(asked.repo, Path(scratch) / str(number)))

        def work(mutant: dict[str, Any], names: list[str]) -> list[object]:
            copy, begun = free.get(), time.monotonic()
            result, by = outcome(copy, mutant, names, asked.limit)
            free.put(copy)
            return [mutant["name"], mutant["path"], result, round(time.monotonic() - begun), by]

        # The likeliest files of all come first, then the folders of those that are not caught yet.
        for last in (False, True):
            with ThreadPoolExecutor(asked.jobs) as pool:
                rows = pool.map(work, to_run, [tests_of(m, folders=last) for m in to_run])
                for row in rows:
                    if row[2] == "passed" and not last:
                        continue
                    print(*row, sep="\t", flush=True)
                    results[str(row[2])] += 1
                    known[str(row[0])] = str(row[2])
                    if asked.out is not None:
                        append(asked.out, row)
            to_run = [m for m in to_run if m["name"] not in known]
    print(", ".join(f"{count} {result}" for result, count in results.most_common()))


def append(path: Path, row: Sequence[object]) -> None:
    """A line at the end of the CSV, below a heading."""
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if file.tell() == 0:
            writer.writerow(COLUMNS)
        writer.writerow(row)


def copied(repo: Path, scratch: Path) -> Path:
    """The checkout's files as they are now, times kept, without those that git ignores."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=repo, capture_output=True, text=True, check=True).stdout
    copy = scratch / "repo"
    for name in filter(None, listed.split("\0")):
        if (repo / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repo / name, copy / name)
    return copy


def tests_of(mutant: dict[str, Any], *, folders: bool) -> list[str]:
    """The folders to run, or the likeliest file with the doctests of the file that is changed."""
    if folders:
        return list(mutant["tests"])
    own = [f"src/uncollapse/{mutant['path']}"] if mutant["path"].endswith(".py") else []
    return [mutant["first"], *own]


def outcome(copy: Path, mutant: dict[str, Any], tests: list[str], limit: float) -> tuple[str, str]:
    """Result of those tests that exist, with the change made, and the test that failed."""
    source = copy / "src/uncollapse" / mutant["path"]
    text = source.read_text() if source.exists() else ""
    if text.count(mutant["old"]) != 1:
        return "stale", ""
    names = [name for name in tests if (copy / name).exists()]
    if not names:
        return "passed", ""
    times = source.stat()
    source.write_text(text.replace(mutant["old"], mutant["new"]))
    try:
        return run_of_tests(copy, names, mutant["path"], limit)
    finally:
        source.write_text(text)
        os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))


def run_of_tests(copy: Path, names: list[str], path: str, limit: float) -> tuple[str, str]:
    """Result of these tests, and the name of the one that failed."""
    cache = copy.parent / "numba"
    if path.startswith("_kernels"):  # numba does not see that a kernel's callees have changed
        cache = Path(tempfile.mkdtemp(prefix="numba", dir=copy.parent))
    changed = {"PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
    changed["NUMBA_CACHE_DIR"] = str(cache)
    command = [*PYTEST, f"--basetemp={copy.parent / 'temp'}", *names]
    process = subprocess.Popen(
        command,
        cwd=copy,
        env=os.environ | changed,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "hung", " ".join(names)
    if process.returncode in (0, 5):  # 5: nothing to run
        return "passed", ""
    lines = output.splitlines() or [""]
    failed = [line.split()[1] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if process.returncode in (3, 4) and not failed:
        return "broken", lines[-1]
    return "caught", failed[0] if failed else f"exit {process.returncode}: {lines[-1]}"


if __name__ == "__main__":
    main()
