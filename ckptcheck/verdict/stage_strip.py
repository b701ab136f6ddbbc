"""Which stages agree and which differ, at the load and in each step: what a reviewer looks at first.

A run's part is `{"run", "step", "load", "steps", "shown", "stages", "open", "raised_step"}`. `load` has a row a section
of the training state, null where no load was seen. `shown` is the first step that differs, else the first one compared.
`stages` has a row a stage in causal order: how many items both sides sampled in that step (0: there is nothing of the
kind), and how many `differing` in each of `steps`, null where none ever does. Of steps after the first two that differ
64 of a kind are counted at most. `open` says from where on equal runs differ too, and which stages that leaves open.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ckptcheck.comparison.states import StateDiff
from ckptcheck.experiment.noise import NUMERIC, Noise
from ckptcheck.finding import Json
from ckptcheck.rules.runs.case import Case
from ckptcheck.state.stages import LOAD, STAGES
from ckptcheck.state.training_state import SECTIONS, TrainingState
from ckptcheck.trace.items import STEP
from ckptcheck.trace.reading import Trace


@dataclass(frozen=True, slots=True)
class Sight:
    """A resumed run beside the one that it should reproduce.

    `left` and `right` are their traces, None where a run recorded nothing; `noise` is how far equal runs agree, None
    where none were made. `contracts` are patterns of frozen parameters, `rank` is given where there are several.
    """

    case: Case
    left: Trace | None
    right: Trace | None
    noise: Noise | None = None
    contracts: Mapping[str, str] | None = None
    rank: int | None = None

    @property
    def run(self) -> str:
        """The run as a result calls it."""
        return self.case.run if self.rank is None else f"{self.case.run}, rank {self.rank}"


def stage_strip(sight: Sight, numeric_floor: bool = False) -> dict[str, Json]:
    """The part of one resumed run; `numeric_floor` says that numeric differences were held against the floor."""
    case = sight.case
    steps = case.trajectory.steps if case.trajectory is not None else ()
    shown = case.first.step if case.first is not None else steps[0] if steps else None
    sampled = _sampled(sight, shown)
    apart = _apart(case)
    return {
        "run": sight.run,
        "step": case.step,
        "load": [*_sections(case.load)] if case.load is not None else None,
        "steps": [*steps],
        "shown": shown,
        "stages": [
            {
                "stage": stage,
                "compared": sampled[stage],
                "differing": [apart[stage][step] for step in steps] if apart[stage] else None,
            }
            for stage in STAGES
            if stage != LOAD
        ],
        "open": _open(sight.noise, numeric_floor),
        "raised_step": case.raised_step,
    }


def _sampled(sight: Sight, step: int | None) -> Counter[str]:
    """By stage, how many items both sides sampled in a step; those of the side that has fewer."""
    sides = []
    for trace in (sight.left, sight.right):
        counts: Counter[str] = Counter()
        if trace is not None and step is not None and (step, STEP) in trace.moments:
            whats = trace.columns(step, STEP)[0]
            counts.update(trace.table[int(what)][0].stage for what in whats.split(",") if what)
        sides.append(counts)
    return sides[0] & sides[1]


def _apart(case: Case) -> dict[str, Counter[int]]:
    """By stage and step, how many items differ."""
    found: dict[str, Counter[int]] = {stage: Counter() for stage in STAGES}
    for one in case.trajectory.differences if case.trajectory is not None else ():
        found[one.stage][one.step] += 1
    return found


def _sections(load: StateDiff) -> Iterator[dict[str, Json]]:
    """How many entries of each section of the training state were compared right after the load, and differ."""
    sizes = [_sizes(side) for side in (load.left, load.right)]
    differing = Counter(one.section for one in load.entries)
    differing |= {"frozen": len(load.frozen) + len(load.unfrozen), "ties": len(load.tied) + len(load.untied)}
    for section in sizes[0]:
        compared = max(sizes[0][section], sizes[1][section], differing[section])
        if section == "groups" and compared:
            yield {"section": section, **_groups(load)}
        elif compared:
            yield {"section": section, "compared": compared, "differing": differing[section]}


def _sizes(state: TrainingState) -> Counter[str]:
    """How much a state has of each section, in the order in which they are told."""
    return Counter(
        {
            "param": len(state.parameters),
            "frozen": sum(one.requires_grad is False for one in state.parameters.values()),
            "ties": sum(len(one.aliases) for one in state.parameters.values()),
            "state": sum(len(keys) for one in state.optimizers for keys in one.state.values()),
            "groups": len(state.optimizers),
            "hyper": sum(len(group.hyperparameters) for one in state.optimizers for group in one.groups),
            "buffer": len(state.buffers),
            "grad": sum(one.grad is not None for one in state.parameters.values()),
            "rng": len(state.rng),
            **{section: len(state.sections.get(section, {})) for section in SECTIONS},
        }
    )


def _groups(load: StateDiff) -> dict[str, Json]:
    """Members of param groups, and how many are in another one or in none."""
    members = moved = 0
    for _, left, right, match in load.optimizers:
        before, after = left.first_groups(), right.first_groups()
        members += len(before.keys() | after.keys())
        there = {name: match.left_of.get(group, -1) for name, group in after.items()}
        moved += sum(before.get(name) != there.get(name) for name in before.keys() | there.keys())
    return {"compared": members, "differing": moved}


def _open(noise: Noise | None, numeric_floor: bool) -> dict[str, Json] | None:
    if noise is None or noise.first is None:
        return None
    held = numeric_floor and noise.only_numeric and not noise.chance
    return {
        "step": noise.first.step,
        "stage": noise.first.stage,
        "stages": [stage for stage in STAGES if stage != LOAD and (stage in NUMERIC or not held)],
        "held_against_floor": held,
    }
