"""What came of the mutants: a table by room, and each survivor with its place and its change."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tests.mutants.accepted import accepted
from tests.mutants.running import EQUIVALENT, KILLED, SURVIVED, TIMED_OUT, UNREACHED, Fate

COLUMNS = (KILLED, TIMED_OUT, SURVIVED, UNREACHED, "accepted", EQUIVALENT)


def kind(one: Fate) -> str:
    """The column that a fate counts in: a survivor that is the same program for a told reason is equivalent."""
    entry = accepted(one.mutant) if one.fate in (SURVIVED, UNREACHED) else None
    return one.fate if entry is None else EQUIVALENT if entry.is_equal else "accepted"


def score(counts: Counter[str]) -> float:
    """Killed, hung ones among them, of all that are not the same program."""
    killed = counts[KILLED] + counts[TIMED_OUT]
    judged = sum(counts[one] for one in COLUMNS) - counts[EQUIVALENT]
    return killed / judged if judged else 1.0


def report(fates: Sequence[Fate]) -> Iterator[str]:
    """The lines of a report."""
    yield f"{'':12}" + "".join(f"{one:>12}" for one in (*COLUMNS, "score"))
    for room in sorted({one.mutant.package for one in fates}):
        yield _row(room, [one for one in fates if one.mutant.package == room])
    yield _row("all", fates)
    for title, wanted in (("survived", SURVIVED), ("run by no test", UNREACHED)):
        found = [one for one in fates if kind(one) == wanted]
        if found:
            yield f"\n{title}: {len(found)}"
        for one in found:
            yield from _survivor(one)


def _row(name: str, fates: Iterable[Fate]) -> str:
    counts = Counter(kind(one) for one in fates)
    return f"{name:12}" + "".join(f"{counts[one]:>12}" for one in COLUMNS) + f"{score(counts):>12.1%}"


def _survivor(one: Fate) -> Iterator[str]:
    yield f"\n{one.mutant.place}  {one.mutant.name}  ({one.tests} of {one.reached} tests)"
    yield from (f"    {line}" for line in one.mutant.diff.splitlines())
    if one.mutant.why:
        yield f"    why it matters: {one.mutant.why}"
