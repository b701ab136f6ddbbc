"""CK505 on one checkpoint whose optimizer and weights lie in files of their own: are they of one save?"""

from collections.abc import Iterator

from ckptcheck.conventions.torchtune import TorchTune, epochs_of
from ckptcheck.finding import Place, Severity
from ckptcheck.rules.rule import Evidence, also
from ckptcheck.rules.runs import numbers as runs
from ckptcheck.rules.stored.stored import Purpose, Stored


@also(runs.step_counter_mismatch, severity=Severity.WARNING)
def optimizer_of_another_epoch(stored: Stored) -> Iterator[Evidence]:
    """The optimizer's file was written after another epoch than the weights that it is joined with.

    After the last epoch torchtune writes weights alone: that is the end of a run, and no fault.
    """
    checkpoint = stored.checkpoint
    if (
        stored.purpose is not Purpose.RESUME
        or checkpoint.convention != TorchTune.name
        or not checkpoint.state.optimizers
    ):
        return
    epochs = epochs_of(checkpoint.raw)
    if epochs is None or epochs.run == epochs.of_weights or epochs.is_end:
        return
    age = "older" if epochs.run < epochs.of_weights else "newer"
    yield Evidence(
        f"the optimizer is {age} than the weights: recipe_state.pt was written with epochs_run {epochs.run}, and the "
        f"newest weights are of epoch {epochs.of_weights} (epoch_{epochs.of_weights - 1}); a resume joins the two",
        Place(path=str(checkpoint.raw.path), key="epochs_run", optimizer=0),
        {"epochs_run": epochs.run, "epochs_of_weights": epochs.of_weights, "total_epochs": epochs.total},
        "resume from weights and a recipe state that were saved together",
    )
