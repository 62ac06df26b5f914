"""Finished run folders, trained once per state of the source and shared by all tests.

`canonical(name)` is to be read only; `copy_of(name, folder)` may be damaged or continued. Names:

- `plain`: digits, 12 steps, checkpoints at 6 and 12, measured, with its page
- `half`: the same, interrupted at step 6
- `collapsed`: batch-hard mining on random labels
- `rescued`: the same with a guard that acts
- `reid`: a tiny Market-1501 with queries, gallery, distractors and junk
- `texts`: sentences in two classes, through a network of this test suite (needs `trust`)
- `sweep`: a finished sweep of 4 runs, in `home/sweep`
"""

import contextlib
import hashlib
import io
import json
import shutil
import signal
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock

import uncollapse
from support.small_copies import write_market
from support.sweep_helpers import InlineEngine
from uncollapse.cli import app
from uncollapse.cli import sweep as sweep_command
from uncollapse.cli.printing import INTERRUPTED
from uncollapse.cli.printing import run as run_command
from uncollapse.training.session import Session

TESTS = Path(__file__).resolve().parents[1]
KEPT = TESTS.parent / ".canonical"

PLAIN = """
seed = 0
data = {name = "digits"}
model = {backbone = "mlp", dim = 4, hidden = [16]}
batch = {p = 5, k = 4}
train = {steps = 12, log_every = 1, evaluate_every = 6, checkpoint_every = 6}
"""
RANDOM_LABELS = """
seed = 0
data = {name = "arrays", root = "{home}/data"}
model = {backbone = "mlp", dim = 8, hidden = [32]}
batch = {p = 6, k = 4}
loss = {margin = 0.2}
mining = {positives = "hard", negatives = "hard"}
optimizer = {lr = 0.01}
guard = {action = "{action}", every = 4}
train = {steps = 60, evaluate_every = 20, checkpoint_every = 20}
"""
REID = """
data = {name = "market1501", root = "{home}", size = 16}
model = {backbone = "conv2", dim = 8}
batch = {p = 4, k = 3}
train = {steps = 4, evaluate_every = 2, log_every = 1}
"""
TEXTS = """
data = {name = "texts", root = "{home}/requests.jsonl"}
model = {backbone = "support.text_models:letters", dim = 4}
batch = {p = 2, k = 3}
train = {steps = 4, evaluate_every = 4, checkpoint_every = 2}
"""
SWEEP = """
seeds = 2
[base]
data = {name = "digits"}
model = {backbone = "mlp", hidden = [16]}
batch = {p = 4, k = 3}
evaluate = {max_samples = 100}
train = {steps = 2}
[[grid]]
model.dim = [4, 8]
"""
# A text that tries to be markup, to turn its line around and to be a template; and harmless ones.
HOSTILE = "<script>owned=1</script> \u202e{{ 7*7 }}"
SENTENCES = {
    "cards": [f"{HOSTILE} {words}" for words in ("freeze my card", "block it", "a new card")],
    "weather": ["will it rain", "is it cold today", "how warm is it"],
}


@cache
def canonical(name):
    """A folder with `run.toml`, its data if it has its own, and `run`; not to be changed."""
    kept = KEPT / _source_hash()
    home = kept / name
    kept.mkdir(parents=True, exist_ok=True)
    with FileLock(kept / f"{name}.lock"):
        if not (home / ".made").exists():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            _make(name, home)
            (home / ".made").touch()
    for older in KEPT.iterdir():
        if older != kept:
            shutil.rmtree(older, ignore_errors=True)
    return home


def copy_of(name, folder):
    """The same as a copy below `folder`; its config still names the original data."""
    return shutil.copytree(canonical(name), folder / name)


def _source_hash():
    source = Path(uncollapse.__file__).parent
    files = [p for ending in ("py", "toml") for p in source.rglob(f"*.{ending}")]
    files += Path(__file__).parent.glob("*.py")
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(files):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _make(name, home):
    with torch.random.fork_rng(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNCOLLAPSE_CACHE", str(home / "cache"))
        if name == "sweep":
            patch.setattr(sweep_command, "_engine", lambda _, out, *__: InlineEngine(out))
            _command(home, SWEEP, ["sweep", f"{home}/run.toml", "--out", f"{home}/sweep"])
            return
        if name == "half":
            interrupted = disturbed(6, lambda _: signal.raise_signal(signal.SIGINT))
            patch.setattr(Session, "advance", interrupted)
        config, write_data = TRAINED[name]
        if write_data is not None:
            write_data(home)
        words = ["train", f"{home}/run.toml", "--out", f"{home}/run", "--trust"]
        _command(home, config, words, code=INTERRUPTED if name == "half" else 0)


def _command(home, config, words, code=0):
    (home / "run.toml").write_text(config.replace("{home}", str(home)))
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        ended = run_command(app, words)
    assert ended == code, output.getvalue()


def disturbed(step, event):
    """`Session.advance` with an event after that step, which may give other values."""
    advance = Session.advance

    def then(session):
        values = advance(session)
        return (event(values) or values) if session.step == step else values

    return then


def _write_random_labels(home):
    rng = np.random.default_rng(0)
    (home / "data").mkdir()
    for split, count in (("train", 240), ("test", 60)):
        images = rng.integers(0, 256, (count, 1, 5, 5)).astype(np.uint8)
        np.savez(home / "data" / f"{split}.npz", images=images, labels=np.arange(count) % 12)


def write_texts(home):
    """Both classes of sentences, half of each to train on and half to test; returns the file."""
    rows = [
        {"text": f"{text} {n}", "label": label, "split": split}
        for label, texts in SENTENCES.items()
        for text in texts
        for n, split in enumerate(("train", "train", "test", "test"))
    ]
    path = home / "requests.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def paint_market(home):
    """Market-1501 in small: 6 people to train on, 5 to search for, distractors and junk."""
    train = [(person, 1 + shot % 3) for person in range(1, 7) for shot in range(4)]
    people = [(person, camera) for person in range(11, 16) for camera in (1, 2, 3)]
    others = [(person, 1 + shot % 3) for shot in range(8) for person in (0, -1)]
    return write_market(home / "market1501", train, people, people * 2 + others)


TRAINED = {
    "plain": (PLAIN, None),
    "half": (PLAIN, None),
    "collapsed": (RANDOM_LABELS.replace("{action}", "warn"), _write_random_labels),
    "rescued": (RANDOM_LABELS.replace("{action}", "rescue"), _write_random_labels),
    "reid": (REID, paint_market),
    "texts": (TEXTS, write_texts),
}
