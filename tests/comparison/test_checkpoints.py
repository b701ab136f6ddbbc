"""Two checkpoints in memory: what differs, how far, and what is no difference."""

import subprocess
import sys

import pytest
import torch

from ckptcheck.comparison.checkpoint_diff import Kind
from ckptcheck.errors import UsageError
from ckptcheck.state.checkpoint import NameSource, Naming
from ckptcheck.state.raw import RawTensor
from ckptcheck.state.tensor import TensorSpec
from tests.comparison.held import (
    checkpoint,
    diff,
    entry,
    moments,
    nudged,
    of_bytes,
    optimizer,
    raw_tensor,
    told,
    trained,
    weights,
)


def test_the_same_content_is_the_same_and_says_how_much_was_compared():
    found = diff(trained(schedule={"last_epoch": 5}), trained(schedule={"last_epoch": 5}))
    assert found.same_content
    assert (found.compared.parameters, found.compared.state_tensors) == (3, 9)
    assert found.compared.bytes == 2430 * 4 * 3 + 3 * 4
    assert [(one.section, one.tensors, one.values) for one in found.summaries] == [
        ("model", 3, 0),
        ("optimizer", 9, 2),
        ("scheduler", 0, 1),
    ]
    assert (found.paired_by, found.not_compared, found.notes) == (("name",), (), ())


def test_one_ulp_in_one_moment_is_named_exactly():
    state = moments()
    state["fc.weight"]["exp_avg"] = nudged(state["fc.weight"]["exp_avg"], 124)
    found = diff(trained(), trained(state))
    (row,) = found.rows
    assert (row.section, row.parameter, row.key, row.kind) == ("optimizer", "fc.weight", "exp_avg", Kind.CHANGED)
    assert (row.optimizer, row.group) == (0, 0)
    assert row.difference is not None
    assert (row.difference.differing, row.difference.first_at, row.difference.max_ulp) == (1, (3, 4), 1)
    assert [one.differing for one in found.summaries] == [0, 1]


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (torch.tensor([0.0, 1.0]), torch.tensor([-0.0, 1.0]), False),
        (torch.tensor([torch.nan, 1.0]), torch.tensor([torch.nan, 1.0]), True),
        (torch.tensor([1, 2]), torch.tensor([1, 2]), True),
        (torch.empty(0), torch.empty(0), True),
    ],
)
def test_bytes_decide(left, right, same):
    found = diff(checkpoint({"w": left}), checkpoint({"w": right}))
    assert found.same_content is same


@pytest.mark.parametrize(
    ("right", "kind", "measured"),
    [
        (torch.zeros(4, 3), Kind.SHAPE, False),
        (torch.zeros(3, 4, dtype=torch.float64), Kind.DTYPE, True),
        (torch.zeros(3, 4, dtype=torch.complex64), Kind.DTYPE, False),
        (0.0, Kind.CHANGED, False),
    ],
)
def test_another_shape_dtype_or_type_is_told_apart(right, kind, measured):
    (row,) = diff(checkpoint({"w": torch.zeros(3, 4)}), checkpoint({"w": right})).rows
    assert (row.kind, row.difference is not None) == (kind, measured)


def test_what_only_one_side_has_is_removed_or_added_in_the_order_of_the_left():
    left = checkpoint({"a": torch.ones(2), "b": torch.ones(3)}, scaler={"scale": 2.0})
    right = checkpoint({"b": torch.ones(3), "c": torch.ones(4)}, rng={"torch": torch.ones(5)})
    found = diff(left, right)
    assert told(found) == [
        ("model/a", "removed"),
        ("model/c", "added"),
        ("scaler/scale", "removed"),
        ("rng/torch", "added"),
    ]
    assert [(one.section, one.added, one.removed) for one in found.summaries] == [
        ("model", 1, 1),
        ("scaler", 0, 1),
        ("rng", 1, 0),
    ]


def test_a_parameter_that_the_other_side_calls_a_buffer_is_the_same_tensor():
    found = diff(checkpoint({"w": torch.ones(2)}), checkpoint(buffers={"w": torch.ones(2)}))
    assert found.same_content
    assert found.summaries[0].tensors == 1


def test_equal_after_the_cast_is_counted_and_is_no_row():
    narrow = {name: value.bfloat16() for name, value in weights().items()}
    found = diff(checkpoint(weights()), checkpoint(narrow), cast="bf16")
    assert found.same_content
    assert (found.cast, found.cast_equal, found.summaries[0].tolerated) == ("bfloat16", 3, 3)
    assert told(diff(checkpoint(weights()), checkpoint(narrow))) == [(f"model/{name}", "dtype") for name in weights()]


def test_the_cast_does_not_hide_what_differs_after_it():
    narrow = {name: value.bfloat16() for name, value in weights().items()}
    narrow["fc.weight"][3, 4] += 1
    found = diff(checkpoint(weights()), checkpoint(narrow), cast="torch.bfloat16")
    assert told(found) == [("model/fc.weight", "dtype")]
    assert found.cast_equal == 2


def test_an_unknown_cast_is_refused():
    with pytest.raises(UsageError, match="bfloat16"):
        diff(trained(), trained(), cast="int4")


@pytest.mark.parametrize(
    ("tolerances", "rows"),
    [
        ({"atol": 1e-2}, ["optimizer/lr"]),
        ({"atol": 1e-2, "tolerances": {"hyper": (0.0, 1e-2)}}, []),
        ({"atol": 1e-4}, ["model/w", "optimizer/w/exp_avg", "optimizer/lr"]),
        ({"tolerances": {"param": (0.0, 1e-2)}}, ["optimizer/w/exp_avg", "optimizer/lr"]),
        ({"tolerances": {"state:float32": (0.0, 1e-2)}}, ["model/w", "optimizer/lr"]),
        ({"tolerances": {"state:float64": (0.0, 1e-2)}}, ["model/w", "optimizer/w/exp_avg", "optimizer/lr"]),
        ({"atol": 1.0, "tolerances": {"state": (0.0, 0.0)}}, ["optimizer/w/exp_avg", "optimizer/lr"]),
        ({"tolerances": {"optimizer": (0.5, 0.0)}}, ["model/w"]),
    ],
)
def test_tolerances_go_by_role_and_dtype_the_most_specific_first(tolerances, rows):
    def side(off):
        state = {"w": {"exp_avg": torch.ones(5) + off}}
        return checkpoint({"w": torch.ones(5) + off}, optimizer([["w"]], state, [{"lr": 0.1 + off}]))

    found = diff(side(0.0), side(1e-3), **tolerances)
    assert sorted(place for place, _ in told(found)) == sorted(rows)
    assert sum(one.tolerated for one in found.summaries) == 3 - len(rows)


def test_elements_beyond_the_tolerance_are_counted():
    (row,) = diff(checkpoint({"w": torch.zeros(5)}), checkpoint({"w": torch.tensor([0, 1e-3, 1, 2, 3])}), atol=0.5).rows
    assert row.beyond == 3
    assert row.difference is not None
    assert row.difference.differing == 4


def test_without_statistics_differences_are_named_and_not_measured():
    reads: list[int] = []
    left = checkpoint({"w": raw_tensor(torch.zeros(1 << 20), reads=reads)})
    (row,) = diff(left, checkpoint({"w": torch.ones(1 << 20)}), statistics=False).rows
    assert (row.kind, row.difference) == (Kind.CHANGED, None)
    assert sum(reads) < 2 << 20


def test_what_cannot_be_read_is_not_compared_and_said():
    unknown = of_bytes(b"1234", TensorSpec("float6_e3m2fn", (4,)))
    one = checkpoint({"w": unknown, "v": torch.ones(2)})
    found = diff(one, one)
    assert found.summaries[0].tensors == 1
    assert any("model/w" in said for said in found.not_compared)


def test_gradients_and_modes_count_only_where_both_sides_keep_them():
    model = {"w": torch.ones(2)}
    with_both = checkpoint(model, gradients={"w": torch.ones(2)}, modes={"": True})
    assert diff(with_both, checkpoint(model)).same_content
    other = checkpoint(model, gradients={"w": torch.zeros(2)}, modes={"": False})
    assert told(diff(with_both, other)) == [("other/w/grad", "changed"), ("other/training ", "changed")]


def test_sections_go_by_the_names_that_users_know():
    left = checkpoint(schedule={"last_epoch": 1}, extra={"epoch": 1, "args.name": "a"}, data={"position": 1})
    right = checkpoint(schedule={"last_epoch": 2}, extra={"epoch": 2, "args.name": "b"}, data={"position": 2})
    assert told(diff(left, right)) == [
        ("scheduler/last_epoch", "changed"),
        ("data/position", "changed"),
        ("progress/epoch", "changed"),
        ("other/args.name", "changed"),
    ]


def test_a_step_that_only_the_conventions_tell_counts_and_one_in_the_files_is_not_told_twice():
    assert told(diff(checkpoint(step=1), checkpoint(step=2))) == [("progress/step", "changed")]
    assert diff(checkpoint(step=1), checkpoint()).same_content
    left, right = checkpoint(step=1, extra={"global_step": 1}), checkpoint(step=2, extra={"global_step": 2})
    assert told(diff(left, right)) == [("progress/global_step", "changed")]


def test_damage_met_while_comparing_reaches_the_caller():
    def read_into(start_bytes: int, buffer: memoryview) -> None:
        raise OSError("gone")

    broken = entry(RawTensor(TensorSpec("float32", (4,)), read_into))
    with pytest.raises(OSError, match="gone"):
        diff(checkpoint({"w": broken}), checkpoint({"w": torch.ones(4)}))


def test_twenty_thousand_parameters_are_paired():
    names = [f"layers.{place}.weight" for place in range(20_000)]
    one = entry(torch.ones(1))
    state = {name: {"step": one, "exp_avg": one, "exp_avg_sq": one} for name in names}
    keyed = Naming(NameSource.KEYS, certain=True, reason="")
    left = checkpoint(dict.fromkeys(names, one), optimizer([names], state))
    right = checkpoint(dict.fromkeys(names, one), optimizer([names[::-1]], state), naming=keyed)
    found = diff(left, right)
    assert found.same_content
    assert found.compared.state_tensors == 60_000


def test_neither_numpy_nor_torch_is_needed_where_all_is_equal():
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from ckptcheck.comparison.checkpoints import diff_checkpoints\n"
        "from ckptcheck.state.checkpoint import Checkpoint\n"
        "from ckptcheck.state.raw import RawTensor, RawTree\n"
        "from ckptcheck.state.tensor import TensorSpec\n"
        "from ckptcheck.state.training_state import Entry, Parameter, TrainingState\n"
        "def read_into(start, buffer):\n"
        "    buffer[:] = bytes(len(buffer))\n"
        "spec = TensorSpec('float32', (9,))\n"
        "one = Parameter('w', Entry(spec, None, ref=RawTensor(spec, read_into)))\n"
        "side = Checkpoint(RawTree(Path('x'), 'pickle', {}, 0), 'plain', TrainingState('', None, {'w': one}))\n"
        "assert diff_checkpoints(side, side).same_content\n"
        "print(sorted({'numpy', 'torch', 'xxhash'} & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_another_dtype_stays_a_difference_within_any_tolerance():
    (row,) = diff(checkpoint({"w": torch.ones(5)}), checkpoint({"w": torch.ones(5).double()}), atol=1.0).rows
    assert (row.kind, row.beyond) == (Kind.DTYPE, 0)


def test_buffers_take_the_tolerance_of_parameters_unless_they_have_their_own():
    left, right = checkpoint(buffers={"mean": torch.zeros(2)}), checkpoint({"mean": torch.full((2,), 0.5)})
    assert diff(left, right, tolerances={"param": (0.0, 1.0)}).same_content
    assert not diff(left, right, tolerances={"param": (0.0, 1.0), "buffer": (0.0, 0.1)}).same_content


@pytest.mark.parametrize(("left", "right"), [(0, "0"), (1, True), (0.0, False), (5, None)])
def test_a_value_of_another_type_is_one_change_whatever_its_section(left, right):
    one, other = checkpoint(progress={"epoch": left}), checkpoint(extra={"epoch": right})
    assert told(diff(one, other)) == [("progress/epoch", "changed")]
    assert told(diff(other, one)) == [("progress/epoch", "changed")]


def test_an_empty_container_that_the_other_side_fills_is_told_by_what_it_holds():
    one, other = (
        checkpoint(extra={"callbacks": {}, "gone": {}}),
        checkpoint(extra={"callbacks.a[0]": 1, "callbacksx": 2}),
    )
    assert told(diff(one, other)) == [("other/gone", "removed"), ("other/callbacks.a[0]", "added"),
                                      ("other/callbacksx", "added")]  # fmt: skip
    assert ("other/callbacks", "added") not in told(diff(other, one))


def test_what_was_renamed_counts_as_held_by_both_and_a_parameter_once():
    model = {"old.w": torch.arange(6.0)}
    left = checkpoint(model, optimizer([["old.w"]], {"old.w": {"exp_avg": torch.arange(6.0) + 1}}))
    right = checkpoint({"new.w": torch.arange(6.0)}, optimizer([["#0"]], {"#0": {"exp_avg": torch.arange(6.0) + 1}}),
                       unnamed=True)  # fmt: skip
    found = diff(left, right)
    (one, *_) = found.summaries
    assert (one.section, one.tensors, one.differing, one.added, one.removed) == ("model", 1, 1, 0, 0)
    assert (found.compared.parameters, found.compared.state_tensors) == (1, 1)
