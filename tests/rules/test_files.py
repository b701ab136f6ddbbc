"""CK1: what is told of a checkpoint's files, and what is not."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from ckptcheck.comparison.checkpoint_diff import CheckpointDiff, Kind, Row, SectionSummary
from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.finding import Finding, NotJudged, Severity
from ckptcheck.rules.files import judge_files
from ckptcheck.rules.known import is_known
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Danger, Defect, Flaw, Global, Member, RawTensor, RawTree, Storage
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import Entry, Group, Optimizer, Parameter, TrainingState
from tests.rules.judging import stale_moments


def tree(root: Any = None, *, nbytes: int = 1_000, **parts: Any) -> RawTree:
    """A checkpoint of one file with a checksum."""
    member = Member("", "data.pkl", nbytes, True, lambda: None)
    return RawTree(Path("x.pt"), "torch-zip", root, nbytes, **{"members": (member,), **parts})


def view(storage: Storage, shape: Sequence[int], offset: int = 0, stride: Sequence[int] | None = None,
         dtype: str = "float32") -> RawTensor:  # fmt: skip
    def read_into(start: int, buffer: memoryview) -> None:
        raise AssertionError("a rule reads no tensor")

    held = tuple(stride) if stride is not None else None
    return RawTensor(TensorSpec(dtype, tuple(shape)), read_into, storage, offset, held)


LARGE = Storage("", "0", 4 << 20)
SMALL = Storage("", "1", 4_000)


@dataclass(frozen=True)
class Firing:
    """A checkpoint that a rule must speak of, and what it must say."""

    what: str
    code: str
    raw: RawTree | None = None
    trouble: DamagedCheckpointError | None = None
    defects: tuple[Defect, ...] = ()
    says: tuple[str, ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity = Severity.ERROR
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.what


def of_flaw(code: str, flaw: Flaw) -> tuple[Firing, ...]:
    said = "member data/0 holds 8 bytes, 16 were promised"
    return (
        Firing(f"{flaw} ended the reading", code, None, DamagedCheckpointError(f"/tmp/x.pt: {said}", flaw),
               says=(f"/tmp/x.pt: {said}",), where={}),
        Firing(f"{flaw} in a file of a folder", code,
               tree(defects=(Defect(flaw, "optimizer.pt", said, {"promised": 16}),)),
               says=("optimizer.pt: ", said), where={"path": "optimizer.pt"},
               numbers={"promised": 16, "count": 1, "defects": [said]}),
        Firing(f"{flaw} found by verifying", code, tree(),
               defects=(Defect(flaw, "a.pt", said), Defect(flaw, "a.pt", "member data/1 too")),
               says=(said, "and 1 more"), where={"path": "a.pt"}, numbers={"count": 2}),
    )  # fmt: skip


def naming(*names: tuple[str, Danger], file: str = "") -> RawTree:
    return tree(globals=tuple(Global(file, name, danger) for name, danger in names))


FILE_FIRING = (
    *of_flaw("CK101", Flaw.UNREADABLE),
    *of_flaw("CK102", Flaw.CHECKSUM),
    *of_flaw("CK103", Flaw.INCOMPLETE),
    *of_flaw("CK107", Flaw.SHARD_SET),
    Firing("a command in a pickle", "CK104", naming(("posix.system", Danger.RUNS_CODE)),
           says=("posix.system", "any code"), where={}, numbers={"runs_code": ["posix.system"], "unknown": []}),
    Firing("a class of one's own", "CK104", naming(("__main__.Config", Danger.UNKNOWN), file="args.bin"),
           says=("args.bin: ", "__main__.Config"), where={"path": "args.bin"}, severity=Severity.WARNING,
           numbers={"unknown": ["__main__.Config"]}),
    Firing("a function of a known package", "CK104", naming(("transformers.utils.hub.run", Danger.UNKNOWN)),
           says=("transformers.utils.hub.run",), where={}, severity=Severity.WARNING),
    Firing("both in one file", "CK104", naming(("my.Thing", Danger.UNKNOWN), ("os.system", Danger.RUNS_CODE)),
           says=("os.system", "my.Thing"), where={}, numbers={"runs_code": ["os.system"], "unknown": ["my.Thing"]}),
    Firing("a row of a large table", "CK105", tree({"row": view(LARGE, (4,), 8)}, nbytes=8 << 20),
           says=("row uses 16 of 4194304 bytes",), where={"key": "row"}, severity=Severity.WARNING,
           numbers={"wasted_bytes": (4 << 20) - 16}),
    Firing("a small file that is mostly waste", "CK105", tree({"row": view(SMALL, (4,))}, nbytes=5_000),
           says=("row uses 16 of 4000",), where={}, severity=Severity.WARNING),
    Firing("a strided column", "CK105", tree({"column": view(LARGE, (1024,), 3, (1024,))}, nbytes=8 << 20),
           says=("column uses 4096 of",), where={}, severity=Severity.WARNING),
    Firing("an expanded number", "CK105", tree({"mask": view(LARGE, (1024, 1024), 0, (0, 0))}, nbytes=8 << 20),
           says=("mask uses 4 of",), where={}, severity=Severity.WARNING),
)  # fmt: skip


def judged(one: Firing) -> tuple[tuple[Finding, ...], tuple[NotJudged, ...]]:
    return judge_files(one.raw, one.trouble, one.defects, ("CK",), ())


@pytest.mark.parametrize("one", FILE_FIRING, ids=str)
def test_what_is_wrong_with_the_files_is_told(one: Firing):
    findings, _ = judged(one)
    assert [finding.code for finding in findings] == [one.code]
    (finding,) = findings
    assert finding.severity is one.severity
    assert all(words in finding.message for words in one.says), finding.message
    assert {name: getattr(finding.where, name) for name in one.where} == one.where
    assert {name: finding.evidence[name] for name in one.numbers} == one.numbers
    assert finding.fix


HALVES = {"a": view(LARGE, (512 * 1024,)), "b": view(LARGE, (512 * 1024,), 512 * 1024)}
SILENT: dict[str, RawTree] = {
    "nothing at all": tree(),
    "one tensor a storage": tree({"w": view(SMALL, (10, 100))}),
    "a flat buffer cut in two": tree(HALVES, nbytes=4 << 20),
    "a buffer of which half is used": tree({"a": HALVES["a"], "pad": view(LARGE, (64,), 1 << 19)}, nbytes=4 << 20),
    "even and odd elements of one storage": tree(
        {"even": view(LARGE, (1 << 19,), 0, (2,)), "odd": view(LARGE, (1 << 19,), 1, (2,))}, nbytes=4 << 20
    ),
    "columns of one matrix": tree({str(n): view(LARGE, (1024,), n, (1024,)) for n in range(1024)}, nbytes=4 << 20),
    "a small view in a large file": tree({"row": view(SMALL, (4,))}, nbytes=1 << 20),
    "an empty tensor in a storage of none": tree({"none": view(Storage("", "2", 0), (0,))}),
    "what trainers save": naming(
        ("transformers.training_args.TrainingArguments", Danger.UNKNOWN),
        ("transformers.trainer_utils.SaveStrategy", Danger.UNKNOWN),
        ("accelerate.utils.dataclasses.DistributedType", Danger.UNKNOWN),
        ("deepspeed.runtime.fp16.loss_scaler.LossScaler", Danger.UNKNOWN),
        ("deepspeed.utils.tensor_fragment.fragment_address", Danger.UNKNOWN),
        ("torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING", Danger.UNKNOWN),
        ("lightning.fabric.utilities.data.AttributeDict", Danger.UNKNOWN),
        ("omegaconf.dictconfig.DictConfig", Danger.UNKNOWN),
        ("collections.OrderedDict", Danger.PLAIN),
    ),
}


@pytest.mark.parametrize("name", SILENT)
def test_what_is_normal_is_not_told(name):
    assert judge_files(SILENT[name], None, ()) == ((), ())


@pytest.mark.parametrize(
    "name",
    ["transformers.pwn", "transformersx.Thing", "my.transformers.Thing", "__main__.Net", "torch.load", "Thing", "",
     "torch.nn", "deepspeed.utils.run"],
)  # fmt: skip
def test_only_classes_of_listed_packages_are_known(name):
    assert not is_known(name)


def test_storages_are_bloated_from_half_unused_on():
    half = {"a": HALVES["a"]}
    assert judge_files(tree(half, nbytes=4 << 20), None, ())[0]
    more = {"a": view(LARGE, (512 * 1024 + 1,))}
    assert not judge_files(tree(more, nbytes=4 << 20), None, ())[0]


def test_what_several_views_share_counts_once():
    part = 400 * 1024
    views = {"flat": view(LARGE, (part,)), "square": view(LARGE, (640, 640)), "late": view(LARGE, (64,), part - 32)}
    (found,), _ = judge_files(tree(views, nbytes=4 << 20), None, ())
    assert found.evidence["wasted_bytes"] == LARGE.nbytes - 4 * (part + 32)


def test_waste_is_told_from_one_mebibyte_or_half_the_checkpoint_on():
    def told(wasted: int, nbytes: int) -> bool:
        storage = Storage("", "0", wasted + 4)
        return bool(judge_files(tree({"x": view(storage, (1,))}, nbytes=nbytes), None, ())[0])

    assert told(1 << 20, 1 << 40)
    assert not told((1 << 20) - 1, 1 << 40)
    assert told(500, 1_000)
    assert not told(499, 1_000)


def test_one_finding_a_file():
    raw = tree(
        globals=(*naming(("a.B", Danger.UNKNOWN), ("a.C", Danger.UNKNOWN), file="1").globals,
                 *naming(("a.B", Danger.UNKNOWN), file="2").globals),
        defects=tuple(Defect(Flaw.UNREADABLE, file, said) for file, said in (("1", "x"), ("2", "x"), ("1", "y"))),
    )  # fmt: skip
    found, _ = judge_files(raw, None, ())
    assert [(one.code, one.where.path) for one in found] == [
        ("CK101", "1"), ("CK101", "2"), ("CK104", "1"), ("CK104", "2")
    ]  # fmt: skip


def test_a_defect_that_reading_and_verifying_both_name_is_told_once():
    defect = Defect(Flaw.CHECKSUM, "a", "x")
    (found,) = judge_files(tree(defects=(defect,)), None, (Defect(Flaw.CHECKSUM, "a", "x"),))[0]
    assert found.evidence["count"] == 1


# What could not be judged.


def test_nothing_is_judged_of_what_could_not_be_read():
    trouble = DamagedCheckpointError("x.pt: is cut short", Flaw.UNREADABLE)
    found, not_judged = judge_files(None, trouble, ())
    assert [one.code for one in found] == ["CK101"]
    assert {one.code: one.reason for one in not_judged} == dict.fromkeys(
        ("CK102", "CK104", "CK105"), "the checkpoint could not be read"
    )


def test_checksums_are_not_judged_where_there_are_none():
    bare = Member("", "data/0", 400, False, lambda: None)
    for members in ((), (bare,)):
        (one,) = judge_files(tree(members=members), None, ())[1]
        assert one.code == "CK102"
        assert "no checksum" in one.reason


def test_bytes_without_a_checksum_are_named_beside_those_with_one():
    whole = Member("optimizer.pt", "data/0", 400, True, lambda: None)
    bare = Member("model.safetensors", "", 1_000, False, lambda: None)
    found, (one,) = judge_files(tree(members=(whole, bare)), None, (Defect(Flaw.CHECKSUM, "optimizer.pt", "x"),))
    assert [finding.code for finding in found] == ["CK102"]
    assert one == NotJudged("CK102", "1000 bytes carry no checksum: model.safetensors")
    empty = Member("model.safetensors", "", 0, False, lambda: None)
    assert judge_files(tree(members=(whole, empty)), None, ()) == ((), ())


@pytest.mark.parametrize(
    ("select", "ignore", "codes"),
    [
        (("CK1",), (), ["CK101", "CK104"]),
        (("CK2",), (), []),
        (("CK",), ("CK101",), ["CK104"]),
        (("CK101",), (), ["CK101"]),
    ],
)
def test_codes_of_files_are_selected_and_ignored_by_prefix(select, ignore, codes):
    raw = replace(naming(("os.system", Danger.RUNS_CODE)), defects=(Defect(Flaw.UNREADABLE, "", "x"),))
    found, not_judged = judge_files(raw, None, (), select, ignore)
    assert [one.code for one in found] == codes
    assert not not_judged


# Moments that stayed the same.


@dataclass(frozen=True, eq=False)
class Held:
    """A tensor in memory."""

    spec: TensorSpec
    content: bytes

    def read_into(self, start: int, buffer: memoryview) -> None:
        buffer[:] = self.content[start : start + len(buffer)]

    def fetch(self) -> memoryview:
        return memoryview(self.content)


def moment(*values: float) -> Entry:
    spec = TensorSpec("float32", (len(values),))
    return Entry(spec, None, ref=Held(spec, struct.pack(f"<{len(values)}f", *values)))


def counter(step: float) -> Entry:
    return Entry(TensorSpec("float32", ()), None, value=step)


Moments = Mapping[str, tuple[float, ...]]


def checkpoint(step: int | None, counters: float | None, moments: Mapping[str, Moments]) -> Checkpoint:
    state: dict[str, dict[str, Entry]] = {
        name: ({} if counters is None else {"step": counter(counters)})
        | {key: moment(*values) for key, values in keys.items()}
        for name, keys in moments.items()
    }
    names = tuple(moments)
    whole = TrainingState("x", step, {name: Parameter(name, moment(1.0)) for name in names},
                          optimizers=(Optimizer(None, (Group(names),), state),))  # fmt: skip
    return Checkpoint(tree(), "plain", whole)


def rows_between(left: Checkpoint, right: Checkpoint, *weights: str) -> CheckpointDiff:
    """The comparison of two checkpoints of one optimizer whose parameters are the same; `weights` changed."""
    rows = [Row("model", name, None, Kind.CHANGED, None, None) for name in weights]
    before, after = (side.state.optimizers[0].state for side in (left, right))
    for name, keys in before.items():
        for key in {**keys, **after[name]}:
            one, other = keys.get(key), after[name].get(key)
            if one is None or other is None:
                kind = Kind.ADDED if one is None else Kind.REMOVED
                rows.append(Row("optimizer", name, key, kind, one, other, 0))
            elif (one.value, one.ref and one.ref.fetch()) != (other.value, other.ref and other.ref.fetch()):
                rows.append(Row("optimizer", name, key, Kind.CHANGED, one, other, 0))
    tensors = sum(map(len, before.values()))
    return CheckpointDiff(left, right, tuple(rows), (SectionSummary("optimizer", tensors=tensors),))


ADAM = {"a": {"exp_avg": (1.0, 2.0), "exp_avg_sq": (3.0, 4.0)}, "b": {"exp_avg": (5.0,), "exp_avg_sq": (6.0,)}}
SGD = {"a": {"momentum_buffer": (1.0,)}}
MOVED = {"a": {"exp_avg": (1.5, 2.0), "exp_avg_sq": (3.5, 4.0)}, "b": {"exp_avg": (5.5,), "exp_avg_sq": (6.5,)}}
ZERO = {"a": {"exp_avg": (0.0, 0.0), "exp_avg_sq": (0.0, 0.0)}}


@dataclass(frozen=True)
class StaleFiring:
    """Two checkpoints of which the right one holds the left one's moments."""

    what: str
    diff: CheckpointDiff
    parameters: tuple[str, ...]
    code: str = "CK106"

    def __str__(self) -> str:
        return self.what


STALE_FIRING = (
    StaleFiring("counters advanced, no moment did",
                rows_between(checkpoint(None, 2.0, ADAM), checkpoint(None, 4.0, ADAM)), ("a", "b")),
    StaleFiring("one parameter stayed",
                rows_between(checkpoint(None, 2.0, ADAM), checkpoint(None, 4.0, {**MOVED, "b": ADAM["b"]})), ("b",)),
    StaleFiring("no counter, but the step and a weight changed",
                rows_between(checkpoint(2, None, SGD), checkpoint(3, None, SGD), "a"), ("a",)),
)  # fmt: skip
FIRING = (*FILE_FIRING, *STALE_FIRING)


@pytest.mark.parametrize("one", STALE_FIRING, ids=str)
def test_moments_that_stayed_while_the_run_went_on_are_told(one: StaleFiring):
    (found,), not_judged = stale_moments(one.diff)
    assert (found.code, found.severity) == ("CK106", Severity.WARNING)
    assert found.evidence["parameters"] == list(one.parameters)
    assert found.where.optimizer == 0
    assert found.where.parameter == one.parameters[0]
    assert f"{len(one.parameters)} parameter" in found.message
    assert not not_judged


@pytest.mark.parametrize(
    "diff",
    [
        pytest.param(rows_between(checkpoint(2, 2.0, ADAM), checkpoint(2, 2.0, ADAM)), id="one checkpoint twice"),
        pytest.param(rows_between(checkpoint(2, 2.0, ADAM), checkpoint(3, 3.0, MOVED), "a", "b"), id="the next step"),
        pytest.param(rows_between(checkpoint(2, 2.0, ADAM), checkpoint(2, 2.0, ADAM), "a"), id="a weight edited"),
        pytest.param(rows_between(checkpoint(4, 4.0, ADAM), checkpoint(2, 2.0, ADAM)), id="turned round"),
        pytest.param(rows_between(checkpoint(2, 2.0, ZERO), checkpoint(3, 3.0, ZERO)), id="a gradient always zero"),
        pytest.param(rows_between(checkpoint(2, None, SGD), checkpoint(3, None, SGD)), id="frozen meanwhile"),
        pytest.param(rows_between(checkpoint(2, 2.0, ADAM), checkpoint(3, 2.0, ADAM)), id="updates skipped"),
        pytest.param(rows_between(checkpoint(2, 2.0, ADAM), checkpoint(3, 3.0, {**MOVED, "a": {}}), "a"), id="dropped"),
        pytest.param(
            rows_between(
                checkpoint(2, 2.0, ADAM), checkpoint(3, 3.0, {**ADAM, "a": {**ADAM["a"], "exp_avg": (9.0, 9.0)},
                                                              "b": MOVED["b"]})
            ),
            id="one moment of two moved",
        ),
    ],
)  # fmt: skip
def test_moments_that_may_stay_are_not_told(diff: CheckpointDiff):
    assert stale_moments(diff) == ((), ())


def test_a_parameter_that_the_right_side_lacks_as_a_whole_is_not_told():
    left, right = checkpoint(2, None, SGD), checkpoint(3, None, {"other": SGD["a"]})
    rows = (Row("model", "a", None, Kind.CHANGED, None, None), Row("optimizer", "a", None, Kind.REMOVED, None, None, 0))
    assert stale_moments(CheckpointDiff(left, right, rows, (SectionSummary("optimizer", tensors=1),))) == ((), ())


def test_moments_that_were_not_compared_are_not_judged():
    diff = STALE_FIRING[0].diff
    for summaries in ((), (SectionSummary("optimizer", tensors=1),)):
        found, (one,) = stale_moments(replace(diff, summaries=summaries))
        assert not found
        assert one == NotJudged("CK106", "the optimizer state was not compared in full")
    left = replace(diff, left=Checkpoint(tree(), "plain", TrainingState("x", 1, {})))
    assert stale_moments(left)[1] == (NotJudged("CK106", "the left checkpoint holds no moments of an optimizer"),)
    assert stale_moments(diff, ignore=("CK106",)) == ((), ())
