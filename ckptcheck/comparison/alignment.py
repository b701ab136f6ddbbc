"""Where a resumed trace belongs on the reference: found by content, not told."""

from dataclasses import dataclass

from ckptcheck.trace.file import Trace


@dataclass(frozen=True, slots=True)
class Alignment:
    """The place of a resumed trace.

    Attributes:
        step: k: what the resumed run loaded is the reference after this step, so that its step j is step k + j.
        by: "content" (parameters and state agree), "counters" (update counters or schedules agree), "hint" (only what
            the user or the experiment said), "start" (it begins where the reference begins).
        matched: parameters and state tensors that agree after that step.
        of: how many were held against each other.
        why: one sentence for the report.
    """

    step: int
    by: str
    matched: int = 0
    of: int = 0
    why: str = ""


def align(reference: Trace, resumed: Trace, hint: int | None = None) -> Alignment:
    """Place a resumed trace on the reference; `hint` is the step after which its checkpoint was taken, if known."""
    raise NotImplementedError
