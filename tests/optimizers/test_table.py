"""Every row of the table holds what the real optimizer keeps."""

from typing import Any

import pytest
import torch

from ckptcheck.conventions.groups import explain_optimizer
from ckptcheck.conventions.weights import Weights
from ckptcheck.optimizers.guessing import guess, guess_from
from ckptcheck.optimizers.row import Kind, Row, shape_fits
from ckptcheck.optimizers.shapes import ShapeTest
from ckptcheck.optimizers.table import OPTIMIZERS, SHARED_HYPERPARAMETERS, TORCH
from ckptcheck.state.tree import flatten
from tests.conventions.made import raw
from tests.optimizers.real import MATRICES, SHAPES, stepped, torch_optimizers

ROWS = {row.name: row for row in TORCH}

VARIANTS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "SGD": ({"momentum": 0.9}, {"momentum_buffer"}),
    "Adam": ({"amsgrad": True}, {"max_exp_avg_sq"}),
    "AdamW": ({"amsgrad": True}, {"max_exp_avg_sq"}),
    "RMSprop": ({"momentum": 0.9, "centered": True}, {"momentum_buffer", "grad_avg"}),
}
"""Hyperparameters that bring further state keys, and these."""


def cases() -> list[Any]:
    plain = [pytest.param(name, {}, set(), id=name) for name in torch_optimizers()]
    return plain + [pytest.param(name, *more, id=f"{name}-variant") for name, more in VARIANTS.items()]


def made(name: str, options: dict[str, Any]) -> Any:
    shapes = MATRICES if name == "Muon" else ((4, 3), (4,)) if name == "SparseAdam" else SHAPES
    return stepped(lambda parameters: getattr(torch.optim, name)(parameters, lr=0.01, **options), shapes)


def shape_of(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def test_every_class_of_torch_has_one_row() -> None:
    assert sorted(ROWS) == torch_optimizers()
    assert len({row.name for row in OPTIMIZERS}) == len(OPTIMIZERS)


@pytest.mark.parametrize(("name", "options", "brought"), cases())
def test_a_row_has_the_keys_that_the_real_optimizer_keeps(
    name: str, options: dict[str, Any], brought: set[str]
) -> None:
    row = ROWS[name]
    optimizer = made(name, options)
    first = True
    for parameter, kept in optimizer.state.items():
        keys = {key.split("[")[0] for key, _ in flatten(kept)}
        assert keys <= set(row.keys)
        assert row.always <= keys or (row.whole_list and not first)
        assert brought <= keys
        for key, value in kept.items():
            assert_kind(row, key, value, tuple(parameter.shape))
        first = False
    assert set(row.when) <= set(row.keys)
    assert brought <= set(row.keys) - row.always


def assert_kind(row: Row, key: str, value: Any, shape: tuple[int, ...]) -> None:
    kind = row.keys[key]
    if kind is Kind.PARAMETER:
        assert value.shape == shape
        assert value.dtype == torch.float32
    elif kind in (Kind.COUNTER, Kind.SCALAR):
        assert isinstance(value, int | float) or value.dim() == 0
    elif kind is Kind.LIST:
        assert isinstance(value, list)
    elif kind is Kind.FLAT:
        assert value.dim() == 1
    else:
        assert shape_fits(kind, shape_of(value), shape)


@pytest.mark.parametrize("name", torch_optimizers())
def test_the_counter_counts_the_steps(name: str) -> None:
    row, optimizer = ROWS[name], made(name, {})
    if row.counter is None:
        assert name in ("SGD", "Muon")
        assert all("step" not in kept for kept in optimizer.state.values())
        return
    counts = [float(kept[row.counter]) for kept in optimizer.state.values()]
    if name == "LBFGS":  # counts iterations, of which a step makes several
        assert counts[0] >= 2
    else:
        assert counts == [2.0] * len(counts)


@pytest.mark.parametrize("name", torch_optimizers())
def test_a_row_has_the_hyperparameters_of_the_real_groups(name: str) -> None:
    row = ROWS[name]
    group = made(name, {}).param_groups[0]
    assert row.hyperparameters | row.perhaps | set(row.flags) >= set(group) - SHARED_HYPERPARAMETERS
    assert row.hyperparameters <= set(group)
    assert all(group[flag] == value for flag, value in row.flags.items())


@pytest.mark.parametrize(("name", "options", "brought"), cases())
def test_the_class_is_told_from_a_state_dict_alone(name: str, options: dict[str, Any], brought: set[str]) -> None:
    found = guess(explain_optimizer(raw(made(name, options).state_dict()), Weights()).optimizer)
    assert found.names == (name,)
    assert found.certain


@pytest.mark.parametrize("name", torch_optimizers())
def test_the_class_is_told_before_the_first_step(name: str) -> None:
    shapes = MATRICES if name == "Muon" else SHAPES
    optimizer = getattr(torch.optim, name)([torch.nn.Parameter(torch.zeros(shape)) for shape in shapes])
    found = guess(explain_optimizer(raw(optimizer.state_dict()), Weights()).optimizer)
    assert name in found.names
    assert found.certain == (len(found.names) == 1)


def test_without_the_flag_of_newer_versions_adam_and_adamw_are_both_possible() -> None:
    state = made("AdamW", {}).state_dict()
    del state["param_groups"][0]["decoupled_weight_decay"]
    found = guess(explain_optimizer(raw(state), Weights()).optimizer)
    assert set(found.names) == {"Adam", "AdamW"}
    assert not found.certain


def test_an_optimizer_that_nobody_knows_is_not_guessed() -> None:
    found = guess_from({"lr": 0.1, "sharpness": 2}, {"hessian"})
    assert (found.names, found.certain) == ((), False)


def test_learning_rate_and_decay_alone_name_no_class_for_sure() -> None:
    assert not guess_from({"lr": 0.1, "weight_decay": 0.0}, set()).certain


@pytest.mark.parametrize(
    ("kind", "shape", "fits"),
    [
        (Kind.PARAMETER, (4, 3), True),
        (Kind.PARAMETER, (3, 4), False),
        (Kind.STACKED, (2, 4, 3), True),
        (Kind.STACKED, (4, 3), False),
        (Kind.ROWS, (4,), True),
        (Kind.ROWS, (4, 1), True),
        (Kind.ROWS, (3,), False),
        (Kind.COLUMNS, (3,), True),
        (Kind.COLUMNS, (1, 3), True),
        (Kind.COLUMNS, (4,), False),
        (Kind.COUNTER, (), True),
        (Kind.COUNTER, (2,), False),
        (Kind.TABLE, (256,), None),
    ],
)
def test_a_kind_says_which_shapes_fit_a_parameter_of_4_by_3(
    kind: Kind, shape: tuple[int, ...], fits: bool | None
) -> None:
    assert shape_fits(kind, shape, (4, 3)) is fits


def test_a_key_of_two_kinds_fits_by_either() -> None:
    test = ShapeTest(OPTIMIZERS)
    for shape in ((2, 4, 3), (4, 3)):
        assert test.fits(test.signature({"state1": shape, "qmap1": (256,)}), (4, 3))
    assert not test.fits(test.signature({"state1": (3, 3)}), (4, 3))


def test_state_whose_keys_nobody_knows_says_nothing() -> None:
    test = ShapeTest(())
    assert test.signature({"hessian": (4, 3)}) == ()
    assert test.fits((), (9, 9))


def test_the_shapes_that_can_fit_are_told_where_the_state_says_them_all() -> None:
    test = ShapeTest(OPTIMIZERS)
    assert test.shapes_for(test.signature({"exp_avg": (4, 3), "exp_avg_sq": (4, 3)})) == {(4, 3)}
    assert test.shapes_for(test.signature({"state1": (2, 4)})) == {(2, 4), (4,)}
    assert test.shapes_for(test.signature({"row_var": (4, 1), "col_var": (1, 3)})) is None
    assert test.shapes_for(()) is None
    assert test.shapes_for(test.signature({"exp_avg": (4,), "exp_avg_sq": (3,)})) == set()


def test_float32_weights_beside_the_state_do_not_hide_the_class() -> None:
    group = {"lr": 0.1, "betas[0]": 0.9, "betas[1]": 0.99, "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False}
    found = guess_from({**group, "decoupled_weight_decay": True}, {"step", "exp_avg", "exp_avg_sq", "fp32_param"})
    assert (found.names, found.certain) == (("AdamW",), True)
