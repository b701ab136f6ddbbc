"""One mutant against the tests that run what it changed, those most likely to see it first."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from tests.mutants.equivalence import is_equivalent
from tests.mutants.forking import Outcome, Server
from tests.mutants.mutant import Mutant
from tests.mutants.reach import Reach, Timed

NEAR: Final = 60
"""Tests of the second round."""
BUDGET_S: Final = 25.0
"""Tests of a mutant take at most so long, as measured without it; those furthest from it are left out."""
LIMIT_FACTOR: Final = 6.0
LIMIT_LEAST_S: Final = 30.0
"""A round may take the measured time times this factor, and at least so long; then it hangs."""

KILLED, TIMED_OUT, SURVIVED, UNREACHED, EQUIVALENT = "killed", "timed out", "survived", "unreached", "equivalent"


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a mutant. `tests` were run, of `reached` that run what changed; `by` names a test that failed."""

    mutant: Mutant
    fate: str
    seconds: float = 0.0
    tests: int = 0
    reached: int = 0
    by: str = ""


def judge(mutant: Mutant, server: Server, reach: Reach, budget_s: float = BUDGET_S) -> Fate:
    """Put the mutant into the server's copy, run tests until one fails, and take it out again."""
    if is_equivalent(mutant.original, mutant.mutated):
        return Fate(mutant, EQUIVALENT)
    reached = reach.running(mutant.path, mutant.lines)
    chosen = affordable(rounds(mutant, reached), budget_s)
    if not chosen:
        return Fate(mutant, UNREACHED)
    path = server.root / mutant.path
    began = time.monotonic()
    ran = 0
    path.write_text(mutant.mutated)
    try:
        for tests in chosen:
            ran += len(tests)
            outcome = _run(server, tests)
            if not outcome.passed:
                fate = TIMED_OUT if outcome.timed_out else KILLED
                return Fate(mutant, fate, time.monotonic() - began, ran, len(reached), _by(outcome))
        return Fate(mutant, SURVIVED, time.monotonic() - began, ran, len(reached))
    finally:
        path.write_text(mutant.original)


def rounds(mutant: Mutant, tests: Sequence[Timed]) -> list[list[Timed]]:
    """The tests in rounds, each a run of pytest that stops at the first failure; in each the cheapest come first.

    First those in files with the name of the mutated one, then the cheapest of its room, then all others.
    """
    room, stem = mutant.path.split("/")[1], PurePosixPath(mutant.path).stem
    tests = sorted(tests, key=lambda one: one.seconds)
    namesakes = [one for one in tests if stem in PurePosixPath(one.file).stem]
    near = [one for one in tests if one.file.split("/")[1] == room and one not in namesakes][:NEAR]
    taken = {*namesakes, *near}
    return [namesakes, near, [one for one in tests if one not in taken]]


def affordable(tests: Sequence[Sequence[Timed]], budget_s: float) -> list[list[Timed]]:
    """Of the rounds those tests that together take no longer than the budget, but one at least."""
    kept: list[list[Timed]] = []
    spent = 0.0
    for one in tests:
        fits = []
        for test in one:
            if spent + test.seconds <= budget_s or not (spent or fits):
                fits.append(test)
                spent += test.seconds
        if fits:
            kept.append(fits)
    return kept


def _run(server: Server, tests: Sequence[Timed]) -> Outcome:
    limit_s = max(LIMIT_LEAST_S, LIMIT_FACTOR * sum(one.seconds for one in tests))
    files = list(dict.fromkeys(one.file for one in tests))
    return server.run(files, [one.name for one in tests], limit_s)


def _by(outcome: Outcome) -> str:
    lines = [line for line in outcome.log.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0].split(" - ")[0].partition(" ")[2] if lines else f"pytest ended with {outcome.code}"


def judge_all(
    mutants: Sequence[Mutant], roots: Sequence[Path], reach: Reach, budget_s: float = BUDGET_S
) -> Iterator[Fate]:
    """The fates, as they come, from several copies of the repository, each with a server of its own."""
    waiting: SimpleQueue[Mutant] = SimpleQueue()
    for one in mutants:
        waiting.put(one)
    fates: SimpleQueue[Fate | BaseException] = SimpleQueue()
    for root in roots:
        Thread(target=_work, args=(root, waiting, fates, lambda *what: judge(*what, reach, budget_s))).start()
    for _ in mutants:
        fate = fates.get()
        if isinstance(fate, BaseException):
            raise fate
        yield fate


def _work(
    root: Path,
    waiting: "SimpleQueue[Mutant]",
    fates: "SimpleQueue[Fate | BaseException]",
    fate_of: Callable[[Mutant, Server], Fate],
) -> None:
    try:
        server = Server(root)
        while True:
            fates.put(fate_of(waiting.get_nowait(), server))
    except Empty:
        server.close()
    except BaseException as error:  # noqa: BLE001  told by the main thread
        fates.put(error)
