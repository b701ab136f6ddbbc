"""What of a training could not be seen, found out when it has ended."""

from collections.abc import Iterator

from ckptcheck.trace.script.present import Present


def unseen(present: Present, blind: int, steps: int) -> Iterator[str]:
    """Sentences for the trace; `blind` of `steps` steps had no forward pass."""
    subjects = present.subjects
    slots = [slot for one in subjects.optimizers() for slot in subjects.slots(one)]
    nameless = sum(not slot.held for slot in slots)
    if nameless:
        yield (
            f"{nameless} of {len(slots)} trained parameters belong to no module that is known: "
            "they are named by their place in the optimizer's groups."
        )
    stray = [name for name, one in present.untrained() if one.is_leaf and one.grad is not None]
    if stray:
        yield (
            f"{len(stray)} parameters get gradients and belong to no optimizer that is known, "
            f"{stray[0]} for one: updates of them by hand are seen by their values only."
        )
    if blind:
        yield (
            f"No forward pass of a module was seen in {blind} of {steps} steps: "
            "what enters the model in them is not recorded."
        )
