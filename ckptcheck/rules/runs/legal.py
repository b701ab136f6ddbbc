"""What differs right after a load and has no effect on the steps that follow: reported, never a failure."""

from collections.abc import Callable, Iterator

from ckptcheck.comparison.traces import FLAGS
from ckptcheck.finding import Finding, Place, Severity
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.environment import environment_changes
from ckptcheck.rules.runs.table import RUN_RULES
from ckptcheck.rules.words import at_load, count, differ, generators, kept, modules, names

NAMES = {one.code: one.name for one in RUN_RULES}
CODE_OF_SECTION = {
    "param": "CK601",
    "buffer": "CK605",
    "grad": "CK613",
    "state": "CK601",
    "hyper": "CK306",
    "rng": "CK603",
    "schedule": "CK602",
    "scaler": "CK608",
    "ema": "CK208",
    "data": "CK604",
    "extra": "CK601",
}

WORDS: dict[str, Callable[[list[str]], str]] = {
    "grad": lambda found: (
        f"gradients of {count(found, 'parameter')} left over when it was saved are not there after the load"
    ),
    "rng": lambda found: f"{generators(found)} {differ(found)}, and nothing draws from there in the compared steps",
}


def _said(case: Case, section: str, found: list[str]) -> str:
    if section == "rng" and case.trajectory is not None and case.trajectory.drawn & set(found):
        return f"{generators(found)} {differ(found)}, and what follows could not be judged"
    if section in WORDS:
        return WORDS[section](found)
    return f"{count(found, 'entry', 'entries')} of {section} {differ(found)}: {names(found)}"


def differences_without_effect(case: Case) -> Iterator[Finding]:
    """One warning for each kind of difference at a load after which everything goes on exactly."""
    yield from _idle_generators(case)
    if case.load is None:
        return
    sections: dict[str, list[str]] = {}
    for one in case.load.entries:
        if one.section == "rng" and one.name in case.idle_generators:
            continue
        if one.section == "hyper" and one.key in FLAGS:
            continue
        sections.setdefault(one.section, []).append(f"{one.name}.{one.key}".strip("."))
    for section, found in sections.items():
        yield _warning(CODE_OF_SECTION[section], case, _said(case, section, found), found)
    changed = environment_changes(case)
    if changed:
        spelled = [f"{name} was {was}, is {now}" for name, (was, now) in changed.items()]
        said = f"the environment changed: {names(spelled)}"
        yield _warning("CK614", case, said, [*changed])
    reordered = [
        str(place) for place, _, _, match in case.load.optimizers if match.same_members and not match.same_order
    ]
    if reordered:
        said = f"optimizer {names(reordered)} holds the same groups in another order, and its state was bound by name"
        yield _warning("CK302", case, said, reordered)
    modes = [name for name in {**case.load.left.modes, **case.load.right.modes}
             if case.load.left.modes.get(name, True) != case.load.right.modes.get(name, True)]  # fmt: skip
    if modes:
        yield _warning("CK601", case, f"{count(modes, 'module')} in another mode: {modules(modes)}", modes)


def _idle_generators(case: Case) -> Iterator[Finding]:
    """One warning for the generators of a script that begin to differ at the same step, and reach nothing."""
    for step in sorted(set(case.idle_generators.values())):
        found = [name for name, first in case.idle_generators.items() if first == step]
        said = (
            f"{generators(found)} {differ(found)} from the start of step {step} on, and nothing drawn from there "
            "reached inputs, loss, gradients or parameters in the compared steps"
        )
        yield _warning("CK603", case, said, found, max(step - 1, case.step))


def _warning(code: str, case: Case, said: str, found: list[str], step: int | None = None) -> Finding:
    return Finding(
        code=code,
        name=NAMES[code],
        severity=Severity.WARNING,
        message=f"{said}; without effect on the steps that follow",
        where=at_load(case.step) if step is None or step == case.step else Place(step=step + 1, stage="rng"),
        evidence={"without_effect": True, "entries": kept(found), "run": case.run},
        fix="none needed for these steps",
    )
