"""Cases of completeness: what a resume needs and a checkpoint lacks, and what a release must not hold."""

from typing import Any

import torch
from torch.nn import Linear
from torch.optim import lr_scheduler

from tests.check_cases.case import Faulty, Legal, Make
from tests.check_cases.changing import (
    DEEPSPEED,
    Change,
    changed,
    drop_everywhere,
    emptied,
    kept,
    of_dcp,
    of_sample,
    of_universal,
    put,
    without_entry,
    without_key,
    without_parts,
)
from tests.check_cases.situations import (
    Unused,
    a_group_cut_out,
    a_release_with_an_average,
    a_release_with_objects,
    a_schedule_that_was_not_saved,
    a_second_optimizer_that_begins_later,
    an_average_never_updated,
    an_average_of_what_trains,
    an_average_that_is_the_model,
    before_the_first_step,
    chained,
    emptied_with_a_schedule,
    frozen,
    frozen_without_names,
    half_weights_of_a_release,
    in_half,
    momentum_of_old_torch,
    muon,
    nano_in_half,
    never_trained,
    released,
    schedule_kept,
    sparse,
    stripped,
    swa_that_begins_later,
    warm_up,
    weights_and_a_schedule,
    with_average,
)
from tests.check_cases.training import Mlp

SILENT = ("CK201", "CK202", "CK203", "CK204", "CK206", "CK208", "CK209")
RESUME, RELEASE = {"purpose": "resume"}, {"purpose": "release"}
HF, LIGHTNING = "04_hf_trainer/checkpoint-2", "07_lightning/pl.ckpt"
ACCELERATE = "06_accelerate_bin/checkpoint_1"


def _no_sixth(state: Any) -> None:
    del state["state"][5]


def _no_moment(state: Any) -> None:
    del state["state"][5]["exp_avg"]


def _lightning(change: Change) -> Change:
    return lambda state: change(state["optimizer_states"][0])


def _no_second(state: Any) -> None:
    del state["state"][1]


def _no_moment_of_second(state: Any) -> None:
    del state["state"][1]["exp_avg_sq"]


def _of_full(key: str | None) -> Change:
    def change(state: Any) -> None:
        if key is None:
            del state["optimizer"]["state"]["fc.bias"]
        else:
            del state["optimizer"]["state"]["fc.bias"][key]

    return change


def _with(**parts: Any) -> Make:
    """Weights and these parts, the optimizer forgotten."""
    return lambda folder: put(folder, {"model": Mlp().state_dict(), **parts})


FAULTY: tuple[Faulty, ...] = (
    Faulty("weights and generators, the optimizer forgotten", _with(step=3, rng={"torch": torch.get_rng_state()}),
           "CK201", mechanism="opt_absent"),
    Faulty("weights and a position in the data, the optimizer forgotten",
           _with(sampler={"seed": 3, "epoch": 1, "index": 7}), "CK201", mechanism="opt_absent"),
    Faulty("a module of torch's that is saved whole", lambda folder: put(folder, torch.nn.Sequential(Linear(3, 3))),
           "CK104", severity="warning", mechanism="wonly"),
    Faulty("a module of torch's that is saved whole among other things",
           lambda folder: put(folder, {"model": torch.nn.Sequential(Linear(3, 3)), "epoch": 3}), "CK104",
           severity="warning", mechanism="wonly"),
    Faulty("weights alone that a training shall go on from", kept("02_torch_edge/le.pt"), "CK201", options=RESUME,
           mechanism="opt_absent"),
    Faulty("weights and a schedule, the optimizer forgotten", weights_and_a_schedule, "CK201", mechanism="opt_absent"),
    Faulty("an optimizer whose state is empty at step 3", changed(emptied), "CK201", "layers.0.weight"),
    Faulty("an optimizer whose state is empty beside a schedule that moved", emptied_with_a_schedule, "CK201"),
    Faulty("an optimizer whose state is empty, the step not known",
           changed(lambda state: (emptied(state), state.pop("step"))), "CK201", severity="warning"),
    Faulty("a second optimizer without state", a_second_optimizer_that_begins_later, "CK201", severity="warning"),
    Faulty("HF Trainer without its optimizer.pt", of_sample(HF, "optimizer.pt", None), "CK201"),
    Faulty("the state of one bias lost", changed(without_entry("layers.1.bias")), "CK202", "layers.1.bias"),
    Faulty("the state of one weight lost", changed(without_entry("head.weight")), "CK202", "head.weight"),
    Faulty("the state of one parameter of HF Trainer lost", of_sample(HF, "optimizer.pt", _no_sixth), "CK202", "#5"),
    Faulty("the state of one parameter of Lightning lost", of_sample(LIGHTNING, "", _lightning(_no_second)), "CK202",
           "net.0.bias"),
    Faulty("the state of one parameter of Accelerate lost", of_sample(ACCELERATE, "optimizer.bin", _no_second),
           "CK202", "0.bias"),
    Faulty("the state of one parameter keyed by name lost", of_sample("09_fsdp_ddp/fsdp2_full.pt", "", _of_full(None)),
           "CK202", "fc.bias"),
    Faulty("the state of a lone token lost", changed(without_entry("scale"), model=Unused()), "CK202", "scale",
           severity="warning"),
    Faulty("one moment of one parameter lost", changed(without_key("norm.bias", "exp_avg_sq")), "CK203", "norm.bias"),
    Faulty("the step of one parameter lost", changed(without_key("norm.bias", "step")), "CK203", "norm.bias",
           mechanism="step_missing"),
    Faulty("the step of every parameter lost", changed(drop_everywhere("step")), "CK203", "head.bias",
           mechanism="step_missing"),
    Faulty("the second moments dropped to save space", changed(drop_everywhere("exp_avg_sq")), "CK203", "head.bias"),
    Faulty("amsgrad without its maxima", changed(drop_everywhere("max_exp_avg_sq"), amsgrad=True), "CK203",
           "head.bias"),
    Faulty("a factored moment of which the columns are lost",
           changed(without_key("head.weight", "col_var"), torch.optim.Adafactor), "CK203", "head.weight"),
    Faulty("one moment of HF Trainer lost", of_sample(HF, "optimizer.pt", _no_moment), "CK203", "#5"),
    Faulty("one moment of Lightning lost", of_sample(LIGHTNING, "", _lightning(_no_moment_of_second)), "CK203",
           "net.0.bias"),
    Faulty("one moment of Accelerate lost", of_sample(ACCELERATE, "optimizer.bin", _no_moment_of_second), "CK203",
           "0.bias"),
    Faulty("one moment of a state keyed by name lost",
           of_sample("09_fsdp_ddp/fsdp2_full.pt", "", _of_full("exp_avg")), "CK203", "fc.bias"),
    Faulty("one moment of DCP lost", of_dcp(_of_full("exp_avg")), "CK203", "fc.bias"),
    Faulty("the state of one parameter of DCP lost", of_dcp(_of_full(None)), "CK202", "fc.bias"),
    Faulty("one moment of DeepSpeed lost", of_sample(DEEPSPEED, "zero/fc.bias/exp_avg.pt", None), "CK203", "fc.bias"),
    Faulty("the state of one parameter of DeepSpeed lost", of_universal("head.weight"), "CK202", "head.weight"),
    Faulty("a schedule that was not saved", a_schedule_that_was_not_saved, "CK204", severity="warning",
           mechanism="sched_missing"),
    Faulty("HF Trainer without its scheduler.pt", of_sample(HF, "scheduler.pt", None), "CK204",
           mechanism="sched_missing"),
    Faulty("no generator saved", changed(without_parts("rng")), "CK205", severity="warning", mechanism="rng"),
    Faulty("HF Trainer without its rng_state.pth", of_sample(HF, "rng_state.pth", None), "CK205", severity="warning",
           mechanism="rng"),
    Faulty("float16 weights without a scaler", in_half, "CK206", severity="warning", mechanism="scaler"),
    Faulty("nanoGPT in float16, whose scaler is never saved", nano_in_half, "CK206", severity="warning",
           mechanism="scaler"),
    Faulty("nothing of the data's position", changed(lambda state: None), "CK207", severity="info",
           mechanism="data_pos"),
    Faulty("an average that lacks the head", with_average(lambda one: one.pop("head.weight")), "CK208", "head.weight",
           severity="warning", mechanism="ema_missing"),
    Faulty("an average of another width", with_average(lambda one: one.update({"head.weight": torch.zeros(5, 6)})),
           "CK208", "head.weight", severity="warning", mechanism="ema_swap"),
    Faulty("an average that is the model itself", an_average_that_is_the_model, "CK208", severity="warning",
           mechanism="alias"),
    Faulty("an average whose counter never moved", an_average_never_updated, "CK208", severity="warning",
           mechanism="ema_counter"),
    Faulty("state of parameters that were cut out of the groups", changed(a_group_cut_out), "CK209", "#6",
           severity="warning"),
    Faulty("state of a parameter that the saved model lacks",
           changed(lambda state: state["model"].pop("head.bias")), "CK209", "head.bias", severity="warning"),
    Faulty("a release with its optimizer", changed(lambda state: None), "CK210", options=RELEASE),
    Faulty("a release with the average beside the model", a_release_with_an_average, "CK210", severity="warning"),
    Faulty("a release of Lightning with its hyperparameters", kept("07_lightning/pl_weightsonly.ckpt"), "CK210",
           severity="warning", options=RELEASE),
    Faulty("a release with objects of the training script", a_release_with_objects, "CK104", options=RELEASE,
           mechanism="wonly"),
)  # fmt: skip


def _all(kind: Any, **options: Any) -> Make:
    return changed(lambda state: None, kind, **options)


LEGAL: tuple[Legal, ...] = (
    Legal("an optimizer before its first step", before_the_first_step, silent=SILENT),
    Legal("SGD without momentum", _all(torch.optim.SGD), silent=SILENT),
    Legal("SGD with momentum", _all(torch.optim.SGD, momentum=0.9), silent=SILENT),
    Legal("momentum that old torch wrote as None", changed(momentum_of_old_torch, torch.optim.SGD), silent=SILENT),
    Legal("a module and a token that nothing trains", never_trained),
    Legal("a frozen layer in the groups", frozen("layers.0")),
    Legal("all biases frozen", frozen(".bias")),
    Legal("all but the biases frozen", frozen("weight")),
    Legal("a frozen layer in the groups of SGD", frozen("layers.0", kind=torch.optim.SGD), silent=("CK202",)),
    Legal("a frozen layer of an optimizer without names", frozen_without_names),
    Legal("a second optimizer that begins later", a_second_optimizer_that_begins_later),
    *(Legal(f"{kind.__name__} after three steps", _all(kind), silent=SILENT)
      for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax,
                   torch.optim.Adadelta, torch.optim.Adagrad, torch.optim.RMSprop, torch.optim.Rprop, torch.optim.ASGD,
                   torch.optim.Adafactor, torch.optim.LBFGS)),
    Legal("Adam with amsgrad", _all(torch.optim.Adam, amsgrad=True), silent=SILENT),
    Legal("RMSprop centered with momentum", _all(torch.optim.RMSprop, momentum=0.9, centered=True), silent=SILENT),
    Legal("SparseAdam", sparse, silent=SILENT),
    Legal("Muon beside AdamW", muon, silent=SILENT),
    *(Legal(f"a schedule of {name}", schedule_kept(build), silent=("CK204",)) for name, build in {
        "StepLR": lambda one: lr_scheduler.StepLR(one, 2),
        "MultiStepLR": lambda one: lr_scheduler.MultiStepLR(one, [1, 2]),
        "CosineAnnealingWarmRestarts": lambda one: lr_scheduler.CosineAnnealingWarmRestarts(one, 2),
        "ReduceLROnPlateau": lr_scheduler.ReduceLROnPlateau,
        "OneCycleLR": lambda one: lr_scheduler.OneCycleLR(one, 0.1, total_steps=9, cycle_momentum=False),
        "LambdaLR": lambda one: lr_scheduler.LambdaLR(one, lambda step: 1 / (1 + step)),
        "SequentialLR": warm_up,
        "ChainedScheduler": chained,
    }.items()),
    Legal("a scaler that is disabled",
          changed(lambda state: state.update(scaler=torch.amp.GradScaler("cpu", enabled=False).state_dict())),
          silent=("CK206",)),
    Legal("an average of what trains", an_average_of_what_trains, silent=("CK208",)),
    Legal("an average that begins later", swa_that_begins_later, silent=("CK201", "CK202")),
    Legal("an average of everything", with_average(lambda one: one["head.bias"].add_(1)), silent=("CK208",)),
    Legal("nanoGPT as it saves", kept("11_nanogpt/ckpt.pt"), silent=("CK204", "CK206")),
    Legal("HF Trainer as it saves", kept(HF), silent=(*SILENT, "CK205", "CK207")),
    Legal("adapters of HF Trainer", kept("05_hf_trainer_peft/checkpoint-2"), silent=SILENT),
    Legal("Lightning as it saves", kept(LIGHTNING), silent=SILENT),
    Legal("weights and counters", _with(epoch=3, step=300), silent=("CK201", "CK210", "CK104")),
    Legal("weights beside the loss's module of torch",
          _with(hyper_parameters={"loss": torch.nn.CrossEntropyLoss()}), silent=("CK201", "CK104")),
    Legal("a stripped file", stripped, silent=("CK201",)),
    Legal("a release as safetensors", released, options=RELEASE, silent=("CK210", "CK104", "CK201")),
    Legal("a release as a pickled state_dict", kept("02_torch_edge/le.pt"), options=RELEASE, silent=("CK210", "CK104")),
    Legal("float16 weights of a release", half_weights_of_a_release, silent=("CK206", "CK210")),
    Legal("a sharded release with its description", kept("15_safetensors_sharded/sharded"), options=RELEASE,
          silent=("CK210",)),
)  # fmt: skip
