"""Folders of the checkpoints of one run, and what goes wrong from one to the next."""

import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from tests.check_cases.case import Faulty, Legal
from tests.check_cases.training import Mlp, saved, train

Saved = dict[str, Any]
STEPS = (2, 4, 6)


class Run:
    """A training that is saved on its way, and can lose its optimizer or its schedule at a resume."""

    def __init__(self, optimizer: Any = torch.optim.AdamW) -> None:
        torch.manual_seed(0)
        self.model, self.make, self.step = Mlp(), optimizer, 0
        self.optimizer = optimizer(self.model.parameters(), lr=0.01)
        self.schedule()

    def schedule(self) -> None:
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda epoch: 1 / (1 + epoch))

    def go(self, steps: int = 2) -> Saved:
        """Train on, and what is saved then."""
        train(self.model, self.optimizer, steps, scheduler=self.scheduler, seed=self.step)
        self.step += steps
        return copy.deepcopy(saved(self.model, self.optimizer, self.step, self.scheduler))

    def resume(self, *, optimizer: bool = True, scheduler: bool = True) -> None:
        """A new process that loads the last save, but for what is told."""
        kept = self.optimizer.state_dict(), self.scheduler.state_dict()
        self.optimizer = self.make(self.model.parameters(), lr=0.01)
        self.schedule()
        if optimizer:
            self.optimizer.load_state_dict(kept[0])
        if scheduler:
            self.scheduler.load_state_dict(kept[1])


def whole(folder: Path, names: str = "step-{}/model.pt", **options: Any) -> Path:
    """A run that is as it should be."""
    run = Run(**options)
    write(folder, [(step, run.go()) for step in STEPS], names)
    return folder


def write(folder: Path, checkpoints: list[tuple[int, Any]], names: str = "step-{}/model.pt") -> None:
    for number, one in checkpoints:
        path = folder / names.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(one, path)


def changed(change: Callable[[list[Saved]], None], names: str = "step-{}/model.pt") -> Callable[[Path], Path]:
    """A whole run of three checkpoints of which `change` alters some."""

    def make(folder: Path) -> Path:
        run = Run()
        checkpoints = [run.go() for _ in STEPS]
        change(checkpoints)
        write(folder, list(zip(STEPS, checkpoints, strict=True)), names)
        return folder

    return make


def resumed(names: str = "step-{}/model.pt", **kept: bool) -> Callable[[Path], Path]:
    """Saved at 2 and 4, resumed there, saved at 7 and 10."""

    def make(folder: Path) -> Path:
        run = Run()
        first = [(step, run.go()) for step in (2, 4)]
        run.resume(**kept)
        write(folder, [*first, *((step, run.go(3)) for step in (7, 10))], names)
        return folder

    return make


def restarted_further(folder: Path) -> Path:
    """A resume without the optimizer whose later saves count further than the ones before."""
    run = Run()
    first = [(2, run.go())]
    run.resume(optimizer=False)
    write(folder, [*first, (8, run.go(6))])
    return folder


def without_steps(change: Callable[[list[Saved]], None]) -> Callable[[list[Saved]], None]:
    def both(checkpoints: list[Saved]) -> None:
        for one in checkpoints:
            del one["step"]
        change(checkpoints)

    return both


def stale(checkpoints: list[Saved]) -> None:
    """The state of the save before is written again beside new counters, as a kept reference does."""
    before = checkpoints[1]["optimizer"]["state"]
    for index, state in checkpoints[2]["optimizer"]["state"].items():
        state["exp_avg"], state["exp_avg_sq"] = before[index]["exp_avg"], before[index]["exp_avg_sq"]


def weights_of(earlier: int, **changes: Any) -> Callable[[list[Saved]], None]:
    """The last save has the weights of an earlier one and its own optimizer; `changes` are those of all groups."""

    def change(checkpoints: list[Saved]) -> None:
        checkpoints[2]["model"] = checkpoints[earlier]["model"]
        for one in checkpoints if changes else ():
            for group in one["optimizer"]["param_groups"]:
                group.update(changes)

    return change


def optimizer_of(earlier: int) -> Callable[[list[Saved]], None]:
    """The last save has the optimizer of an earlier one, with its counters, and its own weights."""

    def change(checkpoints: list[Saved]) -> None:
        checkpoints[2]["optimizer"] = checkpoints[earlier]["optimizer"]

    return change


def weights_in_half_that_stand_still(checkpoints: list[Saved]) -> None:
    """Updates that bfloat16 rounds away."""
    for one in checkpoints:
        one["model"] = {name: value.bfloat16() for name, value in checkpoints[0]["model"].items()}


def weights_alone(dtype: torch.dtype) -> Callable[[list[Saved]], None]:
    """Nothing but weights and a step, and the weights stand still."""

    def change(checkpoints: list[Saved]) -> None:
        kept = {name: value.to(dtype) for name, value in checkpoints[0]["model"].items()}
        for place, one in enumerate(checkpoints):
            checkpoints[place] = {"model": kept, "step": one["step"]}

    return change


def another_is_trained(checkpoints: list[Saved]) -> None:
    """The model is frozen, and the optimizer trains adapters that lie elsewhere."""
    for place, one in enumerate(checkpoints):
        one["model"] = checkpoints[0]["model"]
        generator = torch.Generator().manual_seed(place)
        for kept in one["optimizer"]["state"].values():
            kept["exp_avg"] = torch.rand(2, 9, generator=generator)
            kept["exp_avg_sq"] = torch.rand(2, 9, generator=generator)


def saved_twice(checkpoints: list[Saved]) -> None:
    """Nothing happened between the last two but a count of steps, as where a scaler skips them all."""
    checkpoints[2] = checkpoints[1] | {"step": checkpoints[2]["step"]}


def stale_in_part(checkpoints: list[Saved]) -> None:
    """One shard's parameters have the moments of the save before."""
    before, after = (one["optimizer"]["state"] for one in checkpoints[1:])
    after[2]["exp_avg"], after[2]["exp_avg_sq"] = before[2]["exp_avg"], before[2]["exp_avg_sq"]


def second_adapter(checkpoints: list[Saved]) -> None:
    for place, one in enumerate(checkpoints):
        for number in range(place + 1):
            one["model"][f"layers.0.lora.adapter_{number}.weight"] = torch.randn(2, 6)


def wrong_step(checkpoints: list[Saved]) -> None:
    checkpoints[1]["step"] = 2


def older_schedule(checkpoints: list[Saved]) -> None:
    checkpoints[2]["scheduler"] = checkpoints[0]["scheduler"]


def counters_fall(checkpoints: list[Saved]) -> None:
    for state in checkpoints[2]["optimizer"]["state"].values():
        state["step"] = torch.tensor(1.0)


def no_optimizer(places: tuple[int, ...]) -> Callable[[list[Saved]], None]:
    def change(checkpoints: list[Saved]) -> None:
        for place in places:
            del checkpoints[place]["optimizer"]

    return change


def model_only_at_the_end(checkpoints: list[Saved]) -> None:
    checkpoints[2] = {"model": checkpoints[2]["model"]}


def cut(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        whole(folder)
        path = folder / name
        path.write_bytes(path.read_bytes()[:-600])
        return folder

    return make


def empty_newest(folder: Path) -> Path:
    whole(folder)
    (folder / "step-8").mkdir()
    return folder


def empty_older(folder: Path) -> Path:
    whole(folder)
    (folder / "step-1").mkdir()
    return folder


def half_save(folder: Path) -> Path:
    whole(folder)
    (folder / "step-8").mkdir()
    (folder / "step-8/__0_0.distcp").write_bytes(b"PK\3\4")
    return folder


def tracked(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        whole(folder, "global_step{}/model.pt")
        (folder / "latest").write_text(name)
        return folder

    return make


def left_over(folder: Path) -> Path:
    """A run that was started again below the checkpoint of an earlier one, by a rotation in the order of texts."""
    whole(folder)
    os.utime(folder / "step-6/model.pt", (1e9, 1e9))
    return folder


def rotating(folder: Path) -> Path:
    """A trainer that keeps the last three saves under 0, 1 and 2 in turn."""
    run = Run()
    write(folder, [(number, run.go()) for number in (0, 1, 2, 0, 1)], "ckpt_{}.pt")
    return folder


def in_epoch_steps(folder: Path) -> Path:
    run = Run()
    write(folder, [(epoch, run.go() | {"step": 2, "epoch": epoch}) for epoch in (1, 2, 3)], "epoch_{}.pt")
    return folder


def thawed(folder: Path) -> Path:
    """The body is frozen until the second save: its counters lag behind, its moments stay."""
    run = Run()
    first = run.go()
    for one in run.model.layers.parameters():
        one.requires_grad_(False)
    run.optimizer.zero_grad()
    second = run.go()
    for one in run.model.layers.parameters():
        one.requires_grad_(True)
    write(folder, [(2, first), (4, second), (6, run.go())])
    return folder


def two_runs(folder: Path) -> Path:
    """Checkpoints of two trainings in one folder."""
    whole(folder)
    other = torch.nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(other.parameters())
    other(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    write(folder, [(1, saved(other, optimizer, 1))])
    return folder


def before_the_first_step(folder: Path) -> Path:
    run = Run()
    start = copy.deepcopy(saved(run.model, run.optimizer, 0, run.scheduler))
    write(folder, [(0, start), (2, run.go()), (4, run.go())])
    return folder


def _faulty() -> Iterator[Faulty]:
    yield Faulty("a run that was resumed without its optimizer", resumed(optimizer=False), "CK505",
                 mechanism="opt_absent")  # fmt: skip
    yield Faulty("a run whose counters start anew and pass those before", restarted_further, "CK505",
                 mechanism="opt_absent")  # fmt: skip
    yield Faulty("a run whose update counters fall", changed(counters_fall), "CK505", "layers.0.weight")
    yield Faulty("a run without recorded steps whose update counters fall", changed(without_steps(counters_fall)),
                 "CK505", severity="warning")  # fmt: skip
    yield Faulty("a checkpoint that records the step of another", changed(wrong_step), "CK505", severity="warning",
                 mechanism="loop")  # fmt: skip
    yield Faulty("moments that are those of the save before", changed(stale), "CK106", "layers.0.weight",
                 severity="warning")  # fmt: skip
    yield Faulty("the moments of one parameter that are those of the save before", changed(stale_in_part), "CK106",
                 "layers.1.weight", severity="warning")  # fmt: skip
    yield Faulty("a model that gains an adapter at each resume", changed(second_adapter), "CK309",
                 "layers.0.lora.adapter_1.weight", severity="warning", mechanism="not_loaded")  # fmt: skip
    yield Faulty("a schedule that goes back", changed(older_schedule), "CK602", severity="warning",
                 mechanism="sched_missing")  # fmt: skip
    yield Faulty("a run that was resumed without its schedule", resumed(scheduler=False), "CK602", severity="warning",
                 mechanism="sched_missing")  # fmt: skip
    yield Faulty("an earlier checkpoint that is cut short", cut("step-2/model.pt"), "CK101", severity="warning")
    yield Faulty("the newest checkpoint that is cut short", cut("step-6/model.pt"), "CK101")
    yield Faulty("a newest save that did not end", half_save, "CK103")
    yield Faulty("a newest folder that is empty", empty_newest, "CK103")
    yield Faulty("weights that are those of the save before", changed(weights_of(1)), "CK106", severity="warning")
    yield Faulty("weights alone that are those of the save before", changed(weights_alone(torch.float32)), "CK106",
                 severity="warning")  # fmt: skip
    yield Faulty("weights that are those of an earlier save", changed(weights_of(0)), "CK106", severity="warning")
    yield Faulty("an optimizer that is that of the save before", changed(optimizer_of(1)), "CK106",
                 mechanism="opt_absent")  # fmt: skip
    yield Faulty("an optimizer that is that of an earlier save", changed(optimizer_of(0)), "CK106",
                 mechanism="opt_absent")  # fmt: skip
    yield Faulty("a tracker that names an older checkpoint", tracked("global_step2"), "CK612", severity="warning",
                 mechanism="rotate")  # fmt: skip
    yield Faulty("a highest step that was not written last", left_over, "CK612", severity="info", mechanism="rotate")
    yield Faulty("a run whose later checkpoints lost the optimizer", changed(no_optimizer((1, 2))), "CK201",
                 severity="info", options={"purpose": "release"})  # fmt: skip


FAULTY: tuple[Faulty, ...] = tuple(_faulty())
SILENT = ("CK106", "CK309", "CK505", "CK612", "CK101", "CK103", "CK602")
LEGAL: tuple[Legal, ...] = (
    Legal("a run of three folders", whole, silent=SILENT),
    *(
        Legal(
            f"a run of three files named {name.format(7)}", lambda folder, name=name: whole(folder, name), silent=SILENT
        )
        for name in ("m_{}.pt", "model_{}.pt", "model-{}.pt", "{}.pt", "net_G_{}.pth")
    ),
    Legal("weights that stand still at a rate of zero", changed(weights_of(1, lr=0.0)), silent=("CK106",)),
    Legal("weights of bfloat16 that stand still", changed(weights_in_half_that_stand_still), silent=("CK106",)),
    Legal("weights alone of bfloat16 that stand still", changed(weights_alone(torch.bfloat16)), silent=("CK106",)),
    Legal("a frozen model whose adapters lie elsewhere", changed(another_is_trained), silent=("CK106",)),
    Legal("the same state saved under two steps", changed(saved_twice), silent=("CK106", "CK505")),
    Legal("an older folder that is empty", empty_older, silent=SILENT),
    Legal("a run of three files", lambda folder: whole(folder, "epoch_{}.pt"), silent=SILENT),
    Legal("a run that was resumed as it should be", resumed(), silent=SILENT),
    Legal("a run whose tracker names the newest", tracked("global_step6"), silent=SILENT),
    Legal("a run with a model only at its end", changed(model_only_at_the_end), silent=(*SILENT, "CK201")),
    Legal("a run that numbers its checkpoints in turn", rotating, silent=SILENT),
    Legal("a run that counts steps within each epoch", in_epoch_steps, silent=SILENT),
    Legal("a run that was frozen in part for a while", thawed, silent=SILENT),
    Legal("a folder with the checkpoint of another run", two_runs, silent=SILENT),
    Legal("a run that was saved before its first step", before_the_first_step, silent=SILENT),
    Legal("a run of SGD without momentum", lambda folder: whole(folder, optimizer=torch.optim.SGD), silent=SILENT),
)
