"""The runs of a resume experiment on commands: what is started, in which folder, from which checkpoint."""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType

from ckptcheck.errors import OutputError, RunFailedError
from ckptcheck.experiment.commands.asked import DIR, Asked, CommandSettings, asked_of, check_step
from ckptcheck.experiment.commands.checkpoints import checkpoint_in
from ckptcheck.experiment.commands.copies import copy_working_folder, remove, snapshot, told_of_folder
from ckptcheck.experiment.commands.finding import Found, chosen_step, found_after, found_in
from ckptcheck.experiment.commands.launching import Launch, Run, run_all
from ckptcheck.experiment.commands.ordering import Part, orders_of
from ckptcheck.experiment.commands.recorded import Recorded
from ckptcheck.experiment.commands.telling import check_recorded, check_trained
from ckptcheck.experiment.commands.wanted import Wanted, end_of
from ckptcheck.experiment.commands.words import filled
from ckptcheck.progress import Progress
from ckptcheck.trace.script.orders import Orders
from ckptcheck.trace.script.rendezvous import listing

__all__ = ["CommandExperiment", "CommandSettings"]

REFERENCE = "reference"
REPEAT = "repeat"
INTERRUPTED = "interrupted"
RESUMED = "resumed"
AGAIN = "-again"
"""Added to the name of a run that is made once more."""


class CommandExperiment(AbstractContextManager["CommandExperiment"]):
    """Makes the runs below one temporary folder, which is removed on exit.

    Raises UsageError for commands and settings that cannot be run, OutputError where no folder can be made.
    """

    def __init__(self, settings: CommandSettings, progress: Progress | None = None) -> None:
        self.settings = settings
        self._progress = progress
        self._asked: Asked = asked_of(settings, os.environ)
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="ckptcheck-")).resolve()
        except OSError as error:
            raise OutputError(f"no temporary folder can be made ({error}); set TMPDIR to one with room") from error
        self._runs: dict[str, Run] = {}
        self._recorded: dict[str, Recorded] = {}
        self._source: str | None = None
        self._step: int | None = None
        self._at_signal: Mapping[str, tuple[int, int, int]] = {}
        self._went_on_after = 0
        """The step of the checkpoint that the resumed run is given, as far as that is known before it starts."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for run in self._recorded.values():
            for one in run.traces:
                one.close()
        remove(self._folder)

    def whole(self, *, repeats: int) -> list[Recorded]:
        """The uninterrupted run and its repeats, in this order.

        Where no step to resume at was given, the reference shows after which steps something was saved, and the first
        repeat is made after it, to be copied at the one nearest to half of the steps: at least one repeat is then made.
        RunFailedError where one does not come to its end or trains no step.
        """
        settings = self.settings
        names = [REFERENCE, *(REPEAT if one == 0 else f"{REPEAT}-{one + 1}" for one in range(repeats))]
        if settings.interrupt is not None:
            self._source, self._step = INTERRUPTED, settings.interrupt[1]
            self._make_whole(names)
        elif settings.resume_at is not None:
            self._source, self._step = REFERENCE, settings.resume_at
            self._make_whole(names)
        else:
            self._make_whole([REFERENCE])
            changes = self._runs[REFERENCE].meeting.changes()
            last, wanted = self._recorded[REFERENCE].last_step, settings.preferred(self._recorded[REFERENCE].traces)
            self._source, self._step = REPEAT, chosen_step(self._own(REFERENCE), changes, last, wanted)
            self._make_whole(names[1:] or [REPEAT])
        check_step(self.settings, self.resume_step, self._recorded[REFERENCE].last_step)
        return [self._recorded[one] for one in self._recorded if one not in (INTERRUPTED, RESUMED)]

    def one_repeat(self) -> Recorded:
        """A repeat of the uninterrupted run, for an experiment that made none. Raises as `whole`."""
        if REPEAT not in self._recorded:
            self._make_whole([REPEAT])
        return self._recorded[REPEAT]

    @property
    def source(self) -> str:
        """The name of the run whose folder was copied after step k: the reference, a repeat or an interrupted run."""
        assert self._source is not None, "the whole runs come first"
        return self._source

    @property
    def resume_step(self) -> int:
        """The step after which the folder was copied, or at which the run was interrupted."""
        assert self._step is not None, "the whole runs come first"
        return self._step

    @property
    def environment(self) -> Mapping[str, str]:
        """What was set for every run: trackers put offline, thread counts."""
        return {**self._asked.trackers, **self._asked.threads}

    def interrupted(self) -> Recorded:
        """A run that gets the signal after its step; how it ends is its affair.

        RunFailedError where it ended before that step.
        """
        run = self._make([INTERRUPTED])[0]
        recorded = self._recorded[INTERRUPTED]
        if not run.meeting.all_came("signal"):
            check_trained(recorded, run.meeting)
            raise RunFailedError(
                f"the {INTERRUPTED} run ended before step {self.resume_step}, after which it was to be interrupted",
                recorded.last_lines,
            )
        return recorded

    def found(self) -> Found | None:
        """The checkpoint in the folder that is resumed from, as `{ckpt}` names it; None where there is none.

        To be asked before `resumed`, which writes into that folder.
        """
        run = self._runs[self.source]
        changes = run.meeting.changes()
        if self.source == INTERRUPTED:
            after = found_after(self._own(INTERRUPTED), self._at_signal)
            return after or found_in(self._own(INTERRUPTED), changes, self.resume_step, self._asked.initial)
        return found_in(self._copy(), changes, self.resume_step, self._asked.initial)

    def saved(self) -> frozenset[int]:
        """The steps, up to the one that is resumed after, after which the run that is resumed wrote a checkpoint."""
        changes = self._runs[self.source].meeting.changes()
        place = self._own(self.source) if self.source == INTERRUPTED else self._copy()
        return frozenset(
            step for step, paths in changes.items() if step <= self.resume_step and checkpoint_in(place, paths)
        )

    def resumed(self) -> Recorded:
        """The resumed run, in a copy of its own; how it ends is an outcome, not an error.

        It stands where the run stood that was copied, so that paths in a checkpoint stay right; that copy is kept, so
        that it can be made `again`.
        RunFailedError where `{ckpt}` is asked for and nothing that a resume could read was written, or what was
        recorded has gone.
        """
        found = self.found()
        if found is None and self._asked.wants_checkpoint:
            raise RunFailedError(
                f"the {self.source} run had written no checkpoint up to step {self.resume_step}, so {{ckpt}} names "
                f"nothing: save earlier, give another --resume-at, or name the file below {{dir}} yourself"
            )
        own = self._own(self.source)
        place = own
        if self.source != INTERRUPTED:
            with suppress(FileNotFoundError):  # the run may have removed it itself
                own.rename(own.with_name("after"))
            place = self._copy()
            snapshot(place, own)
        else:
            snapshot(own, self._copy())
        checkpoint = own / found.path.relative_to(place) if found is not None else own
        steps = self.settings.steps
        self._went_on_after = found.step if found is not None and found.step is not None else self.resume_step
        left = steps - (found.step if found is not None and found.step is not None else 0) if steps else None
        words = filled(self._asked.resume, {"dir": str(own), "ckpt": str(checkpoint)})
        (run,) = self._make([RESUMED], words=words, own=own, last_step=left)
        check_recorded(self._recorded[RESUMED], run.meeting)
        return self._recorded[RESUMED]

    def again(self, whole: Mapping[str, Wanted | int], resumed: Mapping[str, Wanted | int]) -> list[Recorded]:
        """More whole runs, and at most one more resumed one, by name and under the conditions of the first ones.

        Each is ended after a step as it counts them, or after the last that is wanted of it, which is then laid out.
        To be asked after `resumed`.
        """
        words, own = self._recorded[RESUMED].words, self._own(self.source)
        if resumed:
            with suppress(FileNotFoundError):
                own.rename(own.with_name(f"before-{next(iter(resumed))}"))
            snapshot(self._copy(), own)
        launches = {name: partial(self._launch, name, None, None, *end_of(one)) for name, one in whole.items()}
        launches |= {name: partial(self._launch, name, words, own, *end_of(one)) for name, one in resumed.items()}
        self._make_all(launches)
        return [self._recorded[name] for name in launches]

    def laid_out(self, run: Recorded, rank: int) -> Path:
        """Where a rank of a run made `again` has laid out its tensors."""
        folder = self._folder / run.name / "capture"
        return folder if rank == 0 else folder / f"rank-{rank}"

    @property
    def free_bytes(self) -> int:
        """Room on the disk that the runs are made on."""
        return shutil.disk_usage(self._folder).free

    def output_of(self, run: Recorded) -> Path:
        """Where a run has left its output. To be asked after `resumed`, before `again`.

        The run that was copied has made room for the resumed one, which stands where it stood.
        """
        if run.name == RESUMED:
            return self._own(self.source)
        own = self._own(run.name)
        return own.with_name("after") if run.name == self.source != INTERRUPTED else own

    def last_changes(self, run: Recorded) -> dict[str, int]:
        """The step, as the run itself counts, after which each path of its output changed last, seen from outside.

        Of the reference and the resumed run; empty for a run that was never started.
        """
        return self._runs[run.name].meeting.last_changes() if run.name in self._runs else {}

    # Folders.

    def _own(self, name: str) -> Path:
        """The folder that a run writes into: its output folder, or its copy of the working folder."""
        return self._folder / name / (DIR if self._asked.content is None else "work")

    def _copy(self) -> Path:
        """Where the output folder of the run that is resumed was copied to."""
        return self._folder / self.source / "copy"

    # Runs.

    def _make_whole(self, names: list[str]) -> None:
        for name, run in zip(names, self._make(names), strict=True):
            check_trained(self._recorded[name], run.meeting)

    def _make(
        self, names: list[str], *, words: tuple[str, ...] | None = None, own: Path | None = None,
        last_step: int | None = None,
    ) -> list[Run]:  # fmt: skip
        return self._make_all({name: partial(self._launch, name, words, own, last_step) for name in names})

    def _make_all(self, launches: Mapping[str, Callable[[], Launch]]) -> list[Run]:
        with told_of_folder(self._folder):
            runs = run_all(list(launches.values()), self._asked.at_once, self._progress)
        for name, run in zip(launches, runs, strict=True):
            self._runs[name] = run
            self._recorded[name] = run.result()
        return runs

    def _launch(
        self, name: str, words: tuple[str, ...] | None, own: Path | None, last_step: int | None,
        wanted: Wanted | None = None,
    ) -> Launch:  # fmt: skip
        scratch = self._folder / name
        scratch.mkdir()
        if own is None:
            own = self._own(name)
            if self._asked.content is None:
                own.mkdir()
            else:
                copy_working_folder(self._asked.folder, own, self._asked.content)
        command = words or filled(self._asked.run, {"dir": str(own)})
        return Launch(
            orders=self._orders(name, command, own, last_step or self.settings.steps, wanted),
            words=command,
            folder=own if self._asked.content is not None else self._asked.folder,
            environment={**os.environ, **self.environment, **self.settings.environment},
            scratch=scratch,
            timeout_s=self.settings.timeout_s,
            steps=last_step or self.settings.steps,
            output=own,
            at_pause=(lambda: snapshot(own, self._copy())) if name == self._source else None,
            before_signal=(lambda: self._note_signal(own)) if name == INTERRUPTED else None,
        )

    def _note_signal(self, own: Path) -> None:
        self._at_signal = listing(own)

    def _orders(
        self, name: str, words: tuple[str, ...], own: Path, last_step: int | None, wanted: Wanted | None
    ) -> Orders:
        is_source = name == self._source
        part = Part(
            name, words, own, last_step, self._step,
            first_step=self._went_on_after if name.startswith(RESUMED) else 0,
            copied=is_source and name != INTERRUPTED,
            interrupted=name == INTERRUPTED,
            # The run that shows where something is saved, the one that is copied, and the two whose later checkpoints
            # are held against each other.
            looked_at=is_source or self._step is None or name in (REFERENCE, RESUMED),
        )  # fmt: skip
        return orders_of(part, self.settings, self._folder / name, wanted)
