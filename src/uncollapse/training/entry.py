"""What a run folder holds before training begins: nothing, this run, or something to refuse."""

from __future__ import annotations

from uncollapse._base.check import InputError
from uncollapse._base.files import DamagedFileError
from uncollapse.training.checkpoint import CheckpointError
from uncollapse.training.config import Config
from uncollapse.training.identity import changed_keys, check_same
from uncollapse.training.run import Run
from uncollapse.training.summary import find_damage

__all__ = ["check_entry", "is_done"]

_OF_A_SWEEP = {"failure.json"}  # beside a run that failed before it began


def check_entry(run: Run, config: Config, *, resume: bool) -> list[str]:
    """Raise unless this run may be begun, or gone on with, in its folder; returns warnings.

    A run begins in a new or empty folder only; hidden files do not count. `resume` goes on with the
    run that is there, if it has this config.
    """
    if run.config_file.is_file():
        if not resume:
            given = f"{run.path}, which holds a run"
            raise InputError("out", given, "a new folder, or --resume to go on with that run")
        check_same(run.config, config)
        try:
            run.summary  # noqa: B018 (read to see whether it can be)
        except DamagedFileError as error:
            return [str(error)]
        return []
    steps = run.checkpoints.steps()
    if resume and steps:
        return [_adopted(run, steps[-1])]
    names = sorted(p.name for p in run.path.iterdir()) if run.path.exists() else []
    known = _OF_A_SWEEP if resume else set()
    strange = [name for name in names if name not in known and not name.startswith(".")]
    if strange:
        said = ", ".join(strange[:3]) + ", ..." * (len(strange) > 3)
        given = f"{run.path}, which holds {said} but no config.toml"
        allowed = "a new or empty folder"
        if steps:
            allowed += ", or --resume with the config its checkpoints were made with"
        raise InputError("out", given, allowed)
    return []


def is_done(run: Run, config: Config) -> bool:
    """Whether the run that is there has all its steps, and every file is as it was left."""
    try:
        if not run.finished or run.summary["step"] < config.train.steps:
            return False
    except DamagedFileError:
        return False
    store, steps = run.checkpoints, run.checkpoints.steps()
    if not steps or store.complaint(steps[-1]) is not None or store.best()[1] is not None:
        return False
    changed = changed_keys(store.manifest(steps[-1]).get("config", {}), config)
    return not changed and not find_damage(run)


def _adopted(run: Run, step: int) -> str:
    """Checkpoints whose config.toml is gone: they say themselves what they were made with."""
    if not run.checkpoints.manifest(step).get("config"):
        raise CheckpointError(
            f"{run.config_file} is missing, and the checkpoints do not say with which config they "
            "were made: put it back, or train into a new folder"
        )
    return f"{run.config_file} is missing; it is written again, from the config given"
