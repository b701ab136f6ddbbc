"""Completion in a shell: the script that a shell evaluates once, and the answers to it."""

import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

VARIABLE: Final = "_CKPTCHECK_COMPLETE"
"""By it a shell asks, as click has it: "bash_source" for the script, "bash_complete" for an answer."""


def answer_shell(door: "click.Command") -> None:
    """Answer a shell that asks for its script or for completions, and exit; return where none does."""
    asked = os.environ.get(VARIABLE)
    if not asked:
        return
    from click.shell_completion import shell_complete

    sys.exit(shell_complete(door, {}, "ckptcheck", VARIABLE, asked))


def files(context: "click.Context", parameter: "click.Parameter", begun: str) -> "list[CompletionItem]":
    """Have the shell complete names of files, for a target that is a file."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(begun, type="file")]


def formats(context: "click.Context", parameter: "click.Parameter", begun: str) -> "list[CompletionItem]":
    """The names of report formats."""
    from click.shell_completion import CompletionItem

    from ckptcheck.cli.kinds import FORMATS

    return [CompletionItem(one) for one in FORMATS if one.startswith(begun)]
