"""The one edge where what goes wrong becomes an exit code and one line on stderr."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

import click

from ckptcheck.errors import CkptcheckError, OutputError, RunFailedError
from ckptcheck.finding import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_PASS, Result, Verdict

_TELLING: Final = frozenset({"-h", "--help", "--version"})


def exit_code_of(run: Callable[[], None], arguments: Sequence[str]) -> int:
    """Call `run` and return the exit code; `arguments` tell in which other forms a refusal is wanted."""
    try:
        run()
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except KeyboardInterrupt:
        click.echo("ckptcheck: interrupted", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        if arguments and _TELLING.isdisjoint(arguments):
            raise
        _abandon_stdout()
        return EXIT_PASS
    except OSError as error:
        if _TELLING.isdisjoint(arguments):
            raise
        _abandon_stdout()
        return _refuse(f"cannot write to standard output: {error.strerror or error}", ())
    except (click.ClickException, CkptcheckError) as error:
        return _refused(error, arguments)
    return EXIT_PASS


def _refused(error: click.ClickException | CkptcheckError, arguments: Sequence[str]) -> int:
    if isinstance(error, click.ClickException):
        return _refuse(_worded(error), arguments)
    last_lines = error.last_lines if isinstance(error, RunFailedError) else ""
    is_told = isinstance(error, OutputError) and error.result_is_told
    return _refuse(str(error), arguments, last_lines, to_files=not is_told)


def _worded(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split()).removesuffix(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message} (see '{context.command_path} --help')" if context else message


def _refuse(message: str, arguments: Sequence[str], last_lines: str = "", *, to_files: bool = True) -> int:
    """Say the error on stderr, and as a document wherever one was asked for: none there would be an old one's place."""
    from ckptcheck.reports.page import escaped

    for line in last_lines.splitlines():
        click.echo(f"    {escaped(line)}", err=True)
    click.echo(f"ckptcheck: error: {escaped(message)}", err=True)
    form, reports = _asked(arguments)
    if form != "text" or (reports and to_files):
        _tell(message, arguments, form, reports if to_files else [])
    return EXIT_ERROR


def _tell(message: str, arguments: Sequence[str], form: str, reports: Sequence[tuple[str, str]]) -> None:
    """Write the error as a result to stdout, unless as a text, and to the report files."""
    from ckptcheck.cli.rendering import rendered
    from ckptcheck.cli.streams import write_file, write_out
    from ckptcheck.reports.page import Page
    from ckptcheck.reports.table import REPORTS

    first = next((word for word in arguments if not word.startswith("-")), "")
    command = first if re.fullmatch("[a-z]+", first) else ""
    result = Result(command=command, verdict=Verdict.ERROR, error=message)
    for name, path in reports:
        if name in REPORTS:
            with suppress(OutputError):  # it is this that is told, or there is no place for what is
                write_file(Path(path), rendered((result,), name, Page()))
    if form in REPORTS and form != "text":
        write_out(rendered((result,), form, Page()))


def _asked(arguments: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """The format of stdout, and formats with paths; from the bare words, for they may be what could not be parsed."""
    words = list(arguments)
    own = words[: words.index("--")] if "--" in words else words
    forms, reports = (_values(own, option) for option in ("--format", "--report"))
    pairs = [(name, path) for name, equals, path in (one.partition("=") for one in reports) if equals and path]
    return (forms[-1] if forms else "text"), pairs


def _values(words: Sequence[str], option: str) -> list[str]:
    """The values that an option was given, in their order."""
    return [
        after if word == option else word.partition("=")[2]
        for word, after in pairwise((*words, ""))
        if word == option or word.startswith(f"{option}=")
    ]


def _abandon_stdout() -> None:
    from ckptcheck.cli.streams import abandon_stdout

    abandon_stdout()
