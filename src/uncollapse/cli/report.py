"""`uncollapse report`: one page about a run, several runs side by side, or a file."""

from pathlib import Path
from typing import Annotated

import typer

import uncollapse as uc
from uncollapse.cli import options
from uncollapse.cli.diagnose import diagnose_file
from uncollapse.cli.printing import say, status, warn


@options.grouped
def command(
    sources: options.SourcesArgument,
    columns: options.Columns,
    out: Annotated[
        Path | None,
        typer.Option(help="The page.  \\[default: report.html in the run, or here for others]"),
    ] = None,
    images: options.ImagesOption = None,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Measure a run first that has no measures for its page."),
    ] = False,
    data_root: options.DataRootOption = None,
    trust: options.TrustOption = False,
) -> None:
    """Write a self-contained HTML page: verdict, curves, config, maps, pictures.

    Of a run, of several runs side by side, or of a file (that of `uncollapse diagnose --html`).
    """
    options.must_exist(*sources)
    if len(sources) == 1 and not options.is_run(sources[0]):
        instead = f"{sources[0].name} is a file of embeddings"
        options.only_for("runs", instead, measure=measure, data_root=data_root, trust=trust)
        result = diagnose_file(sources[0], columns, images, None, {})
        say(f"wrote {result.save(out or 'report.html')}")
        return
    options.only_for_files(columns, images=images)
    for path in sources if measure else ():
        with status(f"measuring the network of {path} before and after training"):
            uc.training.measure_run(uc.Run.open(path, trust=trust), data_root=data_root, warn=warn)
    out = out or (sources[0] if len(sources) == 1 else Path()) / "report.html"
    with status(f"reading {len(sources)} run{'s' * (len(sources) > 1)}"):
        written = uc.report.run_report(sources, out, warn=warn)
    say(f"wrote {written}")
