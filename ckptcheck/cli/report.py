"""`ckptcheck report`: a saved result in another format."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from ckptcheck.cli.kinds import FORMATS, Place, format_name
from ckptcheck.cli.options import View
from ckptcheck.cli.sections import SectionedCommand
from ckptcheck.cli.streams import check_writable
from ckptcheck.errors import UsageError
from ckptcheck.finding import EXIT_PASS, Result

STDIN: Final = Path("-")
HELP: Final = """Show a result that was saved with --report json=RESULT.json, or with --format json, in another format.

RESULT.json may be - for standard input. The format is told by the ending of FILE: .html, .sarif, .xml (JUnit), .md,
.json or .txt; or by --format.
"""
EXAMPLES: Final = """Examples:

\b
  ckptcheck verify my_run.py --report json=result.json
  ckptcheck report result.json -o report.html -o report.sarif
  ckptcheck report result.json --format markdown >> $GITHUB_STEP_SUMMARY

Exit codes: 0 rendered, whatever the verdict; 2 usage or tool error.
"""


@click.command(
    "report", cls=SectionedCommand, sections={}, help=HELP, epilog=EXAMPLES,
    short_help="Show a saved result in another format.",
)  # fmt: skip
@click.argument("saved", type=Place(), metavar="RESULT.json")
@click.option("-o", "--output", "outputs", type=Place(), multiple=True, metavar="FILE",
              help="Write this file, and nothing to stdout. Repeatable.")  # fmt: skip
@click.option("--format", "form", type=format_name, metavar="FORMAT", show_default="by the ending of FILE, else text",
              help=f"One of {', '.join(FORMATS)}.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Say the first line only, as the command does.")
@click.option("-v", "--verbose", is_flag=True, help="Say all there is, as the command does.")
@click.option("--top", type=click.IntRange(min=0), default=10, show_default=True, metavar="N",
              help="Show the N largest differences of each section of a diff in a text.")  # fmt: skip
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
              help="Colour on stdout; auto honours NO_COLOR.")  # fmt: skip
@click.pass_context
def command(
    context: click.Context, /, *, saved: Path, outputs: Sequence[Path], form: str | None, quiet: bool, verbose: bool,
    top: int, color: str,
) -> None:  # fmt: skip
    """Render a saved result: a document in, documents out."""
    if quiet and verbose:
        raise click.UsageError("-q and -v exclude each other", context)
    if form is not None and len(outputs) > 1:
        raise click.UsageError("--format is for one FILE: leave it out, and the endings tell", context)
    told = tuple((form or _by_ending(path), path) for path in outputs)
    for path in outputs:
        check_writable(path)
    results = _read(saved)
    from ckptcheck.cli.deliver import show

    view = View(form=form or "text", reports=told, quiet=quiet, verbose=verbose, color=color, top=top)
    show(results, view, to_stdout=not outputs)
    context.exit(EXIT_PASS)


def _by_ending(path: Path) -> str:
    from ckptcheck.reports.table import ENDINGS

    form = ENDINGS.get(path.suffix.lower())
    if form is None:
        known = ", ".join(ENDINGS)
        raise click.UsageError(f"{path}: no format has the ending {path.suffix!r}; use one of {known}, or --format")
    return form


def _read(path: Path) -> tuple[Result, ...]:
    """The results in a file, or on standard input. UsageError for what cannot be read, and what is no result."""
    from ckptcheck.reports.saved import MAX_BYTES, results_of

    name = "standard input" if path == STDIN else str(path)
    try:
        if path == STDIN:
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with path.open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror or error}") from error
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{name} is no result of ckptcheck: it has more than {MAX_BYTES >> 20} MiB")
    try:
        return results_of(raw.decode("utf-8-sig"), name)
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is no JSON: it is no UTF-8 text") from error
