"""The place in the data: which batch the first resumed step sees, and those of the epochs that follow."""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.training import BATCH, SAMPLES, Training

FAMILY: Final = "data"
EPOCH: Final = SAMPLES // BATCH
"""Steps in an epoch: steps 1 to 7, then 8 to 14."""
LONG: Final = {"steps": 15}
IN_THE_SECOND: Final = {"steps": 16, "resume_at": (9,)}


def _as_they_are(training: Training) -> None:
    """Batches as the data has them: a batch is then one of the uninterrupted run's, byte for byte."""
    training.augmented = lambda features, labels: (features, labels)  # type: ignore[method-assign]


def _moved_to(change: Callable[[Training, dict[str, Any]], dict[str, Any]]) -> Callable[[Training], None]:
    """The load changes the place in the data before it goes there."""

    def inject(training: Training) -> None:
        _as_they_are(training)
        training.restore_data = (  # type: ignore[method-assign]
            lambda state: training.data.load_state_dict({**state, **change(training, state)})
        )

    return inject


def _saw(step: int, batch_of: int, *keys: str) -> Callable[[Training], Expected]:
    """The declared place is another right after the load, and a step sees the batch of another one."""
    says = (f"step {step} saw the batch of step {batch_of}", f"'batch_of_step': {batch_of}")
    return lambda training: Expected(("CK604",), keys=keys, says=says)


def _first_seen(step: int, batch_of: int | None) -> Callable[[Training], Expected]:
    """Nothing that is declared differs: the inputs do, from a step on."""
    says = (f"step {step} saw the batch of step {batch_of}",) if batch_of else (f"other data from step {step}",)
    return lambda training: Expected(("CK604",), step=step, stages=("inputs",), says=says)


def _place_lost(training: Training) -> None:
    _as_they_are(training)
    training.restore_data = lambda state: None  # type: ignore[method-assign]


def _order_redrawn(training: Training) -> None:
    _as_they_are(training)

    def restore(state: Any) -> None:
        training.data.load_state_dict(state)
        training.data.order = torch.randperm(SAMPLES, generator=training.data.generator)

    training.restore_data = restore  # type: ignore[method-assign]


def _order_by_epoch(training: Training) -> None:
    """The order of an epoch is drawn from its number alone, as DistributedSampler does; its state has no number."""
    _as_they_are(training)
    data, plain = training.data, training.data.next

    def drawn() -> tuple[Tensor, Tensor]:
        if data.position >= SAMPLES:
            data.generator.manual_seed(100 + data.epoch + 1)
        return plain()

    def restore(state: Any) -> None:
        data.position, data.order, data.epoch = state["position"], state["order"], 0

    data.next = drawn  # type: ignore[method-assign]
    data.state_dict = lambda: {"position": data.position, "order": data.order.clone()}  # type: ignore[method-assign]
    training.restore_data = restore  # type: ignore[method-assign]


def _epoch_counter_lost(training: Training) -> None:
    _as_they_are(training)
    training.restore_data = (  # type: ignore[method-assign]
        lambda state: training.data.load_state_dict({**state, "epoch": 0})
    )


def _skips_every_epoch(training: Training) -> None:
    _as_they_are(training)
    data, plain = training.data, training.data.next

    def skipping() -> tuple[Tensor, Tensor]:
        if training.resumed and data.position >= SAMPLES:
            data.epoch += 1
            data.order = torch.randperm(SAMPLES, generator=data.generator)
            data.position = training.spec.at * BATCH
        return plain()

    data.next = skipping  # type: ignore[method-assign]


def _curriculum_restarts(training: Training) -> None:
    made, plain = 0, training.augmented

    def harder(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal made
        made += 1
        features, labels = plain(features, labels)
        return features * (1 + 0.05 * made), labels

    training.augmented = harder  # type: ignore[method-assign]


def _other_batch_size(training: Training) -> None:
    plain = training.augmented

    def half(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        features, labels = plain(features, labels)
        return (features[:2], labels[:2]) if training.resumed else (features, labels)

    training.augmented = half  # type: ignore[method-assign]


def _files_in_another_order(training: Training) -> None:
    def relist() -> None:
        training.data.features = training.data.features.flip(0)
        training.data.labels = training.data.labels.flip(0)

    training.after_restore.append(relist)


def _labels_of_others(training: Training) -> None:
    training.after_restore.append(lambda: setattr(training.data, "labels", training.data.labels.roll(1)))


FAULTS: Final = (
    Fault(
        name="data-begins-anew",
        why="The loader has no state: the resumed run starts at its first batch.",
        family=FAMILY,
        reports=("data_pos",),
        inject=_place_lost,
        expect=_saw(6, 1, "position"),
    ),
    Fault(
        name="data-behind-by-a-batch",
        why="The place is saved before the batch is counted.",
        family=FAMILY,
        reports=("data_pos",),
        inject=_moved_to(lambda training, state: {"position": state["position"] - BATCH}),
        expect=_saw(6, 5, "position"),
    ),
    Fault(
        name="data-ahead-by-a-batch",
        why="The loader counts the batch that it has fetched ahead.",
        family=FAMILY,
        reports=("data_pos",),
        inject=_moved_to(lambda training, state: {"position": state["position"] + BATCH}),
        expect=_saw(6, 7, "position"),
    ),
    Fault(
        name="data-place-in-epoch-lost",
        why="The epoch is restored with its order, and begins again.",
        family=FAMILY,
        reports=("data_pos",),
        inject=_moved_to(lambda training, state: {"position": 0}),
        expect=_saw(10, EPOCH + 1, "position"),
        specs=IN_THE_SECOND,
    ),
    Fault(
        name="data-goes-to-the-next-epoch",
        why="A stop within an epoch counts as its end.",
        family=FAMILY,
        reports=("data_pos",),
        inject=_moved_to(lambda training, state: {"position": SAMPLES}),
        expect=_saw(6, EPOCH + 1, "position"),
        specs=LONG,
    ),
    Fault(
        name="data-order-redrawn-within-an-epoch",
        why="The order is drawn again with a generator that has drawn it already, then the seen part is skipped.",
        family=FAMILY,
        reports=("data_mid",),
        inject=_order_redrawn,
        expect=_saw(6, EPOCH + 6, "order", "generator"),
        specs=LONG,
    ),
    Fault(
        name="data-order-of-the-first-epoch",
        why="The order is as built, in whatever epoch it is; the place in it is right.",
        family=FAMILY,
        reports=("data_epoch",),
        inject=_moved_to(lambda training, state: {"order": training.data.order}),
        expect=_saw(10, 3, "order"),
        specs=IN_THE_SECOND,
    ),
    Fault(
        name="data-epoch-counted-from-0",
        why="The sampler's epoch is 0 again after the load, and its order is drawn from the epoch's number.",
        family=FAMILY,
        reports=("data_epoch",),
        inject=_order_by_epoch,
        expect=_first_seen(2 * EPOCH + 1, EPOCH + 1),
        specs=IN_THE_SECOND,
    ),
    Fault(
        name="data-epoch-counter-lost",
        why="The order and the place are restored, the epoch's number is not.",
        family=FAMILY,
        reports=("data_epoch",),
        inject=_epoch_counter_lost,
        expect=lambda training: Expected(("CK604",), keys=("epoch",), says=("epoch was 1, is 0",)),
        specs=IN_THE_SECOND,
    ),
    Fault(
        name="data-skipped-in-every-epoch",
        why="Batches that were seen are skipped in each epoch after the resume, not in the first alone.",
        family=FAMILY,
        reports=("data_pos",),
        inject=_skips_every_epoch,
        expect=_first_seen(EPOCH + 1, EPOCH + 6),
        specs=LONG,
    ),
    Fault(
        name="data-counted-in-packs",
        why="The place is counted in packs of two and taken for samples.",
        family=FAMILY,
        reports=("data_pos",),
        inject=_moved_to(lambda training, state: {"position": state["position"] // 2}),
        expect=lambda training: Expected(("CK604",), keys=("position",), says=("position was 20, is 10",)),
    ),
    Fault(
        name="data-generator-not-restored",
        why="The order and the place are restored; the generator of the next epoch's order is not.",
        family=FAMILY,
        reports=("data_epoch",),
        inject=_moved_to(lambda training, state: {"generator": torch.Generator().get_state()}),
        expect=lambda training: Expected(("CK604",), keys=("generator",), says=("generator",)),
    ),
    Fault(
        name="data-curriculum-begins-anew",
        why="How hard samples are augmented grows with a count that nobody saves.",
        family=FAMILY,
        inject=_curriculum_restarts,
        expect=_first_seen(6, None),
    ),
    Fault(
        name="data-in-smaller-batches",
        why="The resumed run has another batch size.",
        family=FAMILY,
        inject=_other_batch_size,
        expect=_first_seen(6, None),
    ),
    Fault(
        name="data-listed-in-another-order",
        why="The files of the data set are listed in another order by each start.",
        family=FAMILY,
        inject=_files_in_another_order,
        expect=_first_seen(6, None),
    ),
    Fault(
        name="data-with-labels-of-others",
        why="Labels are read in another order than their samples; they enter the loss and no module.",
        family=FAMILY,
        inject=_labels_of_others,
        expect=lambda training: Expected(("CK606",), step=6, stages=("loss",), says=("same inputs",)),
    ),
)
