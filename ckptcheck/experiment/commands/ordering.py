"""What the recorder is ordered to do in one run of an experiment."""

from dataclasses import dataclass
from pathlib import Path

from ckptcheck.experiment.commands.asked import CommandSettings
from ckptcheck.experiment.commands.wanted import Wanted
from ckptcheck.trace.script.orders import Orders


@dataclass(frozen=True, slots=True)
class Part:
    """What a run is for.

    Attributes:
        name: the name of the run.
        words: its command.
        own: the folder that it writes its output into.
        last_step: it is ended after this step; None to let it come to its own end.
        step: k, the step that is resumed after; None while that is not known.
        first_step: the step that it goes on after; 0 for a run from the start.
        copied: its folder is copied after step k.
        interrupted: it gets the signal.
        looked_at: what changes in its output folder is told step by step.
    """

    name: str
    words: tuple[str, ...]
    own: Path
    last_step: int | None
    step: int | None
    first_step: int
    copied: bool
    interrupted: bool
    looked_at: bool


def orders_of(part: Part, settings: CommandSettings, scratch: Path, wanted: Wanted | None) -> Orders:
    """The orders of a run that keeps its own things in `scratch`; `wanted` is laid out, and written there first."""
    if wanted is not None:
        (scratch / "wanted.json").write_text(wanted.to_json())
    step = part.step
    return Orders(
        traces=scratch / "traces",
        run=part.name,
        command=part.words,
        digest=settings.digest,
        every=settings.every,
        first_step=part.first_step,
        # Around the step that is resumed after, what was saved and what comes of it is always seen whole.
        always=(step - part.first_step, step - part.first_step + 1) if step is not None else (),
        only=settings.only,
        grads=settings.grads,
        last_step=part.last_step,
        hold=part.last_step is not None,
        output=part.own if part.looked_at else None,
        control=scratch / "control",
        pause_after=step if part.copied else None,
        signal_after=settings.interrupt if part.interrupted else None,
        capture=scratch / "capture" if wanted is not None else None,
        wanted=scratch / "wanted.json" if wanted is not None else None,
        bound=True,
    )
