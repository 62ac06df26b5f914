"""Losses, datasets and networks of the user's own: a module beside the config, or a package."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from support.configs import small_config
from support.errors import refused
from uncollapse.backbones import build
from uncollapse.cli import app
from uncollapse.data import describe, load
from uncollapse.health.strategy import settings_of
from uncollapse.losses import Loss, SupConLoss, TripletLoss
from uncollapse.losses.registry import always_normalizes, find_loss, loss_settings, make_loss
from uncollapse.report import write_report
from uncollapse.sweep import parse_sweep
from uncollapse.sweep.jobs import run_jobs
from uncollapse.training import Run, UntrustedCodeError, load_config, parse_config, train

OWN_LOSSES = '''
"""Losses of one's own; importing this leaves a mark."""

from pathlib import Path

import torch
from uncollapse.losses import Loss, TripletLoss

Path(__file__).with_suffix(".imported").touch()


class Attraction(Loss):
    """Mean distance of positive pairs, short of a margin: made to collapse."""

    def __init__(self, *, margin: float = 0.2, power: int = 1, **others):
        super().__init__()
        self.margin, self.power = margin, power

    def value(self, batch, tuples):
        rows = batch.rows
        pairs = (batch.labels[:, None] == batch.labels).triu(1)
        gaps = (rows[:, None] - rows)[pairs].square().sum(1).clamp(min=1e-12).sqrt()
        return (gaps - self.margin).clamp(min=0).pow(self.power).mean()


class Directed(Attraction):
    normalize = True


class Wide(TripletLoss):
    pass


class Sized(Loss):
    def __init__(self, steepness, *, num_classes, dim):
        super().__init__()
        self.steepness, self.sizes = steepness, (num_classes, dim)
        self.centres = torch.nn.Parameter(torch.zeros(num_classes, dim))

    def value(self, batch, tuples):
        return self.steepness * (batch.rows - self.centres[batch.labels]).square().mean()


class Unfinished(Loss):
    pass


nothing = 3
'''
OWN_DATA = """
import numpy as np
from uncollapse.data import Listing, Row, TextSource


def shelves(root, split):
    draw = np.random.default_rng(len(split))
    labels = np.arange(60) % 5
    rows = draw.normal(size=(60, 6)) + 3 * np.eye(5, 6)[labels]
    return Listing(rows.astype("float32"), labels, class_names={0: "the top shelf"}, origin="drawn")


def files(root, split):
    return Listing.of_rows([Row(path, int(path.name[0])) for path in sorted(root.glob("*.png"))])


files.splits = ("train", "all")


def words(root, split):
    return Listing(TextSource(("yes", "no", "nay")), [1, 0, 0])


words.texts = True


class Lines:
    shape = (2,)

    def __len__(self):
        return 4

    def read(self, rows):
        return rows[:, None].float().expand(-1, 2)


def lines(root, split):
    return Listing(Lines(), [0, 0, 1, 1])


def wrong(root, split):
    return [1, 2]
"""
MODULES = ("own_losses", "own_data", "shelf_parts")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The current directory, with two modules that Python finds in it alone."""
    (tmp_path / "own_losses.py").write_text(OWN_LOSSES, encoding="utf-8")
    (tmp_path / "own_data.py").write_text(OWN_DATA, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p and p != os.getcwd()])
    forget()
    yield tmp_path
    forget()


def forget():
    for name in MODULES:
        sys.modules.pop(name, None)


def imported(home):
    return (home / "own_losses.imported").exists()


def own_config(loss=None, **changes):
    own = {"name": "own_losses:Attraction", "margin": 0.1, "power": 2}
    return small_config(data={"name": "own_data:shelves"}, loss=loss or own, **changes)


# Configs.


def test_a_config_with_a_loss_of_ones_own_imports_nothing_until_it_is_built(home):
    config = own_config()
    assert config == parse_config(config.to_values())
    assert config.with_changes({"loss.margin": 0.3}).loss.margin == 0.3
    assert not imported(home)
    assert config.loss.settings == {"margin": 0.1, "power": 2}
    assert imported(home)
    assert config.defaults()["loss.margin"] == 0.2
    assert config.defaults()["loss.power"] == 1
    assert config.defaults()["loss.name"] == "triplet"


@pytest.mark.parametrize(
    ("loss", "key"),
    [
        ({"name": "no_such_module:Loss"}, "loss.name"),
        ({"name": "own_losses:NoSuchLoss"}, "loss.name"),
        ({"name": ":Attraction"}, "loss.name"),
        ({"name": "own_losses:nothing"}, "loss.name"),
        ({"name": "own_losses:Path"}, "loss.name"),
        ({"name": "own_losses:Unfinished"}, "loss.name"),
        ({"name": "own_losses:Attraction", "marging": 0.1}, "loss.marging"),
        ({"name": "own_losses:Attraction", "margin": "wide"}, "loss.margin"),
        ({"name": "own_losses:Attraction", "power": True}, "loss.power"),
        ({"name": "own_losses:Sized"}, "loss.steepness"),
        ({"name": "own_losses:Wide", "distance": "manhattan"}, "loss.distance"),
    ],
)
def test_a_loss_that_cannot_be_used_is_refused_before_anything_is_written(home, loss, key):
    with refused(key):
        train(own_config(loss), home / "run")
    assert not (home / "run").exists()


@pytest.mark.parametrize(
    ("loss", "key"),
    [
        ({"name": "own_loses"}, "loss.name"),
        ({"name": "own_losses:Attraction", "trim": 2}, "loss.trim"),
        ({"name": "own_losses:Attraction", "memory": {"size": 0}}, "loss.memory.size"),
        ({"name": "own_losses:Attraction", "identity": {"wieght": 1}}, "loss.identity.wieght"),
    ],
)
def test_what_needs_no_import_is_refused_when_the_config_is_read(home, loss, key):
    with refused(key):
        own_config(loss)


def test_a_loss_that_takes_no_miner_refuses_one(home):
    with pytest.raises(ValueError, match="takes no miner"):
        train(own_config(mining={"negatives": "hard"}), home / "run")


def test_a_loss_gets_the_sizes_it_asks_for_and_its_settings(home):
    kind = find_loss("own_losses:Sized")
    assert list(loss_settings(kind)) == ["steepness"]
    loss = make_loss(kind, {"steepness": 3.0}, num_classes=5, dim=4)
    assert loss.sizes == (5, 4)
    assert not loss.normalize


def test_a_loss_says_by_its_class_or_its_parent_that_it_sees_directions_alone(home):
    assert always_normalizes(find_loss("own_losses:Directed"))
    assert not always_normalizes(find_loss("own_losses:Attraction"))
    assert not always_normalizes(find_loss("own_losses:Wide"))
    assert always_normalizes(type("Sharper", (SupConLoss,), {}))
    parts = {name: {"name": f"own_losses:{name}"} for name in ("Directed", "Attraction", "Wide")}
    sees = {name: own_config(part).loss.normalizes for name, part in parts.items()}
    assert sees == {"Directed": True, "Attraction": False, "Wide": False}


def test_the_adviser_takes_a_loss_of_ones_own_for_foreign_unless_it_lists_tuples(home):
    attraction = find_loss("own_losses:Attraction")
    assert settings_of(attraction()).loss == "foreign"
    assert settings_of(find_loss("own_losses:Wide")()).loss == "tuples"
    assert settings_of(TripletLoss()).loss == "tuples"


# Runs.


@pytest.mark.slow
def test_a_run_trains_resumes_and_is_opened_again(home, monkeypatch):
    whole = train(own_config(train={"steps": 6}), home / "whole")
    begun = own_config(train={"steps": 3})
    train(begun, home / "run")
    forget()
    again = train(own_config(train={"steps": 3}), home / "run", resume=True)
    assert again.finished
    assert again.config == begun
    assert whole.values["loss.power"] == 2
    with pytest.raises(UntrustedCodeError, match=r"own_losses:Attraction.*own_data:shelves"):
        again.load_model()
    trusted = Run.open(whole.path, trust=True)
    assert trusted.load_model()(torch.zeros(2, 6)).shape == (2, 4)


@pytest.mark.slow
def test_commands_take_a_run_of_own_parts_and_its_page_says_what_they_are(home):
    (home / "run.toml").write_text(own_config(train={"steps": 40}).to_toml(), encoding="utf-8")

    def command(*words):
        result = CliRunner().invoke(app, [*map(str, words)])
        assert result.exit_code == 0, (result.output, result.exception)
        return result.output

    command("train", "run.toml", "--out", "run")
    command("evaluate", "run", "--trust")
    command("embed", "run", "--split", "test", "--trust", "--out", "z.npz")
    forget()
    (home / "own_losses.imported").unlink()
    page = write_report(Run.open(home / "run")).read_text(encoding="utf-8")
    assert "own_losses:Attraction" in page
    assert "own_data:shelves" in page
    assert load_config(home / "run" / "config.toml").loss.power == 2
    assert not imported(home)
    measures = Run.open(home / "run").measures()
    assert measures.settings.loss == "foreign"
    assert measures.defaults["loss.power"] == 1


@pytest.mark.slow
def test_a_forecast_reads_a_dataset_of_ones_own(home):
    values = small_config(data={"name": "own_data:shelves"}).to_toml()
    (home / "run.toml").write_text(values, encoding="utf-8")
    result = CliRunner().invoke(app, ["forecast", "run.toml", "--p", "3", "--k", "2"])
    assert result.exit_code == 0, (result.output, result.exception)


@pytest.mark.parametrize("name", ["own_losses:nothing", "own_losses:tiny", "no_networks:tiny"])
def test_a_network_that_cannot_be_made_is_refused(home, name):
    with refused("name"):
        build(name, 4, shape=(6,))


@pytest.mark.processes
def test_a_sweep_compares_a_loss_of_ones_own_with_ours_and_is_made_once(home):
    names = ["own_losses:Attraction", "triplet"]
    base = own_config({"name": "triplet"}).to_values()
    sweep = parse_sweep({"base": base, "grid": {"loss.name": names}, "seeds": 1})
    jobs = sweep.jobs()
    assert [job.config.loss.name for job in jobs] == names
    first = run_jobs(jobs, home / "runs", processes=1)
    assert {outcome.status for outcome in first} == {"finished"}, first
    ends = [outcome.run.summary_file.read_bytes() for outcome in first]
    again = run_jobs(jobs, home / "runs", processes=1)
    assert [outcome.run.summary_file.read_bytes() for outcome in again] == ends


RAY = """
import sys
from pathlib import Path
from uncollapse.sweep import parse_sweep
from uncollapse.sweep.engines import RayEngine
from uncollapse.sweep.jobs import drive
from uncollapse._base.files import read_toml

sweep = parse_sweep(read_toml(Path("sweep.toml")))
engine = RayEngine(Path("ray"), slots=1)
print({job.name: o.status for job in sweep.jobs()
       for o in drive([job], engine, total=1).values()})
engine.close()
"""


@pytest.mark.processes
@pytest.mark.night
def test_ray_finds_a_loss_of_ones_own(home):
    pytest.importorskip("ray")
    sweep = parse_sweep(
        {"base": own_config().to_values(), "grid": {"loss.margin": [0.1]}, "seeds": 1}
    )
    (home / "sweep.toml").write_text(sweep.to_toml(), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", "-c", RAY], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "'finished'" in done.stdout


# Datasets.


def test_a_dataset_of_ones_own_may_hold_rows_files_texts_or_read_them_itself(home):
    from PIL import Image

    for name in ("0a", "0b", "1a"):
        Image.new("RGB", (9, 9), (200, 10, 10)).save(home / f"{name}.png")
    rows = load("own_data:shelves", split="test")
    assert (len(rows), rows.shape, rows.split, rows.origin) == (60, (6,), "test", "drawn")
    assert rows.class_names == {0: "the top shelf"}
    files = load("own_data:files", home, size=4)
    assert (files.shape, files.labels.tolist(), files.split) == ((3, 4, 4), [0, 0, 1], "train")
    assert files.name == "own_data:files"
    words = load("own_data:words")
    assert words.texts() == ["yes", "no", "nay"]
    assert describe("own_data:words").texts
    lines = load("own_data:lines")
    assert lines[[1, 3]][0].tolist() == [[1.0, 1.0], [3.0, 3.0]]
    assert lines.labels.dtype == torch.int64


@pytest.mark.parametrize(
    "name", ["own_data:np", "own_data:none", "nothing:there", "own_data", "unfinished:shelves"]
)
def test_what_is_no_function_of_ones_own_is_refused(home, name):
    (home / "unfinished.py").write_text("def shelves(root,", encoding="utf-8")
    with refused("name"):
        load(name)


def test_what_lists_no_samples_or_has_no_such_split_is_refused(home):
    with refused("name"):
        load("own_data:wrong")
    with refused("split"):
        load("own_data:files", home, "val")


# Packages that add parts.


@pytest.fixture
def package(home, monkeypatch):
    """A package installed in a folder of its own, with entry points."""
    site = home / "site"
    info = site / "shelf_parts-1.0.dist-info"
    info.mkdir(parents=True)
    code = OWN_LOSSES + OWN_DATA + "\n\ndef tiny(dim):\n    return torch.nn.Linear(6, dim)\n"
    (site / "shelf_parts.py").write_text(code, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf-parts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[uncollapse.losses]\nattraction = shelf_parts:Attraction\ntriplet = shelf_parts:Wide\n"
        "[uncollapse.datasets]\nshelves = shelf_parts:shelves\n"
        "[uncollapse.backbones]\ntiny = shelf_parts:tiny\n"
    )
    monkeypatch.syspath_prepend(str(site))
    return site


def installed_config(**changes):
    return small_config(
        data={"name": "shelves"},
        model={"backbone": "tiny", "hidden": None},
        loss={"name": "attraction", "margin": 0.1},
        **changes,
    )


def test_a_config_names_the_parts_of_an_installed_package(package):
    config = installed_config()
    assert "shelf_parts" not in sys.modules
    assert config.loss.settings == {"margin": 0.1, "power": 1}
    assert load("shelves", split="test").shape == (6,)
    with refused("loss.name"):
        small_config(loss={"name": "attractions"})


def test_a_package_does_not_replace_what_is_ours(package):
    assert find_loss("triplet") is TripletLoss
    assert type(small_config(loss={"name": "triplet"}).loss).__name__ == "TripletConfig"


@pytest.mark.slow
def test_a_run_of_installed_parts_needs_no_trust(package, home):
    run = train(installed_config(train={"steps": 3}), home / "run")
    assert Run.open(run.path).load_model()(torch.zeros(2, 6)).shape == (2, 4)
    assert issubclass(find_loss("attraction"), Loss)
    assert np.isfinite(run.summary["metrics"]["test/recall@1"])
