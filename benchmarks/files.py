"""CPU time and peak memory of the commands on large files, beside peers that do the same job.

Three made-up files of unit rows in classes, with 4 % wrong labels. CPU time is that of all cores,
with that of starting Python and torch; memory is the largest resident size of the process.

python benchmarks/files.py                        all three sizes: about half an hour
python benchmarks/files.py --only 50k             one of them
python benchmarks/files.py --peers PYTHON         also cleanlab's Datalab and faiss, of that Python
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
SECONDS = 1800  # of CPU time after which a command is given up
CHUNK = 50_000


class Size(NamedTuple):
    """A file: rows, columns, classes, the noise beside the distance of classes, and its dtype."""

    rows: int
    dim: int
    classes: int
    noise: float
    dtype: str


SIZES = {
    "50k": Size(50_000, 384, 150, 1.6, "float32"),
    "200k": Size(200_000, 768, 500, 2.0, "float16"),
    "1m": Size(1_000_000, 64, 1_000, 0.9, "float32"),
}
# What is run on each file; {z}, {z2} and {y} are two versions of the embeddings, and the labels.
COMMANDS = {
    "diagnose": "diagnose {z} --labels {y}",
    "diagnose --html": "diagnose {z} --labels {y} --html {folder}/page.html",
    "evaluate": "evaluate {z} --labels {y}",
    "search, 100 rows": "search {z} {queries} --out {folder}/near.csv",
    "search, 5,000 rows": "search {z} --like {first} -k 10 --out {folder}/near.csv",
    "suspects": "suspects {z} --labels {y}",
    "compare": "compare {z} {z2} --labels {y}",
}
PEERS = {
    "cleanlab Datalab": "from cleanlab import Datalab; lab = Datalab(dict(y=y), label_name='y'); "
    "lab.find_issues(features=z)",
    "faiss, 10 nearest of all": "import faiss; f = np.ascontiguousarray(z, np.float32); "
    "i = faiss.IndexFlatL2(f.shape[1]); i.add(f); i.search(f, 11)",
    "faiss, 10 nearest of 5,000": "import faiss; f = np.ascontiguousarray(z, np.float32); "
    "i = faiss.IndexFlatL2(f.shape[1]); i.add(f); i.search(f[:5000], 11)",
}


def make(folder: Path, name: str, size: Size) -> dict[str, str]:
    """Write two versions of the embeddings, and labels; return their places."""
    rng = np.random.default_rng(0)
    middles = rng.standard_normal((size.classes, size.dim), np.float32)
    axes = np.arange(1, size.dim + 1, dtype=np.float32) ** -0.5
    labels = rng.integers(0, size.classes, size.rows)
    files = {key: folder / f"{name}-{key}.npy" for key in ("z", "z2", "y")}
    for key in ("z", "z2"):
        shape = (size.rows, size.dim)
        rows = np.lib.format.open_memmap(files[key], "w+", size.dtype, shape)
        for low in range(0, size.rows, CHUNK):
            own = labels[low : low + CHUNK]
            noise = rng.standard_normal((len(own), size.dim), np.float32)
            some = (middles[own] + size.noise * noise) * axes
            rows[low : low + CHUNK] = some / np.linalg.norm(some, axis=1, keepdims=True)
        rows.flush()
    wrong = rng.random(size.rows) < 0.04
    labels[wrong] = rng.integers(0, size.classes, int(wrong.sum()))
    np.save(files["y"], labels)
    queries, first = " ".join(map(str, range(100))), folder / f"{name}-first.npy"
    np.save(first, rows[:5_000])
    return {key: str(file) for key, file in files.items()} | {
        "queries": queries,
        "first": str(first),
    }


def run(words: list[str]) -> str:
    """CPU seconds and peak memory of a command, as cells of a table."""
    process = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=limit_cpu_time
    )
    _, status, usage = os.wait4(process.pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        return f"> {SECONDS} s | "
    if status:
        assert process.stderr is not None
        return f"failed: {process.stderr.read().decode()[-200:].strip()} | "
    seconds = usage.ru_utime + usage.ru_stime
    return f"{seconds:.1f} s | {usage.ru_maxrss / 1e3:,.0f} MB"


def limit_cpu_time() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


def main() -> None:
    """Make the files, run everything, print a Markdown table as it grows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=SIZES, nargs="*", default=list(SIZES))
    parser.add_argument("--commands", choices=[*COMMANDS, *PEERS], nargs="*")
    parser.add_argument("--peers", help="a Python that has cleanlab[datalab] and faiss-cpu")
    options = parser.parse_args()
    print("| file | command | CPU | peak memory |\n|---|---|---|---|")
    for name in options.only:
        size = SIZES[name]
        with tempfile.TemporaryDirectory() as folder:
            places = make(Path(folder), name, size) | {"folder": folder}
            title = f"{size.rows:,} x {size.dim} {size.dtype}"
            for command in [c for c in COMMANDS if c in (options.commands or COMMANDS)]:
                words = COMMANDS[command].format(**places).split()
                cells = run([sys.executable, "-m", "uncollapse", *words])
                print(f"| {title} | `{command}` | {cells} |", flush=True)
            for peer, code in PEERS.items() if options.peers else ():
                if peer not in (options.commands or PEERS):
                    continue
                load = f"import numpy as np; z = np.load('{places['z']}', mmap_mode='r'); "
                load += f"y = np.load('{places['y']}'); "
                cells = run([options.peers, "-c", load + code])
                print(f"| {title} | {peer} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
