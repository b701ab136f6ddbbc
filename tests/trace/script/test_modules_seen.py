"""Names of a script's parameters are those of named_parameters(), whatever the model is wrapped in or was made by."""

import copy
import gc
import io
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.optim.swa_utils import AveragedModel

from ckptcheck.trace.script.averages import is_called_average
from ckptcheck.trace.script.modules import Modules
from ckptcheck.trace.script.optimizers import Optimizers
from ckptcheck.trace.script.present import Present
from ckptcheck.trace.script.sections import Sections
from tests.trace.script.told import listening, train


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 2)

    def forward(self, x, scale: float = 1.0):
        return self.last(self.norm(self.first(x))) * scale


class Odd(Net):
    """Equal to everything, and with attributes that raise."""

    __slots__ = ("never_set",)

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0

    @property
    def raises(self):
        raise RuntimeError("mine")

    def parameters(self, recurse=True):
        return iter(super().parameters(recurse))


class Holder(nn.Module):
    """As a LightningModule: the model is a part of it."""

    def __init__(self):
        super().__init__()
        self.model = Net()
        self.loss = nn.MSELoss()

    def forward(self, x):
        return self.model(x)


class Swap(nn.Module):
    def forward(self, weight):
        return weight * 2


def lazy():
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.Linear(4, 2))
    model(torch.ones(2, 3))
    return model


def loaded():
    file = io.BytesIO()
    torch.save(Net(), file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def meta():
    with torch.device("meta"):
        model = Net()
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        nn.init.ones_(parameter)
    return model


def parametrized():
    model = Net()
    parametrizations.weight_norm(model.first)
    parametrize.register_parametrization(model.last, "weight", Swap())
    return model


def without_constructor():
    """As some libraries restore modules: neither a constructor nor __setstate__ runs."""
    model = Net.__new__(Net)
    model.__dict__.update(Net().__dict__)
    return model


MADE = {
    "plain": Net, "odd": Odd, "holder": Holder, "lazy": lazy, "deepcopy": lambda: copy.deepcopy(Net()),
    "loaded whole": loaded, "meta": meta, "parametrized": parametrized, "no constructor": without_constructor,
    "scripted": lambda: torch.jit.script(Net()), "sequential": lambda: nn.Sequential(Net(), nn.Linear(2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
@pytest.mark.filterwarnings("ignore:Lazy modules", "ignore:.*torch.jit.script.* is deprecated")
def test_names_are_those_of_named_parameters_however_the_model_was_made(name):
    with listening() as told:
        model = MADE[name]()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        names = [name for name, _ in model.named_parameters()]
        assert told.names == names and len(names) >= 6 and list(told.roots) == [""]
        train(model, optimizer)
        assert told.names == names


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda one: torch.compile(one, backend="eager"), nn.Identity])
def test_wrappers_are_stripped(wrap):
    with listening() as told:
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        wrapped = wrap(model)
        for _ in range(2):
            (wrapped if not isinstance(wrapped, nn.Identity) else model)(torch.ones(2, 3)).sum().backward()
            optimizer.step()
        assert told.names == [name for name, _ in model.named_parameters()]


def test_of_several_models_each_has_the_prefix_of_its_class_numbered_as_made():
    with listening() as told:
        models = [Net(), Holder(), Net()]
        optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in reversed(models)]
        for optimizer, model in zip(optimizers, reversed(models), strict=True):
            assert list(told.roots) == ["Net#1", "Holder", "Net#2"]
            train(model, optimizer)
        assert [told.roots[name] is model for name, model in zip(told.roots, models, strict=True)] == [True] * 3


def test_another_whole_model_that_is_alive_is_no_root_and_changes_no_prefix():
    with listening() as told:
        checkpoint = {"model": loaded(), "optimizer": torch.optim.SGD(Net().parameters(), lr=0.1)}
        checkpoint["optimizer"] = copy.deepcopy(checkpoint["optimizer"])
        model = Net()
        model.load_state_dict(checkpoint["model"].state_dict())
        frozen = loaded().requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            train(model, optimizer)
            with torch.no_grad():
                checkpoint["model"](torch.ones(2, 3)) if told.updates else None
            assert told.roots == {"": model} and told.optimizers.all() == [optimizer] and not told.parts
        assert frozen is not model


def test_a_view_of_the_model_is_no_root_beside_it():
    with listening() as told:
        model = Net()
        features = nn.Sequential(model.first, model.norm)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        features(torch.ones(2, 3)).sum().backward()
        assert list(told.roots) == [""] and told.roots[""] is model


def test_a_teacher_and_a_perceptual_net_are_roots_that_are_only_called():
    with listening() as told:
        teacher, model, unused, evaluated = nn.Linear(3, 2), Net(), nn.Linear(2, 2), nn.Linear(3, 1)
        perceptual = nn.Sequential(nn.Linear(3, 2)).requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2):
            with torch.no_grad():
                target = teacher(torch.ones(2, 3))
                if step:
                    evaluated(torch.ones(2, 3))
            optimizer.zero_grad()
            out = model(torch.ones(2, 3))
            (out - target + perceptual[0](torch.ones(2, 3))).sum().backward()
            optimizer.step()
            assert told.roots == {"": model, "Linear": teacher, "Sequential": perceptual}
        assert unused is not evaluated


def test_a_layer_that_is_replaced_midway_and_bare_parameters():
    with listening() as told:
        model, bare = Net(), nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([*model.parameters(), bare], lr=0.1)
        train(model, optimizer)
        model.last = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
        optimizer.add_param_group({"params": model.last.parameters()})
        train(model, optimizer)
        assert told.names == [name for name, _ in model.named_parameters()]
        assert told.names[-1] == "last.1.bias" and "last.weight" not in told.names


class ModelEma(nn.Module):
    """As timm's: the copy is a child called `module`."""

    def __init__(self, model):
        super().__init__()
        self.module = copy.deepcopy(model).requires_grad_(False)
        self.register_buffer("updates", torch.tensor(0))


class EMAModel:
    """As diffusers': no module, a list of shadows."""

    def __init__(self, model):
        self.shadow_params = [one.clone().detach() for one in model.parameters()]
        self.decay, self.optimization_step, self.temp_stored_params = 0.9, 3, None


class EMA:
    """As in tutorials: a dict by name, and a backup that is empty most of the time."""

    def __init__(self, model):
        self.model, self.decay = model, 0.9
        self.shadow = {name: one.data.clone() for name, one in model.named_parameters() if one.requires_grad}
        self.backup = {}


def frozen_copy(model):
    return copy.deepcopy(model).requires_grad_(False)


AVERAGES = {
    AveragedModel: (8, {"n_averaged"}), ModelEma: (9, {"updates"}), frozen_copy: (8, set()),
    EMAModel: (0, {"decay", "optimization_step"}), EMA: (0, {"decay"}),
}  # fmt: skip


@pytest.mark.parametrize("make", AVERAGES)
def test_an_average_is_told_from_other_copies_and_its_tensors_are_named_as_the_models(make):
    with listening() as told:
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        average, spare = make(model), copy.deepcopy(model)
        for _ in range(2):
            train(model, optimizer)
            assert told.roots == {"": model} and list(told.parts) == ["ema"]
            ((prefix, tree),) = told.parts["ema"].items()
        _, more = AVERAGES[make]
        names = {name for name, _ in model.named_parameters()}
        buffers = {name for name, _ in model.named_buffers()} if isinstance(average, nn.Module) else set()
        assert prefix == "" and set(tree) == names | buffers | more
        held = average.shadow_params if make is EMAModel else None
        assert held is None or all(one is other for one, other in zip(held, tree.values(), strict=False))
        assert all(tree[name].shape == one.shape and tree[name] is not one for name, one in model.named_parameters())
        assert spare is not average


@pytest.mark.parametrize(
    ("name", "averages"),
    [("AveragedModel", True), ("LitEma", True), ("EMAModel", True), ("ExponentialMovingAverage", True), ("EmaV2", True),
     ("ModelEMA", True), ("Schema", False), ("AverageMeter", False), ("AveragePool", False), ("Cinema", False),
     ("Demand", False)],
)  # fmt: skip
def test_names_of_classes_that_average(name, averages):
    assert is_called_average(type(name, (), {})) is averages


def test_no_model_is_kept_alive():
    with listening() as told:
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        assert told.roots and told.parts == {}
        told.inputs.clear()
        gone = weakref.ref(model), weakref.ref(optimizer)
        del model, optimizer
        gc.collect()
        assert [one() for one in gone] == [None, None] and told.optimizers.all() == []


def replaced(net):
    net.last.weight = nn.Parameter(torch.full_like(net.last.weight, 3.0))


def renamed(net):
    net._modules["renamed"] = net._modules.pop("last")


def given_a_module(net):
    net.last = nn.Linear(*reversed(net.last.weight.shape))


def given_a_buffer(net):
    net.last.register_buffer("more", torch.zeros(2))


@pytest.mark.parametrize("change", [replaced, renamed, given_a_module, given_a_buffer])
def test_names_that_are_kept_between_windows_are_those_of_the_module_as_it_is(change):
    modules, optimizers = Modules(), Optimizers()
    undo = [modules.listen(), optimizers.listen()]
    net = Net()
    modules.called(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    present = Present(modules, optimizers, Sections(modules), lambda: None)
    present.renew()
    before, modules_before = present.subjects.names().parameters, list(present.subjects.names().modules)
    present.loosen()
    present.renew()
    assert present.subjects.names().parameters is before  # kept, as nothing has changed
    assert list(present.subjects.names().modules) == modules_before
    change(net)
    present.loosen()
    present.renew()
    now = present.subjects.names()
    assert list(now.parameters.items()) == list(net.named_parameters())
    assert list(now.buffers) == [name for name, _ in net.named_buffers()]
    assert list(now.modules.values()) == list(net.modules())
    assert present.optimizers() == [optimizer]
    for one in undo:
        one()
