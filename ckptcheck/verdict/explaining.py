"""The cards of rules, with the commands that judge them."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any

from ckptcheck.errors import UsageError
from ckptcheck.finding import Json, Result, Verdict
from ckptcheck.rules.card import card_of
from ckptcheck.rules.rule import Rule


def explain(asked: str | None = None) -> Result:
    """The cards of rules: of the one with this code or name, of a family by the beginning of its codes, or of all.

    The result's part "cards" has one entry a rule: its code, name, severity, the parts of its card, the commands that
    judge it and public reports; its part "asked" is the code or the beginning, null for all.
    Raises UsageError for what is no code, no beginning of one and no name, with the nearest one.
    """
    from ckptcheck.rules.table import BY_CODE

    wanted = _code_of(asked, BY_CODE) if asked is not None else None
    told = [one for code, one in BY_CODE.items() if wanted is None or code.startswith(wanted)]
    judges = _judges()
    return Result("explain", Verdict.PASS, parts={"asked": wanted, "cards": [_row(one, judges) for one in told]})


def _code_of(asked: str, rules: Mapping[str, Rule[Any]]) -> str:
    """The code, or the beginning of codes, that was asked for by either or by a rule's name."""
    code, name = asked.strip().upper(), asked.strip().lower()
    if re.fullmatch(r"CK[0-9]*", code) and any(one.startswith(code) for one in rules):
        return code
    names = {rule.name: rule.code for rule in rules.values()}
    if name in names:
        return names[name]
    near = get_close_matches(code, rules, 1, 0.6) or get_close_matches(name, names, 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else "without a code, explain lists them all"
    raise UsageError(f"there is no rule {asked!r}; {hint}")


def _row(rule: Rule[Any], judges: Mapping[str, set[str]]) -> Json:
    frame = {"code": rule.code, "name": rule.name, "severity": rule.severity.value}
    card = asdict(card_of(rule))
    return {
        **frame,
        **{part: said for part, said in card.items() if part != "reports"},
        "commands": [command for command, codes in judges.items() if rule.code in codes],
        "reports": [dict(one) for one in card["reports"]],
    }


def _judges() -> dict[str, set[str]]:
    """The codes that each command judges, where it has what it takes."""
    from ckptcheck.rules.contracts.table import CONTRACT_RULES
    from ckptcheck.rules.runs.table import RUN_RULES
    from ckptcheck.rules.stored.stored import Purpose
    from ckptcheck.verdict.demanded import ONLY_OF_COMMANDS, codes_of_loads, codes_of_series, codes_of_stored
    from ckptcheck.verdict.demands_of_project import codes_of_pairs, codes_of_runs
    from ckptcheck.verdict.loads_seen import codes_of_loads_seen

    of_runs, seen = codes_of_runs(), codes_of_loads_seen()
    told_by_more_runs = {one.code for one in RUN_RULES if {"breaches", "saving"} & {*one.needs}}
    stored = codes_of_stored(*Purpose) | codes_of_series()
    return {
        "verify": of_runs | seen,
        "compare": of_runs - told_by_more_runs - ONLY_OF_COMMANDS,
        "record": seen,
        "check": stored,
        "check --target": codes_of_loads() - stored,
        "diff --gate findings": codes_of_pairs(),
        "probe": {one.code for one in CONTRACT_RULES},
    }
