"""The door: the table of commands, each imported when it is asked for, and the way out."""

import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NoReturn

import click

from ckptcheck import __version__
from ckptcheck.cli.edge import exit_code_of
from ckptcheck.finding import EXIT_ERROR

COMMANDS: Final[Mapping[str, str]] = {
    "demo": "ckptcheck.cli.demo",
    "verify": "ckptcheck.cli.verify",
    "save": "ckptcheck.cli.save",
    "resume": "ckptcheck.cli.resume",
    "record": "ckptcheck.cli.record",
    "compare": "ckptcheck.cli.compare",
    "inspect": "ckptcheck.cli.inspect",
    "check": "ckptcheck.cli.check",
    "diff": "ckptcheck.cli.diff",
}
"""Command by name: the module that holds it under the name `command`."""


class Door(click.Group):
    """The group of all commands. `obj` of its context may hold other verbs than the library's own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the order in which one meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and return the command; None for a name that is none."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name]).command
        return command

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        """Run the command line and exit; unlike click's own, every refusal is one line and exit code 2."""
        arguments = list(sys.argv[1:] if args is None else args)
        context_settings = {key: value for key, value in extra.items() if key == "obj"}

        def run() -> None:
            with self.make_context("ckptcheck", list(arguments), **context_settings) as context:
                self.invoke(context)

        sys.exit(exit_code_of(run, arguments))


@click.group(cls=Door, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ckptcheck", message="%(prog)s %(version)s")
@click.pass_context
def door(context: click.Context) -> None:
    """Does a stopped PyTorch training run, once resumed, go on exactly as if it had never stopped?

    Exit codes: 0 pass, 1 fail, 2 usage or tool error, 3 inconclusive, 130 interrupted.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        raise click.UsageError("no command given", context)


def main() -> NoReturn:
    """Be the console script. A bug of ours crashes with its traceback, and not with the exit code of a failed check."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # a cancelled pipeline cleans up as Ctrl-C does
            signal.signal(number, signal.default_int_handler)
    try:
        door.main()
    except Exception:  # noqa: BLE001 - nothing is swallowed: only the exit code differs from python's own
        traceback.print_exc()
        sys.exit(EXIT_ERROR)
