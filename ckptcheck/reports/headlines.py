"""The first line of a report: what the verdict is about, in a phrase."""

from collections.abc import Callable, Mapping
from typing import Final

from ckptcheck.finding import Result, Verdict
from ckptcheck.reports import accepted, cards, checked, configured, contents, differences, probed, recorded, words

_OF_COMMAND: Final[Mapping[str, Callable[[Result], str]]] = {
    "inspect": contents.headline,
    "diff": differences.headline,
    "check": checked.headline,
    "record": recorded.headline,
    "probe": probed.headline,
    "explain": cards.headline,
    "config": configured.headline,
}


def headline(result: Result) -> str:
    """Return the phrase; of an error, its line."""
    if result.verdict is Verdict.ERROR:
        return result.error
    if result.command == "verify" and (said := demanded(result)):
        return said
    told = accepted.in_short(result)
    if told and accepted.is_by_its_cause(result):
        return told
    rest = _OF_COMMAND.get(result.command, words.headline)(accepted.standing(result) if told else result)
    if told and result.verdict is Verdict.PASS:
        return f"{told}; beside that: {rest}"
    return f"{rest}; {told}" if told else rest


def demanded(result: Result) -> str:
    """Return what was demanded and not judged, where that alone made a fail, the first with its reason; else ""."""
    required = result.parts.get("required")
    fails_otherwise = result.cause is not None and result.cause.code not in ("CK611", "CK501")
    if result.verdict is not Verdict.FAIL or not isinstance(required, list) or not required or fails_otherwise:
        return ""
    reason = next((one.reason for one in result.not_judged if one.code == required[0]), "")
    rest = f", and {len(required) - 1} more" if len(required) > 1 else ""
    return f"demanded and not judged: {words.scalar(required[0])}{rest}: {reason}"
