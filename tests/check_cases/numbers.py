"""Cases of numbers: NaN, moments that are negative, lost or never were, counters that nothing counted."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from tests.check_cases.case import Faulty, Legal, Make
from tests.check_cases.changing import of_sample
from tests.check_cases.training import ConvNet, Mlp, Tied, saved, train

Change = Callable[[dict[str, Any]], None]
HF = "04_hf_trainer/checkpoint-2"
CK5 = ("CK501", "CK502", "CK503", "CK504", "CK505", "CK506")
NAN, INF = float("nan"), float("inf")


def trained(model: type[nn.Module] = Mlp, optimizer: Any = torch.optim.AdamW, **options: Any) -> dict[str, Any]:
    """What is saved after three real steps."""
    torch.manual_seed(0)
    one = model()
    stepped = optimizer(one.parameters(), **({"lr": 0.01} | options))
    train(one, stepped)
    return copy.deepcopy(saved(one, stepped))


def after(change: Change = lambda state: None, **training: Any) -> Make:
    """Such a checkpoint, changed."""

    def make(folder: Path) -> Path:
        state = trained(**training)
        change(state)
        torch.save(state, folder / "last.pt")
        return folder / "last.pt"

    return make


def moment(index: int, key: str, place: tuple[int, ...] | None, value: float) -> Change:
    """One element of a moment, or all of it, is `value`."""

    def change(state: dict[str, Any]) -> None:
        state["optimizer"]["state"][index][key][place if place is not None else ...] = value

    return change


def weight(name: str, place: tuple[int, ...], value: float, part: str = "model") -> Change:
    """One element of a weight is `value`."""

    def change(state: dict[str, Any]) -> None:
        state[part][name][place] = value

    return change


def counter(index: int, value: Any, key: str = "step") -> Change:
    """A parameter's counter says `value`."""

    def change(state: dict[str, Any]) -> None:
        state["optimizer"]["state"][index][key] = value

    return change


def averaged(state: dict[str, Any]) -> None:
    state["ema"] = copy.deepcopy(state["model"])


def and_also(*changes: Change) -> Change:
    """One after the other."""

    def change(state: dict[str, Any]) -> None:
        for one in changes:
            one(state)

    return change


def each_moment(
    way: Callable[[torch.Tensor], torch.Tensor], keys: tuple[str, ...] = ("exp_avg", "exp_avg_sq")
) -> Change:
    """Every moment, changed."""

    def change(state: dict[str, Any]) -> None:
        for kept in state["optimizer"]["state"].values():
            kept |= {key: way(kept[key]) for key in keys if key in kept}

    return change


def small_gradients(state: dict[str, Any]) -> None:
    """Moments as gradients of 1e-5 leave them, which are no trouble in float32."""
    for kept in state["optimizer"]["state"].values():
        kept["exp_avg"] *= 1e-3
        kept["exp_avg_sq"] *= 1e-9


def tiny_gradients(state: dict[str, Any]) -> None:
    """Gradients of 1e-25, whose squares are no float32."""
    for kept in state["optimizer"]["state"].values():
        kept["exp_avg"] = torch.full_like(kept["exp_avg"], 1e-26)
        kept["exp_avg_sq"] = torch.zeros_like(kept["exp_avg_sq"])
    for group in state["optimizer"]["param_groups"]:
        group["eps"] = 0.0


def quick_second_moment(state: dict[str, Any]) -> None:
    """With a second beta of 0 the moment is the last gradient's square, and that gradient was 0 for one element."""
    state["optimizer"]["state"][0]["exp_avg_sq"][0, 0] = 0
    for group in state["optimizer"]["param_groups"]:
        group["betas"] = (0.9, 0.0)


def never_stepped(folder: Path) -> Path:
    """State that torch's distributed helpers made of an optimizer before its first step."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    torch.manual_seed(0)
    model = Mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    get_optimizer_state_dict(model, optimizer)
    state = optimizer.state_dict()
    for group in state["param_groups"]:
        group["lr"] = 0.01
    torch.save({"model": model.state_dict(), "optimizer": state, "step": 0}, folder / "last.pt")
    return folder / "last.pt"


def diverged(folder: Path) -> Path:
    """A training that went on after its loss was no number."""
    torch.manual_seed(0)
    model = Mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    train(model, optimizer, 2)
    (model(torch.full((2, 6), INF)).sum() * 0).backward()
    optimizer.step()
    torch.save(saved(model, optimizer), folder / "last.pt")
    return folder / "last.pt"


class Masked(nn.Module):
    """Attention's mask as a buffer, and an observer that has seen nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 6)
        self.register_buffer("mask", torch.full((8, 8), -INF).triu(1))
        self.register_buffer("slopes", torch.full((8, 8), -INF).triu(1) + torch.arange(64.0).view(8, 8).tril())
        self.observer = torch.ao.quantization.MinMaxObserver()
        self.register_buffer("best", torch.tensor(INF))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def released(model: type[nn.Module]) -> Make:
    """Its weights alone, as safetensors."""

    def make(folder: Path) -> Path:
        save_file(trained(model)["model"], folder / "model.safetensors")
        return folder / "model.safetensors"

    return make


def unused_rows(folder: Path) -> Path:
    """An embedding of which most rows were never looked up, and a module that never was."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"table": nn.Embedding(500, 4), "idle": nn.Linear(4, 4)})
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        (model["table"](torch.tensor([1, 2, 3])).square().sum() + 0 * model["idle"](torch.ones(1, 4)).sum()).backward()
        optimizer.step()
    torch.save(saved(model, optimizer), folder / "last.pt")
    return folder / "last.pt"


def unfrozen_later(folder: Path) -> Path:
    """The head was trained alone first: the counters of the rest lag behind."""
    torch.manual_seed(0)
    model = Mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model.layers.requires_grad_(requires_grad=False)
    train(model, optimizer, 4)
    model.layers.requires_grad_(requires_grad=True)
    train(model, optimizer, 2)
    torch.save(saved(model, optimizer, 6), folder / "last.pt")
    return folder / "last.pt"


def brain_floats(folder: Path) -> Path:
    """Trained in bfloat16 throughout."""
    torch.manual_seed(0)
    model = Mlp().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 6, generator=generator).bfloat16()).square().mean().backward()
        optimizer.step()
    torch.save(saved(model, optimizer), folder / "last.pt")
    return folder / "last.pt"


def scaler(scale: float) -> dict[str, Any]:
    """What torch.amp.GradScaler saves."""
    return torch.amp.GradScaler("cpu", init_scale=8.0).state_dict() | {"scale": scale, "_growth_tracker": 1}


def one_dead_unit(state: dict[str, Any]) -> None:
    """A bias that never got a gradient other than zero."""
    for key in ("exp_avg", "exp_avg_sq"):
        state["optimizer"]["state"][3][key].zero_()


def half_a_release(state: dict[str, Any]) -> None:
    """Weights written in bfloat16 beside the moments of float32."""
    state["model"] = {name: value.bfloat16() for name, value in state["model"].items()}


def ahead(state: dict[str, Any]) -> None:
    for kept in state["state"].values():
        kept["step"] += 40


FAULTY: tuple[Faulty, ...] = (
    Faulty("one NaN in a weight", after(weight("head.weight", (1, 2), NAN)), "CK501", "head.weight", mechanism="nan"),
    Faulty("one infinity in a bias", after(weight("layers.1.bias", (3,), INF)), "CK501", "layers.1.bias",
           mechanism="nan"),
    Faulty("a trained weight with one minus infinity", after(weight("layers.0.weight", (0, 0), -INF)), "CK501",
           "layers.0.weight"),
    Faulty("a NaN in a first moment", after(moment(0, "exp_avg", (0, 1), NAN)), "CK501", "layers.0.weight",
           mechanism="nan"),
    Faulty("an average that took up a NaN", after(and_also(averaged, weight("head.bias", (0,), NAN, "ema"))), "CK501",
           "head.bias"),
    Faulty("a running variance that is infinite", after(weight("bn.running_var", (1,), INF), model=ConvNet), "CK501",
           "bn.running_var"),
    Faulty("a training that went on after its loss was no number", diverged, "CK501", "layers.0.weight",
           mechanism="nan"),
    Faulty("a second moment below zero", after(moment(4, "exp_avg_sq", (2,), -1e-12)), "CK502", "norm.weight"),
    Faulty("a sum of squares of Adagrad below zero",
           after(moment(0, "sum", (0, 0), -1.0), optimizer=torch.optim.Adagrad), "CK502", "layers.0.weight"),
    Faulty("a mean of squares of RMSprop below zero",
           after(moment(1, "square_avg", (0,), -1.0), optimizer=torch.optim.RMSprop), "CK502", "layers.0.bias"),
    Faulty("second moments that a half save made zero",
           after(and_also(small_gradients, each_moment(torch.Tensor.half))), "CK503", "layers.0.weight",
           mechanism="v_underflow"),
    Faulty("second moments that went through float16 and back",
           after(and_also(small_gradients, each_moment(lambda one: one.half().float(), ("exp_avg_sq",)))), "CK503",
           "layers.0.weight", mechanism="v_underflow"),
    Faulty("a maximum of amsgrad that became zero",
           after(moment(0, "max_exp_avg_sq", None, 0.0), amsgrad=True), "CK503", "layers.0.weight"),
    Faulty("bfloat16 moments of float32 weights", after(each_moment(torch.Tensor.bfloat16)), "CK504",
           "layers.0.weight", severity="warning", mechanism="dtype_down"),
    Faulty("a buffer of momentum in half precision",
           after(each_moment(torch.Tensor.half, ("momentum_buffer",)), optimizer=torch.optim.SGD, momentum=0.9),
           "CK504", "layers.0.weight", severity="warning", mechanism="dtype_down"),
    Faulty("a counter of zero beside warm moments", after(counter(2, torch.tensor(0.0))), "CK505", "layers.1.weight",
           mechanism="step_desync"),
    Faulty("a counter that is a plain zero beside warm moments", after(counter(2, 0)), "CK505", "layers.1.weight",
           mechanism="step_desync"),
    Faulty("a counter below zero", after(counter(1, torch.tensor(-3.0))), "CK505", "layers.0.bias"),
    Faulty("a counter that is no number", after(counter(1, torch.tensor(NAN))), "CK505", "layers.0.bias"),
    Faulty("a plain counter that is no number", after(counter(1, NAN)), "CK505", "layers.0.bias"),
    Faulty("a counter made of an epoch and a half", after(counter(5, torch.tensor(1.5))), "CK505", "norm.bias"),
    Faulty("counters ahead of the trainer's step", of_sample(HF, "optimizer.pt", ahead), "CK505", severity="warning",
           mechanism="step_desync"),
    Faulty("running variances below zero", after(weight("bn.running_var", (1,), -0.5), model=ConvNet), "CK502",
           "bn.running_var"),
    Faulty("a running variance of an average below zero",
           after(and_also(averaged, weight("bn.running_var", (1,), -0.5, "ema")), model=ConvNet), "CK502",
           "bn.running_var"),
    *(Faulty(f"a gradient scaler whose scale is {value}",
             after(lambda state, value=value: state.update(scaler=scaler(value))), "CK501", "scale", mechanism="scaler")
      for value in (0.0, NAN, INF, -2.0)),
    Faulty("first moments that were all lost", after(each_moment(torch.zeros_like, ("exp_avg",))), "CK506",
           "layers.0.weight", severity="warning"),
    Faulty("state made before the first step by the distributed helpers", never_stepped, "CK506", severity="warning"),
)  # fmt: skip

LEGAL: tuple[Legal, ...] = (
    Legal("a gradient scaler that came down to one", after(lambda state: state.update(scaler=scaler(1.0))), silent=CK5),
    Legal("a gradient scaler below one", after(lambda state: state.update(scaler=scaler(2.0**-20))), silent=CK5),
    Legal("a running mean below zero and a running variance of zero",
          after(and_also(weight("bn.running_mean", (0,), -3.0), weight("bn.running_var", (0,), 0.0)), model=ConvNet),
          silent=CK5),
    Legal("both moments of one parameter zero", after(one_dead_unit), silent=CK5),
    Legal("first moments of zero where the first beta is zero", after(betas=(0.0, 0.999)), silent=CK5),
    Legal("first moments of zero where the first beta is zero and they are dropped",
          after(each_moment(torch.zeros_like, ("exp_avg",)), betas=(0.0, 0.999)), silent=("CK506",)),
    Legal("moments of small gradients in float32", after(small_gradients), silent=CK5),
    Legal("gradients whose squares are no float32", after(tiny_gradients), silent=("CK502", "CK503")),
    Legal("a second moment that is the last gradient's square", after(quick_second_moment), silent=CK5),
    Legal("amsgrad whose second moment is zero and whose maximum is not",
          after(moment(0, "exp_avg_sq", None, 0.0), amsgrad=True), silent=("CK503",)),
    Legal("masks of minus infinity and observers that have seen nothing", after(model=Masked), silent=CK5),
    Legal("a release with masks of minus infinity", released(Masked), silent=CK5),
    Legal("rows of an embedding that were never used", unused_rows, silent=CK5),
    Legal("counters that lag behind after a late unfreezing", unfrozen_later, silent=CK5),
    Legal("weights and moments in bfloat16", brain_floats, silent=CK5),
    Legal("weights released in bfloat16 beside moments of float32", after(half_a_release)),
    Legal("a momentum buffer with negative elements", after(optimizer=torch.optim.SGD, momentum=0.9), silent=CK5),
    Legal("Adagrad that began with a sum of its own",
          after(optimizer=torch.optim.Adagrad, initial_accumulator_value=0.1), silent=CK5),
    Legal("Adafactor of torch", after(optimizer=torch.optim.Adafactor), silent=CK5),
    Legal("a best loss that is still infinite",
          after(lambda state: state.update(best_loss=INF, best=torch.tensor(INF))), silent=CK5),
    Legal("ties under both names", after(model=Tied), silent=CK5),
    Legal("an average beside the weights", after(averaged), silent=CK5),
    *(Legal(f"{one.__name__} as torch steps it", after(optimizer=one), silent=CK5)
      for one in (torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax, torch.optim.Adadelta, torch.optim.Rprop,
                  torch.optim.ASGD, torch.optim.LBFGS)),
    Legal("centered RMSprop with momentum", after(optimizer=torch.optim.RMSprop, centered=True, momentum=0.9),
          silent=CK5),
)  # fmt: skip
