"""Cases for the rules, from the traces of commands: one for each rank of a resumed run."""

import re
from dataclasses import dataclass, replace
from typing import Final

from ckptcheck.comparison.bindings import bindings
from ckptcheck.comparison.drawing import idle_generators, with_draws_before, without_generators
from ckptcheck.comparison.non_finite import non_finite
from ckptcheck.comparison.origins import Origins
from ckptcheck.comparison.rounding_gradients import rounding_gradients
from ckptcheck.comparison.states import StateDiff
from ckptcheck.comparison.traces import TraceDiff, compare_traces
from ckptcheck.experiment.commands.recorded import Recorded
from ckptcheck.experiment.noise import Noise
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.course import Course, Interruption
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import LOAD
from ckptcheck.trace.states import replaced_by_load, state_at
from ckptcheck.verdict.asking import Policy
from ckptcheck.verdict.cases import judged_part, loaded_step, within_tolerance, without_unseen_inputs
from ckptcheck.verdict.scripts.placing import Placed, built_of, last_step, load_of, moved, place, unseeded
from ckptcheck.verdict.scripts.ranks import Crew

ENDED_WELL: Final = frozenset({"ended", "stopped"})
"""How a run may end without anything being wrong: by itself, or stopped by us after the last step asked for."""
LAST_LINES: Final = 6
"""Lines of a resumed run that failed which are shown."""
ERROR: Final = re.compile(r"(\[?rank\d+\]?:? *)?[\w.]+(Error|Exception|Interrupt|Exit)\b")
"""How a line begins that names what was raised."""
FOLLOWING: Final = ("ChildFailedError", "closed by peer")
"""What launchers and other ranks say where a process has failed."""
HERE: Final = ("cpu", "cpu")
"""Commands choose their devices themselves; both runs are taken to be on the same."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """How the run that is resumed was stopped.

    Attributes:
        after: the step after which its folder was copied, or the signal was sent.
        newest: the step of the newest checkpoint in the folder; None where nobody knows.
        saved: the steps after which a checkpoint was written into it.
        whole: how the uninterrupted run ended.
        resumed: how the resumed run ended.
        interruption: what a signal left, where it was one that stopped it.
        checkpoint: the path of the newest checkpoint in the folder; "" where there is none.
    """

    after: int
    newest: int | None
    saved: frozenset[int]
    whole: Recorded
    resumed: Recorded
    interruption: Interruption | None = None
    checkpoint: str = ""

    @property
    def expected(self) -> int:
        """The step after which a resumed run should go on."""
        return self.newest if self.newest is not None else self.after

    @property
    def raised(self) -> str | None:
        """What the resumed run failed with, where the uninterrupted one did not; None where it ended well."""
        if self.resumed.status in ENDED_WELL:
            return None
        said = next(iter(reversed(told_of(self.resumed.last_lines))), "")
        error = self.resumed.error or f"it {self.resumed.status}"
        return f"{error}: {said.strip()}" if said and said.strip() not in error else error

    @property
    def said_last(self) -> tuple[str, ...]:
        """The last lines of a resumed run that failed where the uninterrupted one did not."""
        return told_of(self.resumed.last_lines)[-LAST_LINES:] if self.raised is not None else ()


def told_of(last_lines: str) -> tuple[str, ...]:
    """The last lines of a run up to the one that names its error; all of them where none does.

    What a launcher says of the process that failed comes after that, and says less.
    """
    lines = [line.rstrip() for line in last_lines.splitlines() if any(map(str.isalpha, line))]
    errors = [place for place, line in enumerate(lines) if ERROR.match(line)]
    own = [place for place in errors if not any(said in lines[place] for said in FOLLOWING)]
    last = (own or errors or [len(lines) - 1])[-1]
    return tuple(lines[: last + 1])


def case_of(crew: Crew, stopped: Stopped, noise: Noise, policy: Policy) -> tuple[Case, Placed | None]:
    """The case of one rank, and where its resumed trace was placed; None where the resumed run made no step."""
    if crew.resumed is None:
        missing = crew.rank if stopped.resumed.traces else None
        course = Course(stopped.after, None, stopped.newest, last_step(crew.reference), rank=missing)
        return _without_steps(stopped, course), None
    placed = place(crew.source, crew.resumed, stopped.expected, crew.reference)
    case = _placed_case(crew, stopped, placed, noise, policy)
    if placed.by_content and placed.step != stopped.expected and not _goes_on(case):
        # The content is that of another step, and what follows is not: the wrong values came into the right place.
        told = moved(placed, stopped.expected)
        other = _placed_case(crew, stopped, told, noise, policy)
        placed.trace.close()
        return other, told
    return case, placed


def _goes_on(case: Case) -> bool:
    """Whether what follows the load is as it was, whichever step that is."""
    return case.first is None and case.raised is None


def _without_steps(stopped: Stopped, course: Course) -> Case:
    return Case(
        stopped.resumed.name,
        stopped.after,
        raised=stopped.raised,
        last_lines=stopped.said_last,
        course=course,
        interruption=stopped.interruption,
        commands=True,
    )


def _placed_case(crew: Crew, stopped: Stopped, placed: Placed, noise: Noise, policy: Policy) -> Case:
    step, right = placed.step, placed.trace
    whole = compare_traces(crew.reference, right, first=step + 1, every=policy.tolerant)
    whole = with_draws_before(whole, crew.reference)
    load = _load(crew, right, step, whole.drawn)
    whole = without_unseen_inputs(whole, load, crew.reference, right)
    whole = _with_steps_at_the_end(whole, crew.reference, right, stopped)
    trajectory = judged_part(whole, noise, policy, HERE)
    if policy.tolerant:
        trajectory = within_tolerance(trajectory, set(), policy)
    idle = idle_generators(trajectory, crew.reference, right, whole=noise.first is None)
    if noise.first is None:  # no equal run was moved by what it draws from a generator that nothing seeds
        unseeded_ones = [item.name for item in noise.floor if item.kind == "rng" and item.name in whole.drawn]
        idle = {**dict.fromkeys(unseeded_ones, step + 1), **idle}
    trajectory = without_generators(trajectory, idle)
    built = built_of(crew.reference)
    rounding = rounding_gradients((crew.reference, right), step) if whole.first is not None else frozenset()
    case = Case(
        run=stopped.resumed.name,
        step=step,
        load=load,
        bound=bindings(load, built) if load is not None else (),
        built=built,
        trajectory=trajectory,
        origins=Origins(crew.reference),
        rounding=tuple(sorted(rounding & {one.item.name for one in trajectory.differences})),
        replaced=replaced_by_load(right, step),
        non_finite=non_finite(crew.reference, right, whole.steps),
        raised=stopped.raised,
        last_lines=stopped.said_last,
        raised_step=_raised_step(right, stopped),
        whole=noise.first is None,
        seeded=noise.first is None or noise.only_numeric,
        idle_generators=idle,
        course=_course(crew, stopped, placed),
        interruption=_interruption(stopped, placed),
        commands=True,
    )
    case = _with_modes(case, crew)
    return replace(case, other_step=loaded_step(case))


def _load(crew: Crew, right: Trace, step: int, drawn: frozenset[str]) -> StateDiff | None:
    """What was saved by the run that was resumed; where it was ended before its next step, by the uninterrupted one.

    A generator that nothing seeds and nothing draws from differs in every process, and says nothing.
    """
    load = load_of(crew.source, right, step) or load_of(crew.reference, right, step)
    idle = unseeded(crew.reference, crew.repeats) - drawn
    if load is None or not idle:
        return load
    return replace(load, entries=tuple(one for one in load.entries if one.section != "rng" or one.name not in idle))


def _with_steps_at_the_end(diff: TraceDiff, reference: Trace, right: Trace, stopped: Stopped) -> TraceDiff:
    """With the steps that only one run made after the last one of the other, where it ended by itself."""
    lasts = last_step(reference), last_step(right)
    left_only = range(lasts[1] + 1, lasts[0] + 1) if stopped.resumed.status == "ended" else ()
    right_only = range(lasts[0] + 1, lasts[1] + 1) if stopped.whole.status == "ended" else ()
    return replace(
        diff,
        left_only=(*diff.left_only, *left_only),
        right_only=(*diff.right_only, *right_only),
    )


def _raised_step(right: Trace, stopped: Stopped) -> int | None:
    return last_step(right) + 1 if stopped.raised is not None and right.steps else None


def _interruption(stopped: Stopped, placed: Placed) -> Interruption | None:
    """What the signal left, now that it is seen after which step the resumed run goes on."""
    if stopped.interruption is None or not (placed.by_content or placed.from_start):
        return stopped.interruption
    return replace(stopped.interruption, kept=0 if placed.from_start else placed.alignment.step)


def _course(crew: Crew, stopped: Stopped, placed: Placed) -> Course:
    # A signal ends a run some time after its step, and what it saves then is that of a later one.
    after = stopped.after if stopped.interruption is None else max(stopped.after, placed.step)
    return Course(
        copied_after=after,
        went_on_after=placed.step,
        # What is written in the background may be seen to come a step late: only a checkpoint of the step that the
        # resumed run went on from shows that there were two.
        newest=stopped.newest if placed.step in stopped.saved else None,
        last=last_step(crew.reference),
        from_start=placed.from_start,
    )


def _with_modes(case: Case, crew: Crew) -> Case:
    """With the modes in which the first run began, where nothing else that was loaded explains what follows.

    A run may change modes on its way, so that those of its begin prove nothing where something else differs.
    """
    first, load = case.first, case.load
    if load is None or first is None or first.step != case.step + 1 or first.stage not in ("buffers", "loss", "grad"):
        return case
    drawn = (case.trajectory.drawn if case.trajectory is not None else frozenset()) - case.idle_generators.keys()
    if any(one.section != "rng" or one.name in drawn for one in load.entries):
        return case
    begin = next((step for step, moment in crew.reference.moments if moment == LOAD), None)
    if begin is None:
        return case
    modes = state_at(crew.reference, begin, LOAD).modes
    return replace(case, load=replace(load, left=replace(load.left, modes=modes)))
