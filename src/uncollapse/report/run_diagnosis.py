"""The diagnosis of a run from its folder: its rows after training beside those before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from uncollapse.health import Reference
from uncollapse.report.diagnosis import MAX_ROWS, Diagnosis, diagnose
from uncollapse.training import NotMeasuredError, Run
from uncollapse.training.assemble import run_settings
from uncollapse.training.measures import name_labels

__all__ = ["diagnose_run"]


def diagnose_run(
    run: Run | str | Path,
    *,
    reference: float | None = None,
    tsne: bool = False,
    max_rows: int = MAX_ROWS,
) -> Diagnosis:
    """Diagnose the rows that a run was measured on, with the untrained network as the reference.

    Everything is read from the folder; neither dataset nor network is needed. The verdict is that
    of `train` and `report`. `reference` is a diameter to compare with instead. Raises
    `NotMeasuredError` where the run has not ended or was not measured, `DamagedFileError` for files
    that are not as the run left them.
    """
    found = run if isinstance(run, Run) else Run.open(run)
    measures = found.measures()
    if measures.after is None:
        raise NotMeasuredError(found.path, "measures after training: it has not ended")
    split = measures.split
    rows, facts = found.rows("after", split), measures.splits[split]
    before = Reference.of(measures.before.splits[split].health)
    fine = None if rows.fine_labels is None else name_labels(rows.fine_labels, facts.fine_names)
    result = diagnose(
        rows.embeddings,
        name_labels(rows.labels, facts.class_names),
        fine,
        title=found.path.resolve().name,
        reference=before if reference is None else reference,
        before=found.rows("before", split).embeddings if reference is None else None,
        tsne=tsne,
        max_rows=max_rows,
        cosine=found.config.loss.normalizes,
        settings=run_settings(found.config),
    )
    start = measures.start(split) if reference is None else None
    return replace(result, split=split, compared_with="" if start is None else str(start))
