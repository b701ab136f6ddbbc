"""The one edge where what goes wrong becomes an exit code and one line on stderr."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import click

from ckptcheck.errors import CkptcheckError, RunFailedError
from ckptcheck.finding import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_PASS, Result, Verdict

_TELLING: Final = frozenset({"-h", "--help", "--version"})


def exit_code_of(run: Callable[[], None], arguments: Sequence[str]) -> int:
    """Call `run` and return the exit code; `arguments` tell whether a refusal is wanted as JSON too."""
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
    except click.ClickException as error:
        return _refuse(_worded(error), arguments)
    except RunFailedError as error:
        return _refuse(str(error), arguments, error.last_lines)
    except CkptcheckError as error:
        return _refuse(str(error), arguments)
    return EXIT_PASS


def _worded(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split()).removesuffix(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message} (see '{context.command_path} --help')" if context else message


def _refuse(message: str, arguments: Sequence[str], last_lines: str = "") -> int:
    from ckptcheck.reports.page import Page, escaped

    for line in last_lines.splitlines():
        click.echo(f"    {escaped(line)}", err=True)
    click.echo(f"ckptcheck: error: {escaped(message)}", err=True)
    if _wants_json(arguments):
        from ckptcheck.cli.streams import write_out
        from ckptcheck.reports import json

        command = next((word for word in arguments if not word.startswith("-")), "")
        write_out(json.render(Result(command=command, verdict=Verdict.ERROR, error=message), Page()))
    return EXIT_ERROR


def _wants_json(arguments: Sequence[str]) -> bool:
    """Tell from the bare words, for they may be what could not be parsed."""
    words = list(arguments)
    own = words[: words.index("--")] if "--" in words else words
    return "--format=json" in own or ("--format", "json") in pairwise(own)


def _abandon_stdout() -> None:
    from ckptcheck.cli.streams import abandon_stdout

    abandon_stdout()
