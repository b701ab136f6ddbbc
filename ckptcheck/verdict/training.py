"""One run of a target outside an experiment: train and save, or load and train on, into places that the user named."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ckptcheck.errors import OutputError, UsageError
from ckptcheck.experiment.dry_run import SIDECAR
from ckptcheck.experiment.job import Job, Outcome
from ckptcheck.experiment.plan import check_saved, failed
from ckptcheck.experiment.process import Crew
from ckptcheck.experiment.target import split_target
from ckptcheck.finding import Compared, Json, Result, Verdict
from ckptcheck.progress import Progress
from ckptcheck.trace.file import trace_file


@dataclass(frozen=True, slots=True)
class Order:
    """What to train, how far, and where to put what comes of it. `output` and `trace` must not exist yet."""

    target: str
    steps: int
    output: Path | None
    trace: Path | None
    store: bool
    device: str
    seed: int
    digest: str | None
    timeout_s: float


def train_and_save(order: Order, progress: Progress | None) -> Result:
    """Train from step 1 to the last, save, and move what was saved to `output` in one step."""
    output = order.output
    assert output is not None
    _check(order)
    _refuse_existing(output)
    with ExitStack() as stack:
        scratch = stack.enter_context(_scratch(output))
        # The trace is written beside its own place: what cannot be written is refused before anything is trained.
        traced = stack.enter_context(_scratch(order.trace)) if order.trace is not None else scratch
        saved = scratch / "workdir" / "saved" / "state"
        job = _job(order, "save", scratch, traced, first=1, saves={order.steps: saved})
        outcome = _run(job, scratch, order, progress)
        check_saved(saved, order.steps)
        _move_trace(traced, order)
        if not outcome.facts.get("own_store"):
            (saved.parent / SIDECAR).write_text(json.dumps({"step": order.steps, "target": order.target}))
            _move(saved.parent, output)
        else:
            _move(saved, output)
    return _result("save", order, outcome, {"checkpoint": str(output), "step": order.steps})


def load_and_train(order: Order, checkpoint: Path, step: int | None, progress: Progress | None) -> Result:
    """Load a copy of `checkpoint` in a fresh process, train on to the last step, and record."""
    assert order.trace is not None
    _check(order)
    if not checkpoint.exists():
        raise UsageError(
            f"there is no checkpoint at {checkpoint}: give what `ckptcheck save -o` or your own save wrote"
        )
    at = step if step is not None else _saved_step(checkpoint)
    if at is None:
        raise UsageError(f"{checkpoint} does not say after which step it was saved: give --step K")
    if not 0 <= at < order.steps:
        raise UsageError(f"{checkpoint} was saved after step {at}: --steps {order.steps} leaves nothing to train")
    with _scratch(order.trace) as scratch:
        loaded = scratch / "workdir" / "saved" / "state"
        _copy(checkpoint, loaded)
        job = _job(order, "resume", scratch, scratch, first=at + 1, load_from=loaded)
        outcome = _run(job, scratch, order, progress)
        _move_trace(scratch, order)
    return _result("resume", order, outcome, {"checkpoint": str(checkpoint), "step": at})


def _check(order: Order) -> None:
    split_target(order.target)
    if order.steps < 1:
        raise UsageError(f"--steps {order.steps} trains nothing: use at least 1")
    if order.trace is not None:
        _refuse_existing(order.trace)
        if order.output is not None and _nested(order.output.resolve(), order.trace.resolve()):
            raise OutputError(f"{order.trace} and {order.output} are one inside the other: name two folders")


def _nested(one: Path, other: Path) -> bool:
    return one == other or one in other.parents or other in one.parents


def _refuse_existing(path: Path) -> None:
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise OutputError(f"{path} exists already and is never written over: name a new folder, or remove it")


@contextmanager
def _scratch(beside: Path) -> Iterator[Path]:
    """A folder beside the output, on the same file system, so that the output appears whole or not at all."""
    try:
        beside.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{beside.name}-", dir=beside.parent))
    except OSError as error:
        raise OutputError(f"{beside} cannot be written ({error}): name a folder that can") from error
    try:
        yield folder.resolve()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _job(
    order: Order,
    name: str,
    scratch: Path,
    traced: Path,
    *,
    first: int,
    saves: dict[int, Path] | None = None,
    load_from: Path | None = None,
) -> Job:
    return Job(
        name=name,
        target=order.target,
        workdir=scratch / "workdir",
        first=first,
        last=order.steps,
        device=order.device,
        seed=order.seed,
        digest=order.digest,
        store=order.store,
        load_from=load_from,
        saves=saves or {},
        trace=trace_file(traced / "trace") if order.trace is not None else None,
    )


def _run(job: Job, scratch: Path, order: Order, progress: Progress | None) -> Outcome:
    outcome = Crew(scratch, order.timeout_s, progress, at_once=1).run([job])[0]
    if outcome.status != "ended":
        raise failed(outcome)
    return outcome


def _move(source: Path, target: Path) -> None:
    try:
        if target.is_dir():
            target.rmdir()  # it is empty: _refuse_existing looked
        source.rename(target)
    except OSError as error:
        raise OutputError(f"{target} cannot be written ({error}): name a folder that can") from error


def _move_trace(scratch: Path, order: Order) -> None:
    if order.trace is not None:
        _move(scratch / "trace", order.trace)


def _copy(checkpoint: Path, loaded: Path) -> None:
    wrapped = (checkpoint / SIDECAR).is_file()
    loaded.parent.mkdir(parents=True)
    if wrapped:
        shutil.copytree(checkpoint, loaded.parent, symlinks=True, dirs_exist_ok=True)
    elif checkpoint.is_dir():
        shutil.copytree(checkpoint, loaded, symlinks=True)
    else:
        shutil.copy2(checkpoint, loaded)


def _saved_step(checkpoint: Path) -> int | None:
    from ckptcheck.store.read import is_store, read_state

    sidecar = checkpoint / SIDECAR
    if sidecar.is_file():
        try:
            step = json.loads(sidecar.read_text())["step"]
        except (ValueError, KeyError, TypeError, UnicodeDecodeError):
            raise UsageError(
                f"{sidecar} does not hold the step as written by `ckptcheck save`: give --step K"
            ) from None
        return step if isinstance(step, int) else None
    return read_state(checkpoint).step if is_store(checkpoint) else None


def _result(command: str, order: Order, outcome: Outcome, parts: dict[str, Json]) -> Result:
    trained = order.steps - (int(str(parts["step"])) if command == "resume" else 0)
    facts = {key: value for key, value in outcome.facts.items() if key not in ("freeze", "own_store")}
    return Result(
        command=command,
        verdict=Verdict.PASS,
        compared=Compared(),
        environment=facts,
        parts={
            **parts,
            "target": order.target,
            "steps": trained,
            "trace": str(order.trace) if order.trace is not None else None,
            "own_store": bool(outcome.facts.get("own_store")),
            "seconds": round(outcome.total_s, 3),
        },
    )
