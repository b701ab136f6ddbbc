"""The average of the weights, which is what is released."""

from typing import Any, Final

import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.faults.schedule import keys_of
from tests.catalogue.training import Training

FAMILY: Final = "average"
AVERAGED: Final = {"ema": True}


def _average(training: Training) -> Any:
    assert training.ema is not None
    return training.ema


def _not_loaded(training: Training) -> None:
    training.restore_ema = lambda state: None  # type: ignore[method-assign]


def _of_raw_weights(training: Training) -> None:
    def restore(state: Any) -> None:
        _average(training).module.load_state_dict(training.model.state_dict())
        _average(training).n_averaged.fill_(state["n_averaged"])

    training.restore_ema = restore  # type: ignore[method-assign]


def _without_its_count(training: Training) -> None:
    training.restore_ema = (  # type: ignore[method-assign]
        lambda state: _average(training).load_state_dict({**state, "n_averaged": torch.tensor(0)})
    )


def _other_decay(training: Training) -> None:
    training.after_restore.append(lambda: setattr(_average(training), "multi_avg_fn", get_ema_multi_avg_fn(0.99)))


def _one_missed(training: Training) -> None:
    def restore(state: Any) -> None:
        left = {name: value for name, value in state.items() if name != "module.head.weight"}
        _average(training).load_state_dict(left, strict=False)

    training.restore_ema = restore  # type: ignore[method-assign]


def _model_gets_the_average(training: Training) -> None:
    def restore(checkpoint: dict[str, Any]) -> None:
        averaged = {name.removeprefix("module."): one for name, one in checkpoint["ema"].items()}
        checkpoint["model"] = {**checkpoint["model"], **{
            name: one for name, one in averaged.items() if name in dict(training.model.named_parameters())
        }}  # fmt: skip

    training.before_restore.append(restore)


def _averaged_once_more(training: Training) -> None:
    training.after_restore.append(lambda: _average(training).update_parameters(training.model))


def _waits_in_every_process(training: Training) -> None:
    """The average follows the weights from the third update of a process on."""
    average, made = _average(training), 0
    plain = average.update_parameters

    def waiting(model: torch.nn.Module) -> None:
        nonlocal made
        made += 1
        if made > 2:
            plain(model)

    average.update_parameters = waiting


def _entries(training: Training) -> tuple[str, ...]:
    return tuple(keys_of(dict.fromkeys(_average(training).state_dict(), 0)))


def _parts(training: Training) -> Expected:
    step = training.spec.at + training.spec.window - training.spec.at % training.spec.window
    return Expected(("CK208",), step=step, stages=("ema",), keys=_entries(training))


FAULTS: Final = (
    Fault(
        name="average-not-loaded",
        why="The average is not in the checkpoint.",
        family=FAMILY,
        reports=("ema_missing",),
        inject=_not_loaded,
        expect=lambda training: Expected(("CK208",), keys=_entries(training)),
        specs=AVERAGED,
    ),
    Fault(
        name="average-of-raw-weights",
        why="The average restarts from the weights that were loaded.",
        family=FAMILY,
        reports=("ema_missing",),
        inject=_of_raw_weights,
        expect=lambda training: Expected(("CK208",), keys=_entries(training)),
        specs=AVERAGED,
    ),
    Fault(
        name="average-without-its-count",
        why="The averaged weights are restored, the number of updates is not.",
        family=FAMILY,
        reports=("ema_counter",),
        inject=_without_its_count,
        expect=lambda training: Expected(("CK208",), keys=("n_averaged",), says=("n_averaged",)),
        specs=AVERAGED,
    ),
    Fault(
        name="average-with-another-decay",
        why="The decay is an argument of the function that averages, and no state.",
        family=FAMILY,
        inject=_other_decay,
        expect=_parts,
        specs=AVERAGED,
    ),
    Fault(
        name="average-of-one-parameter-missed",
        why="One averaged tensor is looked for under another name, and strict=False says nothing.",
        family=FAMILY,
        reports=("ema_missing",),
        inject=_one_missed,
        # The head of the tied model is the embedding: the file has its values under both names.
        applies=lambda spec: spec.model != "tied",
        expect=lambda training: Expected(("CK208",), keys=("module.head.weight",), says=("1 EMA entry",)),
        specs=AVERAGED,
    ),
    Fault(
        name="average-becomes-the-model",
        why="Averaged weights are loaded into the model too: both start from the average.",
        family=FAMILY,
        reports=("ema_missing", "ema_counter"),
        inject=_model_gets_the_average,
        expect=lambda training: Expected(
            ("CK601",), parameters=tuple(name for name, _ in training.model.named_parameters())
        ),
        specs=AVERAGED,
    ),
    Fault(
        name="average-taken-once-more",
        why="The load brings the average up to date with weights that it has seen.",
        family=FAMILY,
        inject=_averaged_once_more,
        expect=lambda training: Expected(("CK208",), keys=_entries(training), says=("n_averaged",)),
        specs=AVERAGED,
    ),
    Fault(
        name="average-waits-in-every-process",
        why="Averaging begins after some updates of this process.",
        family=FAMILY,
        reports=("ema_counter",),
        inject=_waits_in_every_process,
        expect=_parts,
        specs={**AVERAGED, "window": 1},
    ),
)
