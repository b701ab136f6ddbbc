"""Cases that the sweep over drawn trainings has found, each made small: see sweep/."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.check_cases.case import Faulty, Legal
from tests.check_cases.training import ConvNet, Mlp, saved, train
from tests.check_cases.two import parameters, two

Saved = dict[str, Any]


def one_cycle(optimizer: torch.optim.Optimizer) -> Any:
    """A schedule that leaves momentum alone, and so keeps no `use_beta1`."""
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=50, cycle_momentum=False)


def cyclic(optimizer: torch.optim.Optimizer) -> Any:
    """Likewise."""
    return torch.optim.lr_scheduler.CyclicLR(optimizer, 1e-3, 1e-2, cycle_momentum=False)


def scheduled(schedule: Callable[[Any], Any]) -> Callable[[Path], Path]:
    """A checkpoint of three steps under a schedule."""

    def make(folder: Path) -> Path:
        model = Mlp()
        optimizer = torch.optim.AdamW(model.parameters())
        scheduler = schedule(optimizer)
        train(model, optimizer, scheduler=scheduler)
        torch.save(saved(model, optimizer, scheduler=scheduler), folder / "state.pt")
        return folder / "state.pt"

    return make


def convnet_steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Steps on doubles."""
    generator = torch.Generator().manual_seed(5)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 1, 6, 6, generator=generator).double()).square().mean().backward()
        optimizer.step()


def bias_before_norm(folder: Path) -> tuple[Path, Path]:
    """A bias before batch norm, whose gradient is nothing but rounding: its momentum turns, and it never moves."""
    torch.manual_seed(0)
    model = ConvNet().double()
    optimizer = torch.optim.SGD(model.named_parameters(), lr=1e-2, momentum=0.9)
    for name in ("left.pt", "right.pt"):
        convnet_steps(model, optimizer)
        torch.save(saved(model, optimizer, 3 if name == "left.pt" else 6), folder / name)
    return folder / "left.pt", folder / "right.pt"


def averaged_copies(folder: Path) -> tuple[Path, Path]:
    """ASGD keeps a copy of each weight: one that small updates do not move, in bfloat16, leaves it as it was."""
    torch.manual_seed(0)
    model = Mlp().bfloat16()
    optimizer = torch.optim.ASGD(model.named_parameters(), lr=1e-3)
    for place, name in enumerate(("left.pt", "right.pt")):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 6).bfloat16()).square().mean().backward()
            optimizer.step()
        torch.save(saved(model, optimizer, 3 * place + 3), folder / name)
    return folder / "left.pt", folder / "right.pt"


class _Two:
    """Two optimizers over halves of one model, without names, the second of which may get further groups."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = Mlp()
        held = [*self.model.norm.parameters(), *self.model.head.parameters()]
        self.first = torch.optim.AdamW(held[:2])
        self.second = torch.optim.Adam([{"params": held[3:]}, {"params": held[2:3]}])

    def go(self) -> Saved:
        """Three steps and what is saved then."""
        for _ in range(3):
            self.model.zero_grad()
            self.model(torch.randn(5, 6)).square().mean().backward()
            self.first.step()
            self.second.step()
        optimizers = [self.first.state_dict(), self.second.state_dict()]
        return {"model": self.model.state_dict(), "optimizer": optimizers, "rng": torch.get_rng_state()}


def thawed(folder: Path) -> tuple[Path, Path]:
    """The layers join the second optimizer between the two."""
    both = _Two()
    torch.save(both.go(), folder / "left.pt")
    both.second.add_param_group({"params": [*both.model.layers.parameters()]})
    torch.save(both.go(), folder / "right.pt")
    return folder / "left.pt", folder / "right.pt"


def lost_beside_another(folder: Path) -> Path:
    """The first index of the second optimizer has lost its state; the first optimizer has an index of that number."""
    state = _Two().go()
    del state["optimizer"][1]["state"][0]
    torch.save(state, folder / "state.pt")
    return folder / "state.pt"


def adagrad_begins_anew(folder: Path) -> Path:
    """A counter of zero beside a sum that began at zero and is not."""
    model = Mlp()
    optimizer = torch.optim.Adagrad(model.named_parameters())
    train(model, optimizer)
    state = saved(model, optimizer)
    state["optimizer"]["state"][2]["step"] = torch.tensor(0.0)
    torch.save(state, folder / "state.pt")
    return folder / "state.pt"


def adagrad_begins_higher(folder: Path) -> Path:
    """A sum that begins at a value, saved before the first step."""
    model = Mlp()
    optimizer = torch.optim.Adagrad(model.named_parameters(), initial_accumulator_value=0.1)
    torch.save(saved(model, optimizer, 0), folder / "state.pt")
    return folder / "state.pt"


def _lost(left: Saved, right: Saved) -> None:
    """Without names and with as many members: the state of a layer's weight is gone."""
    del right["optimizer"]["state"][2]


FAULTY = (
    Faulty("two optimizers without names, and an entry of the second is lost", lost_beside_another, "CK202", "#0",
           severity="warning"),
    Faulty("Adagrad's counter is zero beside a sum that is not", adagrad_begins_anew, "CK505", "layers.1.weight"),
    Faulty("without names an index lost its state between two checkpoints", two(_lost, groups=parameters), "CK202"),
)  # fmt: skip

LEGAL = (
    Legal("OneCycleLR that leaves momentum alone", scheduled(one_cycle), silent=("CK602",)),
    Legal("CyclicLR that leaves momentum alone", scheduled(cyclic), silent=("CK602",)),
    Legal("a bias before batch norm stands still", bias_before_norm, silent=("CK307",)),
    Legal("ASGD in bfloat16 whose weights stand still", averaged_copies, silent=("CK106",)),
    Legal("two optimizers without names, one of which gets a further group", thawed, silent=("CK202",)),
    Legal("Adagrad that begins above zero, before the first step", adagrad_begins_higher, silent=("CK505",)),
)
