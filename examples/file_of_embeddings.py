"""Diagnose, repair and compare files of embeddings: no run, network or dataset is needed.

    python examples/file_of_embeddings.py

The rows stand in for an index of yours in which all of them point the same way.
"""

import tempfile
from pathlib import Path

import numpy as np

import uncollapse as uc


def main() -> None:
    rng = np.random.default_rng(0)
    people = np.repeat(np.arange(40), 12)
    z = rng.normal(size=(40, 16))[people] + 0.9 * rng.normal(size=(480, 16))
    shifted = (z + 60 * rng.normal(size=16)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder, "people.npz"), embeddings=shifted, labels=people)
        rows = np.load(Path(folder, "people.npz"))
        diagnosis = uc.diagnose(rows["embeddings"], rows["labels"])
        print(diagnosis)
        page = diagnosis.save(Path(folder, "people.html"))
        print(f"the page has {page.stat().st_size:,} bytes")
    centred = shifted - shifted.mean(0)
    print(f"centred: {uc.diagnose(centred, people).verdict}")
    print(uc.suspect_labels(centred, people))


if __name__ == "__main__":
    main()
