"""Commands in process, what they print, and a folder to work in."""

from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from support.configs import small_config
from support.runs import canonical
from uncollapse.cli import app
from uncollapse.cli.printing import run


class Printed(NamedTuple):
    out: str
    err: str

    @property
    def text(self):
        """Both, without line breaks: how lines fold is not what most tests are about."""
        return " ".join((self.out + self.err).split())


@pytest.fixture
def cli(capsys):
    """`cli(*words, code=0)` runs a command and gives what it printed."""

    def call(*words, code=0):
        capsys.readouterr()
        ended = run(app, [str(word) for word in words])
        printed = Printed(*capsys.readouterr())
        assert ended == code, printed
        assert "Traceback" not in printed.err
        return printed

    return call


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, on a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture(scope="session")
def plain():
    """A finished run on digits, to be read only; its config is beside it."""
    return canonical("plain") / "run"


PETS = small_config(
    data={"name": "folder", "root": "pets", "size": 8, "channels": 1},
    model={"hidden": [8]},
    batch={"p": 2, "k": 2},
    train={"steps": 2},
).to_toml()
REQUESTS = """text,label,fine_label,split
freeze my card,cards,freeze,train
block the card,cards,freeze,train
order a new card,cards,order,train
will it rain,weather,rain,train
is it cold today,weather,cold,train
freeze the card,cards,freeze,test
my card [bold]is[/bold] lost \x1b[2J,cards,lost,test
snow tomorrow,weather,snow,test
rain tomorrow,weather,rain,test
"""


@pytest.fixture(scope="session")
def write_texts():
    """`write_texts(home, backbone)` writes requests.csv and run.toml into a folder."""

    def write(home, backbone):
        (home / "requests.csv").write_text(REQUESTS)
        data = {"name": "texts", "root": str(home / "requests.csv"), "eval_splits": ["test"]}
        model, batch = {"backbone": backbone, "hidden": None}, {"p": 2, "k": 2}
        config = small_config(data=data, model=model, batch=batch, train={"steps": 2})
        (home / "run.toml").write_text(config.to_toml())

    return write


def write_pets(home):
    """Two splits of cats and dogs below `home`, and `run.toml`."""
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            place = home / "pets" / split / name
            place.mkdir(parents=True)
            for i in range(5):
                pixels = rng.integers(0, 256, (8, 8), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{i}.png")
    (home / "run.toml").write_text(PETS, encoding="utf-8")


@pytest.fixture
def pets(folder, cli, monkeypatch):
    """A run on a folder of images that are decoded into a cache; in train some are skipped."""
    monkeypatch.setenv("UNCOLLAPSE_CACHE", str(folder / "cache"))
    write_pets(folder)
    cats = folder / "pets" / "train" / "cat"
    for name in ("3.png", "4.png"):
        (cats / name).write_bytes((cats / name).read_bytes()[:40])
    for name in ("<b>5.heic", "Thumbs.db"):
        (cats / name).write_bytes(b"x")
    (folder / "trained.txt").write_text(cli("train", "run.toml", "--out", "run").text)
    return folder
