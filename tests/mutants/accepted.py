"""Survivors that are kept as they are, each with the reason: equal programs that no rule tells, or not worth a test."""

from dataclasses import dataclass
from typing import Final

from tests.mutants.mutant import Mutant


@dataclass(frozen=True, slots=True)
class Accepted:
    """A mutant by its file and the lines that it puts in, stripped. `is_equal` says that no input can tell it."""

    path: str
    lines: tuple[str, ...]
    reason: str
    is_equal: bool = True


ACCEPTED: Final[tuple[Accepted, ...]] = (
    Accepted(
        "ckptcheck/rules/runs/trajectory.py",
        ("off = one.right.value - one.left.value if one.left or one.right else 0  # type: ignore[operator]",),
        "the counters were chosen as those that both sides have: the condition is there for the type checker",
    ),
    Accepted(
        "ckptcheck/comparison/streams.py",
        ("if share_bytes > RANGE_BYTES or len(share) == MAX_SHARE:",),
        "the size of a piece of work, to which what comes of it is blind",
    ),
    Accepted(
        "ckptcheck/comparison/accumulation.py",
        ("if _PLAIN_LEAST <= plain < _PLAIN_MOST:",),
        "at the bound itself the slower way gives the same sum",
    ),
    Accepted(
        "ckptcheck/experiment/load_by_torch.py",
        ("return value if isinstance(value, list | tuple) and len(value) < 65 else ()",),
        "how long a list may be to be searched: no list of that length means anything else",
        is_equal=False,
    ),
    Accepted(
        "ckptcheck/rules/series/newest.py",
        ('return f"{seconds / 3599:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.0f} minutes"',),
        "a message that rounds to a tenth of an hour",
        is_equal=False,
    ),
    Accepted(
        "ckptcheck/experiment/demo_targets.py",
        ("loss: torch.Tensor = (model(inputs) + inputs.sum(1, keepdim=True)).square().mean()",),
        "an example learns another sum: what it shows is the same",
        is_equal=False,
    ),
    Accepted(
        "ckptcheck/rules/loads/numbers.py",
        ("return 0 < ITEMSIZE_BYTES.get(one.dtype, -1) < ITEMSIZE_BYTES.get(other.dtype, 0)",),
        "an unknown dtype is no narrower one, whether its size counts as 0 or as less",
    ),
    Accepted(
        "ckptcheck/rules/stored/aliases.py",
        ("if held[0] is None or held[1] is None or other.name in held[1].aliases:",),
        "a name that is an alias of another parameter is no parameter of its own: one of the two is None before",
    ),
    Accepted(
        "ckptcheck/rules/series/counters.py",
        ("elif since is not None and position > -1 and not told:",),
        "with position 0 `since` would be an earlier checkpoint of the very same step, which a run has once",
    ),
    Accepted(
        "ckptcheck/rules/stored/schedulers.py",
        ("if match is None or depth == -1:",),
        "how deep schedules within schedules are followed: none is nested eight times",
        is_equal=False,
    ),
    Accepted(
        "ckptcheck/comparison/crew.py",
        ("raise troubles[-1]",),
        "which of several troubles that threads met side by side is raised is a matter of chance",
        is_equal=False,
    ),
    Accepted(
        "ckptcheck/comparison/contracts.py",
        ("rows = [self._rows.get((one.optimizer, name, key)) for key in states[-1] if key in states[1]]",),
        "a key that only the right side has was added, and the next line asks for what changed",
    ),
    Accepted(
        "ckptcheck/comparison/surveying.py",
        ("return second in self._zeros and moment.zeros <= moment.numel",),
        "a first moment that is zero throughout has nothing that could be lost: the look finds nothing",
    ),
    Accepted(
        "ckptcheck/comparison/series.py",
        ("MAX_BYTES: Final = 2 << 31",),
        "a bound on what a comparison costs",
        is_equal=False,
    ),
    Accepted(
        "ckptcheck/comparison/moves.py",
        ("chosen, spent_bytes, left_out = [], 1, 0",),
        "one byte of a bound on what a comparison costs",
        is_equal=False,
    ),
    Accepted(
        "ckptcheck/comparison/unsaid.py",
        ("self._last = max(trace.steps, default=-1) if script else None",),
        "of a trace without steps no step is asked about, and none is numbered 0",
    ),
    Accepted(
        "ckptcheck/comparison/plain.py",
        ("if items[1] and items[1]:",),
        "no items on the left are fewer than some on the right: both ways say that they differ",
    ),
    Accepted(
        "ckptcheck/comparison/ulp.py",
        ("_TO_EXPONENT_1: Final = np.float32(2.0**-127)",),
        "a distance goes into its bucket and out of it by the same factor; 1, which becomes subnormal, stays exact",
    ),
    Accepted(
        "ckptcheck/comparison/streams.py",
        ("work_off(range(len(questions)), answer, 0)",),
        "fewer than one thread are this thread alone",
    ),
    Accepted(
        "ckptcheck/comparison/streams.py",
        ("return thread_count() if total_bytes > max(ALONE_BYTES, SMALL_BYTES * tensors) else 0",),
        "fewer than one thread are this thread alone",
    ),
    Accepted(
        "ckptcheck/comparison/moves.py",
        ("work_off(list(spots), take, thread_count() if len(spots) > 1 else 0)",),
        "fewer than one thread are this thread alone",
    ),
    Accepted(
        "ckptcheck/comparison/traces.py",
        ("first = first if first is not None else max(whole[0][:1] + whole[1][:1], default=2)",),
        "where neither trace has a whole step none is compared, whichever is the first",
    ),
    Accepted(
        "ckptcheck/comparison/moves.py",
        ('end = name.rfind(".", 1, end)',),
        "no name of a parameter begins with a dot",
    ),
    Accepted(
        "ckptcheck/comparison/surveying.py",
        ("view = worker.views(nbytes, 1)[0] if worker is not None else memoryview(bytearray(nbytes))",),
        "the second of two buffers is not looked at",
    ),
    Accepted(
        "ckptcheck/rules/stored/counters.py",
        ("[one for one in counted if _is_count(one.value) and (one.value or -1) > recorded],",),
        "a counter of 0 is ahead of no recorded step, as -1 is",
    ),
    Accepted(
        "ckptcheck/rules/loads/numbers.py",
        ("return 0 < ITEMSIZE_BYTES.get(one.dtype, 0) < ITEMSIZE_BYTES.get(other.dtype, -1)",),
        "nothing above 0 is less than the size of an unknown dtype, whether that counts as 0 or as less",
    ),
    Accepted(
        "ckptcheck/rules/stored/schedulers.py",
        ('inner = tuple(_scheduler(f"{front}_schedulers[{place}]", within[place], depth + 1) for place in places)',),
        "how deep schedules within schedules are followed: none is nested eight times",
        is_equal=False,
    ),
    Accepted(
        "ckptcheck/comparison/moves.py",
        ("except CosmicRayTestingException:",),
        "the hash that is taken where xxhash is not installed, which it is where the suite runs",
        is_equal=False,
    ),
)


def accepted(mutant: Mutant) -> Accepted | None:
    """The entry for a mutant, if there is one."""
    put_in = [_bare(line[1:]) for line in mutant.diff.splitlines() if line.startswith("+")]
    alike = (one for one in ACCEPTED if one.path == mutant.path and [_bare(line) for line in one.lines] == put_in)
    return next(alike, None)


def _bare(line: str) -> str:
    """A line without blanks, of which a tool puts in more than a formatter leaves."""
    return "".join(line.split())
