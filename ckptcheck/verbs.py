"""The commands as library calls: each wires rooms, returns a result, and prints nothing.

Those that gate (verify, compare, diff, check) also take what a project has decided about findings: `severity` by code
or its beginning, and `accept`, what does not gate. `baseline` is a file of findings that were there already, and
`write_baseline` where to write one of what is found now. `fail_on` is the least severe finding that fails what would
pass. UsageError for a code that no rule has and for what is no baseline.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ckptcheck.config import Acceptance
from ckptcheck.finding import Result
from ckptcheck.garbage import no_garbage_search
from ckptcheck.memory import memory_is_bounded
from ckptcheck.progress import Progress

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
NO_TOLERANCES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType({})


def verify(
    target: str | None = None, *, run: str | None = None, resume: str | None = None,
    steps: int | None = None, resume_at: Sequence[int | str] = (), interrupt: str | None = None,
    device: str = "cpu", resume_device: str | None = None, seed: int = 0, deterministic: bool = False,
    folder: Path | str | None = None, share: Sequence[str] = (), env: Mapping[str, str] = NOTHING, online: bool = False,
    every: int = 1, only: Sequence[str] = (), grads: bool = True, digest: str | None = None,
    quick: bool = False, repeats: int = 1, policy: str = "exact", rtol: float = 0.0, atol: float = 0.0,
    tolerances: Mapping[str, tuple[float, float]] = NO_TOLERANCES, freeze: Mapping[str, str] = NOTHING,
    timeout_s: float = 600.0, jobs: int | None = None, select: Sequence[str] = ("CK",), ignore: Sequence[str] = (),
    require: Sequence[str] = (), fail_on: str = "error", bisect: bool = False,
    severity: Mapping[str, str] = NOTHING, accept: Sequence[Acceptance] = (), baseline: Path | str | None = None,
    write_baseline: Path | str | None = None, progress: Progress | None = None,
) -> Result:  # fmt: skip
    """Whether a training, stopped and resumed in a fresh process, goes on exactly.

    What is tested is a `target`, or two commands: `run` trains from the start, `resume` goes on from a copy of its
    output folder, `{dir}`. `steps` and `resume_at` count steps from 1: a target makes 20 unless told, a script comes to
    its own end; commands are resumed after one step, which is one that saved something unless told. "auto" among
    `resume_at`, or in its place, picks steps at which something happens. `timeout_s` is how long a run may go without
    progress; `jobs` how many processes run side by side. `policy` is "exact" or "state-exact". `tolerances` map "role"
    or "role:dtype" to (rtol, atol); `rtol` and `atol` are for what no role asks for and training computes in floating
    point.

    For a target only: `device`, `resume_device`, `seed`, `deterministic`; `bisect`, which proves the cause of a
    divergence by further runs that put back parts of the state, and finds the smallest resume point that shows it.
    For commands only: `interrupt`, such as "TERM@7", ends the run that is resumed by a signal after a step; `folder` is
    where they work, `share` are globs of what its copies link to, `env` is set beside the present environment; trackers
    are put offline unless `online`; every n-th step is recorded, `only` what matches these globs, gradients unless
    `grads` is False, by this `digest`.

    Raises UsageError for values out of range and options that do not go together, TargetError for a target that cannot
    be used, RunFailedError where the uninterrupted run does not end or trains no step.
    """
    from ckptcheck.verdict.asking import Commands, Question, Target, check_freeze, check_policy
    from ckptcheck.verdict.decisions import decisions
    from ckptcheck.verdict.verifying import verified

    points = (resume_at,) if isinstance(resume_at, str) else tuple(resume_at)
    asked, contracts = check_policy(policy, rtol, atol, tolerances), check_freeze(freeze)
    decided = decisions("verify", severity=severity, accept=accept, fail_on=fail_on, baseline=baseline,
                        write_baseline=write_baseline)  # fmt: skip
    question = Question(
        quick, max(1, repeats), asked, contracts, tuple(select), tuple(ignore), tuple(require), bisect, decided
    )  # fmt: skip
    commands = Commands(run, resume, steps, points, interrupt, folder, tuple(share), dict(env), online, every,
                        tuple(only), grads, digest, timeout_s, jobs)  # fmt: skip
    return verified(
        Target(target, steps, points, device, resume_device, seed, deterministic, timeout_s, jobs),
        commands, question, progress,
    )  # fmt: skip


def save(
    target: str, *, steps: int, output: Path | str, trace: Path | str | None = None, store: bool = False,
    device: str = "cpu", seed: int = 0, digest: str | None = None, timeout_s: float = 600.0,
    progress: Progress | None = None,
) -> Result:  # fmt: skip
    """Train `target` for `steps` steps and save its training state into the new folder `output`.

    With `trace` the steps are recorded into that folder; `store` forces the tool's own store. Raises OutputError
    where `output` exists, and as `verify`; nothing is left at `output` where the run fails.
    """
    from ckptcheck.verdict.training import Order, train_and_save

    order = Order(target, steps, Path(output), Path(trace) if trace else None, store, device, seed, digest, timeout_s)
    return train_and_save(order, progress)


def resume(
    target: str, checkpoint: Path | str, *, steps: int, output: Path | str, step: int | None = None,
    store: bool = False, device: str = "cpu", seed: int = 0, digest: str | None = None, timeout_s: float = 600.0,
    progress: Progress | None = None,
) -> Result:  # fmt: skip
    """Load `checkpoint` in a fresh process, train on to step `steps`, and record the steps into the folder `output`.

    `step` says after which step the checkpoint was saved, where it does not say so itself.
    """
    from ckptcheck.verdict.training import Order, load_and_train

    order = Order(target, steps, None, Path(output), store, device, seed, digest, timeout_s)
    return load_and_train(order, Path(checkpoint), step, progress)


def record(
    command: Sequence[str], *, output: Path | str, every: int = 1, only: Sequence[str] = (), grads: bool = True,
    digest: str | None = None, python: str | None = None, select: Sequence[str] = ("CK",), ignore: Sequence[str] = (),
) -> Result:  # fmt: skip
    """Run `command`, its words, in our own terminal, and record every process that trains into the folder `output`.

    `every` samples every n-th step only, `only` are globs over names of parameters and buffers, `grads` False leaves
    gradients out. `python` is an interpreter that gets a .pth file for so long, for a command that starts it with -E
    or -I. The result's part "recorded" holds the command's exit code, 128 + n for signal n; its verdict is error where
    nothing was recorded, or nothing could be started (126 and 127 as a shell has them). `select` and `ignore` choose
    the rules that judge what the script loaded. To be called from the main thread, which hands signals on.
    Raises OutputError where `output` holds anything or cannot be written.
    """
    from ckptcheck.verdict.recording import RecordOrder, record_command

    order = RecordOrder(
        tuple(command), Path(output), every, tuple(only), grads, digest, python, tuple(select), tuple(ignore)
    )
    return record_command(order)


def compare(
    left: Path | str, right: Path | str, *, rtol: float = 0.0, atol: float = 0.0,
    tolerances: Mapping[str, tuple[float, float]] = NO_TOLERANCES, select: Sequence[str] = ("CK",),
    ignore: Sequence[str] = (), fail_on: str = "error", severity: Mapping[str, str] = NOTHING,
    accept: Sequence[Acceptance] = (), baseline: Path | str | None = None, write_baseline: Path | str | None = None,
) -> Result:  # fmt: skip
    """Compare two traces over the steps that both have, or two folders of them rank by rank.

    The run that the other one resumes is the reference, whichever side it was given as; the trace of a resumed script
    is placed on it by what it loaded. Traces hold digests and norms, no values: magnitudes are null, and a tolerance,
    as `verify` has them, can be applied to numbers only.
    Raises TraceError where one of them is no trace, or where ranks have no partner.
    """
    from ckptcheck.verdict.asking import check_policy
    from ckptcheck.verdict.decisions import decisions
    from ckptcheck.verdict.two_traces import compare_folders

    policy = check_policy("exact", rtol, atol, tolerances)
    decided = decisions("compare", severity=severity, accept=accept, fail_on=fail_on, baseline=baseline,
                        write_baseline=write_baseline)  # fmt: skip
    return compare_folders(Path(left), Path(right), policy, tuple(select), tuple(ignore), decided=decided)


@no_garbage_search()
@memory_is_bounded()
def diff(
    left: Path | str, right: Path | str, *, only: Sequence[str] = (), without: Sequence[str] = (),
    renames: Sequence[tuple[str, str]] = (), left_section: str = "", right_section: str = "", cast: str = "",
    rtol: float = 0.0, atol: float = 0.0, tolerances: Mapping[str, tuple[float, float]] = NO_TOLERANCES,
    statistics: bool = True, gate: str = "content", select: Sequence[str] = ("CK",), ignore: Sequence[str] = (),
    require: Sequence[str] = (), freeze: Mapping[str, str] = NOTHING, fail_on: str = "error",
    severity: Mapping[str, str] = NOTHING, accept: Sequence[Acceptance] = (), baseline: Path | str | None = None,
    write_baseline: Path | str | None = None, progress: Progress | None = None,
) -> Result:  # fmt: skip
    """Compare two checkpoints of any formats by content, parameters by name.

    `only` and `without` are globs over "section/parameter/key"; `renames` are (pattern, replacement) for the left
    side's names; `tolerances` map "role" or "role:dtype" to (rtol, atol), relative to the left; `rtol` and `atol`
    are for what no role asks for and training computes in floating point. `statistics` False counts what differs
    without measuring how far. With `gate` "content" any difference fails, with "findings" only findings of the rules
    do, by `fail_on`: `left` is then the earlier checkpoint of one training. `freeze` maps globs over parameter names
    to contracts that must hold between the two, and `require` are codes that must be judged; both imply "findings",
    and so do `baseline` and `write_baseline`.
    Raises CheckpointError where a side is no checkpoint that we read, DamagedCheckpointError where
    its bytes do not fit each other, UsageError for a wrong option.
    """
    from ckptcheck.comparison.checkpoint_diff import DiffOptions
    from ckptcheck.verdict.decisions import decisions
    from ckptcheck.verdict.two_checkpoints import Gate, diff_files

    options = DiffOptions(
        only=tuple(only), ignored=tuple(without), renames=tuple(renames), left_section=left_section,
        right_section=right_section, cast=cast, rtol=rtol, atol=atol, tolerances=dict(tolerances),
        statistics=statistics,
    )  # fmt: skip
    by = "findings" if freeze or require or baseline or write_baseline else gate
    decided = decisions("diff", severity=severity, accept=accept, fail_on=fail_on, baseline=baseline,
                        write_baseline=write_baseline)  # fmt: skip
    asked = Gate(by, tuple(select), tuple(ignore), fail_on, dict(freeze), tuple(require), decided)
    return diff_files(Path(left), Path(right), options, asked, progress)


@no_garbage_search()
@memory_is_bounded()
def check(
    path: Path | str, *, target: str | None = None, purpose: str = "auto", freeze: Mapping[str, str] = NOTHING,
    select: Sequence[str] = ("CK",), ignore: Sequence[str] = (), require: Sequence[str] = (), fail_on: str = "error",
    severity: Mapping[str, str] = NOTHING, accept: Sequence[Acceptance] = (), baseline: Path | str | None = None,
    write_baseline: Path | str | None = None, progress: Progress | None = None,
) -> Result:  # fmt: skip
    """Whether a checkpoint is whole, and whether it can be resumed from or released.

    `purpose` is "auto", "resume" or "release". With `target` the load is tried in a process of its own. `freeze` maps
    globs over parameter names to contracts. `require` are codes that must be judged. A damaged checkpoint is a
    finding. Raises CheckpointError where `path` is absent or no checkpoint that we read, UsageError and TargetError
    for a question that cannot be asked.
    """
    from ckptcheck.verdict.check_question import CheckQuestion
    from ckptcheck.verdict.checking import check_checkpoint
    from ckptcheck.verdict.decisions import decisions

    decided = decisions("check", severity=severity, accept=accept, fail_on=fail_on, baseline=baseline,
                        write_baseline=write_baseline)  # fmt: skip
    question = CheckQuestion(
        purpose, target, dict(freeze), tuple(select), tuple(ignore), tuple(require), fail_on, decided
    )  # fmt: skip
    return check_checkpoint(Path(path), question, progress)


@no_garbage_search()
@memory_is_bounded()
def inspect(
    path: Path | str,
    *,
    names: Path | str | Sequence[str] | None = None,
    digests: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Say what is in a checkpoint, from its description: no tensor is read but step counters.

    `names` are parameter names in the optimizer's order, or a file that holds them, one a line. With `digests` all
    tensors are read, and each is told by a digest of its bytes. Raises as `diff`.
    """
    from ckptcheck.verdict.inspection import inspect_checkpoint, names_in

    listed = names_in(Path(names)) if isinstance(names, Path | str) else names
    return inspect_checkpoint(Path(path), listed, digests=digests, progress=progress)


def probe(
    subject: str = "",
    *,
    arguments: Mapping[str, Any] = NOTHING,
    exact: bool = False,
    baseline: Path | str | None = None,
    freeze: Mapping[str, str] = NOTHING,
    device: str = "cpu",
    seed: int = 0,
    steps: int = 20,
    timeout_s: float = 600.0,
    select: Sequence[str] = ("CK",),
    ignore: Sequence[str] = (),
    fail_on: str = "error",
    severity: Mapping[str, str] = NOTHING,
    accept: Sequence[Acceptance] = (),
    progress: Progress | None = None,
) -> Result:
    """Show by real steps what an optimizer makes of a parameter whose gradient is none, zero or not.

    `subject` is a class of torch.optim, "path/to/file.py:Class", "package.module:Class", a target, or "all" for every
    class of torch.optim; it may be left out with `exact`, which shows nine transitions in fractions and in float64
    steps. `arguments` go to the constructor. `baseline` is the saved JSON of an earlier probe. A target makes `steps`
    real steps, and `freeze` maps globs over its parameters to the contracts that they shall keep.
    Raises UsageError for options that do not go together, TargetError for what is no optimizer and no target or cannot
    be made, RunFailedError where a target's training does not come to its end.
    """
    from ckptcheck.verdict.asking import check_freeze
    from ckptcheck.verdict.decisions import decisions
    from ckptcheck.verdict.probing import ProbeQuestion, probe_contracts

    decided = decisions("probe", severity=severity, accept=accept, fail_on=fail_on)
    question = ProbeQuestion(
        subject, dict(arguments), exact, Path(baseline) if baseline else None, check_freeze(freeze), device, seed,
        steps, timeout_s, tuple(select), tuple(ignore), fail_on, decided,
    )  # fmt: skip
    return probe_contracts(question, progress)


def demo(*, progress: Progress | None = None) -> tuple[Result, Result]:
    """A clean resume and a broken one of two small built-in targets: (the clean result, the broken result)."""
    home = "ckptcheck.experiment.demo_targets"
    clean = verify(f"{home}:build", steps=8, resume_at=(4,), progress=progress)
    broken = verify(f"{home}:build_broken", steps=8, resume_at=(4,), progress=progress)
    return clean, broken
