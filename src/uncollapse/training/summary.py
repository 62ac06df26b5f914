"""`summary.json`, written when a run ends: how it ended, and the checksums of what it left."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uncollapse._base.files import DamagedFileError
from uncollapse._base.seals import read_sealed, sha256_of, sums_of, write_sealed
from uncollapse.training.checkpoint import CheckpointError
from uncollapse.training.identity import changed_keys
from uncollapse.training.measured_rows import NotMeasuredError
from uncollapse.training.measures import check_rows

if TYPE_CHECKING:
    from uncollapse.training.run import Run

__all__ = ["find_damage", "read_summary", "reseal", "write_summary"]

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
