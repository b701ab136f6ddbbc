"""Whatever a file holds, it is explained or refused in words, and nothing of it is lost."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from ckptcheck.conventions.explaining import explain
from ckptcheck.conventions.table import CONVENTIONS
from ckptcheck.errors import CkptcheckError
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Foreign, Named, RawTensor, RawTree, Storage, tensors_in
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import Entry

KEYS = (
    "model", "state_dict", "optimizer", "optimizer_states", "state", "param_groups", "params", "param_names",
    "scheduler", "scaler", "ema", "rng", "cuda", "numpy", "python", "epoch", "step", "loops", "last_epoch", "base_lrs",
    "pytorch-lightning_version", "module.w", "module.module.w", "_orig_mod.w", "w", "0", "1", "lr", "a.b", "a", "b",
    "trainer_state.json", "global_step", "model.safetensors", "optimizer.pt", "optimizer.bin", "random_states_0.pkl",
    "rng_state_1.pth", "policy.pth", "data", "pi.optimizer.pth", "adapter_config.json", "optimizer.state.w.exp_avg",
    "optimizer.param_groups.0.lr", "model.w", "mp_rank_00_model_states.pt", "module", "scale", "exp_avg", "9" * 5000,
    "n_averaged",
)  # fmt: skip
SHAPES = ((), (2,), (2, 3), (0,))


def tensor(dtype: str, shape: tuple[int, ...], key: int) -> RawTensor:
    def read_into(start_bytes: int, buffer: memoryview) -> None:
        buffer[:] = bytes(len(buffer))

    spec = TensorSpec(dtype, shape)
    return RawTensor(spec, read_into, Storage("", str(key), spec.nbytes))


tensors = some.builds(
    tensor, some.sampled_from(["float32", "int64", "uint8", "bool"]), some.sampled_from(SHAPES), some.integers(0, 3)
)
plain = some.one_of(
    some.none(), some.booleans(), some.integers(), some.floats(), some.text(max_size=3), some.binary(max_size=3),
    some.sampled_from([Named("torch.float32"), "MT19937", 3, 2**70]),
)  # fmt: skip
values = some.recursive(
    some.one_of(plain, tensors, tensors),
    lambda inner: some.one_of(
        some.dictionaries(some.one_of(some.sampled_from(KEYS), some.integers(-1, 3)), inner, max_size=5),
        some.lists(inner, max_size=4),
        some.lists(inner, max_size=3).map(tuple),
        some.builds(
            lambda state, items: Foreign("some.Thing", state=state, items=items),
            inner,
            some.one_of(some.none(), some.lists(inner, max_size=2)),
        ),
        some.fixed_dictionaries({"state": inner, "param_groups": some.lists(inner, max_size=3)}),
    ),
    max_leaves=25,
)
roots = some.one_of(values, some.dictionaries(some.sampled_from(KEYS), values, max_size=8))


def tree(container: str, root: Any) -> RawTree:
    """Of a folder or an archive the root is a dict of paths, as its readers see to."""
    if container in ("folder", "zip") and not (isinstance(root, dict) and all(isinstance(key, str) for key in root)):
        root = {"model.pt": root}
    return RawTree(Path("any"), container, root, 0)


def refs(found: Checkpoint) -> set[int]:
    state = found.state
    entries: list[Entry] = [one.entry for one in state.parameters.values()]
    entries += [*state.buffers.values(), *state.rng.values()]
    for section in state.sections.values():
        entries += section.values()
    for optimizer in state.optimizers:
        entries += [one for kept in optimizer.state.values() for one in kept.values()]
        entries += [one for group in optimizer.groups for one in group.hyperparameters.values()]
    return {id(one.ref) for one in entries if one.ref is not None}


@pytest.mark.parametrize("beside", ["optimizer", "random_states_0", "model"])
def test_two_files_whose_names_differ_in_their_endings_are_both_kept(beside: str) -> None:
    held = tensor("float32", (2,), 0)
    found = explain(tree("folder", {"random_states_0.pkl": None, beside: None, f"{beside}.pt": held}))
    assert (found.convention, refs(found)) == ("accelerate", {id(held)})


@pytest.mark.parametrize("container", ["torch-zip", "safetensors", "folder", "zip"])
@settings(max_examples=80, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(root=roots)
def test_any_tree_is_explained_and_keeps_its_tensors(container: str, root: Any) -> None:
    try:
        found = explain(tree(container, root))
    except CkptcheckError:
        return
    assert found.convention in {one.name for one in CONVENTIONS}
    assert len(found.namings) == len(found.state.optimizers)
    assert found.state.step is None or isinstance(found.state.step, int)
    held = refs(found)
    aliased = {one.entry.ref.place for one in found.state.parameters.values() if one.aliases}  # type: ignore[union-attr]
    if found.convention not in ("deepspeed", "dcp"):
        lost = [one for one in tensors_in(root) if id(one) not in held and one.place not in aliased]
        assert not lost


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(root=roots)
def test_no_convention_raises_when_it_is_asked_whether_a_tree_is_its_own(root: Any) -> None:
    for container in ("torch-zip", "folder", "zip", "dcp", "safetensors"):
        for convention in CONVENTIONS:
            assert convention.claims(tree(container, root)) in (True, False)
