"""Names of live tensors: wrappers by class, ties, dicts of modules."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from ckptcheck.state.naming import resolve, roots_of


class Inner(nn.Module):
    """A user's model with a child called `module` and one called `_orig_mod`."""

    def __init__(self):
        super().__init__()
        self.module = nn.Linear(2, 3)
        self._orig_mod = nn.BatchNorm1d(3)

    def forward(self, x):
        return self._orig_mod(self.module(x))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.emb.weight
        self.again = nn.Linear(3, 5)
        self.again.weight = self.emb.weight


INNER_NAMES = ["module.weight", "module.bias", "_orig_mod.weight", "_orig_mod.bias"]


def test_names_are_those_of_torch_in_torchs_order():
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)))
    names = resolve(model)
    assert list(names.parameters) == [name for name, _ in model.named_parameters()]
    assert list(names.buffers) == [name for name, _ in model.named_buffers()]
    assert dict(names.modules) == dict(model.named_modules())
    assert all(names.parameters[name] is tensor for name, tensor in model.named_parameters())
    assert names.aliases == {}


@pytest.mark.parametrize("wrap", [
    nn.DataParallel,
    lambda model: torch.compile(model, backend="eager"),
    lambda model: nn.DataParallel(torch.compile(model, backend="eager")),
], ids=["DataParallel", "OptimizedModule", "both"])  # fmt: skip
def test_wrappers_are_stripped_and_a_users_own_child_called_module_keeps_its_name(wrap):
    model = Inner()
    names = resolve(wrap(model))
    assert list(names.parameters) == INNER_NAMES
    assert set(names.modules) == {"", "module", "_orig_mod"} and names.modules[""] is model
    assert all(name == "" for name, _ in names.wrappers) and names.wrappers


def test_ddp_is_stripped(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        assert list(resolve(DistributedDataParallel(Inner())).parameters) == INNER_NAMES
    finally:
        dist.destroy_process_group()


def test_a_wrapper_inside_the_model_is_stripped_too_and_its_subclass_as_well():
    class Mine(nn.DataParallel):
        def __init__(self, module):
            super().__init__(module)
            self.scale = nn.Parameter(torch.ones(1))

    model = nn.Sequential(nn.Linear(2, 2), Mine(nn.Linear(2, 1)))
    assert list(resolve(model).parameters) == ["0.weight", "0.bias", "1.scale", "1.weight", "1.bias"]


def test_a_class_of_the_users_that_is_called_like_a_wrapper_is_none():
    kind = type("DataParallel", (nn.Module,), {})
    model = kind()
    model.module = nn.Linear(1, 1)
    assert list(resolve(model).parameters) == ["module.weight", "module.bias"]


def test_what_a_wrapper_holds_twice_has_one_name():
    kind = type("_FabricModule", (nn.Module,), {"__module__": "lightning.fabric.wrappers"})
    wrapper, model = kind(), Inner()
    wrapper._forward_module = nn.DataParallel(model)
    wrapper._original_module = model
    names = resolve(wrapper)
    assert list(names.parameters) == INNER_NAMES
    assert names.aliases == {}


def test_an_averaged_model_keeps_the_names_that_its_state_dict_has():
    averaged = AveragedModel(nn.BatchNorm1d(2))
    names = resolve(averaged)
    assert {*names.parameters, *names.buffers} == set(averaged.state_dict())


def test_a_tied_parameter_has_its_first_name_and_its_aliases():
    model = Tied()
    names = resolve(model)
    assert list(names.parameters) == ["emb.weight", "again.bias"]
    assert names.aliases == {"emb.weight": ("head.weight", "again.weight")}
    assert names.name_of(model.head.weight) == "emb.weight"


def test_a_submodule_that_two_places_share_has_aliases_for_its_parameters_and_every_name_for_its_buffers():
    shared = nn.BatchNorm1d(2, affine=True)
    names = resolve(nn.ModuleDict({"one": shared, "two": shared}))
    assert list(names.parameters) == ["one.weight", "one.bias"]
    assert names.aliases == {"one.weight": ("two.weight",), "one.bias": ("two.bias",)}
    assert names.buffers["one.running_mean"] is names.buffers["two.running_mean"]
    assert names.modules["one"] is names.modules["two"]


def test_a_dict_of_models_has_its_keys_as_prefixes_and_ties_across_them():
    generator, critic = nn.Linear(2, 2), nn.Linear(2, 2)
    critic.bias = generator.bias
    names = resolve({"gen": generator, "critic": nn.DataParallel(critic)})
    assert list(names.parameters) == ["gen.weight", "gen.bias", "critic.weight"]
    assert names.aliases == {"gen.bias": ("critic.bias",)}
    assert set(names.modules) == {"gen", "critic"}


def test_absent_parameters_and_buffers_have_no_name():
    names = resolve(nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2, track_running_stats=False)))
    assert list(names.parameters) == ["0.weight", "1.weight", "1.bias"]
    assert list(names.buffers) == []


def test_buffers_that_are_not_saved_are_named():
    model = nn.Module()
    model.register_buffer("scratch", torch.ones(1), persistent=False)
    assert list(resolve(model).buffers) == ["scratch"]


def test_only_the_very_tensor_that_the_model_holds_has_a_name():
    model = nn.Linear(2, 2)
    names = resolve(model)
    assert names.name_of(model.weight) == "weight"
    assert names.name_of(copy.deepcopy(model.weight)) is None
    assert names.name_of(model.weight.detach()) is None
    old = model.weight
    model.weight = nn.Parameter(torch.ones(2, 2))
    assert resolve(model).name_of(old) is None


def test_a_child_that_holds_its_parent_does_not_go_on_for_ever():
    model = nn.Sequential(nn.Linear(1, 1))
    model[0].parent = model
    assert list(resolve(model).parameters) == ["0.weight", "0.bias"]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_a_scripted_module_is_named():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2)))
    assert list(resolve(scripted).parameters) == ["0.weight", "0.bias"]


@pytest.mark.parametrize(("model", "said"), [
    (3, "model is a int"),
    ({"a": nn.Linear(1, 1), "b": None}, r"model\['b'\] is a NoneType"),
    ([nn.Linear(1, 1)], "list"),
])  # fmt: skip
def test_what_is_no_module_is_refused_with_its_place(model, said):
    with pytest.raises(TypeError, match=said):
        roots_of(model)
