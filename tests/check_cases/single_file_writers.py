"""Cases of writers of one file: nanoGPT, timm, fairseq, open_clip, ultralytics, mmengine, detectron2."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.check_cases.case import Faulty, Legal, Make
from tests.check_cases.training import ConvNet, train
from tests.conventions import one_file_writers as written

Root = dict[str, Any]
Change = Callable[[Root], object]
BY_DESIGN = ("CK201", "CK202", "CK203", "CK204", "CK206", "CK208", "CK505")
"""What none of them lacks."""


def a_file(write: Callable[[], Root], change: Change = lambda _: None, name: str = "any.pth") -> Make:
    """What a writer saves, changed in place."""

    def make(folder: Path) -> Path:
        root = write()
        change(root)
        torch.save(root, folder / name)
        return folder / name

    return make


def a_run(write: Callable[[], Root], files: tuple[str, ...], tracker: str = "") -> Make:
    """The folder of a run with the same file under several names, and with what its tracker names."""

    def make(folder: Path) -> Path:
        for name in files:
            torch.save(write(), folder / name)
        if tracker:
            (folder / "last_checkpoint").write_text(tracker)
        return folder

    return make


def without(*path: Any) -> Change:
    """A value taken out of nested dicts and lists."""

    def change(root: Any) -> None:
        for key in path[:-1]:
            root = root[key]
        del root[path[-1]]

    return change


def none_in(*keys: str) -> Change:
    return lambda root: root.update(dict.fromkeys(keys))


def halved_moments() -> Root:
    """An older ultralytics, which also saved Adam's second moments in half precision, of small gradients."""
    model = ConvNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(written.STEPS):
        for one in model.parameters():
            one.grad = torch.full_like(one, 1e-4)
        optimizer.step()
    state = optimizer.state_dict()
    for one in state["state"].values():
        one |= {key: one[key].half() for key in ("exp_avg", "exp_avg_sq")}
    return {**written.ultralytics(), "ema": model.half(), "optimizer": state}


class Detector(ConvNet):
    """A head with the integral over its bins, which ultralytics lists and never trains."""

    def __init__(self) -> None:
        super().__init__()
        self.dfl = nn.Module()
        self.dfl.conv = nn.Conv2d(4, 1, 1, bias=False).requires_grad_(False)


def detecting() -> Root:
    """A detector's optimizer, in which the integral has a place and no state."""
    torch.manual_seed(0)
    model = Detector()
    optimizer = torch.optim.AdamW(list(model.named_parameters()), lr=1e-3)
    train(model, optimizer)
    return {**written.ultralytics(), "ema": copy.deepcopy(model).requires_grad_(True).half(),
            "optimizer": optimizer.state_dict()}  # fmt: skip


FAULTY: tuple[Faulty, ...] = (
    Faulty(
        "nanoGPT: a parameter lacks its second moment",
        a_file(written.nanogpt, without("optimizer", "state", 2, "exp_avg_sq")),
        "CK203",
        "head.weight",
    ),
    Faulty(
        "timm: no parameter has state after training",
        a_file(written.timm, lambda root: root["optimizer"]["state"].clear()),
        "CK201",
    ),
    Faulty(
        "open_clip: no parameter has state after training",
        a_file(written.open_clip, lambda root: root["optimizer"]["state"].clear()),
        "CK201",
    ),
    Faulty(
        "fairseq: the optimizer's state is not there and its schedule is",
        a_file(written.fairseq, without("last_optimizer_state")),
        "CK201",
    ),
    Faulty(
        "fairseq: the schedule's state is not in the history",
        a_file(written.fairseq, without("optimizer_history", -1, "lr_scheduler_state")),
        "CK204",
    ),
    Faulty(
        "open_clip: half of the moments are lost",
        a_file(written.open_clip, without("optimizer", "state", 5, "exp_avg")),
        "CK203",
        "visual.weight",
    ),
    Faulty(
        "fairseq: a flat optimizer in half precision lost its loss scale",
        a_file(written.fairseq_fp16, without("last_optimizer_state", "loss_scale")),
        "CK206",
        severity="warning",
        mechanism="scaler",
    ),
    Faulty(
        "ultralytics: the scaler was not saved",
        a_file(written.ultralytics, none_in("scaler")),
        "CK206",
        severity="warning",
        mechanism="scaler",
    ),
    Faulty(
        "ultralytics: second moments in half precision are zero",
        a_file(halved_moments),
        "CK503",
        mechanism="v_underflow",
    ),
    Faulty(
        "mmengine: a parameter of the averaged training lacks its first moment",
        a_file(written.mmengine_ema, without("optimizer", "state", 4, "exp_avg")),
        "CK203",
        "head.weight",
    ),
    Faulty(
        "mmengine: the tracker names a file that is not there",
        a_run(written.mmengine, ("iter_3.pth",), "/runs/tiny/iter_6.pth"),
        "CK103",
    ),
    Faulty(
        "detectron2: the tracker names a file that is not there",
        a_run(written.detectron2, ("model_0000002.pth",), "model_final.pth"),
        "CK103",
    ),
    Faulty(
        "detectron2: no parameter has a momentum buffer after training",
        a_file(written.detectron2, lambda root: root["trainer"]["_trainer"]["optimizer"]["state"].clear()),
        "CK201",
    ),
)

_WRITERS = {
    "nanoGPT as saved": written.nanogpt,
    "timm as saved": written.timm,
    "open_clip as saved": written.open_clip,
    "fairseq as saved": written.fairseq,
    "fairseq with one flat copy of all parameters": written.fairseq_fp16,
    "fairseq with a criterion that has parameters": written.fairseq_criterion,
    "ultralytics, the average alone and in half precision": written.ultralytics,
    "ultralytics after the training, all but the model taken out": written.ultralytics_finished,
    "mmengine as saved": written.mmengine,
    "mmengine with the average in the model's place": written.mmengine_ema,
    "mmengine with two optimizers": written.mmengine_of_two,
    "detectron2 as saved": written.detectron2,
    "detectron2 of old, a counter from 0": written.fvcore,
}

LEGAL: tuple[Legal, ...] = (
    *(Legal(name, a_file(write), silent=BY_DESIGN) for name, write in _WRITERS.items()),
    Legal(
        "fairseq with a schedule that keeps nothing",
        a_file(written.fairseq, lambda root: root["optimizer_history"][-1].update(lr_scheduler_state={})),
        silent=("CK204",),
    ),
    Legal(
        "open_clip before its first epoch",
        a_file(written.open_clip, lambda root: (root["optimizer"]["state"].clear(), root.update(epoch=0))),
    ),
    Legal(
        "ultralytics with a detection head whose integral is frozen",
        a_file(detecting),
        silent=("CK202",),
    ),
    Legal("YOLOv5, whose average is a module beside the model", a_file(written.yolov5), silent=("CK204", "CK208")),
    Legal(
        "nanoGPT without its optimizer, as published",
        a_file(written.nanogpt, without("optimizer")),
        silent=BY_DESIGN,
    ),
    Legal(
        "a run of mmengine whose tracker names where the file was written",
        a_run(written.mmengine, ("iter_3.pth", "best_acc_iter_3.pth"), "/runs/tiny/iter_3.pth"),
        silent=("CK103",),
    ),
    Legal(
        "a run of detectron2 whose tracker names its last file",
        a_run(written.detectron2, ("model_final.pth",), "model_final.pth"),
        silent=("CK103",),
    ),
    Legal(
        "a run of fairseq with its last and its best file",
        a_run(written.fairseq, ("checkpoint_last.pt", "checkpoint_best.pt", "checkpoint2.pt")),
        silent=("CK103", "CK106"),
    ),
    Legal(
        "a run of timm with its last and its best file",
        a_run(written.timm, ("last.pth.tar", "model_best.pth.tar", "checkpoint-1.pth.tar", "recovery-1-7.pth.tar")),
        silent=("CK103", "CK106"),
    ),
)
