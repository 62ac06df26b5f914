"""Add the row `before training` to recorded pages of EPS: `python tools/before_training.py OUT`.

For pages from before that row was made, whose runs are gone. A network before training depends on
the seed, the data, the network and the batch of its run alone, so it is built again from these and
scored as the page scores the trained one. The scores after training are those of the page's CSV.
Networks' scores are kept in OUT. A page that has the row is left as it is.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Sequence
from pathlib import Path

from uncollapse._base.files import write_csv, write_text
from uncollapse._base.table import Table
from uncollapse.papers.comparison import BEFORE, Finding, Score, Scorecard, before_table
from uncollapse.papers.eps.scores import STUDIES, TABLES, Column, columns, measure
from uncollapse.papers.items import Request, today
from uncollapse.training import Run

RESULTS = Path(__file__).parents[1] / "docs" / "results"
HEADER = ["what", "metric", "paper", "ours", "std", "reproduced", "by seed", BEFORE]
LETTERS = [Column("letters R@1", "test", fine=True, k=1)]
# Study and columns of an item; the page of another item whose runs it shows, and of which methods.
ITEMS = {
    **{
        name: (part["study"], [c for group in part["columns"] for c in columns(**group)], "", [])
        for name in ("table1", "table3", "table4")
        for part in TABLES[name]["parts"]
    },
    "eps-fig2": ("", [], "table1", ["Triplet", "EPS + Triplet"]),
    "eps-fig3a": (
        *("", [], "table3"),
        ["EPS + Dist-Margin", "EPS + Trip. + SH", "Trip. + SH", "Dist-Margin"],
    ),
    "eps-fig3b": ("omniglot", LETTERS, "", []),
    "eps-fig6": ("omniglot", LETTERS, "", []),
}


def main() -> None:
    """Complete the pages that lack the row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="a folder for the networks' scores")
    parser.add_argument("items", nargs="*", help="all by default")
    asked = parser.parse_args()
    for item in asked.items or ITEMS:
        file = RESULTS / item / f"{item}.csv"
        if BEFORE in file.read_text(encoding="utf-8").partition("\n")[0]:
            print(f"{item}: has the row")
            continue
        complete(item, asked.out)
        print(f"{item}: completed", flush=True)


def complete(item: str, out: Path) -> None:
    """Write the page and the CSV of an item with the row."""
    study, shown, other, methods = ITEMS[item]
    card = read_card(RESULTS / item / f"{item}.csv")
    if other:  # the same runs, scored on another page
        of_other = read_card(RESULTS / other / f"{other}.csv").scores
        recalls = [s for s in of_other if re.fullmatch(r"(.* digits|letters) R@1", s.metric)]
        scores = [s for m in methods for s in recalls if s.method == m]
        more = [before_table(scores, "R@1 before training and at the end")]
    else:
        scores = [with_start(score, study, shown, out) for score in card.scores]
        card, more = Scorecard(scores, card.claims), []
    page = RESULTS / item / f"{item}.md"
    head, notes = around_tables(page.read_text(encoding="utf-8"))
    note = (
        f"The scores before training were added on {today()}: those networks were built again from "
        "the seed, the data, the network and the batch of the runs, on which alone they depend "
        "(`python tools/before_training.py`)."
    )
    parts = [head, *(part for table in [*card.tables(), *more] for part in shown_as(table))]
    write_text(page, "\n\n".join([*parts, *notes, note]) + "\n")
    write_csv(page.with_suffix(".csv"), HEADER, card.rows())


def read_card(path: Path) -> Scorecard:
    """The scores and claims of a page's CSV."""
    scores: list[Score] = []
    claims: list[Finding] = []
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if not row["metric"]:
                holds = {"yes": True, "NO": False}.get(row["reproduced"])
                claims.append(Finding(row["what"], row["paper"], row["ours"], holds))
                continue
            loss = row["what"].removeprefix("EPS + ")
            than = loss if loss != row["what"] and row["reproduced"] else None
            paper = float(row["paper"]) if row["paper"] else None
            ours, before = (
                [float(value) for value in (row.get(name) or "").split()]
                for name in ("by seed", BEFORE)
            )
            scores.append(Score(row["what"], row["metric"], paper, ours, than, before))
    return Scorecard(scores, claims)


def with_start(score: Score, study: str, shown: Sequence[Column], out: Path) -> Score:
    """The score with that of the networks before training, one per seed."""
    setup = STUDIES[study].setups["laptop"][0]
    known = re.search(r", (\d+) of a class", score.method)  # Fig. 3b
    batches = {k: p for p, k in TABLES["eps-fig3b"]["laptop"]}
    batch = setup.config["batch"]
    if known is not None:
        batch = {"p": batches[int(known[1])], "k": int(known[1])}
    before = []
    request = Request("before", out, "laptop", seeds=len(score.ours))
    for seed in setup.seed_range(request):
        config = setup.run_config({"batch": batch}, seed, request)
        path = out / f"{study}-p{batch['p']}k{batch['k']}-s{seed}"
        if not (path / "config.toml").is_file():
            write_text(path / "config.toml", config.to_toml())
        run = Run(path, trust=True)
        values = dict(zip(shown, measure(run, shown, trained=False), strict=True))
        before += [value for column, value in values.items() if column.title == score.metric]
    return Score(score.method, score.metric, score.paper, score.ours, score.than, before)


def around_tables(text: str) -> tuple[str, list[str]]:
    """A page's head and its notes: what stands before its first table, and after its last."""
    blocks = text.strip().split("\n\n")
    tables = [i for i, block in enumerate(blocks) if block.startswith("| ")]
    return "\n\n".join(blocks[: tables[0]]), blocks[tables[-1] + 1 :]


def shown_as(table: Table) -> list[str]:
    """A table as it stands on a page."""
    heading = [f"## {table.title}"] if table.title else []
    notes = ["\n".join(f"- {note}" for note in table.notes)] if table.notes else []
    return [*heading, table.markdown(), *notes]


if __name__ == "__main__":
    main()
