"""A checkpoint of the very training that loads it gives no error, whatever the optimizer and whoever loads."""

import importlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn

from ckptcheck.experiment.run import Context, Run
from ckptcheck.store.save import save_run
from tests.check_cases.training import ConvNet, Mlp, Tied, decay_groups, saved, train
from tests.rules.loads.dry import dry_run, errors, found, judge
from tests.rules.loads.live import adamw, cosine, file_of, run_of

FIXTURES = Path(__file__).parents[3] / "fixtures"
TARGETS = {
    "char_gpt": "build", "digits_cnn": "build", "tied_embeddings": "build", "two_models": "build", "ema": "build",
    "frozen_backbone": "build", "warmup_linear": "build", "accumulation": "build", "hand_written": "build",
    "store_mlp": "build",
}  # fmt: skip
STORED = ("tied_embeddings", "two_models", "frozen_backbone", "accumulation")


def built(name: str, folder: Path) -> Run:
    if str(FIXTURES) not in sys.path:
        sys.path.insert(0, str(FIXTURES))
    folder.mkdir(exist_ok=True)
    return getattr(importlib.import_module(name), TARGETS[name])(Context(torch.device("cpu"), 0, folder))


def written(run: Run, folder: Path, step: int, *, store: bool = False) -> Path:
    """What `ckptcheck save` leaves."""
    if store or run.save is None:
        save_run(folder, run, step)
    else:
        folder.mkdir()
        run.save(folder / "state")
        (folder / "ckptcheck.json").write_text(json.dumps({"step": step, "target": "target.py"}))
    return folder


@pytest.mark.parametrize(
    ("name", "store"), [*((name, False) for name in TARGETS), *((name, True) for name in TARGETS if name in STORED)]
)
def test_a_target_that_saved_loads_again_without_an_error(name, store, tmp_path):
    run = built(name, tmp_path / "first")
    for step in (1, 2):
        run.step(step)
    state = written(run, tmp_path / "state", 2, store=store)
    dry = dry_run(state, built(name, tmp_path / "second"))
    findings, _ = judge(dry)
    assert dry.raised is None
    assert dry.loaded is not None
    assert [(one.code, one.message) for one in findings if one.severity.value != "info"] == []
    assert {*dry.built.parameters} <= dry.held


@pytest.mark.parametrize("name", ["digits_cnn", "two_models", "store_mlp", "ema", "warmup_linear"])
def test_a_target_before_its_first_step_loads_without_an_error(name, tmp_path):
    run = built(name, tmp_path / "first")
    state = written(run, tmp_path / "state", 0)
    assert errors(found(state, built(name, tmp_path / "second"))) == []


@pytest.mark.parametrize("name", ["char_gpt", "frozen_backbone"])
def test_a_target_that_was_resumed_and_saves_again_loads_without_an_error(name, tmp_path):
    first = built(name, tmp_path / "first")
    first.step(1)
    written(first, tmp_path / "one", 1)
    second = built(name, tmp_path / "second")
    second.load(tmp_path / "one" / "state")
    second.step(2)
    assert errors(found(written(second, tmp_path / "two", 2), built(name, tmp_path / "third"))) == []


class Sparse(nn.Module):
    """An embedding with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 3, sparse=True)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        return self.embedding(codes)


MODELS = {"mlp": Mlp, "tied": Tied, "conv": ConvNet}
OPTIMIZERS = {
    "SGD": lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
    "SGD with momentum": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
    "AdamW in two groups": lambda m: torch.optim.AdamW(decay_groups(m), lr=1e-3),
    "AdamW by name": lambda m: torch.optim.AdamW(m.named_parameters(), lr=1e-3),
    "Adam with amsgrad": lambda m: torch.optim.Adam(m.parameters(), lr=1e-3, amsgrad=True),
    "LBFGS": lambda m: torch.optim.LBFGS(m.parameters(), lr=0.1, max_iter=2),
    "Adafactor": lambda m: torch.optim.Adafactor(m.parameters()),
    "RMSprop": lambda m: torch.optim.RMSprop(m.parameters(), momentum=0.9, centered=True),
    "NAdam": lambda m: torch.optim.NAdam(m.parameters()),
    "Rprop": lambda m: torch.optim.Rprop(m.parameters()),
    "ASGD": lambda m: torch.optim.ASGD(m.parameters()),
}


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "mlp") for name in OPTIMIZERS), ("AdamW by name", "tied"), ("Adafactor", "conv")]
)
def test_torch_loads_what_a_script_saved_without_an_error(name, kind, tmp_path):
    model = MODELS[kind]()
    optimizer = OPTIMIZERS[name](model)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    train(model, optimizer, scheduler=schedule)
    torch.save(saved(model, optimizer, scheduler=schedule), tmp_path / "state.pt")
    again = MODELS[kind]()
    other = OPTIMIZERS[name](again)
    run = run_of(again, other, scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(other, 20))
    dry = dry_run(tmp_path / "state.pt", run)
    assert (dry.how, dry.raised) == ("torch's load_state_dict", None)
    findings, _ = judge(dry)
    assert [(one.code, one.message) for one in findings if one.severity.value != "info"] == []
    assert torch.equal(next(again.parameters()), next(model.parameters()))
    assert schedule.last_epoch == run.scheduler.last_epoch == 3
    assert same(optimizer.state_dict()["state"], other.state_dict()["state"])


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def frozen_mlp() -> Mlp:
    model = Mlp()
    model.layers.requires_grad_(False)
    return model


def half_mlp() -> Mlp:
    return Mlp().to(torch.bfloat16)


def unused_mlp() -> Mlp:
    model = Mlp()
    model.spare = nn.Linear(6, 6)
    return model


@pytest.mark.parametrize("make", [frozen_mlp, unused_mlp])
def test_frozen_and_never_trained_parameters_without_state_are_no_error(make, tmp_path):
    model = make()
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer)
    torch.save(saved(model, optimizer), tmp_path / "state.pt")
    again = make()
    assert errors(found(tmp_path / "state.pt", run_of(again, torch.optim.AdamW(again.parameters())))) == []


def test_bf16_weights_and_state_are_no_news(tmp_path):
    model = half_mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    torch.save(saved(model, optimizer), tmp_path / "state.pt")
    again = half_mlp()
    run = run_of(again, torch.optim.SGD(again.parameters(), lr=0.1, momentum=0.9))
    assert [one for one in found(tmp_path / "state.pt", run) if one.severity.value != "info"] == []


def test_sparse_gradients_are_no_news(tmp_path):
    model = Sparse()
    optimizer = torch.optim.SparseAdam(model.parameters())
    model(torch.tensor([1, 2])).sum().backward()
    optimizer.step()
    torch.save(saved(model, optimizer), tmp_path / "state.pt")
    again = Sparse()
    assert errors(found(tmp_path / "state.pt", run_of(again, torch.optim.SparseAdam(again.parameters())))) == []


def test_a_target_that_wraps_its_model_loads_a_bare_file(tmp_path):
    model = Mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer)
    torch.save(saved(model, optimizer), tmp_path / "state.pt")
    again = nn.DataParallel(Mlp())
    dry = dry_run(tmp_path / "state.pt", run_of(again, torch.optim.AdamW(again.parameters())))
    assert dry.raised is None
    assert errors(judge(dry)[0]) == []


def test_an_own_load_that_goes_by_name_may_have_another_order(tmp_path):
    """What torch would bind wrongly, a load of the target's own binds right."""
    model = Mlp()
    optimizer = torch.optim.AdamW(model.named_parameters())
    train(model, optimizer)
    torch.save(saved(model, optimizer), tmp_path / "state.pt")
    again = Mlp()
    listed = list(reversed([*again.named_parameters()]))
    other = torch.optim.AdamW(listed)

    def load(path: Path) -> None:
        held = torch.load(path)
        again.load_state_dict(held["model"])
        order = held["optimizer"]["param_groups"][0]["param_names"]
        state = {order[key]: one for key, one in held["optimizer"]["state"].items()}
        groups = [{**held["optimizer"]["param_groups"][0], "params": [*range(len(listed))]}]
        other.load_state_dict(
            {"state": {at: state[name] for at, (name, _) in enumerate(listed)}, "param_groups": groups}
        )

    run = run_of(again, other, load=load, save=lambda path: None)
    assert errors(found(tmp_path / "state.pt", run)) == []


def test_an_adapter_without_its_frozen_base_is_no_error(tmp_path):
    def make() -> tuple[Mlp, Any]:
        torch.manual_seed(0)
        model = frozen_mlp()
        model.norm.requires_grad_(False)
        return model, torch.optim.AdamW(model.head.parameters())

    model, optimizer = make()
    train(model, optimizer)
    adapter = {name: one for name, one in model.state_dict().items() if name.startswith("head")}
    torch.save({"model": adapter, "optimizer": optimizer.state_dict(), "step": 3}, tmp_path / "state.pt")
    again, other = make()

    def load(path: Path) -> None:
        held = torch.load(path)
        again.load_state_dict(held["model"], strict=False)
        other.load_state_dict(held["optimizer"])

    run = run_of(again, other, load=load, save=lambda path: None)
    assert errors(found(tmp_path / "state.pt", run)) == []


def test_an_own_load_may_rename_the_weights(tmp_path):
    model = Mlp()
    model.top = model.head
    del model.head
    optimizer = adamw(model)

    def load(path: Path) -> None:
        held = torch.load(path)
        model.load_state_dict({name.replace("head", "top"): one for name, one in held["model"].items()})
        optimizer.load_state_dict(held["optimizer"])

    findings = found(file_of(tmp_path), run_of(model, optimizer, load=load, save=lambda path: None))
    assert [one.code for one in findings if one.severity.value != "info"] == []


def test_two_optimizers_may_stand_in_another_order_than_the_run_has_them(tmp_path):
    """A dict of optimizers has the order of its keys; classes and lengths tell which is whose."""
    model = nn.ModuleDict({"one": nn.Linear(6, 3), "two": nn.Linear(6, 3)})

    def optimizers(model: nn.ModuleDict) -> list[Any]:
        return [adamw(model["one"]), torch.optim.SGD(model["two"].parameters(), lr=0.1, momentum=0.9)]

    own = optimizers(model)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    for one in own:
        one.step()
    state = {"model": model.state_dict(), "optimizer_a": own[1].state_dict(), "optimizer_b": own[0].state_dict()}
    torch.save(state, tmp_path / "state.pt")
    again = nn.ModuleDict({"one": nn.Linear(6, 3), "two": nn.Linear(6, 3)})
    others = optimizers(again)

    def load(path: Path) -> None:
        held = torch.load(path)
        again.load_state_dict(held["model"])
        others[1].load_state_dict(held["optimizer_a"])
        others[0].load_state_dict(held["optimizer_b"])

    findings = found(tmp_path / "state.pt", run_of(again, others, load=load, save=lambda path: None))
    assert [(one.code, one.message) for one in findings if one.severity.value != "info"] == []


def test_groups_that_differ_without_effect_on_any_hyperparameter_are_no_error(tmp_path):
    """As where a load of the target's own puts a parameter and its state into another of two equal groups."""

    def grouped(model: nn.Module, first: tuple[str, ...]) -> torch.optim.Optimizer:
        named = dict(model.named_parameters())
        rest = [(name, one) for name, one in named.items() if name not in first]
        return torch.optim.SGD(
            [{"params": [(name, named[name]) for name in first]}, {"params": rest}], lr=0.1, momentum=0.9
        )

    path = file_of(tmp_path, optimizer=lambda model: grouped(model, ("head.weight", "norm.weight")))
    model = Mlp()
    optimizer = grouped(model, ("norm.weight", "norm.bias"))

    def load(path: Path) -> None:
        held = torch.load(path)
        model.load_state_dict(held["model"])
        names = [name for group in held["optimizer"]["param_groups"] for name in group["param_names"]]
        for key, one in held["optimizer"]["state"].items():
            optimizer.state[dict(model.named_parameters())[names[key]]] = one
        torch.set_rng_state(held["rng"]["torch"])

    findings = found(path, run_of(model, optimizer, load=load, save=lambda path: None))
    assert [(one.code, one.message) for one in findings if one.severity.value != "info"] == []


def test_a_tensor_that_is_trained_beside_the_model_is_no_stale_one(tmp_path):
    """As a temperature is, beside a second network that nothing steps."""

    def make() -> tuple[nn.ModuleDict, list[Any]]:
        model = nn.ModuleDict({"critic": nn.Linear(3, 3), "slow_critic": nn.Linear(3, 3)})
        temperature = nn.Parameter(torch.zeros(1))
        return model, [torch.optim.Adam(model["critic"].parameters()), torch.optim.Adam([temperature])]

    model, optimizers = make()
    for one in optimizers:
        for parameter in one.param_groups[0]["params"]:
            parameter.grad = torch.ones_like(parameter)
        one.step()
    state = {"model": model.state_dict(), "optimizers": [one.state_dict() for one in optimizers]}
    torch.save(state, tmp_path / "state.pt")
    again, others = make()
    findings, not_judged = judge(dry_run(tmp_path / "state.pt", run_of(again, others)))
    assert errors(findings) == []
    assert "CK307" in {one.code for one in not_judged}


def as_trainer_folder(folder: Path, state: dict[str, Any]) -> Path:
    """As HF Trainer lays its parts out."""
    place = folder / "checkpoint-3"
    place.mkdir()
    torch.save(state["model"], place / "pytorch_model.bin")
    torch.save(state["optimizer"], place / "optimizer.pt")
    torch.save(state["scheduler"], place / "scheduler.pt")
    (place / "trainer_state.json").write_text(json.dumps({"global_step": 3, "epoch": 1.0, "log_history": []}))
    return place


def as_dcp(folder: Path, state: dict[str, Any]) -> Path:
    """As torch.distributed.checkpoint writes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({key: state[key] for key in ("model", "optimizer")}, checkpoint_id=folder / "dcp", no_dist=True)
    return folder / "dcp"


def as_named(folder: Path, state: dict[str, Any]) -> Path:
    """With an optimizer that is keyed by name, as FSDP and `get_optimizer_state_dict` give it."""
    names = [name for name, _ in Mlp().named_parameters()]
    own = state["optimizer"]
    group = {**own["param_groups"][0], "params": names}
    keyed = {"state": {names[key]: one for key, one in own["state"].items()}, "param_groups": [group]}
    torch.save({**state, "optimizer": keyed}, folder / "named.pt")
    return folder / "named.pt"


@pytest.mark.parametrize("write", [as_trainer_folder, as_dcp, as_named])
def test_other_layouts_are_loaded_by_torch_without_an_error(write, tmp_path):
    state = torch.load(file_of(tmp_path, schedule=cosine))
    path = write(tmp_path, state)
    model = Mlp()
    optimizer = adamw(model)
    scheduled = "scheduler" if write is not as_dcp else None
    run = run_of(model, optimizer, scheduler=cosine(optimizer) if scheduled else None)
    dry = dry_run(path, run)
    assert dry.raised is None
    assert [(one.code, one.message) for one in judge(dry)[0] if one.severity.value != "info"] == []
    assert same(optimizer.state_dict()["state"], state["optimizer"]["state"])
    assert all(torch.equal(one, state["model"][name]) for name, one in model.state_dict().items())


def test_a_longer_horizon_is_told_and_is_no_warning(tmp_path):
    model = Mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    train(model, optimizer, scheduler=schedule)
    torch.save(saved(model, optimizer, scheduler=schedule), tmp_path / "state.pt")
    again = Mlp()
    other = torch.optim.AdamW(again.parameters())
    run = run_of(again, other, scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(other, 40))
    findings = found(tmp_path / "state.pt", run)
    assert {one.severity.value for one in findings} == {"info"}
    told = next(one for one in findings if one.code == "CK602")
    assert "T_max: 20 in the file, 40 in the target" in told.message
    assert "the file's win" in told.message
