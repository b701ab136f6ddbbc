"""Dry-runs of real loads in this process: the worker's own code, without the process around it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ckptcheck.conventions.explaining import explain
from ckptcheck.experiment.dry_run import try_load
from ckptcheck.experiment.job import Job
from ckptcheck.experiment.recording import Recording
from ckptcheck.experiment.run import Run
from ckptcheck.finding import Finding, NotJudged
from ckptcheck.readers.reading import read_raw
from ckptcheck.rules.loads.dry_run import WHY_NOT, DryRun
from ckptcheck.rules.loads.table import LOAD_RULES
from ckptcheck.rules.rule import judged
from ckptcheck.state.digest import XXH3_128
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import BUILT, LOAD
from ckptcheck.trace.states import state_at
from ckptcheck.verdict.trying import judged_of


class Heard:
    """What a worker told."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}

    def at(self, phase: str, step: int | None = None) -> None:
        pass

    def tell(self, event: dict[str, Any]) -> None:
        self.facts.update(event["facts"])


def dry_run(path: Path, run: Run, *, may_execute: bool = True) -> DryRun:
    """A dry-run of loading `path` into a run that was just built; a trace is left beside the file."""
    place = path.parent / f"dry-{len(list(path.parent.glob('dry-*')))}"
    place.mkdir()
    job = Job("dry-run", "", place / "workdir", 1, 0, digest=XXH3_128, trace=place / "trace", dry_run=path,
              may_execute=may_execute)  # fmt: skip
    heard = Heard()
    with Recording(job, run, None) as recording:
        try:
            try_load(job, run, recording, heard)
        except Exception as error:  # noqa: BLE001  as the worker does
            heard.facts["raised"] = f"{type(error).__name__}: {' '.join(str(error).split())}"
    trace = Trace(place / "trace")
    built = state_at(trace, 0, BUILT)
    loaded = state_at(trace, 0, LOAD) if (0, LOAD) in trace.moments else None
    trace.close()
    return judged_of(explain(read_raw(path, strict=False)), built, loaded, heard.facts)


def judge(dry: DryRun) -> tuple[list[Finding], list[NotJudged]]:
    """What all rules over a dry-run say."""
    return judged(LOAD_RULES, dry, WHY_NOT)


def found(path: Path, run: Run) -> list[Finding]:
    """The findings of a dry-run."""
    return judge(dry_run(path, run))[0]


def of_code(findings: list[Finding], code: str) -> Finding:
    """The only finding of a code, whose message is shown where there are none or several."""
    alike = [one for one in findings if one.code == code]
    assert len(alike) == 1, [(one.code, one.message) for one in findings]
    return alike[0]


def errors(findings: list[Finding]) -> list[tuple[str, str]]:
    """Codes and messages of the errors."""
    return [(one.code, one.message) for one in findings if one.severity.value == "error"]


Build = Callable[[], Run]
