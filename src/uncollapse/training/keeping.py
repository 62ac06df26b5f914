"""What a run keeps of itself: checkpoints saved and gone on from, with what a user should know."""

from __future__ import annotations

from uncollapse._base.owner import FolderOwner
from uncollapse.training.checkpoint import CheckpointError
from uncollapse.training.log import Log, repair_log
from uncollapse.training.measurer import Measurer
from uncollapse.training.run import Run
from uncollapse.training.session import Session

__all__ = ["last_saved", "restore", "save"]


def save(session: Session, run: Run, log: Log, owner: FolderOwner, *, best: bool = False) -> None:
    """Write a checkpoint, unless the network is lost: the next step will say that."""
    if not session.sound:
        return
    session.log_offset, session.log_sha256 = log.offset(), log.sha256
    session.check_ranks()

    def write() -> None:
        owner.check()
        run.checkpoints.save(session.checkpoint(), best=best)

    session.ranks.on_first(write)


def restore(session: Session, run: Run, measurer: Measurer) -> list[str]:
    """Go on from the newest good checkpoint, if there is any; what a user should know of it."""
    store, first = run.checkpoints, session.ranks.on_first
    checkpoint, complaints = first(lambda: store.load_last(session.accept))
    if checkpoint is None:
        if complaints:
            remedy = "put back what was damaged, or train into a new folder"
            raise CheckpointError(f"{'; '.join(complaints)}; {remedy}")
        return first(lambda: _told(measurer.drop_damaged()))
    session.restore(checkpoint)
    going = f"going on from the one of step {checkpoint.step}"
    warnings = [f"{complaint}; {going}" for complaint in complaints]
    known = session.log_offset, session.log_sha256
    session.log_offset, complaint = first(lambda: repair_log(run.metrics_file, *known))
    warnings += _told(complaint)
    warnings += first(lambda: _told(store.repair_best(), measurer.drop_damaged()))
    before = checkpoint.state.get("ranks", 1)
    if session.config.mining.scope == "rank" and before != session.ranks.size:
        changed = f"was mined on {before} ranks and is now on {session.ranks.size}"
        warnings.append(f"mining.scope = 'rank': the batch {changed}, which is another run")
    return warnings


def last_saved(run: Run) -> str:
    """How far the checkpoints go, in words."""
    steps = run.checkpoints.steps()
    return f"step {steps[-1]} is saved" if steps else "no checkpoint was written yet"


def _told(*complaints: str | None) -> list[str]:
    return [text for text in complaints if text is not None]
