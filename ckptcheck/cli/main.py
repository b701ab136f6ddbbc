"""The door: the table of commands, each imported when it is asked for, and the way out."""

import signal
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import Any, Final, NoReturn

import click

from ckptcheck import __version__
from ckptcheck.cli.completion import answer_shell
from ckptcheck.cli.edge import exit_code_of
from ckptcheck.cli.orphans import orphans_ended
from ckptcheck.cli.streams import abandon_stderr
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
    "probe": "ckptcheck.cli.probe",
    "explain": "ckptcheck.cli.explain",
    "config": "ckptcheck.cli.config",
    "report": "ckptcheck.cli.report",
}
"""Command by name: the module that holds it under the name `command`."""
CHECKPOINTS: Final = ("inspect", "check", "diff")
"""Commands that look into checkpoints."""
BESIDE: Final = ("explain", "config", "report")
"""Commands that read neither a training nor a checkpoint; the others run trainings."""
ENDING: Final = tuple(
    getattr(signal, name)
    for name in (
        "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGXCPU",
    )
    if hasattr(signal, name)
)  # fmt: skip
"""Signals that ask a process to end, as schedulers and time limits send them."""
_AS_EVER: Final = warnings.formatwarning
EXAMPLES: Final = """Examples:

\b
  ckptcheck demo
  ckptcheck verify --run "python train.py --out {dir}" \\
                   --resume "python train.py --out {dir} --resume {ckpt}"
  ckptcheck verify my_run.py
  ckptcheck check checkpoint-500

Exit codes: 0 pass, 1 fail, 2 usage or tool error, 3 inconclusive, 130 interrupted.
"""


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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List what runs trainings, what looks into checkpoints, then the rest."""
        training = [name for name in COMMANDS if name not in (*CHECKPOINTS, *BESIDE)]
        sections = {"Commands that train": training, "Commands for checkpoints": CHECKPOINTS, "Other commands": BESIDE}
        for title, names in sections.items():
            listed = [name for name in COMMANDS if name in names]
            with formatter.section(title):
                formatter.write_dl([(name, _short_help(self, ctx, name)) for name in listed])

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        """Run the command line and exit; unlike click's own, every refusal is one line and exit code 2."""
        arguments = list(sys.argv[1:] if args is None else args)
        context_settings = {key: value for key, value in extra.items() if key == "obj"}

        def run() -> None:
            with self.make_context("ckptcheck", list(arguments), **context_settings) as context:
                self.invoke(context)

        sys.exit(exit_code_of(run, arguments))


def _short_help(door: Door, context: click.Context, name: str) -> str:
    command = door.get_command(context, name)
    return command.get_short_help_str(80) if command is not None else ""


@click.group(
    cls=Door, invoke_without_command=True, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="ckptcheck", message="%(prog)s %(version)s")
@click.pass_context
def door(context: click.Context) -> None:
    """Does a stopped PyTorch training run, once resumed, go on exactly as if it had never stopped?"""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        raise click.UsageError("no command given", context)


def _as_a_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning of ours as everything else that we say; others as ever."""
    if category.__module__.startswith("ckptcheck."):
        return f"ckptcheck: note: {message}\n"
    return _AS_EVER(message, category, filename, lineno, line)


def main() -> NoReturn:
    """Be the console script. A bug of ours crashes with its traceback, and not with the exit code of a failed check."""
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:  # a cancelled pipeline cleans up as Ctrl-C does
            signal.signal(number, signal.default_int_handler)
    warnings.formatwarning = _as_a_line
    answer_shell(door)
    try:
        with orphans_ended() if sys.argv[1:2] == ["verify"] else nullcontext():
            door.main()
    except Exception:  # noqa: BLE001 - nothing is swallowed: only the exit code differs from python's own
        try:
            traceback.print_exc()
        except OSError:  # stderr cannot be written either
            abandon_stderr()
        sys.exit(EXIT_ERROR)
