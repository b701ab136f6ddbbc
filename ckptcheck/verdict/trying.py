"""A dry-run of the load: a checkpoint held against a target, which is built and loaded in a process of its own."""

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ckptcheck.errors import OutputError, TargetError
from ckptcheck.finding import Json
from ckptcheck.progress import Progress
from ckptcheck.rules.loads.dry_run import DryRun
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Danger
from ckptcheck.state.training_state import TrainingState
from ckptcheck.verdict.check_question import CheckQuestion, Said
from ckptcheck.verdict.membership import membership

TIMEOUT_S = 600.0
"""How long the target may go without a word while it is built or loads."""
KEPT = 200


def try_load(
    checkpoint: Checkpoint, target: str, question: CheckQuestion, progress: Progress | None = None
) -> tuple[Said, Checkpoint]:
    """What a load of this checkpoint into `target` would change or get wrong; and the checkpoint by its names.

    Raises TargetError for a target that cannot be found or built, OutputError where there is no room for a copy.
    """
    from ckptcheck.conventions.target_names import named_by_target
    from ckptcheck.rules.loads.dry_run import WHY_NOT
    from ckptcheck.rules.loads.table import LOAD_RULES
    from ckptcheck.rules.rule import chosen, judged
    from ckptcheck.rules.stored.stored import Purpose
    from ckptcheck.verdict.purpose import purpose_of

    purpose, _ = purpose_of(question.purpose, checkpoint)
    dry = replace(dry_run(checkpoint, target, progress), for_release=purpose is Purpose.RELEASE)
    rules = chosen(LOAD_RULES, question.select, question.ignore)
    findings, not_judged = judged(rules, dry, WHY_NOT)
    said = Said(findings, not_judged, codes=frozenset(one.code for one in rules))
    said.parts["target"] = _part(target, dry, said.judged)
    if dry.load is not None:
        # By the file's own names alone: by the target's, a group could only agree with itself.
        named = {place for place, one in enumerate(dry.pairs) if one.named}
        pairs = enumerate(membership(dry.load.left, dry.load.right))
        said.parts["membership"] = [part for place, part in pairs if place in named]
    return said, named_by_target(checkpoint, dry.built)


def dry_run(checkpoint: Checkpoint, target: str, progress: Progress | None = None) -> DryRun:
    """Build the target in a fresh process, load the checkpoint into it, and hold the two against each other."""
    from ckptcheck.experiment.target import split_target

    split_target(target)
    try:
        folder = Path(tempfile.mkdtemp(prefix="ckptcheck-"))
    except OSError as error:
        raise OutputError(f"no temporary folder can be made ({error}); set TMPDIR to one with room") from error
    try:
        built, loaded, told = _tried(checkpoint, target, folder.resolve(), progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return judged_of(checkpoint, built, loaded, told)


def judged_of(
    checkpoint: Checkpoint, built: TrainingState, loaded: TrainingState | None, told: Mapping[str, Any]
) -> DryRun:
    """What the rules judge, from the states that the worker recorded and the facts that it told."""
    from ckptcheck.verdict.held import held_against

    troubles = told.get("troubles", [])
    dry = DryRun(
        checkpoint=checkpoint,
        built=built,
        how=told.get("how", ""),
        raised=told.get("raised") or ("; ".join(troubles) if troubles else None),
        not_loaded=told.get("not_loaded", ""),
        left_out=tuple(told.get("left_out", ())),
    )
    return held_against(dry, loaded)


def _tried(
    checkpoint: Checkpoint, target: str, folder: Path, progress: Progress | None
) -> tuple[TrainingState, TrainingState | None, dict[str, Any]]:
    """The live objects as built and as loaded, and what the worker told."""
    from ckptcheck.experiment.job import Job
    from ckptcheck.experiment.process import Crew
    from ckptcheck.state.digest import XXH3_128
    from ckptcheck.trace.file import Trace
    from ckptcheck.trace.items import BUILT, LOAD
    from ckptcheck.trace.states import state_at

    job = Job(
        name="dry-run",
        target=target,
        workdir=folder / "workdir",
        first=1,
        last=0,
        digest=XXH3_128,
        trace=folder / "dry-run.trace",
        dry_run=checkpoint.raw.path.resolve(),
        may_execute=not any(one.danger is Danger.RUNS_CODE for one in checkpoint.raw.globals),
    )
    outcome = Crew(folder, TIMEOUT_S, progress, at_once=1).run([job])[0]
    told = dict(outcome.facts)
    if outcome.status != "ended":
        if outcome.phase != "load":
            raise TargetError(f"the target {target!r} {outcome.status} {outcome.place}: {outcome.error}")
        told["raised"] = outcome.error
    trace = Trace(folder / "dry-run.trace")
    try:
        built = state_at(trace, 0, BUILT)
        whole = outcome.status == "ended" and (0, LOAD) in trace.moments
        return built, replace(state_at(trace, 0, LOAD), step=None) if whole else None, told
    finally:
        trace.close()


def _part(target: str, dry: DryRun, codes: Iterable[str]) -> Json:
    """What the result says of the dry-run beside its findings; `codes` are of the rules that judged all of it."""
    stored = {alias for name, one in dry.checkpoint.state.parameters.items() for alias in (name, *one.aliases)}
    live = [name for name in dry.built.parameters if name not in stored and name not in dry.held]
    listed: list[Json] = [*live[:KEPT]]
    left_out: list[Json] = [*dry.left_out]
    return {
        "target": target,
        "how": dry.how or None,
        "loaded": dry.loaded is not None,
        "raised": dry.raised,
        "not_loaded": dry.not_loaded or None,
        "parameters": len(dry.built.parameters),
        "parameters_not_loaded": listed,
        "optimizers": len(dry.built.optimizers),
        "pairs": [
            {"optimizer": one.place, "class": one.live.class_name, "file": one.file_place, "named": one.named}
            for one in dry.pairs
        ],
        "left_out": left_out,
        "judged": [*sorted(codes)],
    }
