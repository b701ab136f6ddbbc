"""Cases of tensors that should be two and are one in the file, and of such that may be."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.check_cases.case import Faulty, Legal, Make
from tests.check_cases.changing import changed, put
from tests.check_cases.training import Mlp, Tied, saved, train
from tests.samples import CHECKPOINTS

State = dict[str, Any]
FSDP = CHECKPOINTS / "09_fsdp_ddp/fsdp1_uop1_full.pt"


def best_of(keep: Callable[[State], State], key: str = "best", *, whole: bool = True) -> Make:
    """Three steps, then weights are put aside by `keep`, then three more; the last save has both."""

    def make(folder: Path) -> Path:
        torch.manual_seed(0)
        model = Mlp()
        optimizer = torch.optim.AdamW(list(model.named_parameters()), lr=0.01)
        train(model, optimizer)
        best = keep(model.state_dict())
        train(model, optimizer, seed=1)
        state = saved(model, optimizer, 6) if whole else {"model": model.state_dict()}
        return put(folder, {**state, key: best})

    return make


def by_reference(weights: State) -> State:
    """What `best = model.state_dict()` keeps: the tensors that go on being trained."""
    return weights


def two_saves(keep: Callable[[State], State], *, last_step: int = 6) -> Callable[[Path], tuple[Path, Path]]:
    """The weights of steps 3 and 6, put aside by `keep` and written at the end, and the steps that they say."""

    def make(folder: Path) -> tuple[Path, Path]:
        torch.manual_seed(0)
        model = Mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        train(model, optimizer)
        best = keep(model.state_dict())
        train(model, optimizer, seed=1)
        return (put(folder, {"model": best, "step": 3}, "best.pt"),
                put(folder, {"model": model.state_dict(), "step": last_step}, "last.pt"))  # fmt: skip

    return make


def kept_by_sgd(state: State) -> None:
    """The same weights twice under two names of the model, for loaders that ask for one or the other."""
    state["state_dict"] = state["model"]


def one_buffer(state: State) -> None:
    """Both moments of every parameter, gathered into one buffer that is used again."""
    for one in state["optimizer"]["state"].values():
        one["exp_avg_sq"] = one["exp_avg"].copy_(one["exp_avg_sq"])


def anothers_moment(state: State) -> None:
    held = state["optimizer"]["state"]
    held[2]["exp_avg"] = held[0]["exp_avg"]


def one_step_for_all(state: State) -> None:
    held = state["optimizer"]["state"]
    for one in held.values():
        one["step"] = held[0]["step"]


def one_flat_buffer(state: State) -> None:
    """All moments are slices of one tensor, each at its own place."""
    kept = [(one, key) for one in state["optimizer"]["state"].values() for key in ("exp_avg", "exp_avg_sq")]
    flat = torch.cat([one[key].flatten() for one, key in kept])
    start = 0
    for one, key in kept:
        end = start + one[key].numel()
        one[key] = flat[start:end].view_as(one[key])
        start = end


def an_expanded_number(state: State) -> None:
    zero = torch.zeros(())
    for one in state["optimizer"]["state"].values():
        one |= {key: zero.expand(one[key].shape) for key in ("exp_avg", "exp_avg_sq")}


def a_shared_map(state: State) -> None:
    """As bitsandbytes keeps its moments: bytes of each, and maps that all of them share."""
    maps = torch.linspace(-1, 1, 256), torch.linspace(0, 1, 256)
    for one in state["optimizer"]["state"].values():
        shape = one.pop("exp_avg").shape
        one.pop("exp_avg_sq")
        one |= {f"state{place}": torch.full(shape, 3, dtype=torch.uint8) for place in (1, 2)}
        one |= {f"qmap{place + 1}": each for place, each in enumerate(maps)}
        one.update({f"absmax{place}": torch.ones(1) for place in (1, 2)}, step=3)
    for group in state["optimizer"]["param_groups"]:
        for key in (
            "amsgrad",
            "maximize",
            "foreach",
            "capturable",
            "differentiable",
            "fused",
            "decoupled_weight_decay",
        ):
            del group[key]
        group |= {"alpha": 0.0, "t_alpha": None, "t_beta3": None}


def models_of_equal_rank(state: State) -> None:
    """A critic and its target beside each other, none of which is the model, each in tensors of its own."""
    state["target_critic"] = copy.deepcopy(state["model"])
    state["critic"] = state.pop("model")


class WithNothing(Mlp):
    """A parameter without elements beside the others."""

    def __init__(self) -> None:
        super().__init__()
        self.none = nn.Parameter(torch.empty(0, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + self.none.sum()


FAULTY: tuple[Faulty, ...] = (
    Faulty("FSDP's whole file, written on a CPU, has one buffer for both moments", lambda _: FSDP, "CK312",
           "emb.weight"),
    Faulty("both moments of all parameters are one tensor each", changed(one_buffer), "CK312", "layers.0.weight"),
    Faulty("the first moment of a parameter is another's", changed(anothers_moment), "CK312", "layers.1.weight"),
    Faulty("best weights that were kept by reference", best_of(by_reference), "CK312", severity="warning",
           mechanism="alias"),
    Faulty("weights alone, the best ones kept by reference", best_of(by_reference, "best_model_wts", whole=False),
           "CK312", severity="warning", mechanism="alias"),
    Faulty("a target network that is the policy itself", best_of(by_reference, "target_model"), "CK312",
           severity="warning", mechanism="alias"),
    Faulty("the weights of an earlier step that were kept by reference", two_saves(by_reference), "CK106",
           severity="warning", mechanism="alias"),
)  # fmt: skip
_SILENT = ("CK312",)
LEGAL: tuple[Legal, ...] = (
    Legal("best weights that were copied", best_of(copy.deepcopy), silent=_SILENT),
    Legal("a target network that was copied a moment ago",
          changed(lambda state: state.update(target=copy.deepcopy(state["model"]))), silent=_SILENT),
    Legal("an average that has not begun, in tensors of its own",
          changed(lambda state: state.update(ema=copy.deepcopy(state["model"]))), silent=_SILENT),
    Legal("the same weights under two names of the model", changed(kept_by_sgd), silent=_SILENT),
    Legal("a critic and its target, neither of which is the chief", changed(models_of_equal_rank), silent=_SILENT),
    Legal("one step counter for all parameters", changed(one_step_for_all), silent=_SILENT),
    Legal("moments that are slices of one flat buffer", changed(one_flat_buffer), silent=_SILENT),
    Legal("moments that are one number, expanded", changed(an_expanded_number), silent=_SILENT),
    Legal("maps of quantised moments that all share", changed(a_shared_map), silent=_SILENT),
    Legal("moments of a parameter without elements", changed(lambda _: None, model=WithNothing()), silent=_SILENT),
    Legal("tied weights and their moments", changed(lambda _: None, model=Tied()), silent=_SILENT),
    Legal("weights of an earlier step that were copied", two_saves(copy.deepcopy), silent=("CK106",)),
    Legal("the weights of one step under two names", two_saves(by_reference, last_step=3), silent=("CK106",)),
)  # fmt: skip
