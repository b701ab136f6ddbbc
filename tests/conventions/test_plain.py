"""A training script's own dict: what each key and each value is taken for."""

import argparse
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

from ckptcheck.conventions.explaining import explain
from ckptcheck.conventions.sorting import is_scheduler, is_state_dict
from ckptcheck.state.checkpoint import Checkpoint, NameSource
from ckptcheck.state.raw import Foreign, Named
from tests.conventions.made import raw, raw_tree

MODEL = nn.Linear(3, 2)
OPTIMIZER = torch.optim.AdamW(MODEL.parameters(), lr=0.1)
MODEL(torch.ones(4, 3)).sum().backward()
OPTIMIZER.step()
SCHEDULER = torch.optim.lr_scheduler.StepLR(OPTIMIZER, 3)
PLATEAU = torch.optim.lr_scheduler.ReduceLROnPlateau(OPTIMIZER)
SCALER = torch.amp.GradScaler("cpu").state_dict()
STATE, GROUPS = MODEL.state_dict(), OPTIMIZER.state_dict()


def explained(root: Any) -> Checkpoint:
    return explain(raw_tree(root))


def shape(found: Checkpoint) -> dict[str, Any]:
    state = found.state
    return {
        "parameters": len(state.parameters),
        "optimizers": len(state.optimizers),
        **{section: len(entries) for section, entries in state.sections.items() if section != "extra"},
        "rng": len(state.rng),
    }


FULL = {"parameters": 2, "optimizers": 1, "schedule": 8, "rng": 1}


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        (STATE, {"parameters": 2, "optimizers": 0, "rng": 0}),
        (GROUPS, {"parameters": 0, "optimizers": 1, "rng": 0}),
        (SCHEDULER.state_dict(), {"parameters": 0, "optimizers": 0, "schedule": 8, "rng": 0}),
        ([STATE, GROUPS, SCHEDULER.state_dict(), torch.get_rng_state()], FULL),
        ((STATE, GROUPS), {"parameters": 2, "optimizers": 1, "rng": 0}),
        ({"net": STATE, "opt": GROUPS, "sched": SCHEDULER.state_dict(), "rng": torch.get_rng_state()}, FULL),
        ({"a": STATE, "b": GROUPS, "c": SCHEDULER.state_dict(), "d": torch.get_rng_state()}, FULL),
        ({"app": {"model": STATE, "optim": GROUPS}}, {"parameters": 2, "optimizers": 1, "rng": 0}),
        ({"state_dict": STATE, "optimizers": {"a": GROUPS, "b": GROUPS}}, {"parameters": 2, "optimizers": 2, "rng": 0}),
        ({"model": STATE, "scaler": SCALER}, {"parameters": 2, "optimizers": 0, "scaler": 5, "rng": 0}),
        ({"model": STATE, "scaler": {}}, {"parameters": 2, "optimizers": 0, "scaler": 1, "rng": 0}),
        (
            {"model": STATE, "sched": [SCHEDULER.state_dict(), PLATEAU.state_dict()]},
            {"parameters": 2, "optimizers": 0, "schedule": 8 + len(PLATEAU.state_dict()), "rng": 0},
        ),
        ({"model": STATE, "dataloader": {"pos": 3}}, {"parameters": 2, "optimizers": 0, "data": 1, "rng": 0}),
        ({"model": STATE, "metrics": {"loss": torch.tensor(0.5)}}, {"parameters": 2, "optimizers": 0, "rng": 0}),
        ({"model": STATE, "optimizer": None}, {"parameters": 2, "optimizers": 0, "rng": 0}),
        ({}, {"parameters": 0, "optimizers": 0, "rng": 0}),
        (5, {"parameters": 0, "optimizers": 0, "rng": 0}),
        (None, {"parameters": 0, "optimizers": 0, "rng": 0}),
    ],
)
def test_values_are_taken_for_what_they_are(root: Any, expected: dict[str, Any]) -> None:
    assert shape(explained(root)) == expected


@pytest.mark.parametrize(
    ("counters", "step", "recorded"),
    [
        ({"epoch": 3, "global_step": 120}, 120, "global_step 120"),
        ({"step": 7}, 7, "step 7"),
        ({"iter_num": 2000}, 2000, "iter_num 2000"),
        ({"epoch": 3}, None, ""),
        ({"iteration": torch.tensor(12)}, 12, "iteration 12"),
        ({"iteration": torch.tensor(12.0)}, None, ""),
        ({"step": 2.0}, 2, "step 2"),
        ({"step": 2.5}, None, ""),
        ({"step": True}, None, ""),
        ({"steps": 1000, "epochs": 3}, None, ""),
        ({"config": {"step": 5, "epoch": 2}}, None, ""),
        ({"train_state": {"step": 5, "other": [1]}}, 5, "train_state.step 5"),
        ({"progress": {"model": STATE, "step": 4}}, 4, "progress.step 4"),
    ],
)
def test_the_step_is_taken_from_the_plainest_counter(counters: dict[str, Any], step: int | None, recorded: str) -> None:
    found = explained({"model": STATE, **counters} if "progress" not in counters else counters)
    assert (found.state.step, found.recorded_step) == (step, recorded)


def test_what_nobody_explains_is_kept_and_named() -> None:
    found = explained({"model": STATE, "notes": {"author": "me", "runs": [1, 2]}, "best": 0.5, "step": 1})
    assert found.unrecognised == ("notes", "best")
    extra = found.state.sections["extra"]
    assert {path: one.value for path, one in extra.items()} == {
        "notes.author": "'me'",
        "notes.runs[0]": 1,
        "notes.runs[1]": 2,
        "best": 0.5,
    }
    assert set(found.state.sections) == {"extra", "progress"}


def test_an_object_of_an_unknown_class_is_taken_apart_by_its_attributes() -> None:
    root = raw_tree({"model": STATE})
    root.root["args"] = Foreign("argparse.Namespace", state=vars(argparse.Namespace(lr=0.5, betas=(1, 2))))
    root.root["kind"] = Foreign("some.Enum", arguments=("steps",))
    root.root["empty"] = Foreign("some.Thing")
    root.root["class"] = Named("torch.nn.modules.activation.ReLU")
    extra = explain(root).state.sections["extra"]
    assert {path: one.value for path, one in extra.items()} == {
        "args.lr": 0.5,
        "args.betas[0]": 1,
        "args.betas[1]": 2,
        "kind[0]": "'steps'",
        "kind.<class>": "some.Enum",
        "empty": "<some.Thing>",
        "class": "torch.nn.modules.activation.ReLU",
    }


def test_values_beside_an_optimizers_state_are_kept() -> None:
    found = explained({"model": STATE, "optimizer": {**GROUPS, "loss_scale": 128.0}})
    assert found.state.sections["extra"]["optimizer.loss_scale"].value == 128.0


def test_metrics_and_callbacks_are_no_model() -> None:
    assert is_state_dict(raw(STATE))
    assert not is_state_dict(raw({"loss": torch.tensor(1.0), "accuracy": torch.tensor(0.5)}))
    assert not is_state_dict(raw({"lr": 0.1, "scale": torch.ones(2), "names": ["a"], "b": 1}))
    assert not is_state_dict(raw({"torch": torch.get_rng_state()}))
    assert not is_state_dict(raw({0: torch.ones(3)}))


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda o: torch.optim.lr_scheduler.StepLR(o, 3),
        torch.optim.lr_scheduler.ReduceLROnPlateau,
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, 5),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1.0),
        lambda o: torch.optim.lr_scheduler.ChainedScheduler([torch.optim.lr_scheduler.StepLR(o, 3)]),
        lambda o: torch.optim.lr_scheduler.SequentialLR(
            o, [torch.optim.lr_scheduler.StepLR(o, 3), torch.optim.lr_scheduler.StepLR(o, 3)], [2]
        ),
    ],
)
def test_every_kind_of_schedule_is_recognised(scheduler: Any) -> None:
    made = scheduler(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9))
    assert is_scheduler(raw(made.state_dict()))
    assert not is_scheduler(raw(GROUPS))


@pytest.mark.parametrize(
    ("schedulers", "prefixes"),
    [
        ({"lr_scheduler": SCHEDULER, "plateau": PLATEAU}, {"lr_scheduler", "plateau"}),
        ({"sched": {"a": SCHEDULER, "b": PLATEAU}}, {"sched"}),
        ({"sched": [SCHEDULER, PLATEAU]}, {"[0]", "[1]"}),
        ({"lr_scheduler": SCHEDULER, "more": [PLATEAU]}, {"lr_scheduler", "more[0]"}),
        ({"one": [SCHEDULER], "more": [PLATEAU]}, {"one[0]", "more[0]"}),
        ({"plateau": PLATEAU}, set()),
        ({"sched": [SCHEDULER]}, set()),
    ],
)
def test_of_several_schedulers_each_has_its_key_or_its_place_in_a_list(schedulers: Any, prefixes: set[str]) -> None:
    def states(value: Any) -> Any:
        if isinstance(value, dict | list):
            return (
                {key: states(one) for key, one in value.items()} if isinstance(value, dict) else [*map(states, value)]
            )
        return value.state_dict()

    paths = explained({"model": STATE, **states(schedulers)}).state.sections["schedule"]
    assert {path.split(".")[0] for path in paths if "." in path} == prefixes


@pytest.mark.parametrize(
    ("root", "labels"),
    [
        ({"optimizer": GROUPS}, ("",)),
        ({"app": {"Optim": GROUPS}}, ("",)),
        ({"optim_G": GROUPS}, ("optim_G",)),
        ({"optim_D": GROUPS, "optim_G": GROUPS}, ("optim_D", "optim_G")),
        ({"optimizer": GROUPS, "optim_D": GROUPS}, ("optimizer", "optim_D")),
        ({"optimizers": {"G": GROUPS, "D": GROUPS}}, ("optimizers.G", "optimizers.D")),
        ({"optimizers": [GROUPS, GROUPS]}, ("", "")),
        ({"optimizers": [GROUPS]}, ("",)),
        ({"optimizer": GROUPS, "others": [GROUPS]}, ("optimizer", "")),
        (GROUPS, ("",)),
        ({"model": STATE}, ()),
    ],
)
def test_optimizers_are_labelled_by_their_own_keys(root: Any, labels: tuple[str, ...]) -> None:
    assert explained(root).optimizer_labels == labels


def flattened() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return get_optimizer_state_dict(MODEL, OPTIMIZER, options=StateDictOptions(flatten_optimizer_state_dict=True))


@pytest.mark.parametrize(
    "root",
    [
        lambda flat: {"model": STATE, "optimizer": flat},
        lambda flat: {"model": STATE, "anything": flat},
        lambda flat: {"app": {"net": STATE, "optim": flat}},
        lambda flat: {"model": STATE, "optim": {key: one for key, one in flat.items() if key.startswith("state.")}},
        lambda flat: flat,
        lambda flat: [STATE, flat],
    ],
)
def test_a_flattened_optimizer_in_a_torch_file_comes_to_its_parameters(root: Any) -> None:
    found = explained(root(flattened()))
    (optimizer,) = found.state.optimizers
    assert {name: set(kept) for name, kept in optimizer.state.items()} == {
        "weight": {"step", "exp_avg", "exp_avg_sq"}, "bias": {"step", "exp_avg", "exp_avg_sq"},
    }  # fmt: skip
    assert found.namings[0].source is NameSource.KEYS
    assert (found.state.step, found.state.sections, found.unrecognised) == (None, {}, ())


def test_names_for_a_nested_optimizer_beside_a_flattened_one_are_not_counted_for_both() -> None:
    found = explain(raw_tree({"model": STATE, "a": GROUPS, "optimizer": flattened()}), ["weight", "bias"])
    assert [one.source for one in found.namings] == [NameSource.USER, NameSource.KEYS]


def test_a_model_whose_child_is_called_state_is_a_model() -> None:
    found = explained({"model": {f"state.{name}": one for name, one in STATE.items()}})
    assert list(found.state.parameters) == ["state.weight", "state.bias"]


def test_a_checkpoint_in_a_folder_is_no_dict_of_generators_though_it_holds_one():
    root = {"state": {"model": STATE, "optimizer": GROUPS, "rng": torch.get_rng_state()}, "meta": {"step": 3}}
    assert shape(explained(root)) == {"parameters": 2, "optimizers": 1, "rng": 1, "progress": 1}
