"""The first line of a report: what the verdict is about, in a phrase."""

from collections.abc import Callable, Mapping
from typing import Final

from ckptcheck.finding import Result, Verdict
from ckptcheck.reports import checked, contents, differences, recorded, words

_OF_COMMAND: Final[Mapping[str, Callable[[Result], str]]] = {
    "inspect": contents.headline,
    "diff": differences.headline,
    "check": checked.headline,
    "record": recorded.headline,
}


def headline(result: Result) -> str:
    """Return the phrase; of an error, its line."""
    if result.verdict is Verdict.ERROR:
        return result.error
    return _OF_COMMAND.get(result.command, words.headline)(result)
