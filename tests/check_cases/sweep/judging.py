"""One drawn training through every door: what is said of a healthy one."""

import copy
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ckptcheck import verbs
from ckptcheck.experiment.run import Run
from ckptcheck.finding import Finding, Severity
from ckptcheck.store.save import save_run
from tests.check_cases.sweep.draws import Draw
from tests.check_cases.sweep.mutations import MUTATIONS, Done
from tests.check_cases.sweep.trainings import Training
from tests.check_cases.sweep.writing import WRITERS, Write, as_torch_weights, as_weights, as_zip
from tests.rules.loads import dry


@dataclass(frozen=True, slots=True)
class Alarm:
    """A finding about a healthy training: through which door it came, and by what recipe."""

    seed: int
    door: str
    finding: Finding
    recipe: str

    @property
    def is_error(self) -> bool:
        """Whether it is a false alarm."""
        return self.finding.severity is Severity.ERROR

    def __str__(self) -> str:
        one = self.finding
        return f"{one.code} {one.severity} [{self.door}] {one.message}\n    {self.recipe}"


def alarms(seed: int) -> Iterator[Alarm]:
    """Everything that is said of one healthy training."""
    training = Training(seed)
    write = training.draw.pick("container", WRITERS)
    recipe = training.draw.recipe
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for door, found in _doors(training, write, folder):
            yield from (Alarm(seed, door, one, recipe) for one in found)


def _doors(training: Training, write: Write, folder: Path) -> Iterator[tuple[str, list[Finding]]]:
    """Every door with what it says of this training."""
    made = training.checkpoints()
    last = made[-1][1]
    (folder / "run").mkdir()
    paths = [write(state, folder / "run" / f"step-{step}") for step, state in made]
    for place, path in ((0, paths[0]), (1, paths[-1])):
        yield f"check {place}", list(verbs.check(path).findings)
    yield "check resume", list(verbs.check(paths[-1], purpose="resume").findings)
    yield "diff", list(verbs.diff(paths[0], paths[-1], gate="findings").findings)
    yield "folder", list(verbs.check(folder / "run").findings)
    yield "release", list(verbs.check(as_weights(last, folder / "weights"), purpose="release").findings)
    yield "release torch", list(verbs.check(as_torch_weights(last, folder / "weights"), purpose="release").findings)
    save_run(folder / "store", training.run(), training.step)
    yield "store", list(verbs.check(folder / "store").findings)
    yield "dry-run own", dry.found(as_zip(last, folder / "own"), _anew(training))
    by_torch = _anew(training)
    by_torch.load = None
    yield "dry-run torch", dry.found(paths[-1], by_torch)


def _anew(training: Training) -> Run:
    """The training as who resumes it builds it: other weights, and the groups as they are at the end."""
    again = Training(int(training.draw.said["seed"]), anew=True)
    again.change()
    return again.run()


@dataclass(frozen=True, slots=True)
class Caught:
    """One fault that was put into a healthy checkpoint, and what was said of it."""

    done: Done
    told: bool
    named: bool
    findings: tuple[Finding, ...]
    recipe: str


def caught(seed: int) -> Iterator[Caught]:
    """Each fault in turn, put into the later of two checkpoints of one healthy training."""
    training = Training(seed)
    made = training.checkpoints()
    before, after = made[0][1], made[-1][1]
    for mutate in MUTATIONS:
        draw = Draw(seed)
        state = copy.deepcopy(after)
        done = mutate(state, draw)
        if done is None:
            continue
        with tempfile.TemporaryDirectory() as name:
            right = as_zip(state, Path(name) / "right")
            findings = verbs.check(right).findings
            if done.beside:
                left = as_zip(before if done.beside == "earlier" else after, Path(name) / "left")
                findings = (*findings, *verbs.diff(left, right, gate="findings").findings)
        right_code = [one for one in findings if one.code in done.codes]
        named = [one for one in right_code if not done.whose or _names(one, done.whose)]
        yield Caught(done, bool(right_code), bool(named), tuple(findings), training.draw.recipe)


def _names(finding: Finding, whose: tuple[str, ...]) -> bool:
    listed = finding.evidence.get("parameters", [])
    beside = listed if isinstance(listed, list) else []
    return any(one == finding.where.parameter or one in finding.message or one in beside for one in whose)
