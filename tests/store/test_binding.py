"""Stored tensors find their live ones by name: in groups, out of them, tied, wrapped, in another order."""

from pathlib import Path
from typing import Any

import torch
from torch import nn, optim

from ckptcheck.store.load import load
from ckptcheck.store.save import save
from tests.store.runs import Net, Training, TwoMatrices, everything, raw, training


def test_frozen_parameters_in_and_out_of_groups_round_trip(tmp_path: Path) -> None:
    def build(seed: int) -> Training:
        torch.manual_seed(seed)
        model = Net()
        model.first.requires_grad_(False)
        optimizer = optim.Adam([*model.first.parameters(), *model.norm.parameters()])
        optimizer.add_param_group({"params": [model.last.weight], "lr": 0.5, "label": "head"})
        return Training({"model": model, "optimizer": optimizer})

    reference, resumed = build(0), build(1)
    reference.train(2)
    reference.model.norm.eval()
    save(tmp_path / "s", **reference.fields)
    wanted = everything(reference.fields)
    resumed.model.first.requires_grad_(True)
    load(tmp_path / "s", **resumed.fields)
    assert everything(resumed.fields) == wanted
    assert [len(group["params"]) for group in resumed.optimizer.param_groups] == [4, 1]
    assert resumed.optimizer.param_groups[1]["label"] == "head"


def test_state_of_a_parameter_taken_out_of_its_group_survives(tmp_path: Path) -> None:
    run = training(0, optim.Adam)
    run.train(2)
    taken_out = run.optimizer.param_groups[0]["params"].pop()
    resumed = training(1, optim.Adam)
    resumed.optimizer.param_groups[0]["params"].pop()
    save(tmp_path / "s", **run.fields)
    load(tmp_path / "s", **resumed.fields)
    now = resumed.optimizer.state[list(resumed.model.parameters())[-1]]
    assert {key: raw(one) for key, one in now.items()} == {
        key: raw(one) for key, one in run.optimizer.state[taken_out].items()
    }


def test_a_tensor_that_no_module_holds_is_saved_by_its_place(tmp_path: Path) -> None:
    def build(seed: int) -> Training:
        run = training(seed, optim.Adam)
        run.optimizer.add_param_group({"params": [nn.Parameter(torch.full((3,), float(seed)))]})
        run.optimizer.param_groups[1]["params"][0].grad = torch.full((3,), float(seed))
        run.optimizer.step()
        return run

    reference, resumed = build(5), build(6)
    save(tmp_path / "s", **reference.fields)
    load(tmp_path / "s", **resumed.fields)
    was, now = (one.optimizer.param_groups[1]["params"][0] for one in (reference, resumed))
    assert raw(now) == raw(was)
    assert raw(now.grad) == raw(was.grad)
    assert raw(resumed.optimizer.state[now]["exp_avg"]) == raw(reference.optimizer.state[was]["exp_avg"])


def test_tied_parameters_stay_tied(tmp_path: Path) -> None:
    def build(seed: int) -> Training:
        run = training(seed, optim.Adam, TwoMatrices, inputs=lambda: torch.randn(6, 4))
        run.model.first = nn.Linear(4, 5, bias=False)
        run.model.last = nn.Linear(5, 4, bias=False)
        run.model.again = nn.Linear(4, 5, bias=False)
        run.model.again.weight = run.model.first.weight
        return Training({"model": run.model, "optimizer": optim.Adam(run.model.parameters())})

    reference, resumed = build(0), build(1)
    reference.train(2)
    save(tmp_path / "s", **reference.fields)
    load(tmp_path / "s", **resumed.fields)
    assert resumed.model.again.weight is resumed.model.first.weight
    assert everything(resumed.fields) == everything(reference.fields)


def test_groups_and_parameters_in_another_order_are_bound_by_name(tmp_path: Path) -> None:
    reference, resumed = training(0, optim.Adam), training(1, optim.Adam)
    parts = [list(one.parameters()) for one in (reference.model.first, reference.model.last)]
    fields = {"optimizer": optim.Adam([{"params": parts[0], "lr": 0.1}, {"params": parts[1], "lr": 0.2}])}
    reference = Training({**reference.fields, **fields})
    reference.train(2)
    save(tmp_path / "s", **reference.fields)

    model = resumed.model
    turned = optim.Adam([{"params": [model.last.bias, model.last.weight]}, {"params": model.first.parameters()}])
    load(tmp_path / "s", model=model, optimizer=turned)
    assert [group["lr"] for group in turned.param_groups] == [0.2, 0.1]
    live = dict(model.named_parameters())
    for name, parameter in reference.model.named_parameters():
        if parameter in reference.optimizer.state:
            wanted = {key: raw(one) for key, one in reference.optimizer.state[parameter].items()}
            assert {key: raw(one) for key, one in turned.state[live[name]].items()} == wanted


def test_loading_writes_into_the_live_parameters_and_keeps_a_tensor_lr(tmp_path: Path) -> None:
    def build(lr: float) -> Training:
        return training(0, lambda params: optim.AdamW(params, lr=torch.tensor(lr), foreach=False))

    reference, resumed = build(0.25), build(0.5)
    save(tmp_path / "s", **reference.fields)
    addresses = [one.data_ptr() for one in resumed.model.parameters()]
    lr = resumed.optimizer.param_groups[0]["lr"]
    load(tmp_path / "s", **resumed.fields)
    assert [one.data_ptr() for one in resumed.model.parameters()] == addresses
    assert resumed.optimizer.param_groups[0]["lr"] is lr
    assert lr.item() == 0.25


def test_parameter_names_in_groups_stay_those_of_the_live_optimizer(tmp_path: Path) -> None:
    model, other = Net(), Net()
    save(tmp_path / "s", model=model, optimizer=optim.Adam(model.named_parameters()))
    turned = optim.Adam(reversed(list(other.named_parameters())))
    load(tmp_path / "s", model=other, optimizer=turned)
    assert turned.param_groups[0]["param_names"] == [name for name, _ in reversed(list(other.named_parameters()))]


def test_wrapped_models_load_into_plain_ones_and_back(tmp_path: Path) -> None:
    plain, wrapped = Net(), nn.DataParallel(Net())
    save(tmp_path / "s", model=wrapped, optimizer=optim.Adam(wrapped.parameters()))
    load(tmp_path / "s", model=plain, optimizer=optim.Adam(plain.parameters()))
    assert [raw(one) for one in plain.parameters()] == [raw(one) for one in wrapped.parameters()]


class Stateful(nn.Module):
    """Extra state, a buffer that is not persistent, and one that is made late."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.register_buffer("cache", torch.zeros(3), persistent=False)
        self.register_buffer("late", None)
        self.count = 0

    def get_extra_state(self) -> Any:
        return {"count": self.count}

    def set_extra_state(self, state: Any) -> None:
        self.count = state["count"]


def test_extra_state_and_buffers_of_every_kind_come_back(tmp_path: Path) -> None:
    model, other = Stateful(), Stateful()
    model.cache, model.late, model.count = torch.arange(3.0), torch.ones(4), 7
    save(tmp_path / "s", model=model)
    load(tmp_path / "s", model=other)
    assert (other.count, other.cache.tolist(), other.late.tolist()) == (7, [0, 1, 2], [1, 1, 1, 1])


def test_an_optimizer_without_groups_is_carried_by_its_state_dict(tmp_path: Path) -> None:
    class Own:
        def __init__(self, values: Any) -> None:
            self.values = values

        def state_dict(self) -> dict[str, Any]:
            return {"values": self.values}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.values = state["values"]

    model, other = Net(), Own(None)
    save(tmp_path / "s", model=model, optimizer=Own((1, torch.ones(2))))
    load(tmp_path / "s", model=model, optimizer=other)
    assert other.values[0] == 1
    assert other.values[1].tolist() == [1, 1]


def test_state_under_keys_that_are_no_parameters_is_carried(tmp_path: Path) -> None:
    reference, resumed = training(0, optim.SGD), training(1, optim.SGD)
    reference.optimizer.state["global"] = {"rounds": 3, 5: torch.ones(2)}
    save(tmp_path / "s", **reference.fields)
    load(tmp_path / "s", **resumed.fields)
    assert resumed.optimizer.state["global"]["rounds"] == 3
    assert resumed.optimizer.state["global"][5].tolist() == [1, 1]
