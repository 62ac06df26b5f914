"""A run directory as others read it: config, metrics, summary and checkpoints, from its files."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncollapse._base.check import InputError
from uncollapse._base.files import (
    DamagedFileError,
    read_jsonl,
    read_sealed,
    read_toml,
    sha256_of,
    sums_of,
    write_sealed,
    write_text,
)
from uncollapse.backbones import BACKBONES, Embedder
from uncollapse.training.assemble import build_model
from uncollapse.training.checkpoint import (
    Checkpoint,
    CheckpointError,
    CheckpointStore,
    changed_keys,
    check_config,
    check_tensors,
)
from uncollapse.training.config import Config, parse_config
from uncollapse.training.measures import (
    Measures,
    NotMeasuredError,
    Samples,
    SplitRows,
    When,
    check_rows,
    read_measures,
    read_rows,
    read_samples,
)

__all__ = [
    "SIGNATURE",
    "Chosen",
    "Run",
    "UntrustedCodeError",
    "check_trusted",
    "ends_below",
    "find_damage",
    "names_code",
    "read_summary",
    "reseal",
    "sign_run",
    "start_scores",
    "warn_user",
    "write_summary",
]


# Code that a run's config names is imported only where the run is one's own.

SIGNATURE = "signature"  # in the run folder
_RUN_FILES = ("checkpoints", "metrics.jsonl", "summary.json", "measures.json")


class UntrustedCodeError(ValueError):
    """A run of unknown origin whose config names code; the message says how to go on."""

    def __init__(self, folder: Path, name: str) -> None:
        module = name.partition(":")[0]
        super().__init__(
            f"{folder}: its config names code (model.backbone = {name!r}), and this run was not "
            f"trained by you on this account. Nothing of it was imported. Read the module "
            f"{module!r} as your Python finds it; then pass --trust, or trust=True to Run.open"
        )


def names_code(config: Config) -> bool:
    """Whether building the config's network imports a function by name.

    >>> names_code(Config())
    False
    """
    name = config.model.backbone
    return name not in BACKBONES and not name.startswith(("timm:", "sentence:")) and ":" in name


def sign_run(folder: Path, config: Config) -> None:
    """Mark a run that is being trained as one's own; only where its config names code."""
    # Without a home to keep a key in, the run is as good, and --trust is asked for later.
    if names_code(config):
        with contextlib.suppress(OSError):
            write_text(folder / SIGNATURE, _signature(_key(), config) + "\n")


def check_trusted(folder: Path, config: Config, *, trust: bool = False) -> None:
    """Raise `UntrustedCodeError` if the run's config names code and the run is not one's own.

    A folder that is no run, where a config lies that somebody wrote by hand, is not judged.
    """
    if trust or not names_code(config) or not _is_run(folder):
        return
    try:
        found = (folder / SIGNATURE).read_bytes()[:200].strip()
        known = _signature(_key(make=False), config).encode()
    except OSError:
        found, known = b"", b"none"
    if not hmac.compare_digest(found, known):
        raise UntrustedCodeError(folder, config.model.backbone)


def _is_run(folder: Path) -> bool:
    config = (folder / "config.toml").is_file()
    return config and any((folder / name).exists() for name in _RUN_FILES)


def _signature(key: bytes, config: Config) -> str:
    return hmac.new(key, config.model.backbone.encode(), "sha256").hexdigest()


def _key(*, make: bool = True) -> bytes:
    """The key of this account, made when first needed; it never leaves its folder."""
    path = _state_folder() / "key"
    if make and not path.is_file():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        write_text(path, secrets.token_hex(32) + "\n")
    return path.read_bytes().strip()


def _state_folder() -> Path:
    """`UNCOLLAPSE_STATE`, or `uncollapse` in `XDG_STATE_HOME` or `~/.local/state`."""
    own = os.environ.get("UNCOLLAPSE_STATE")
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return (Path(own) if own else Path(state) / "uncollapse").expanduser()


# `summary.json`, written when a run ends: how it ended, and the checksums of what it left.

_SEALED = ("config.toml", "metrics.jsonl", "measures.json")
_STATUS = ("finished", "stopped", "interrupted")
_REMEDY = "uncollapse train with --resume writes it again"


def read_summary(path: Path) -> dict[str, Any]:
    """What a run's summary says; empty where there is none.

    Raises `DamagedFileError` for a file that is not what this module writes.
    """
    if not path.is_file():
        return {}
    try:
        found = read_sealed(path)
    except DamagedFileError as error:
        raise DamagedFileError(path, f"{error.why}; {_REMEDY}") from None
    kinds = {"status": str, "step": int, "metrics": dict}
    wrong = [key for key, kind in kinds.items() if not isinstance(found.get(key), kind)]
    if not _says_skipped(found.get("skipped", {})):
        wrong.append("skipped")
    if wrong or found["status"] not in _STATUS:
        key = wrong[0] if wrong else "status"
        raise DamagedFileError(path, f"its {key} is not that of a run; {_REMEDY}")
    return found


def write_summary(run: Run, values: Mapping[str, Any]) -> None:
    """Write a run's summary, with the checksums of the files it is read with."""
    write_sealed(run.summary_file, {**values, "files": sums_of(run.path, _SEALED)})


def reseal(run: Run) -> None:
    """Take the checksums again, after a file was written anew on purpose."""
    summary = run.summary
    if summary:
        write_summary(run, {key: value for key, value in summary.items() if key != "files"})


def find_damage(run: Run) -> list[str]:
    """A sentence for each file of a run that is not as the run left it.

    Checkpoints are verified where they are used, not here.
    """
    found: list[str] = []
    summary: Mapping[str, Any] = {}
    try:
        summary = run.summary
    except DamagedFileError as error:
        found.append(str(error))
    sums = summary.get("files")
    if isinstance(sums, dict):
        found += [_changed(run.path / name, sums[name]) for name in _SEALED if name in sums]
    else:
        found += _against_checkpoint(run)
    try:
        check_rows(run.path)
    except (DamagedFileError, NotMeasuredError) as error:
        found.append(str(error))
    return [text for text in found if text]


def _changed(path: Path, sha256: object) -> str:
    if not path.is_file():
        return f"{path} is missing"
    if sha256_of(path) == sha256:
        return ""
    return f"{path} was changed since the run ended: its checksum differs from the summary's"


def _against_checkpoint(run: Run) -> list[str]:
    """Config and log beside what the newest checkpoint says of them: a run that has not ended."""
    steps = run.checkpoints.steps()
    try:
        manifest = run.checkpoints.manifest(steps[-1]) if steps else {}
    except CheckpointError as error:
        return [str(error)]
    config = run.config
    changed = changed_keys(manifest.get("config", {}), config)
    found = [
        f"{run.config_file} was changed: {key} is {new!r}, and was {old!r} at step {steps[-1]}"
        for key, (old, new) in changed.items()
    ]
    if steps and steps[-1] >= config.train.steps and not run.summary_file.exists():
        found.append(f"{run.summary_file} is missing, though all steps are made; {_REMEDY}")
    log = manifest.get("log", {})
    if isinstance(log.get("offset"), int) and "sha256" in log:
        try:
            content = run.metrics_file.read_bytes()
        except OSError:
            content = b""
        if hashlib.sha256(content[: log["offset"]]).hexdigest() != log["sha256"]:
            why = f"it is not as it was at step {steps[-1]}"
            found.append(f"{run.metrics_file} is {'damaged: ' + why if content else 'missing'}")
    return found


def _says_skipped(value: Any) -> bool:
    """Whether this is what the engine writes of files left out, by split and by kind."""
    if not isinstance(value, dict) or not all(isinstance(kinds, dict) for kinds in value.values()):
        return False
    found = [entry for kinds in value.values() for entry in kinds.values()]
    return all(
        isinstance(entry, dict)
        and isinstance(entry.get("count"), int)
        and isinstance(entry.get("first"), list)
        and all(isinstance(name, str) for name in entry["first"])
        for entry in found
    )


_SECTIONS = ("seed", "data", "model", "batch", "optimizer", "train")  # a run's own config has these
_RUN_REMEDY = (
    "put the run's own back, or delete it: uncollapse train CONFIG --resume then writes it again, "
    "if the checkpoints were made with that config"
)


def warn_user(text: str) -> None:
    """Tell a user of the library, as Python warns."""
    warnings.warn(text, UserWarning, stacklevel=3)


@dataclass(frozen=True, eq=False)
class Chosen:
    """A checkpoint that was asked for, or what stands in for it; `warnings` say so.

    `model` is its network in evaluation mode.
    """

    checkpoint: Checkpoint
    model: Embedder
    warnings: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        """The step the network was saved at."""
        return self.checkpoint.step


@dataclass(frozen=True)
class Run:
    """A run directory: `config.toml`, `metrics.jsonl`, `summary.json`, `checkpoints/`.

    And what was measured once, at its start and its end: `measures.json` and the files beside it.
    A run whose config names code of one's own (`model.backbone = "module:function"`) gives its
    network only where one has trained it oneself, or where `trust` is set.
    """

    path: Path
    trust: bool = False

    @classmethod
    def open(cls, path: str | Path, *, trust: bool = False) -> Run:
        """A run that exists; the error says what is missing.

        `trust` allows code that its config names to be imported, whoever made the run.
        """
        run = cls(Path(path), trust)
        if not run.config_file.is_file():
            lost = bool(run.checkpoints.steps())
            given = f"{path} (no config.toml in it{', but checkpoints' * lost})"
            raise InputError("run", given, f"a run directory{f'; {_REMEDY}' * lost}")
        return run

    @property
    def config_file(self) -> Path:
        """The resolved config."""
        return self.path / "config.toml"

    @property
    def metrics_file(self) -> Path:
        """One JSON object a line, in the order of the steps."""
        return self.path / "metrics.jsonl"

    @property
    def summary_file(self) -> Path:
        """Written when the run ends."""
        return self.path / "summary.json"

    @property
    def checkpoints(self) -> CheckpointStore:
        """The checkpoints kept."""
        return CheckpointStore(self.path / "checkpoints")

    @property
    def config(self) -> Config:
        """The config the run was made with; `DamagedFileError` if it is not a whole one."""
        try:
            values = read_toml(self.config_file)
            lost = [name for name in _SECTIONS if name not in values]
            if lost:
                raise DamagedFileError(self.config_file, f"it has no {lost[0]!r}")
            return parse_config(values)
        except DamagedFileError as error:
            raise DamagedFileError(self.config_file, f"{error.why}; {_REMEDY}") from None
        except InputError as error:
            raise DamagedFileError(self.config_file, f"{error}; {_REMEDY}") from None

    @property
    def summary(self) -> dict[str, Any]:
        """How it ended; empty while it has not. `DamagedFileError` if it cannot be read."""
        return read_summary(self.summary_file)

    @property
    def finished(self) -> bool:
        """Whether all steps were made."""
        return self.summary.get("status") == "finished"

    def metrics(self, complaints: list[str] | None = None) -> Iterator[dict[str, Any]]:
        """The logged lines; a last line cut short by a crash is left out.

        A damaged one raises, or with `complaints` is left out and complained of there.
        """
        if not self.metrics_file.is_file():
            return
        yield from read_jsonl(self.metrics_file, complaints)

    def measures(self) -> Measures:
        """Every figure of the start and the end; `NotMeasuredError` where they were not taken."""
        return read_measures(self.path)

    def rows(self, when: When, split: str) -> SplitRows:
        """The fixed rows of a split with their embeddings `before` or `after` training."""
        check_rows(self.path)
        return read_rows(self.path, when, split)

    def samples(self, split: str) -> Samples:
        """A few queries of a split, their nearest neighbours after training, and pictures."""
        check_rows(self.path)
        return read_samples(self.path, split)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample as the network sees it: `(C, H, W)` or `(features,)`."""
        return tuple(self.last_checkpoint().state["shape"])

    def choose(self, which: str = "last") -> Chosen:
        """The `last` checkpoint, or the `best` one, with its network.

        Where that one is damaged or not of this run, the newest that can be used stands in for it,
        and `warnings` say so; `CheckpointError` if there is none.
        """
        config, store = self.config, self.checkpoints
        check_trusted(self.path, config, trust=self.trust)
        told: list[str] = []
        models: dict[int, Embedder] = {}

        def accept(checkpoint: Checkpoint) -> None:
            notes = check_config(checkpoint, config)
            models[checkpoint.step] = self._network(checkpoint)
            told.extend(note for note in notes if note not in told)

        if which == "best":
            step, complaint = store.best()
            if step is None:
                complaint = complaint or f"no checkpoint in {store.folder} is marked as the best"
            told += [complaint] if complaint else []
            try:
                if step is not None:
                    found = store.load(step)
                    accept(found)
                    return Chosen(found, models[step], tuple(told))
            except CheckpointError as error:
                told.append(str(error))
        last, complaints = store.load_last(accept)
        if last is None:
            raise self._none_usable([*told, *complaints])
        if complaints or which == "best":
            told += [text for text in complaints if text not in told]
            told[-1] += f"; using the checkpoint of step {last.step}"
        return Chosen(last, models[last.step], tuple(told))

    def load_model(self, which: str = "last") -> Embedder:
        """The trained network in evaluation mode: the `last` checkpoint, or the `best` one.

        Warns, as Python does, where another one stands in for it: see `choose`.
        """
        chosen = self.choose(which)
        for text in chosen.warnings:
            warn_user(text)
        return chosen.model

    def build_model(self, shape: Iterable[int]) -> Embedder:
        """The untrained network; `UntrustedCodeError` if that takes code of unknown origin."""
        check_trusted(self.path, self.config, trust=self.trust)
        return build_model(self.config, shape)

    def last_checkpoint(self) -> Checkpoint:
        """The newest checkpoint that verifies; `CheckpointError` if there is none."""
        last, complaints = self.checkpoints.load_last()
        if last is None:
            raise self._none_usable(complaints)
        return last

    def _network(self, checkpoint: Checkpoint) -> Embedder:
        shape = checkpoint.state.get("shape")
        if not isinstance(shape, list | tuple):
            text = f"the checkpoint of step {checkpoint.step} is damaged: its state has no 'shape'"
            raise CheckpointError(text)
        model = self.build_model(shape)
        check_tensors(checkpoint.step, checkpoint.weights, model.state_dict())
        model.load_state_dict(dict(checkpoint.weights))
        return model.eval()

    def _none_usable(self, complaints: list[str]) -> CheckpointError:
        why = "; ".join(complaints) or "none was written"
        return CheckpointError(
            f"{self.path} has no usable checkpoint: {why}; put back what was damaged, or train "
            "again into a new folder"
        )


# Scores of the network before training beside those of a later one, and where these are lower.

_RECALL = re.compile(r"(?:(?P<split>.+?)/)?(?P<fine>fine/)?recall@(?P<k>\d+)")


def start_scores(run: Run) -> dict[str, float]:
    """Scores of the network before training by `split/name`, as they were measured.

    They are of the same samples as those logged at the end. Empty for a run without measures.
    """
    try:
        before = run.measures().before
    except (NotMeasuredError, DamagedFileError):
        return {}
    return {
        f"{split}/{name}": value
        for split, figures in before.splits.items()
        for name, value in figures.scores.items()
    }


def ends_below(start: Mapping[str, float], end: Mapping[str, float]) -> list[str]:
    """A sentence for each split and kind of label where R@1 (the smallest k) is below its start.

    >>> ends_below({"test/recall@1": 0.498, "test/recall@5": 0.7},
    ...            {"test/recall@1": 0.375, "test/recall@5": 0.6})
    ['R@1 on test ends below the network before training: 37.5 % against 49.8 %.']
    """
    first: dict[tuple[str, str], tuple[int, str]] = {}
    for key in end:
        found = _RECALL.fullmatch(key)
        if found is None or key not in start or (found["split"] or "").endswith("/share"):
            continue
        group = (found["split"] or "", found["fine"] or "")
        first[group] = min(first.get(group, (int(found["k"]), key)), (int(found["k"]), key))
    return [
        _sentence(k, split, bool(fine), start[key], end[key])
        for (split, fine), (k, key) in first.items()
        if end[key] < start[key]
    ]


def _sentence(k: int, split: str, fine: bool, start: float, end: float) -> str:
    what = f"R@{k}{' by fine labels' * fine}{f' on {split}' * bool(split)}"
    numbers = f"{_percent(end, start)} against {_percent(start, end)}"
    return f"{what} ends below the network before training: {numbers}."


def _percent(share: float, other: float) -> str:
    """To a tenth, or as far as tells the two apart."""
    digits = next((d for d in (1, 2, 3) if f"{100 * share:.{d}f}" != f"{100 * other:.{d}f}"), 4)
    return f"{100 * share:.{digits}f} %"
