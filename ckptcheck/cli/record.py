"""`ckptcheck record`: run any script as it is, and record its trajectory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from ckptcheck.cli.calls import verbs_of
from ckptcheck.cli.kinds import Place, pattern, report_file
from ckptcheck.cli.options import digest_option
from ckptcheck.cli.streams import abandon_stderr, check_writable, in_mid_line
from ckptcheck.errors import OutputError
from ckptcheck.finding import Result, Verdict

HELP: Final = """Run CMD as it is, and record each process that trains in it.

Output, signals and exit code are those of CMD; what we say is on stderr. 2 is our own error, 126 and 127 a command that
cannot be started. The folder TRACE then holds a file for each process, for `ckptcheck compare`.
"""
EXAMPLES: Final = """Examples:

\b
  ckptcheck record -o first -- python train.py --out out
  ckptcheck record -o second -- python train.py --out out --resume out/step_10.pt
  ckptcheck compare first second
  ckptcheck record -o ranks -- torchrun --nproc-per-node 2 train.py
"""
_SETTINGS: Final = {"ignore_unknown_options": False, "allow_interspersed_args": False}


@click.command(
    "record", short_help="Run any script as it is, and record its trajectory.", help=HELP, epilog=EXAMPLES,
    context_settings=_SETTINGS,
)  # fmt: skip
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD ...")
@click.option("-o", "--output", type=Place(), required=True, metavar="TRACE", help="A new folder for the traces.")
@click.option("--every", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="Record every N-th step only.")  # fmt: skip
@click.option(
    "--only", type=pattern, multiple=True, metavar="PATTERN",
    help="Record only parameters and buffers with such names, as 'head.*'. Repeatable.",
)  # fmt: skip
@click.option("--no-grads", is_flag=True, help="Record no gradients.")
@digest_option
@click.option(
    "--pth", "python", metavar="PYTHON",
    help="For a script started with -E or -I: its Python, which gets a .pth file for as long as CMD runs.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@click.option(
    "--report", "reports", type=report_file, multiple=True, metavar="FORMAT=PATH",
    help="Write the result into a file, such as json=result.json. Repeatable.",
)  # fmt: skip
@click.pass_context
def command(
    context: click.Context, /, words: tuple[str, ...], quiet: bool, reports: Sequence[tuple[str, Path]],
    no_grads: bool, **options: Any,
) -> None:  # fmt: skip
    """Run CMD and record it: options in, the command's own exit code out."""
    for _, path in reports:
        check_writable(path)
    if len(words) == 1 and len(words[0].split()) > 1 and not Path(words[0]).exists():
        said = f"{words[0]!r} is one word: give the command without quotes, as -- python train.py"
        raise click.UsageError(said, context)
    result = verbs_of(context).record(words, grads=not no_grads, **options)
    lines = _told(result) if not quiet or result.verdict is Verdict.ERROR else []
    _say([*lines, *_report(result, reports)])
    part = result.parts["recorded"]
    assert isinstance(part, dict)
    context.exit(int(str(part["exit_code"])))


def _told(result: Result) -> list[str]:
    """What was recorded, in lines."""
    from ckptcheck.reports.headlines import headline

    mark = "error: " if result.verdict is Verdict.ERROR else ""
    lines = [f"ckptcheck: {mark}{headline(result)}"]
    for one in result.findings:
        lines.append(f"ckptcheck: {one.severity.value}: {one.code} {one.name}: {one.message}")
        lines += [f"    {one.fix}"] if one.fix else []
    part = result.parts["recorded"]
    notes = part["notes"] if isinstance(part, dict) else []
    lines += [
        f"ckptcheck: note: {one}" for one in notes if str(one) not in (result.error or "")
    ] if isinstance(notes, list) else []  # fmt: skip
    return lines


def _say(lines: Sequence[str]) -> None:
    """Say it on stderr: stdout is the script's. Where it cannot be said, the script's exit code still stands."""
    from ckptcheck.reports.page import escaped

    try:
        if lines and in_mid_line():
            click.echo(err=True)
        for line in lines:
            click.echo(escaped(line), err=True)
    except OSError:
        abandon_stderr()


def _report(result: Result, reports: Sequence[tuple[str, Path]]) -> list[str]:
    """Write the reports; what to say of those that cannot be written any more, after the script has run."""
    if not reports:
        return []
    from ckptcheck.cli.rendering import rendered
    from ckptcheck.cli.streams import write_file
    from ckptcheck.reports.page import Page

    said = []
    for form, path in reports:
        try:
            write_file(path, rendered((result,), form, Page()))
        except OutputError as error:
            said.append(f"ckptcheck: error: {error}")
    return said
