"""A resume experiment in one process: two factories, two traces, one case, one judgement. Real training throughout."""

import copy
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ckptcheck.comparison.tensors import TensorDifference, compare_bytes
from ckptcheck.experiment.job import Outcome
from ckptcheck.experiment.noise import Noise, assess
from ckptcheck.experiment.plan import REFERENCE, Resumed, Settings
from ckptcheck.experiment.run import Context, Run
from ckptcheck.finding import Finding
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.judge import Judgement, judge
from ckptcheck.state.digest import XXH3_128
from ckptcheck.state.tensor_bytes import row_major_bytes, spec_of
from ckptcheck.trace.file import Trace, TraceWriter
from ckptcheck.trace.items import LOAD, SAVED, STEP, Item
from ckptcheck.trace.recorder import Recorder
from ckptcheck.trace.subjects import from_run
from ckptcheck.verdict.cases import Policy, breach_cases, case_of, saving_of

STEPS, RESUME_AT, SEED = 6, 3, 11
BORN_WITH = 67280421310721
"""The seed of torch's generator in a process that seeds nothing; python's and numpy's differ in every process."""

Factory = Callable[[Context], Run]
Kept = dict[tuple[int, str, Item], tuple[Any, bytes]]


@dataclass(frozen=True)
class Lab:
    """Stands where an Experiment stands: the traces of all runs, and what the reference declared."""

    settings: Settings
    traces: dict[str, Trace]
    outcomes: dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """One resumed run, its case and what the rules say of it."""

    lab: Lab
    resumed: Resumed
    noise: Noise
    case: Case
    judgement: Judgement

    @property
    def code(self) -> str | None:
        cause = self.judgement.cause
        return cause.code if cause is not None else None

    @property
    def finding(self) -> Finding:
        """The finding of the cause, or else the first."""
        return self.judgement.findings[0]

    @property
    def codes(self) -> list[str]:
        return [one.code for one in self.judgement.findings]

    @property
    def reference(self) -> Trace:
        return self.lab.traces[REFERENCE]

    def of(self, code: str) -> list[Finding]:
        return [one for one in self.judgement.findings if one.code == code]

    def whole(self) -> Case:
        """The case of the reference alone: what saving did to it, and whether equal runs agree."""
        saving = saving_of(self.lab, self.noise)
        return replace(Case(REFERENCE, 0), saving=saving, noise=self.noise.first)

    def breached(self, freeze: Mapping[str, str]) -> list[Case]:
        """A case for each run whose freeze contracts are held against it."""
        return breach_cases(self.lab, [self.resumed], freeze)[0]


@dataclass
class Trials:
    """Makes trials below one folder, each in a place of its own."""

    folder: Path
    traces: list[Trace] = field(default_factory=list)

    def __call__(
        self,
        left: Factory,
        right: Factory | None = None,
        *,
        steps: int = STEPS,
        at: int = RESUME_AT,
        repeats: tuple[Factory, ...] = (),
        digest: str = XXH3_128,
    ) -> Trial:
        """Train `left` and save after step `at`, load it into `right` (or `left` once more), train on and judge."""
        place = Path(tempfile.mkdtemp(dir=self.folder))
        settings = Settings("in process", steps, (at,))
        kept: tuple[Kept, Kept] = ({}, {})
        with as_in_a_fresh_process(1):
            reference, outcome = self._run(place / REFERENCE, left, 1, steps, save_at=at, digest=digest, kept=kept[0])
        if outcome.status != "ended":
            raise AssertionError(f"the reference {outcome.error} {outcome.place}")
        again = []
        for number, factory in enumerate(repeats):
            with as_in_a_fresh_process(2 + number):
                again.append(self._run(place / f"repeat{number}", factory, 1, steps, digest=digest)[0])
        shutil.copytree(place / REFERENCE / "checkpoint", place / "resumed" / "checkpoint")
        with as_in_a_fresh_process(9):
            trace, ending = self._run(
                place / "resumed", right or left, at + 1, steps, load=True, digest=digest, kept=kept[1]
            )
        resumed = Resumed(f"resumed@{at}", at, REFERENCE, ending, trace)
        lab = Lab(settings, {REFERENCE: reference}, {REFERENCE: outcome})
        noise = assess(reference, again)
        case = case_of(lab, resumed, noise, Policy(), measure=False)[0]
        case = replace(case, measured=measured(kept, at))
        return Trial(lab, resumed, noise, case, judge(case))

    def _run(
        self,
        place: Path,
        factory: Factory,
        first: int,
        last: int,
        *,
        save_at: int = 0,
        load: bool = False,
        digest: str,
        kept: Kept | None = None,
    ) -> tuple[Trace | None, Outcome]:
        """One run as the worker makes it; what the user's code raises ends it."""
        (place / "checkpoint").mkdir(parents=True, exist_ok=True)
        path = place / "checkpoint" / "state"

        def keep(step: int, moment: str, item: Item, tensor: torch.Tensor) -> None:
            if kept is not None and moment in (STEP, SAVED, LOAD):
                kept[step, moment, item] = spec_of(tensor), bytes(row_major_bytes(tensor))

        run = factory(Context(device=torch.device("cpu"), seed=SEED, workdir=place))
        writer = TraceWriter(place / "run.trace", {"run": place.name, "digest": digest})
        recorder = Recorder(from_run(run), writer, digest, keep)
        at: tuple[str, int | None] = ("build", None)
        error = ""
        try:
            if load:
                recorder.built(first - 1)
                at = "load", None
                run.load(path)
            recorder.load(first - 1)
            recorder.__enter__()
            for step in range(first, last + 1):
                at = "step", step
                recorder.begin(step)
                recorder.end(step, run.step(step))
                if step == save_at:
                    at = "save", step
                    recorder.saved(step)
                    run.save(path)
                    recorder.after_save(step)
            at = "end", None
            recorder.finish(last)
        except Exception as raised:  # noqa: BLE001  whatever the training raises ends its run
            error = f"{type(raised).__name__}: {raised}"
        finally:
            recorder.__exit__(None, None, None)
            writer.close(clean=not error)
        status = "raised" if error else "ended"
        outcome = Outcome(place.name, status, *at, error, "", 0, 0, 0, {"freeze": dict(run.freeze)})
        if at[0] in ("build", "load"):
            return None, outcome
        self.traces.append(Trace(place / "run.trace"))
        return self.traces[-1], outcome

    def close(self) -> None:
        for trace in self.traces:
            trace.close()


def measured(kept: tuple[Kept, Kept], at: int) -> dict[tuple[int, Item], TensorDifference]:
    """The exact differences, as the second pass would measure them."""
    found = {}
    for (step, moment, item), (spec, content) in kept[1].items():
        other = kept[0].get((step, SAVED if moment == LOAD else moment, item))
        if other is not None and other[0].shape == spec.shape and spec.numel and other != (spec, content):
            sides = memoryview(other[1]), memoryview(content)
            found[at if moment == LOAD else step, item] = compare_bytes(*sides, other[0], spec)
    return found


@contextmanager
def as_in_a_fresh_process(number: int) -> Iterator[None]:
    """Generators as a new interpreter has them, and everything as it was at the end."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    try:
        random.seed(1000 + number)
        np.random.seed(2000 + number)
        torch.manual_seed(BORN_WITH)
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)


def own_copy(tree: Any) -> Any:
    """A checkpoint's content that shares nothing with the live run."""
    return copy.deepcopy(tree)
