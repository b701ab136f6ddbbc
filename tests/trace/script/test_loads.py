"""`load_state_dict` in a script: what it is given and what it writes over, as the trace has them."""

import copy
import gc
import weakref
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler, ReduceLROnPlateau, SequentialLR, StepLR
from torch.optim.optimizer import Optimizer

from ckptcheck.state.digest import LINEAR_128
from ckptcheck.state.tensor_bytes import parts_digester
from ckptcheck.trace.given_state import later_loads, script_loads
from ckptcheck.trace.items import GIVEN, LOAD, OVERWRITTEN
from ckptcheck.trace.reading import open_traces
from ckptcheck.trace.script.given import MAX_LISTED
from ckptcheck.trace.script.loading import MAX_NOTES
from tests.trace.script.recorded import batch, model, record, recording


@pytest.fixture(scope="module", autouse=True)
def few_objects() -> Iterator[None]:
    """The recorder looks for averages among all objects: those of torch and pytest are set aside."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def adam(net: nn.Module, **options: Any) -> Optimizer:
    return torch.optim.AdamW(net.parameters(), **{"lr": 0.1, **options})


def train(net: nn.Module, optimizer: Optimizer, schedule: Any = None, steps: int = 2) -> None:
    for number in range(steps):
        optimizer.zero_grad()
        net(batch(number)).pow(2).sum().backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()


def saved(make: Any = adam, **more: Any) -> dict[str, Any]:
    """What a training of three steps would have saved."""
    net = model(7)
    optimizer = make(net)
    train(net, optimizer, steps=3)
    return copy.deepcopy({"model": net.state_dict(), "optimizer": optimizer.state_dict(), **more})


def digest(tensor: torch.Tensor) -> bytes:
    return parts_digester(LINEAR_128)([tensor.detach().clone()])


def seen(folder, script) -> Any:
    found = script_loads(record(folder, script, digest=LINEAR_128))
    assert found is not None
    return found


def test_what_is_given_is_digested_and_what_it_writes_over_too_before_it_is_overwritten(tmp_path):
    state = saved()
    net = model(1)
    before = {name: digest(one) for name, one in net.named_parameters()}
    optimizer = adam(net, lr=0.5)

    def script() -> None:
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))  # torch goes on with the very tensors
        train(net, optimizer)

    found = seen(tmp_path, script)
    given, built = found.given, found.built
    assert {name: one.entry.digest.value for name, one in built.parameters.items()} == before
    assert {name: one.entry.digest.value for name, one in given.parameters.items()} == {
        name: digest(one) for name, one in state["model"].items()
    }
    assert {one.entry.digest.value for one in found.loaded.parameters.values()} == {
        one.entry.digest.value for one in given.parameters.values()
    }
    assert [one.members for one in given.optimizers[0].groups] == [("#0", "#1", "#2", "#3")]
    assert [one.members for one in built.optimizers[0].groups] == [tuple(name for name, _ in net.named_parameters())]
    assert given.optimizers[0].groups[0].hyperparameters["lr"].value == 0.1
    assert built.optimizers[0].groups[0].hyperparameters["lr"].value == 0.5
    moments = given.optimizers[0].state
    assert moments["#2"]["exp_avg"].digest.value == digest(state["optimizer"]["state"][2]["exp_avg"])
    assert moments["#2"]["step"].value == 3.0
    assert built.optimizers[0].state == {}
    assert (built.optimizers[0].class_name, given.optimizers[0].class_name) == ("AdamW", None)
    assert [(one.section, one.name, one.named) for one in found.notes] == [
        ("model", "", False),
        ("optimizer", 0, False),
    ]


def test_names_in_what_is_given_lead_to_the_live_tensors_of_these_names(tmp_path):
    def named(net: nn.Module) -> Optimizer:
        return torch.optim.AdamW(net.named_parameters(prefix="inner"), lr=0.1)

    state = saved(named)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = model(1)

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return self.network(given)

    def script() -> None:
        outer = Outer()
        optimizer = named(outer.network)
        optimizer.load_state_dict(state["optimizer"])
        train(outer, optimizer)

    found = seen(tmp_path, script)
    names = tuple(f"network.{name}" for name, _ in model().named_parameters())
    assert found.given.optimizers[0].groups[0].members == names
    assert set(found.given.optimizers[0].state) == set(names)
    assert found.notes[0].named


def test_state_that_json_has_keyed_by_texts_stands_under_the_parameters_that_it_was_of(tmp_path):
    state = saved()["optimizer"]
    state["state"] = {str(key): one for key, one in state["state"].items()}

    def script() -> None:
        net = model(1)
        optimizer = adam(net)
        optimizer.load_state_dict(state)
        train(net, optimizer)

    found = seen(tmp_path, script)
    assert set(found.given.optimizers[0].state) == {"#0", "#1", "#2", "#3"}
    assert set(found.loaded.optimizers[0].state) == {"0", "1", "2", "3"}, "under which no parameter finds it"


def test_of_several_loads_into_one_object_the_last_given_and_the_first_built_count(tmp_path):
    first, last = saved(), {key: torch.ones_like(one) for key, one in model().state_dict().items()}
    net = model(1)
    before = digest(net[0].weight)

    def script() -> None:
        net.load_state_dict(first["model"])
        net.load_state_dict(last)
        train(net, adam(net))

    found = seen(tmp_path, script)
    assert found.given.parameters["0.weight"].entry.digest.value == digest(torch.ones(4, 3))
    assert found.built.parameters["0.weight"].entry.digest.value == before
    assert [one.is_last for one in found.notes] == [False, True]


def test_a_wrapper_a_part_and_a_tie_are_called_as_the_model_calls_them(tmp_path):
    net = model(1, nn.BatchNorm1d(4))
    state = {f"module.{key}": torch.zeros_like(one) for key, one in net[:3].state_dict().items()}
    wrapped = nn.DataParallel(nn.Sequential(*net[:3]))
    head = {"weight": torch.ones(2, 4), "bias": torch.ones(2)}

    def script() -> None:
        wrapped.load_state_dict(state)
        whole = nn.Sequential(wrapped, net[3])
        whole[1].load_state_dict(head)
        train(whole, adam(whole))

    found = seen(tmp_path, script)
    assert set(found.given.parameters) == {"0.0.weight", "0.0.bias", "0.2.weight", "0.2.bias", "1.weight", "1.bias"}
    assert set(found.given.buffers) == {"0.2.running_mean", "0.2.running_var", "0.2.num_batches_tracked"}
    assert found.given.parameters["1.weight"].entry.digest.value == digest(torch.ones(2, 4))
    assert [one.name for one in found.notes] == ["0", "1"]


def test_missing_and_unexpected_keys_are_those_of_torch(tmp_path):
    told = []

    def script() -> None:
        net = model(1)
        told.append(net.load_state_dict({"0.weight": torch.zeros(4, 3), "tail": torch.zeros(1)}, strict=False))
        net.load_state_dict({f"{place}": torch.zeros(1) for place in range(MAX_LISTED + 5)}, strict=False)
        train(net, adam(net))

    trace = record(tmp_path, script, digest=LINEAR_128)
    one, other = script_loads(trace).notes
    assert (one.given, one.matched, list(one.unexpected)) == (2, 1, told[0].unexpected_keys)
    assert (other.matched, len(other.unexpected), other.live_keys[0]) == (0, MAX_LISTED, "0.weight")


class Quiet(StepLR):
    """A schedule whose load calls none of torch's; defined long before the recording."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update(state_dict)


SCHEDULES = {
    "LambdaLR": lambda one: LambdaLR(one, lambda step: 1 / (1 + step)),
    "SequentialLR": lambda one: SequentialLR(one, [StepLR(one, 2), CosineAnnealingLR(one, 5)], [2]),
    "CosineAnnealingLR": lambda one: CosineAnnealingLR(one, 5),
    "ReduceLROnPlateau": ReduceLROnPlateau,
    "a subclass with a load of its own": lambda one: Quiet(one, 2),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_seen_though_it_has_a_load_of_its_own(tmp_path, name):
    make = SCHEDULES[name]
    net = model(1)
    schedule = make(adam(net))
    state = copy.deepcopy(schedule.state_dict()) | {"last_epoch": 3}

    def script() -> None:
        net = model(1)
        optimizer = adam(net)
        schedule = make(optimizer)
        schedule.load_state_dict(state)
        train(net, optimizer)

    found = seen(tmp_path, script)
    assert found.given.sections["schedule"]["last_epoch"].value == 3
    assert found.built.sections["schedule"]["last_epoch"].value == 0


def test_a_class_that_is_defined_later_is_seen_and_who_pickles_it_by_value_gets_its_own_method(tmp_path):
    methods = {}

    def script() -> None:
        class Later(torch.optim.SGD):
            def load_state_dict(self, state_dict: dict[str, Any]) -> None:
                self.param_groups[0]["lr"] = state_dict["param_groups"][0]["lr"]

            methods["own"] = load_state_dict

        methods["class"] = Later
        net = model(1)
        optimizer = Later(net.parameters(), lr=0.5)
        optimizer.load_state_dict({"state": {}, "param_groups": [{"params": [0, 1, 2, 3], "lr": 0.25}]})
        kept = Later.__dict__["load_state_dict"]
        function, arguments = kept.__reduce__()
        methods["pickled"] = function(*arguments)
        methods["called"] = Later.load_state_dict
        train(net, optimizer)

    found = seen(tmp_path, script)
    assert found.given.optimizers[0].groups[0].hyperparameters["lr"].value == 0.25
    assert methods["pickled"] is methods["own"]
    assert methods["called"].__name__ == "load_state_dict"
    assert methods["class"].__dict__["load_state_dict"] is methods["own"], "it is put back"


def test_a_load_that_raises_passes_untouched_and_is_told(tmp_path):
    wrong = {"0.weight": torch.zeros(9, 9)}
    caught: list[BaseException] = []

    def script() -> None:
        net = model(1)
        for state in (wrong, None):
            try:
                net.load_state_dict(state)
            except (RuntimeError, TypeError) as error:
                caught.append(error)
        train(net, adam(net))

    trace = record(tmp_path, script)
    notes = script_loads(trace).notes
    assert "size mismatch for 0.weight" in notes[0].raised and notes[0].raised.startswith("RuntimeError: ")
    assert notes[1].raised == f"TypeError: {' '.join(str(caught[1]).split())}"
    assert notes[1].unseen, "nothing can be known of None"
    assert [type(one) for one in caught] == [RuntimeError, TypeError]
    assert notes[0].class_name == "Sequential"


def test_a_script_that_ends_in_its_load_leaves_what_it_was_given(tmp_path):
    net = model(1)
    optimizer, state = adam(net[:1]), saved()
    with pytest.raises(ValueError, match="size of optimizer's group"), recording(tmp_path):
        optimizer.load_state_dict(state["optimizer"])
    (trace,) = open_traces(tmp_path)
    assert list(trace.moments) == [(0, OVERWRITTEN), (0, GIVEN)]
    found = script_loads(trace)
    assert found.loaded is None and "size of optimizer's group" in found.notes[0].raised


def test_a_process_that_loads_and_never_trains_leaves_no_trace(tmp_path):
    state = saved()
    with recording(tmp_path):
        model(1).load_state_dict(state["model"])
    assert list(tmp_path.iterdir()) == []


def test_loads_of_a_training_in_progress_are_noted_with_their_step_and_not_mixed_with_the_resume(tmp_path):
    def script() -> None:
        net, target = model(1), model(2)
        target.load_state_dict(net.state_dict())
        optimizer = adam(net)
        train(net, optimizer)
        target.load_state_dict(net.state_dict())
        train(net, optimizer, steps=1)
        for _ in range(MAX_NOTES + 9):
            net.load_state_dict(target.state_dict())

    trace = record(tmp_path, script)
    found = script_loads(trace)
    assert len(found.notes) == 1 and found.given.parameters == {}, "a target network is none of the training's models"
    later = later_loads(trace)
    assert [one.step for one in later[:2]] == [2, 3]
    assert len(later) == MAX_NOTES
    assert [place for place in trace.moments if place[1] in (GIVEN, OVERWRITTEN, LOAD)] == [
        (0, LOAD), (0, OVERWRITTEN), (0, GIVEN), (3, GIVEN),
    ]  # fmt: skip


def test_nothing_of_a_load_is_kept_alive(tmp_path):
    state = saved()
    with recording(tmp_path):
        net = model(1)
        optimizer = adam(net)
        given = [*state["model"].values(), *(one["exp_avg"] for one in state["optimizer"]["state"].values())]
        net.load_state_dict(state["model"])
        stranger = model(3)
        stranger.load_state_dict(state["model"])
        gone = [weakref.ref(one) for one in (*given, stranger)]
        del state, given, stranger
        gc.collect()
        assert [one() for one in gone] == [None] * len(gone)
        train(net, optimizer)


def test_the_same_numbers_come_out_and_everything_is_put_back(tmp_path):
    owners = (nn.Module, Optimizer, LRScheduler, LambdaLR, SequentialLR, torch.amp.GradScaler, torch.optim.SGD)
    before = [(one.__dict__.get("load_state_dict"), one.__dict__.get("__init_subclass__")) for one in owners]
    state = saved()

    def script() -> bytes:
        net = model(1)
        optimizer = adam(net)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        train(net, optimizer)
        return blake2b(b"".join(one.detach().numpy().tobytes() for one in net.parameters())).digest()

    plain = script()
    recorded: list[bytes] = []
    record(tmp_path, lambda: recorded.append(script()))
    assert recorded == [plain]
    assert before == [(one.__dict__.get("load_state_dict"), one.__dict__.get("__init_subclass__")) for one in owners]


def test_what_cannot_be_digested_is_told_and_the_load_goes_on(tmp_path):
    class Odd(dict):
        def items(self) -> Any:
            raise RuntimeError("no items\nhere")

    class Takes(nn.Linear):
        def _load_from_state_dict(self, *_: Any) -> None:
            self.weight.data.fill_(2.0)

    def script() -> None:
        net = nn.Sequential(Takes(3, 2))
        net[0].load_state_dict(Odd({"weight": torch.zeros(2, 3)}), strict=False)
        assert net[0].weight[0, 0] == 2.0
        train(net, adam(net))

    found = seen(tmp_path, script)
    assert found.notes[0].unseen == "RuntimeError: no items here"
