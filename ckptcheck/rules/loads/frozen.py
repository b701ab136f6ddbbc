"""CK4: what a load does to frozen parameters."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.comparison.bindings import COUNTERS
from ckptcheck.finding import Severity
from ckptcheck.rules.loads.dry_run import DryRun, Paired
from ckptcheck.rules.loads.views import at, bound, refused, rows_of
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, also
from ckptcheck.rules.runs import frozen as runs
from ckptcheck.rules.stored.expected_state import keeps_nothing
from ckptcheck.rules.stored.missing_state import told_apart
from ckptcheck.rules.words import count, kept, names
from ckptcheck.state.scalars import finite_number
from ckptcheck.state.training_state import Optimizer


@also(runs.freeze_set_changed)
def freeze_set_changed(dry: DryRun) -> Iterator[Evidence | Unjudged]:
    """The target freezes what was trained when the file was saved, or trains what was frozen then."""
    said = dry.checkpoint.state.parameters
    told = {name: one.requires_grad for name, one in said.items() if one.requires_grad is not None}
    now = dry.now.parameters
    frozen = [name for name, was in told.items() if was and name in now and now[name].requires_grad is False]
    thawed = [name for name, was in told.items() if not was and name in now and now[name].requires_grad]
    if frozen or thawed:
        yield _evidence(frozen, thawed, None)
    for pair in dry.pairs:
        yield from _by_counters(dry, pair, set(told))
        yield from _by_lack_of_state(dry, pair, set(told))


def _by_counters(dry: DryRun, pair: Paired, told: set[str]) -> Iterator[Evidence | Unjudged]:
    """Frozen now, though its counter says that it was stepped to the last: a lagging one was frozen before."""
    if pair.file is None:
        return
    now = dry.now.parameters
    frozen = [name for name, one in pair.file.state.items()
              if one and name not in told and name in now and now[name].requires_grad is False]  # fmt: skip
    if not frozen:
        return
    counters = dict(_counters(pair.file))
    last = max((value for name, value in counters.items() if name not in frozen), default=None)
    late = [name for name in frozen if last is not None and name in counters and counters[name] >= last]
    if late:
        yield _evidence(late, [], None)
    elif last is None or any(name not in counters for name in frozen):
        yield Unjudged(
            f"the target freezes {names(frozen)}, which {'has' if len(frozen) == 1 else 'have'} optimizer state in the "
            "file; whether they were frozen when it was saved is not said"
        )


def _by_lack_of_state(dry: DryRun, pair: Paired, told: set[str]) -> Iterator[Evidence]:
    """Trained now, though the file has no state of a whole module beside others that have some.

    A lone parameter without state, or one that was surely trained, is told by CK202. What is frozen lies mostly where a
    model begins: elsewhere an expert or a head that no gradient reaches is as likely.
    """
    rows = rows_of(pair.live)
    if pair.file is None or refused(dry, pair) or not rows or any(row.whole_list for row in rows):
        return
    now, listed = dry.now.parameters, set(pair.file.members)
    having = [name for name, one in pair.file.state.items() if one and name in listed]
    stateful = [name for group in pair.live.groups for name in group.members
                if name is not None and not keeps_nothing(rows, group.hyperparameters)]  # fmt: skip
    missing = [name for name in stateful if name in listed and name not in told
               and name in now and now[name].requires_grad and not pair.file.state.get(name)]  # fmt: skip
    idle = [one for one in told_apart(missing, having)[1] if not one.is_lone] if having else []
    thawed = [name for one in idle for name in one.names]
    if thawed:
        yield Evidence(
            f"the target trains {count(thawed, 'parameter')} of which the file has no optimizer state, beside "
            f"{len(having)} that have theirs: {names(thawed)}; either they were frozen when it was saved, or no "
            "gradient reaches them",
            at(optimizer=pair.place, parameter=thawed[0]),
            {"thawed": kept(thawed), "with_state": len(having)},
            "save which parameters are trained and restore requires_grad before the optimizer is built",
            Severity.WARNING if thawed[0] == pair.live.members[0] else Severity.INFO,
        )


def _counters(optimizer: Optimizer) -> Iterator[tuple[str, float]]:
    """How often each parameter was updated, where its state counts that."""
    for name, one in optimizer.state.items():
        for key, entry in one.items():
            value = finite_number(entry) if key in COUNTERS else None
            if value is not None:
                yield name, value


def _evidence(frozen: list[str], thawed: list[str], severity: Severity | None) -> Evidence:
    parts = [f"no longer trained: {names(frozen)}" if frozen else "", f"now trained: {names(thawed)}" if thawed else ""]
    return Evidence(
        f"{count(frozen + thawed, 'parameter')} of the target {'has' if len(frozen + thawed) == 1 else 'have'} another "
        f"requires_grad than when the file was saved; {'; '.join(part for part in parts if part)}",
        at(parameter=(*frozen, *thawed)[0]),
        {"frozen": kept(frozen), "thawed": kept(thawed)},
        "save which parameters are trained and restore requires_grad before the optimizer is built",
        severity,
    )


@also(runs.frozen_state_dropped)
def frozen_state_dropped(dry: DryRun) -> Iterator[Evidence]:
    """The load drops the state that the file has for parameters which the target freezes."""
    for pair, one in bound(dry):
        now = dry.now.parameters
        lost = [name for name in one.missing if name in now and now[name].requires_grad is False]
        if lost and not one.none_loaded:
            yield Evidence(
                f"the load drops the file's optimizer state of {count(lost, 'frozen parameter')}: {names(lost)}",
                at(optimizer=pair.place, parameter=lost[0]),
                {"parameters": kept(lost)},
                "load the state of frozen parameters too: they need it when they are thawed",
            )


RULES: Final[tuple[Rule[DryRun], ...]] = (freeze_set_changed, frozen_state_dropped)
