"""The runs of a resume experiment: which processes, in which folders, from which checkpoint."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from ckptcheck.errors import OutputError, RunFailedError, TargetError
from ckptcheck.experiment.job import Job, Outcome
from ckptcheck.experiment.process import Crew, Lockstep, default_at_once
from ckptcheck.experiment.sections import Overlay
from ckptcheck.progress import Progress
from ckptcheck.state.digest import LINEAR_128, XXH3_128
from ckptcheck.trace.file import Trace

REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class Settings:
    """How to experiment. `resume_at` are the steps after which the reference saves, ascending.

    With `scouts`, more of them are picked from what a run without saving shows, before any run saves.
    """

    target: str
    steps: int
    resume_at: tuple[int, ...]
    device: str = "cpu"
    resume_device: str | None = None
    seed: int = 0
    deterministic: bool = False
    timeout_s: float = 600.0
    jobs: int | None = None
    scouts: bool = False

    @property
    def devices(self) -> tuple[str, str]:
        """Where the reference and the resumed run train."""
        return self.device, self.resume_device or self.device

    @property
    def digest(self) -> str:
        """One digest for all runs: the one that is the same on every device where any is not the CPU."""
        return XXH3_128 if all(one.split(":")[0] == "cpu" for one in self.devices) else LINEAR_128


@dataclass(frozen=True, slots=True)
class Resumed:
    """A run resumed after step `step` from what `source` had saved; compared with the reference from there on."""

    name: str
    step: int
    source: str
    outcome: Outcome
    trace: Trace | None


class Experiment(AbstractContextManager["Experiment"]):
    """Makes runs in fresh processes below one temporary folder, which is removed on exit."""

    def __init__(self, settings: Settings, progress: Progress | None = None) -> None:
        self.settings = settings
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="ckptcheck-"))
        except OSError as error:
            raise OutputError(f"no temporary folder can be made ({error}); set TMPDIR to one with room") from error
        at_once = settings.jobs or min(default_at_once(one) for one in settings.devices)
        self._crew = Crew(self._folder, settings.timeout_s, progress, at_once)
        self._jobs: dict[str, Job] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.traces: dict[str, Trace] = {}

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self.traces.values():
            one.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def save_after(self, steps: Sequence[int]) -> None:
        """Let the reference, which must not have been made yet, save after these steps, ascending."""
        self.settings = replace(self.settings, resume_at=tuple(steps))

    def run_whole(self, names: Sequence[str]) -> None:
        """Make runs of all steps; the one called reference saves, the others do not.

        Raises RunFailedError where one does not come to its end, TargetError where a save wrote nothing.
        """
        jobs = [self._whole(name) for name in names]
        for outcome in self._run(jobs):
            if outcome.status != "ended":
                raise failed(outcome)
        if REFERENCE in names:
            for step, path in self._jobs[REFERENCE].saves.items():
                check_saved(path, step)

    def _whole(self, name: str) -> Job:
        workdir = self._folder / name / "workdir"
        saves = {step: checkpoint_path(workdir, step) for step in self.settings.resume_at} if name == REFERENCE else {}
        settings = self.settings
        return Job(
            name=name,
            target=settings.target,
            workdir=workdir,
            first=1,
            last=settings.steps,
            device=settings.device,
            seed=settings.seed,
            digest=settings.digest,
            deterministic=settings.deterministic,
            saves=saves,
            trace=self._folder / f"{name}.trace",
        )

    def resume(self, starts: Sequence[tuple[str, int]], save_later: bool = False) -> list[Resumed]:
        """Resume after each (source run, step), each in a process of its own; with `save_later` they save again.

        A run that raises is an outcome here, not an error.
        """
        jobs = [self._resumed(source, step, save_later) for source, step in starts]
        outcomes = self._run(jobs)
        return [
            Resumed(job.name, step, source, outcome, self.traces.get(job.name))
            for job, outcome, (source, step) in zip(jobs, outcomes, starts, strict=True)
        ]

    def _resumed(self, source: str, step: int, save_later: bool) -> Job:
        name = f"resumed@{step}" if source == REFERENCE else f"{source}@{step}"
        workdir = self._folder / name / "workdir"
        self._copy(source, step, workdir)
        settings = self.settings
        later = [one for one in settings.resume_at if one > step] if save_later else []
        return replace(
            self._whole(name),
            workdir=workdir,
            first=step + 1,
            device=settings.devices[1],
            load_from=checkpoint_path(workdir, step),
            saves={one: checkpoint_path(workdir, one) for one in later},
        )

    def _copy(self, source: str, step: int, workdir: Path) -> None:
        saved = self._jobs[source].saves[step]
        there = checkpoint_path(workdir, step)
        shutil.copytree(saved.parent, there.parent, symlinks=True)

    def again(
        self,
        wanted: Mapping[str, tuple[str, Path]],
        last: int,
        lockstep: Lockstep,
        sources: Mapping[str, str] | None = None,
    ) -> dict[str, Trace]:
        """Make runs once more, side by side up to step `last`, and lay out the wanted tensors moment by moment.

        `wanted` maps a run to its new name and to the file that says what to lay out. Returns the new traces by the
        names of the first runs, those of runs that did not come to their end too. `sources` names another run for
        those that shall resume from what that one has saved.
        """
        jobs = [
            replace(
                self._another(name, again, last, (sources or {}).get(name)),
                capture=self._folder / again / "capture",
                wanted=items,
            )
            for name, (again, items) in wanted.items()
        ]
        self._run(jobs, lockstep)
        return {name: self.traces[again] for name, (again, _) in wanted.items() if again in self.traces}

    def once_more(self, names: Mapping[str, str], last: int | None = None, warn: bool = False) -> dict[str, Trace]:
        """Make runs once more, up to step `last` or to their end; `names` maps each to its new name.

        With `warn`, torch names the operations that are not deterministic: they stand in the outcome's facts. Returns
        the new traces by the new names, without runs that came to no step.
        """
        jobs = [replace(self._another(name, again, last), warn=warn) for name, again in names.items()]
        self._run(jobs)
        return {again: self.traces[again] for again in names.values() if again in self.traces}

    def _another(self, name: str, again: str, last: int | None, other: str | None = None) -> Job:
        """The job of a run under another name, from the same checkpoint or from that of `other`."""
        first = self._jobs[name]
        last = last if last is not None else first.last
        workdir = self._folder / again / "workdir"
        if first.load_from is not None:
            source, step = self._origin(name)
            self._copy(other or source, step, workdir)
        return replace(
            first,
            name=again,
            workdir=workdir,
            last=last,
            load_from=checkpoint_path(workdir, first.first - 1) if first.load_from is not None else None,
            saves={step: checkpoint_path(workdir, step) for step in first.saves if step <= last},
            trace=self._folder / f"{again}.trace",
        )

    def keep(self, name: str, saves: Sequence[int], step: int) -> tuple[Outcome, Path]:
        """Make the reference once more, which saves after these steps too and keeps its whole state after `step`.

        The state is kept by our own store, whose folder is returned; the outcome's fact "kept" has its sections.
        """
        job = self._another(REFERENCE, name, None)
        kept = self._folder / name / "kept"
        more = {one: checkpoint_path(job.workdir, one) for one in saves}
        [outcome] = self._run([replace(job, saves={**job.saves, **more}, keeps={step: kept})])
        return outcome, kept

    def save_at(self, name: str, saves: Sequence[int]) -> Outcome:
        """Make the reference once more, saving after these steps alone; to its end, where a save may first show."""
        job = self._another(REFERENCE, name, None)
        [outcome] = self._run([replace(job, saves={one: checkpoint_path(job.workdir, one) for one in saves})])
        return outcome

    def overlaid(self, step: int, overlays: Mapping[str, Overlay], kept: Path) -> list[Resumed]:
        """Resume after `step` as before, once for each overlay by name, which puts back parts of a kept state."""
        jobs = [
            replace(self._another(f"resumed@{step}", name, None), overlay=overlay, overlay_from=kept)
            for name, overlay in overlays.items()
        ]
        return [
            Resumed(job.name, step, REFERENCE, outcome, self.traces.get(job.name))
            for job, outcome in zip(jobs, self._run(jobs), strict=True)
        ]

    def forget(self, name: str) -> None:
        """Take what a run has left off the disk; how it ended stays known."""
        trace = self.traces.pop(name, None)
        if trace is not None:
            trace.close()
        (self._folder / f"{name}.trace").unlink(missing_ok=True)
        shutil.rmtree(self._folder / name, ignore_errors=True)

    def _origin(self, name: str) -> tuple[str, int]:
        head, _, step = name.rpartition("@")
        return (REFERENCE if head == "resumed" else head), int(step)

    def scratch(self, name: str) -> Path:
        """A path below the experiment's folder."""
        return self._folder / name

    def _run(self, jobs: list[Job], lockstep: Lockstep | None = None) -> list[Outcome]:
        outcomes = self._crew.run(jobs, lockstep)
        for job, outcome in zip(jobs, outcomes, strict=True):
            self._jobs[job.name] = job
            self.outcomes[job.name] = outcome
            if (
                job.trace is not None
                and job.trace.is_file()
                and outcome.phase not in ("start", "import", "build", "load", "overlay")
            ):
                self.traces[job.name] = Trace(job.trace)
        return outcomes


def checkpoint_path(workdir: Path, step: int) -> Path:
    """What `save` gets after a step: in a folder of its own, so that what stands beside it is copied along."""
    return workdir / f"checkpoint-{step}" / "state"


def check_saved(path: Path, step: int) -> None:
    """Raise TargetError when a save has left nothing at or beside its path."""
    if not path.parent.is_dir() or not any(path.parent.iterdir()):
        raise TargetError(
            f"the target's save(path) after step {step} wrote nothing: it has to write a file or folder at its path"
        )


def failed(outcome: Outcome) -> RunFailedError:
    """The error that tells of a run that had to come to its end and did not."""
    happened = {"raised": "raised", "died": "died", "hung": "hung"}[outcome.status]
    return RunFailedError(f"the {outcome.name} run {happened} {outcome.place}: {outcome.error}", outcome.last_lines)
