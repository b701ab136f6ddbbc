"""Golden twins: of two checkpoints that differ in one known thing, `diff` names this thing and nothing else."""

import copy
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from ckptcheck.comparison.checkpoint_diff import CheckpointDiff, Kind
from ckptcheck.comparison.checkpoints import diff_checkpoints
from ckptcheck.conventions.explaining import explain
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.training_state import Entry
from tests.readers.same_content import State, Trained
from tests.rules.judging import stale_moments

NAMES = ("emb.weight", "fc.weight", "norm.weight", "norm.bias", "fc.bias")
"""The optimizer's order: two decayed, three not."""
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def flip_lowest_bit(tensor: torch.Tensor, *index: int) -> float:
    """Change one element by one unit in the last place; returns how far it moved."""
    before = tensor[index].to(torch.float64).item()
    tensor.view(BITS[tensor.element_size()])[index] ^= 1
    return abs(tensor[index].to(torch.float64).item() - before)


def compare(left: State, right: State, folder: Path) -> CheckpointDiff:
    torch.save(left, folder / "left.pt")
    torch.save(right, folder / "right.pt")
    return diff_checkpoints(*(explain(read_raw(folder / f"{side}.pt")) for side in ("left", "right")))


@pytest.fixture
def state() -> State:
    return copy.deepcopy(Trained(named=True).state())


def moments(state: State, name: str) -> dict[str, torch.Tensor]:
    held: dict[str, torch.Tensor] = state["optimizer"]["state"][NAMES.index(name)]
    return held


def number(entry: Entry | None) -> float:
    assert entry is not None
    assert entry.ref is not None
    (value,) = struct.unpack("<f", entry.ref.fetch())
    return float(value)


def test_a_state_and_its_copy_have_the_same_content(state: State, tmp_path: Path):
    found = compare(state, copy.deepcopy(state), tmp_path)
    assert found.same_content
    assert not found.not_compared


@pytest.mark.parametrize(
    ("name", "index"), [("emb.weight", (11, 5)), ("fc.weight", (2, 3)), ("fc.bias", (0,)), ("norm.bias", (5,))]
)
@pytest.mark.parametrize("key", ["exp_avg", "exp_avg_sq"])
def test_one_ulp_in_one_moment_is_named(state: State, tmp_path: Path, name: str, index: tuple[int, ...], key: str):
    changed = copy.deepcopy(state)
    moved = flip_lowest_bit(moments(changed, name)[key], *index)
    (row,) = compare(state, changed, tmp_path).rows
    assert (row.section, row.parameter, row.key, row.kind) == ("optimizer", name, key, Kind.CHANGED)
    assert (row.optimizer, row.group) == (0, 0 if name.endswith("b.weight") or name == "fc.weight" else 1)
    exact = row.difference
    assert exact is not None
    assert (exact.differing, exact.numel) == (1, moments(state, name)[key].numel())
    assert (exact.first_at, exact.max_abs_at, exact.max_abs) == (index, index, moved)
    assert (exact.max_ulp, exact.median_ulp, exact.sign_flips, exact.nan, exact.inf) == (1, 1, 0, 0, 0)


def test_zeroed_second_moments_are_named(state: State, tmp_path: Path):
    changed = copy.deepcopy(state)
    before = moments(state, "fc.weight")["exp_avg_sq"]
    moments(changed, "fc.weight")["exp_avg_sq"].zero_()
    (row,) = compare(state, changed, tmp_path).rows
    assert (row.section, row.parameter, row.key, row.kind) == ("optimizer", "fc.weight", "exp_avg_sq", Kind.CHANGED)
    exact = row.difference
    assert exact is not None
    assert (exact.differing, exact.numel) == (int(before.count_nonzero()), 36)
    assert exact.first_at == tuple(before.nonzero()[0].tolist())
    assert exact.max_abs == before.max().item()
    assert exact.rel_l2 == pytest.approx(1.0, abs=1e-15)
    assert exact.max_ulp == before.view(torch.int32).max().item()


def test_state_of_two_parameters_that_is_missing_is_named(state: State, tmp_path: Path):
    changed = copy.deepcopy(state)
    for name in ("emb.weight", "fc.bias"):
        del changed["optimizer"]["state"][NAMES.index(name)]
    for sides, kind in (((state, changed), Kind.REMOVED), ((changed, state), Kind.ADDED)):
        found = compare(*sides, tmp_path)
        assert {(row.section, row.kind) for row in found.rows} == {("optimizer", kind)}
        assert {(row.parameter, row.key) for row in found.rows} == {
            (name, key) for name in ("emb.weight", "fc.bias") for key in ("step", "exp_avg", "exp_avg_sq")
        }


def test_groups_that_swapped_their_members_are_named(state: State, tmp_path: Path):
    changed = copy.deepcopy(state)
    one, other = changed["optimizer"]["param_groups"]
    for key in ("params", "param_names"):
        one[key], other[key] = other[key], one[key]
    found = compare(state, changed, tmp_path)
    assert not found.same_content
    assert {(row.section, row.parameter, row.key, row.kind) for row in found.rows} == {
        ("optimizer", None, "weight_decay", Kind.CHANGED), ("optimizer", None, "param_groups", Kind.MOVED)
    }  # fmt: skip
    assert [(row.group, row.left.value, row.right.value) for row in found.rows if row.group is not None] == [
        (0, 0.01, 0.0), (1, 0.0, 0.01)
    ]  # fmt: skip


def test_a_parameter_that_changed_its_group_is_named(state: State, tmp_path: Path):
    changed = copy.deepcopy(state)
    decayed, rest = changed["optimizer"]["param_groups"]
    for key in ("params", "param_names"):
        rest[key].append(decayed[key].pop(1))
    found = compare(state, changed, tmp_path)
    assert [(row.parameter, row.key, row.kind) for row in found.rows] == [("fc.weight", "group", Kind.MOVED)]
    assert [(one.parameter, one.optimizer, one.left_group, one.right_group) for one in found.regrouped] == [
        ("fc.weight", 0, 0, 1)
    ]
    assert not found.same_content


def test_the_next_step_is_named_section_by_section(tmp_path: Path):
    run = Trained(named=True)
    before = copy.deepcopy(run.state())
    run.optimizer.zero_grad()
    tokens = torch.arange(12)
    torch.nn.functional.cross_entropy(run.model(tokens), tokens).backward()
    run.optimizer.step()
    run.scheduler.step()
    after = {**copy.deepcopy(run.state()), "step": 3}
    found = compare(before, after, tmp_path)
    differing = {one.section: one.differing for one in found.summaries if one.differing}
    states = [(row.parameter, row.key) for row in found.rows if row.section == "optimizer" and row.parameter]
    assert sorted(states) == sorted((name, key) for name in NAMES for key in ("step", "exp_avg", "exp_avg_sq"))
    counters = [row for row in found.rows if row.key == "step" and row.parameter]
    assert {(number(row.left), number(row.right)) for row in counters} == {(2.0, 3.0)}
    rates = [row for row in found.rows if row.key == "lr"]
    assert [(row.group, row.left.value, row.right.value) for row in rates if row.left and row.right] == [
        (group, 1e-2 * 0.25, 1e-2 * 0.125) for group in (0, 1)
    ]
    weights = {row.parameter for row in found.rows if row.section == "model"}
    assert weights == {*NAMES, "head.weight", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert differing["model"] == 9  # a tied weight under both its names
    assert differing["optimizer"] == 15 + 2
    assert differing["progress"] == 1
    assert "rng" not in differing
    assert stale_moments(found) == ((), ())


def test_moments_of_the_step_before_are_named(tmp_path: Path):
    run = Trained(named=True)
    before = copy.deepcopy(run.state())
    after = copy.deepcopy(before)
    for name in NAMES:
        moments(after, name)["step"] += 1
        after["model"][name] += 1
    (found,), _ = stale_moments(compare(before, after, tmp_path))
    assert found.code == "CK106"
    assert found.evidence["parameters"] == list(NAMES)


@dataclass(frozen=True)
class Twin:
    """A tensor of one dtype, one element of which moves by one unit in the last place."""

    dtype: torch.dtype
    index: tuple[int, ...]
    ulp: int | None = 1

    def __str__(self) -> str:
        return str(self.dtype)


TWINS = (
    Twin(torch.bfloat16, (1, 2)),
    Twin(torch.float16, (1, 2)),
    Twin(torch.float32, (0, 1)),
    Twin(torch.float64, (3, 4)),
    Twin(torch.float8_e4m3fn, (2, 0)),
    Twin(torch.float8_e5m2, (2, 1)),
    Twin(torch.int64, (1, 1), None),
    Twin(torch.uint8, (1, 1), None),
)


@pytest.mark.parametrize("twin", TWINS, ids=str)
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_one_bit_of_every_dtype_is_named(twin: Twin, legacy: bool, tmp_path: Path):
    values = (torch.arange(20).reshape(4, 5) + 16.0).to(twin.dtype)
    changed = values.clone()
    moved = flip_lowest_bit(changed, *twin.index)
    files = [tmp_path / "left.pt", tmp_path / "right.pt"]
    for file, tensor in zip(files, (values, changed), strict=True):
        whole = {"model": {"other": torch.ones(3), "fc.weight": tensor}}
        torch.save(whole, file, _use_new_zipfile_serialization=not legacy)
    (row,) = diff_checkpoints(*(explain(read_raw(file)) for file in files)).rows
    assert (row.section, row.parameter, row.kind) == ("model", "fc.weight", Kind.CHANGED)
    exact = row.difference
    assert exact is not None
    assert (exact.differing, exact.numel, exact.first_at) == (1, 20, twin.index)
    assert (exact.max_ulp, exact.max_abs, exact.max_abs_at) == (twin.ulp, moved, twin.index)


@pytest.mark.parametrize("part", [0, 1], ids=["real", "imaginary"])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_one_bit_of_a_complex_number_is_named_part_by_part(dtype: torch.dtype, part: int, tmp_path: Path):
    values = torch.complex(torch.arange(6.0) + 1, torch.arange(6.0) - 9).to(dtype).reshape(2, 3)
    changed = values.clone()
    moved = flip_lowest_bit(torch.view_as_real(changed), 1, 2, part)
    (row,) = compare({"model": {"w": values}}, {"model": {"w": changed}}, tmp_path).rows
    exact = row.difference
    assert exact is not None
    assert (exact.differing, exact.numel, exact.first_at) == (1, 12, (1, 2, part))
    assert (exact.max_ulp, exact.max_abs) == (1, moved)


SMALL: tuple[tuple[str, Callable[[State], Any], tuple[str, str | None, str | None]], ...] = (
    ("decay", lambda state: state["optimizer"]["param_groups"][0].update(weight_decay=math.nextafter(0.01, 1)),
     ("optimizer", None, "weight_decay")),
    ("schedule", lambda state: state["scheduler"].update(last_epoch=3), ("scheduler", None, "last_epoch")),
    ("progress", lambda state: state.update(step=3), ("progress", None, "step")),
    ("generator", lambda state: state["rng"]["torch"].bitwise_xor_(torch.tensor([1, *[0] * 5055], dtype=torch.uint8)),
     ("rng", None, "torch")),
    ("buffer", lambda state: state["model"]["norm.num_batches_tracked"].add_(1),
     ("model", "norm.num_batches_tracked", None)),
    ("sign of zero", lambda state: state["model"].update({"fc.bias": torch.tensor([-0.0, *[1.0] * 5])}),
     ("model", "fc.bias", None)),
)  # fmt: skip


@pytest.mark.parametrize(("what", "change", "expected"), SMALL, ids=[one[0] for one in SMALL])
def test_one_small_change_is_named_and_nothing_else(what, change, expected, state: State, tmp_path: Path):
    state["model"]["fc.bias"] = torch.tensor([0.0, *[1.0] * 5])
    changed = copy.deepcopy(state)
    change(changed)
    rows = compare(state, changed, tmp_path).rows
    assert [(row.section, row.parameter, row.key) for row in rows] == [expected]
    assert rows[0].kind is Kind.CHANGED


def test_bytes_of_a_nan_are_equal_to_themselves(state: State, tmp_path: Path):
    state["model"]["fc.bias"] = torch.full((6,), math.nan)
    state["scheduler"]["_last_lr"] = [math.nan, 0.0]
    assert compare(state, copy.deepcopy(state), tmp_path).same_content
