"""What is said of a script's loads, from its own trace: each silent trap of torch, and the legal load beside it."""

import copy
import gc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, StepLR

from ckptcheck.finding import Finding, NotJudged
from ckptcheck.trace.reading import open_traces
from ckptcheck.verdict.left_out import idle_pattern
from ckptcheck.verdict.loads_seen import loads_seen
from tests.trace.script.recorded import recording

SIZE = 4


@pytest.fixture(scope="module", autouse=True)
def few_objects() -> Iterator[None]:
    """The recorder looks for averages among all objects: those of torch and pytest are set aside."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(SIZE, SIZE), nn.BatchNorm1d(SIZE), nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE))


def frozen() -> nn.Sequential:
    made = net()
    made[0].requires_grad_(False)
    return made


class Renaming(nn.Sequential):
    """Reads checkpoints of an earlier version of itself, whose keys had another name."""

    def __init__(self) -> None:
        super().__init__(*net())
        self.register_load_state_dict_pre_hook(self._rename)

    @staticmethod
    def _rename(_: nn.Module, state: dict[str, Any], *__: Any) -> None:
        for key in [one for one in state if one.startswith("old.")]:
            state[key.removeprefix("old.")] = state.pop(key)


class Adapter(nn.Module):
    """A frozen base, and the only part that is saved."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(SIZE, SIZE).requires_grad_(False)
        self.lora_A = nn.Linear(SIZE, 2, bias=False)
        self.lora_B = nn.Linear(2, SIZE, bias=False)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.base(given) + self.lora_B(self.lora_A(given))


def adam(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), **{"lr": 0.1, **options})


def plain_adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.1)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def slow(model: nn.Module) -> torch.optim.Optimizer:
    return adam(model, lr=0.01)


def matrices(*, reverse: bool = False, named: bool = True) -> Callable[[nn.Module], torch.optim.Optimizer]:
    """AdamW over the three equal matrices, in their order or against it."""

    def made(model: nn.Module) -> torch.optim.Optimizer:
        found = [(name, one) for name, one in model.named_parameters() if one.dim() == 2]
        found = found[::-1] if reverse else found
        return torch.optim.AdamW(found if named else [one for _, one in found], lr=0.1)

    return made


def groups(*decayed: str) -> Callable[[nn.Module], torch.optim.Optimizer]:
    """AdamW over the three equal matrices, in two groups by name, of which the first decays."""

    def made(model: nn.Module) -> torch.optim.Optimizer:
        found = {name: one for name, one in model.named_parameters() if one.dim() == 2}
        sides = [[(name, one) for name, one in found.items() if (name in decayed) is side] for side in (True, False)]
        decay = zip(sides, (0.5, 0.0), strict=True)
        return torch.optim.AdamW([{"params": one, "weight_decay": value} for one, value in decay], lr=0.1)

    return made


def few(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model[2:].parameters(), lr=0.1)


def cosine(steps: int) -> Callable[[torch.optim.Optimizer], Any]:
    return lambda optimizer: CosineAnnealingLR(optimizer, steps)


def train(model: nn.Module, optimizer: Any, schedule: Any = None, steps: int = 1) -> None:
    for number in range(steps):
        optimizer.zero_grad()
        given = torch.randn(6, SIZE, generator=torch.Generator().manual_seed(number))
        model(given).pow(2).sum().backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()


State = dict[str, Any]


@dataclass(frozen=True)
class Load:
    """A training that is saved after three steps and loaded into one that is built alike, but for what is said.

    `change` changes what was saved, `after` the objects when all is loaded. `codes` are the codes that must come, with
    their severities and parameters; no other may.
    """

    name: str
    codes: tuple[str, ...] = ()
    optimizer: Callable[[nn.Module], Any] = adam
    was: Callable[[nn.Module], Any] | None = None
    schedule: Callable[[Any], Any] | None = None
    model: Callable[[], nn.Module] = net
    change: Callable[[State], Any] = lambda state: None
    after: Callable[[nn.Module, Any], Any] = lambda model, optimizer: None
    strict: bool = True
    assign: bool = False
    said: str = ""


def state_of(load: Load) -> State:
    torch.manual_seed(1)
    model = load.model()
    optimizer = (load.was or load.optimizer)(model)
    schedule = load.schedule(optimizer) if load.schedule else None
    train(model, optimizer, schedule, steps=3)
    more = {"schedule": schedule.state_dict()} if schedule else {}
    return copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict(), **more})


def script(load: Load, state: State) -> None:
    torch.manual_seed(2)
    model = load.model()
    optimizer = load.optimizer(model)
    schedule = load.schedule(optimizer) if load.schedule else None
    if "model" in state:
        model.load_state_dict(state["model"], strict=load.strict, assign=load.assign)
    if "optimizer" in state:
        with suppress(ValueError):  # "starting with a new optimizer"
            optimizer.load_state_dict(state["optimizer"])
    if schedule is not None and "schedule" in state:
        schedule.load_state_dict(state["schedule"])
    load.after(model, optimizer)
    train(model, optimizer, schedule)


def said_of(folder, run: Callable[[], None], **asked: Any) -> tuple[tuple[Finding, ...], tuple[NotJudged, ...]]:
    with recording(folder):
        run()
    (trace,) = open_traces(folder)
    return loads_seen(trace, **asked)


def told(findings: tuple[Finding, ...]) -> list[str]:
    return sorted(
        f"{one.code} {one.severity.value}" + (f" {one.where.parameter}" if one.where.parameter else "")
        for one in findings
    )


def without(*starts: str, part: str = "model") -> Callable[[State], None]:
    def change(state: State) -> None:
        state[part] = {key: one for key, one in state[part].items() if not key.startswith(starts)}

    return change


def prefixed(state: State) -> None:
    state["model"] = {f"module.{key}": one for key, one in state["model"].items()}


def moments(change: Callable[[dict[Any, Any]], Any]) -> Callable[[State], None]:
    return lambda state: change(state["optimizer"]["state"])


def in_bfloat16(state: dict[Any, Any]) -> None:
    for one in state.values():
        one.update({key: one[key].bfloat16() for key in ("exp_avg", "exp_avg_sq")})


def renumbered(state: dict[Any, Any]) -> None:
    for key in list(state):
        state[str(key)] = state.pop(key)


def swapped(state: dict[Any, Any]) -> None:
    state[0], state[1] = state[1], state[0]


def in_half(model: nn.Module) -> None:
    model.bfloat16()
    model.register_forward_pre_hook(lambda _, given: tuple(one.bfloat16() for one in given))


def set_rate(value: float) -> Callable[[nn.Module, Any], None]:
    return lambda model, optimizer: optimizer.param_groups[0].update(lr=value)


TRAPS = (
    Load("named parameters in another order", ("CK302 error 3.weight",), matrices(reverse=True), matrices(),
         said="3.weight gets that of 0.weight"),
    Load("parameters exchanged between two groups", ("CK301 error 2.weight", "CK302 error 2.weight"),
         groups("2.weight"), groups("0.weight")),
    Load("the groups of the checkpoint the other way round", ("CK304 error 0.weight",),
         lambda model: torch.optim.SGD([{"params": [model[0].weight]}, {"params": [model[0].bias]}], 0.1, 0.9),
         lambda model: torch.optim.SGD([{"params": [model[0].bias]}, {"params": [model[0].weight]}], 0.1, 0.9)),
    Load("state missing for one parameter", ("CK202 error 2.weight",), change=moments(lambda one: one.pop(4)),
         said="which the script trains; 2.bias has its"),
    Load("state missing for one named parameter", ("CK202 error 2.weight",),
         lambda model: torch.optim.AdamW(model.named_parameters(), lr=0.1), change=moments(lambda one: one.pop(4))),
    Load("state missing for all parameters, where the schedule has moved", ("CK201 error 0.weight",),
         schedule=cosine(10), change=moments(dict.clear)),
    Load("state keyed by texts", ("CK201 error 0.weight",), change=moments(renumbered)),
    Load("one momentum missing", ("CK202 error 0.weight",), momentum,
         change=moments(lambda one: one[0].pop("momentum_buffer"))),
    Load("state of SGD in another number of groups, refused and passed over", ("CK301 error", "CK601 error"), few, adam,
         said="load_state_dict raised: that of AdamW: ValueError"),
    Load("an Adam loaded into an AdamW", ("CK306 warning",), was=plain_adam, said="decoupled_weight_decay"),
    Load("moments in bfloat16", ("CK504 warning 0.weight",), change=moments(in_bfloat16)),
    Load("another learning rate in the script, which the checkpoint's overrules", ("CK306 warning",), slow, adam,
         said="the loaded state's value wins: lr of group 0: 0.1 in the loaded state, 0.01 in the script"),
    Load("another learning rate, set again after the load", ("CK306 warning",), slow, adam, after=set_rate(0.01),
         said="the target's value wins"),
    Load("a schedule that is not loaded", ("CK204 warning",), schedule=cosine(10),
         change=lambda state: state.pop("schedule")),
    Load("a schedule with another decay", ("CK602 warning",), schedule=lambda one: StepLR(one, 2),
         change=lambda state: state["schedule"].update(gamma=0.5)),
    Load("every key with a prefix", ("CK310 error 0.weight",), change=prefixed, strict=False),
    Load("weights alone, every key with a prefix", ("CK310 error 0.weight",), strict=False,
         change=lambda state: (prefixed(state), state.pop("optimizer"))),
    Load("weights alone, of another model", ("CK309 error 0.weight",), strict=False,
         change=lambda state: state.update(model={"other": torch.zeros(3)}) or state.pop("optimizer")),
    Load("a layer that the checkpoint lacks", ("CK309 error 3.weight",), change=without("3."), strict=False),
    Load("tensors that take the place of those that the optimizer steps",
         ("CK307 error Sequential.0.weight",), assign=True, change=lambda state: None),
)  # fmt: skip

LEGAL = (
    Load("an exact reload"),
    Load("an exact reload by names", (), lambda model: torch.optim.AdamW(model.named_parameters(), lr=0.1)),
    Load("names in the checkpoint alone", (), was=lambda model: torch.optim.AdamW(model.named_parameters(), lr=0.1)),
    Load("groups by name, the same", (), groups("2.weight")),
    Load("a schedule with it", (), schedule=cosine(10)),
    Load("plain SGD, which keeps no state", (), sgd),
    Load("SGD with momentum, which counts no steps", (), momentum),
    Load("a frozen backbone, in the optimizer's groups", model=frozen),
    Load("a learning rate that the loop sets for each step", optimizer=slow, was=adam, after=set_rate(0.05)),
    Load("weights alone", change=lambda state: state.pop("optimizer")),
    Load("weights alone, with a new head", strict=False,
         change=lambda state: (without("3.")(state), state.pop("optimizer"))),
    Load("a model that renames the keys of its older checkpoints", model=Renaming,
         change=lambda state: state.update(model={f"old.{key}": one for key, one in state["model"].items()})),
    Load("a wrapped model", model=lambda: nn.DataParallel(net())),
    Load("adapters alone", model=Adapter, change=without("base"), strict=False),
    Load("buffers that the checkpoint lacks", change=without("1.running"), strict=False),
    Load("a buffer that the model lacks", strict=False, change=lambda state: state["model"].update(mask=torch.ones(2))),
    Load("a model that is cast after the load", optimizer=momentum,
         after=lambda model, optimizer: in_half(model)),
    Load("the optimizer alone", change=lambda state: state.pop("model")),
    Load("nothing", change=dict.clear),
)  # fmt: skip


@pytest.mark.parametrize("load", TRAPS, ids=lambda one: one.name)
def test_a_trap_is_told(tmp_path, load):
    state = state_of(load)
    load.change(state)

    def run() -> None:
        with suppress(KeyError, RuntimeError):  # some raise in their first step, which no longer matters
            script(load, state)

    findings, _ = said_of(tmp_path, run)
    assert told(findings) == sorted(load.codes), [one.message for one in findings]
    assert load.said.replace("the target", "the script") in findings[0].message + findings[-1].message
    assert all((one.where.rank, one.where.stage) == (0, "load") for one in findings)
    assert not any("the target" in one.message or "the file" in one.message for one in findings)


@pytest.mark.parametrize("load", LEGAL, ids=lambda one: one.name)
def test_a_legal_load_is_silent(tmp_path, load):
    state = state_of(load)
    load.change(state)
    findings, not_judged = said_of(tmp_path, lambda: script(load, state))
    assert [(one.code, one.message) for one in findings] == []
    assert {one.code for one in not_judged} <= {"CK301", "CK302"}, "without names an exchange cannot be seen"


class Muon(torch.optim.Optimizer):
    """A script's own class, with a name that torch has too, for another one."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1, "momentum": 0.9})

    def step(self) -> None:  # type: ignore[override]
        for one in self.param_groups[0]["params"]:
            self.state[one].setdefault("buf", torch.zeros_like(one)).add_(one.grad)
            one.data.add_(self.state[one]["buf"], alpha=-0.1)


def test_a_class_of_the_script_is_not_taken_for_the_one_of_that_name_which_torch_has(tmp_path):
    load = Load("", optimizer=lambda model: Muon(model.parameters()))
    state = state_of(load)
    findings, _ = said_of(tmp_path, lambda: script(load, state))
    assert [one.message for one in findings] == []


@pytest.mark.parametrize(("rates", "codes"), [((0.1, 0.09, 0.08), []), ((0.1, 0.1, 0.1), ["CK306 warning"])])
def test_a_rate_that_the_loop_sets_is_no_change_even_where_its_first_is_that_of_the_checkpoint(tmp_path, rates, codes):
    state = state_of(Load(""))

    def run() -> None:
        model = net()
        optimizer = slow(model)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        for rate in rates:
            optimizer.param_groups[0]["lr"] = rate
            train(model, optimizer)

    assert told(said_of(tmp_path, run)[0]) == codes


ONLY = [
    # what is recorded, what the checkpoint lacks, the codes that come of it
    ("0.*", lambda state: None, []),
    ("0.*", moments(lambda one: one.pop(0)), ["CK202 error 0.weight"]),
    ("2.*", without("3."), ["CK309 error 3.weight"]),
]


@pytest.mark.parametrize(("only", "change", "codes"), ONLY)
def test_nothing_is_claimed_of_what_was_not_recorded(tmp_path, only, change, codes):
    load = Load("", strict=False)
    state = state_of(load)
    change(state)
    with recording(tmp_path, only=(only,)):
        script(load, state)
    (trace,) = open_traces(tmp_path)
    findings, _ = loads_seen(trace)
    assert told(findings) == codes
    assert idle_pattern([trace]) is None


def test_a_glob_that_nothing_matches_is_told(tmp_path):
    load = Load("")
    with recording(tmp_path, only=("0.*", "nomatch*")):
        script(load, state_of(load))
    assert idle_pattern(open_traces(tmp_path)) == "nomatch*"


def test_an_empty_state_is_not_judged_where_nothing_says_that_a_step_was_made(tmp_path):
    load = Load("")
    state = state_of(load)
    state["optimizer"]["state"].clear()
    findings, not_judged = said_of(tmp_path, lambda: script(load, state))
    assert findings == () and [one.code for one in not_judged] == ["CK201"]


def test_a_second_optimizer_without_a_load_beside_one_with_it_is_told(tmp_path):
    first, second = net(), net()
    pair = [adam(first), adam(second)]
    for model, optimizer in zip((first, second), pair, strict=True):
        train(model, optimizer)
    states = [copy.deepcopy(one.state_dict()) for one in (*pair, first, second)]

    def run() -> None:
        models = [net(), net()]
        optimizers = [adam(one) for one in models]
        for model, state in zip(models, states[2:], strict=True):
            model.load_state_dict(state)
        optimizers[1].load_state_dict(states[1])
        for model, optimizer in zip(models, optimizers, strict=True):
            train(model, optimizer)

    findings, _ = said_of(tmp_path, run)
    assert told(findings) == ["CK201 error Sequential#1.0.weight"]
    assert findings[0].where.optimizer == 0


@pytest.mark.parametrize("resumed", [False, True], ids=["a first run", "a resumed one"])
def test_a_target_network_that_is_loaded_from_live_weights_is_no_fault(tmp_path, resumed):
    state = state_of(Load("")) if resumed else None

    def run() -> None:
        policy, target = net(), net()
        optimizer = adam(policy)
        if state is not None:
            policy.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        target.load_state_dict(policy.state_dict())
        for number in range(2):
            with torch.no_grad():
                target(torch.ones(2, SIZE) * number)
            train(policy, optimizer)
            target.load_state_dict(policy.state_dict())

    assert said_of(tmp_path, run)[0] == ()


def test_a_load_that_was_tried_and_made_again_is_judged_by_the_last(tmp_path):
    load = Load("")
    state = state_of(load)

    def run() -> None:
        model = net()
        optimizer = adam(model)
        try:
            model.load_state_dict({f"module.{key}": one for key, one in state["model"].items()})
        except RuntimeError:
            model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        train(model, optimizer)

    assert said_of(tmp_path, run)[0] == ()


def test_a_script_that_ends_in_its_load_is_told_what_torch_said(tmp_path):
    state = state_of(Load(""))
    alive = []

    def run() -> None:
        model = net()
        optimizer = few(model)
        alive.append((model, optimizer))  # as the frames of an exception that nobody catches keep them
        with pytest.raises(ValueError, match="size of optimizer's group"):
            optimizer.load_state_dict(state["optimizer"])

    findings, _ = said_of(tmp_path, run)
    assert told(findings) == ["CK301 error", "CK601 error"]
    assert (
        "1 group of 8 parameters in the loaded state and 1 group of 4 parameters in the script" in findings[0].message
    )


def test_codes_are_chosen_and_ignored_and_a_placed_trace_gives_its_step(tmp_path):
    load = TRAPS[1]
    state = state_of(load)
    with recording(tmp_path):
        script(load, state)
    (trace,) = open_traces(tmp_path)
    assert told(loads_seen(trace, ("CK301",))[0]) == ["CK301 error 2.weight"]
    assert told(loads_seen(trace, ("CK",), ("CK301",))[0]) == ["CK302 error 2.weight"]
    assert {one.where.step for one in loads_seen(trace.shifted(3), ("CK",), ())[0]} == {3}


def test_digests_of_two_algorithms_are_not_compared(tmp_path):
    load = Load("", optimizer=matrices(reverse=True), was=matrices())
    for name, change in (("legal", Load("")), ("reversed", load)):
        state = state_of(change)
        with recording(tmp_path / name, digest="linear_128") as recorder:
            recorder.loads._algorithm = "xxh3_128"  # as of a script that loads before it touches a GPU
            script(change, state)
    (legal,), (reverse,) = (open_traces(tmp_path / name) for name in ("legal", "reversed"))
    assert loads_seen(legal, ("CK",), ())[0] == ()
    assert told(loads_seen(reverse, ("CK",), ())[0]) == ["CK302 error 3.weight"]
