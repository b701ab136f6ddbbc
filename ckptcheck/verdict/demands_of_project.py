"""What the settings of a project demand, command by command: one file serves them all, and none judges every code."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from ckptcheck.config import Demands
from ckptcheck.errors import UsageError
from ckptcheck.rules.stored.stored import Purpose
from ckptcheck.verdict.demanded import ONLY_OF_COMMANDS, codes_of_loads, codes_of_series, codes_of_stored
from ckptcheck.verdict.purpose import AUTO

NEVER_OF_COMMANDS: Final = frozenset({"CK609", "CK613"})
"""Rules of an experiment that two commands give no occasion for."""


def of_check(demands: Demands, *, purpose: str, target: bool, folder: bool) -> tuple[str, ...]:
    """What is demanded of a check for a purpose; some rules are asked with a target only, some of a folder only.

    UsageError for a demand that no command has, and for one that the file itself leaves out.
    """
    codes = codes_of_stored(*(Purpose if purpose == AUTO else (Purpose(purpose),)))
    codes |= codes_of_loads() if target else set()
    codes |= codes_of_series() if folder else set()
    return tuple(one for one, _ in _met(demands, codes))


def of_diff(demands: Demands) -> tuple[str, ...]:
    """What is demanded of a comparison of two checkpoints whose findings gate. UsageError as `of_check`."""
    return tuple(one for one, _ in _met(demands, codes_of_pairs()))


def of_verify(
    demands: Demands, select: Iterable[str], ignore: Iterable[str], *, commands: bool, interrupted: bool = False
) -> tuple[str, ...]:
    """What is demanded of an experiment that judges by these codes, on a target or on commands.

    A beginning stands for the codes that such an experiment can judge. UsageError as `of_check`, and for a demand that
    the command line leaves out.
    """
    select, ignore = tuple(select), tuple(ignore)
    codes = codes_of_runs() - (NEVER_OF_COMMANDS if commands else ONLY_OF_COMMANDS)
    codes -= ONLY_OF_COMMANDS if not interrupted else set()
    found: dict[str, None] = {}
    for one, meant in _met(demands, codes):
        in_force = [code for code in meant if _is_chosen(code, select, ignore)]
        if not in_force:
            left = [code for code in meant if code.startswith(tuple(select))]
            option = f"--ignore {','.join(ignore)}" if left else f"--select {','.join(select)}"
            raise UsageError(f"{demands.path}: require {one}: {option} leaves it out: take one of them back")
        found |= dict.fromkeys([one] if one in codes else in_force)
    return tuple(found)


def _met(demands: Demands, codes: set[str]) -> list[tuple[str, list[str]]]:
    """The demands that such codes can meet, each with these codes; UsageError for what no command can."""
    found = []
    for one in demands.require:
        meant = _chosen(demands, one, codes)
        if meant:
            found.append((one, meant))
        else:
            _check_elsewhere(demands, one)
    return found


def _chosen(demands: Demands, prefix: str, codes: Iterable[str]) -> list[str]:
    """The codes with this beginning that the file neither ignores nor leaves unselected."""
    return sorted(one for one in codes if one.startswith(prefix) and _is_chosen(one, demands.select, demands.ignore))


def _is_chosen(code: str, select: tuple[str, ...], ignore: tuple[str, ...]) -> bool:
    return code.startswith(select) and not (ignore and code.startswith(ignore))


def _check_elsewhere(demands: Demands, one: str) -> None:
    """Raise UsageError where no other command can meet a demand."""
    every = codes_of_stored(*Purpose) | codes_of_loads() | codes_of_series() | codes_of_pairs() | codes_of_runs()
    if _chosen(demands, one, every):
        return
    where = f"{demands.path}: require {one}"
    if not any(code.startswith(one) for code in every):
        near = get_close_matches(one, sorted(every), 1, 0.5)
        raise UsageError(f"{where}: no command has such a rule" + (f"; did you mean {near[0]}?" if near else ""))
    left = [code for code in every if code.startswith(one) and code.startswith(demands.select)]
    name, given = ("ignore", demands.ignore) if left else ("select", demands.select)
    raise UsageError(f"{where}: {name} {','.join(given)} in the same file leaves it out: take one of them back")


def codes_of_runs() -> set[str]:
    """The codes of an experiment."""
    from ckptcheck.rules.runs.table import RUN_RULES

    return {one.code for one in RUN_RULES}


def codes_of_pairs() -> set[str]:
    """The codes of two checkpoints, whose findings gate."""
    from ckptcheck.rules import files
    from ckptcheck.rules.pairs.table import PAIR_RULES
    from ckptcheck.verdict.both_sides import NUMBERS

    return {*NUMBERS, *(one.code for one in files.RULES), *(one.code for one in PAIR_RULES)}
