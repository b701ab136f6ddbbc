"""Schedules that do not stand where the training does, steps that are counted otherwise, windows that are open."""

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.optim import lr_scheduler

from tests.check_cases.case import Faulty, Legal
from tests.check_cases.training import Mlp, saved, train
from tests.samples import CHECKPOINTS

Saved = dict[str, Any]
SILENT = ("CK306", "CK602", "CK612", "CK613")


def schedule_of(name: str, optimizer: torch.optim.Optimizer, **changed: Any) -> Any:
    """Each class of torch's, as a script would build it."""
    if name == "SequentialLR":
        parts = [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3), lr_scheduler.CosineAnnealingLR(optimizer, 20)]
        return lr_scheduler.SequentialLR(optimizer, parts, [3])
    if name == "ChainedScheduler":
        parts = [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3), lr_scheduler.ExponentialLR(optimizer, 0.9)]
        return lr_scheduler.ChainedScheduler(parts)
    if name == "SWALR":
        return torch.optim.swa_utils.SWALR(optimizer, 0.05)
    return getattr(lr_scheduler, name)(optimizer, **(CLASSES[name] | changed))


CLASSES: dict[str, dict[str, Any]] = {
    "StepLR": {"step_size": 2},
    "MultiStepLR": {"milestones": [1, 3, 3]},
    "ExponentialLR": {"gamma": 0.9},
    "ConstantLR": {"factor": 0.5, "total_iters": 3},
    "LinearLR": {"start_factor": 0.1, "total_iters": 6},
    "CosineAnnealingLR": {"T_max": 3, "eta_min": 1e-4},
    "PolynomialLR": {"total_iters": 8, "power": 2.0},
    "CosineAnnealingWarmRestarts": {"T_0": 2, "T_mult": 2},
    "OneCycleLR": {"max_lr": 0.1, "total_steps": 9},
    "CyclicLR": {"base_lr": 0.001, "max_lr": 0.1, "step_size_up": 2},
    "LambdaLR": {"lr_lambda": lambda epoch: 0.9**epoch},
    "MultiplicativeLR": {"lr_lambda": lambda epoch: 0.9},
    "ReduceLROnPlateau": {},
    "SequentialLR": {},
    "ChainedScheduler": {},
    "SWALR": {},
}


class Training:
    """A training with a schedule of a class, saved when asked."""

    def __init__(self, name: str = "LinearLR", **changed: Any) -> None:
        torch.manual_seed(0)
        self.model = Mlp()
        self.name, self.changed = name, changed
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = schedule_of(name, self.optimizer, **changed)
        self.steps = 0

    def go(self, steps: int = 4) -> "Training":
        for _ in range(steps):
            train(self.model, self.optimizer, 1, seed=self.steps)
            self.scheduler.step(*([1.0] if self.name == "ReduceLROnPlateau" else []))
            self.steps += 1
        return self

    def resumed(self, *, late: bool = False) -> "Training":
        """In a new process; `late` builds the schedule after the optimizer was loaded."""
        kept = copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict(), self.scheduler.state_dict()))
        again = Training(self.name, **self.changed)
        again.model.load_state_dict(kept[0])
        again.optimizer.load_state_dict(kept[1])
        if late:
            again.scheduler = schedule_of(self.name, again.optimizer, **self.changed)
        again.scheduler.load_state_dict(kept[2])
        again.steps = self.steps
        return again

    def saved(self) -> Saved:
        return copy.deepcopy(saved(self.model, self.optimizer, self.steps, self.scheduler))


def a_file(make: Callable[[], Saved]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        torch.save(make(), folder / "model.pt")
        return folder / "model.pt"

    return write


def changed(change: Callable[[Saved], None], name: str = "LinearLR") -> Callable[[Path], Path]:
    """Four steps with a schedule, and what `change` alters in what is saved."""

    def make() -> Saved:
        found = Training(name).go().saved()
        change(found)
        return found

    return a_file(make)


def built_late(name: str) -> Callable[[Path], Path]:
    return a_file(lambda: Training(name).go(1).resumed(late=True).go(1).saved())


def saved_late(folder: Path) -> Path:
    """Saved right after a resume whose schedule was built after the optimizer was loaded."""
    return a_file(lambda: Training("OneCycleLR").go(3).resumed(late=True).saved())(folder)


def rate(found: Saved) -> None:
    found["optimizer"]["param_groups"][0]["lr"] *= 10


def doubled(found: Saved) -> None:
    """Loaded, and then moved on by as many steps again."""
    training = Training("ExponentialLR").go()
    for _ in range(4):
        training.scheduler.step()
    found["scheduler"] = training.scheduler.state_dict()
    found["optimizer"] = training.optimizer.state_dict()


def texts(found: Saved) -> None:
    milestones = found["scheduler"]["milestones"]
    found["scheduler"]["milestones"] = json.loads(json.dumps(milestones))


def lost(*fields: str) -> Callable[[Saved], None]:
    def change(found: Saved) -> None:
        for field in fields:
            del found["scheduler"][field]

    return change


def within_lost(found: Saved) -> None:
    found["scheduler"]["_schedulers"] = found["scheduler"]["_schedulers"][:1]


def within_anew(found: Saved) -> None:
    found["scheduler"]["_schedulers"][1] = {**found["scheduler"]["_schedulers"][1], "last_epoch": 0}


def put_there(found: Saved) -> None:
    """A constructor was told where to stand, and the state was not loaded."""
    training = Training("ExponentialLR").go()
    training.scheduler = lr_scheduler.ExponentialLR(training.optimizer, 0.9, last_epoch=3)
    found |= training.saved()


def hf_trainer(change: Callable[[Path], None], name: str = "checkpoint-4") -> Callable[[Path], Path]:
    """The Trainer's real folder, changed."""

    def make(folder: Path) -> Path:
        path = Path(shutil.copytree(CHECKPOINTS / "04_hf_trainer/checkpoint-4", folder / name))
        change(path)
        return path

    return make


def trainer_schedule(position: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        schedule = torch.load(path / "scheduler.pt", weights_only=True)
        torch.save(schedule | {"last_epoch": position}, path / "scheduler.pt")

    return change


def trainer_step(step: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        state = json.loads((path / "trainer_state.json").read_text())
        (path / "trainer_state.json").write_text(json.dumps(state | {"global_step": step}))

    return change


def with_scaler(path: Path) -> None:
    """Two steps were skipped, as a scaler does."""
    trainer_schedule(2)(path)
    torch.save(torch.amp.GradScaler("cpu").state_dict(), path / "scaler.pt")


def lightning(batches: int, updates: int, last: bool = False) -> Callable[[Path], Path]:
    """Lightning's real file at other counts of batches and updates."""

    def make(folder: Path) -> Path:
        root = torch.load(CHECKPOINTS / "07_lightning/pl.ckpt", weights_only=False)
        loop = root["loops"]["fit_loop"]
        loop["epoch_loop.batch_progress"]["current"] |= dict.fromkeys(("ready", "completed"), batches)
        loop["epoch_loop.batch_progress"]["is_last_batch"] = last
        progress = loop["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]["step"]
        progress["current"] |= dict.fromkeys(("ready", "completed"), updates)
        torch.save(root, folder / "pl.ckpt")
        return folder / "pl.ckpt"

    return make


def window(micro_step: int, **more: Any) -> Callable[[Saved], None]:
    return lambda found: found.update(micro_step=micro_step, gradient_accumulation_steps=4, **more)


def two_schedules(found: Saved) -> None:
    """A warm-up and a decay of one optimizer, each of which is stepped in its time."""
    model = Mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    warmup, decay = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2), lr_scheduler.ExponentialLR(optimizer, 0.9)
    for step in range(4):
        train(model, optimizer, 1, scheduler=warmup if step < 2 else decay)
    found |= saved(model, optimizer, 4) | {"schedulers": [warmup.state_dict(), decay.state_dict()]}


def tensor_rate(found: Saved) -> None:
    model = Mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.01))
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 4)
    train(model, optimizer, 4, scheduler=scheduler)
    found |= saved(model, optimizer, 4, scheduler)


def users_own(found: Saved) -> None:
    """A warm-up class of the user's with fields as torch's has."""
    found["scheduler"] = {"T_max": 100, "warmup_epochs": 5, "last_epoch": 4, "_step_count": 5, "_last_lr": [0.01],
                          "base_lrs": [0.5]}  # fmt: skip
    found["optimizer"]["param_groups"][0]["lr"] = 0.01


def epochs_only(found: Saved) -> None:
    """A schedule that is stepped once an epoch, and has not been yet."""
    training = Training("CosineAnnealingLR")
    train(training.model, training.optimizer, 4)
    found |= saved(training.model, training.optimizer, 4, training.scheduler)


def narrowed(found: Saved) -> None:
    """A training in bfloat16 throughout, whose moments are bfloat16 too."""
    model = Mlp().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    optimizer.step()
    del found["scheduler"]
    found |= saved(model, optimizer, 1)


def average_begins(found: Saved) -> None:
    """An average that was made just now, and is the model in values."""
    found["ema"] = {"module": copy.deepcopy(found["model"]), "updates": 1}


def slow_weights(found: Saved) -> None:
    """Lookahead with all that it keeps."""
    for group in found["optimizer"]["param_groups"]:
        group |= {"lookahead_alpha": 0.5, "lookahead_k": 2, "lookahead_step": 0}
    for state in found["optimizer"]["state"].values():
        state["lookahead_slow_buff"] = state["exp_avg"].clone()


FAULTY: tuple[Faulty, ...] = (
    Faulty("a group whose rate is not what its schedule set", changed(rate), "CK306", "group 0", "warning"),
    Faulty("a save right after a schedule was built late", saved_late, "CK306", severity="warning",
           mechanism="sched_ctor"),
    Faulty("a linear warm-up that was built after the load", built_late("LinearLR"), "CK602", severity="warning",
           mechanism="sched_ctor"),
    Faulty("a warm-up in a sequence that was built after the load", built_late("SequentialLR"), "CK602",
           severity="warning", mechanism="sched_ctor"),
    Faulty("a schedule that was moved again after its load", changed(doubled), "CK602", severity="info",
           mechanism="sched_off"),
    Faulty("milestones that became texts", changed(texts, "MultiStepLR"), "CK602", severity="warning",
           mechanism="keytype"),
    Faulty("a step schedule without its factor", changed(lost("gamma"), "StepLR"), "CK602", "gamma", "warning",
           mechanism="sched_inner"),
    Faulty("a plateau schedule without its counter", changed(lost("num_bad_epochs"), "ReduceLROnPlateau"), "CK602",
           "num_bad_epochs", "warning", mechanism="sched_inner"),
    Faulty("a sequence that lacks one of its schedules", changed(within_lost, "SequentialLR"), "CK602",
           severity="warning", mechanism="sched_inner"),
    Faulty("a sequence whose schedule was started anew", changed(within_anew, "SequentialLR"), "CK602",
           "_schedulers[1]", "warning", mechanism="sched_inner"),
    Faulty("a schedule that was put at its place", changed(put_there), "CK602", severity="info",
           mechanism="sched_inner"),
    Faulty("a one-cycle schedule at its end", a_file(lambda: Training("OneCycleLR").go(9).saved()), "CK602",
           severity="info", mechanism="sched_horizon"),
    Faulty("a Trainer whose schedule is one step behind", hf_trainer(trainer_schedule(3)), "CK602",
           severity="warning", mechanism="sched_off"),
    Faulty("a Trainer whose schedule counts micro-batches", hf_trainer(trainer_schedule(16)), "CK602", "4 times",
           "warning", mechanism="sched_unit"),
    Faulty("a Trainer whose schedule counts epochs", hf_trainer(trainer_schedule(2)), "CK602", "1/2", "warning",
           mechanism="sched_unit"),
    Faulty("a Trainer's folder of another step", hf_trainer(trainer_step(4), "checkpoint-8"), "CK612",
           severity="warning", mechanism="loop"),
    Faulty("a Trainer that forgot its steps", hf_trainer(trainer_step(0), "checkpoint-0"), "CK612",
           severity="warning", mechanism="loop"),
    Faulty("a script's file within an accumulation window", changed(window(6)), "CK613", severity="warning",
           mechanism="accum"),
    Faulty("Lightning's file within an accumulation window", lightning(7, 3), "CK613", severity="warning",
           mechanism="accum"),
)  # fmt: skip

LEGAL: tuple[Legal, ...] = (
    *(Legal(f"{name} after four steps", a_file(lambda name=name: Training(name).go().saved()), silent=SILENT)
      for name in CLASSES),
    *(Legal(f"{name} after a resume", a_file(lambda name=name: Training(name).go(3).resumed().go(2).saved()),
            silent=SILENT) for name in CLASSES if name != "SWALR"),
    Legal("a warm-up and a decay that take turns", changed(two_schedules), silent=SILENT),
    Legal("a rate that is a tensor", changed(tensor_rate), silent=SILENT),
    Legal("a schedule of the user's own class", changed(users_own), silent=SILENT),
    Legal("a schedule that is stepped once an epoch", changed(epochs_only), silent=SILENT),
    Legal("a Trainer whose scaler skipped steps", hf_trainer(with_scaler), silent=SILENT),
    Legal("a training in bfloat16 throughout", changed(narrowed), silent=(*SILENT, "CK504")),
    Legal("an average that has just begun", changed(average_begins)),
    Legal("Lookahead with its slow weights", changed(slow_weights), silent=("CK203",)),
    Legal("a script's file at the end of a window", changed(window(8)), silent=SILENT),
    Legal("a script's file within a window with its gradients", changed(window(6, grads={"w": torch.ones(3)})),
          silent=SILENT),
    Legal("Lightning's file at the end of a window", lightning(6, 3), silent=SILENT),
    Legal("Lightning's file at the end of an epoch", lightning(7, 4, last=True), silent=SILENT),
)  # fmt: skip
