"""Where a resumed trace belongs on the reference: found by content, not told.

What a resumed run holds before its first forward pass is what the reference held after some step. Few tensors that
change from step to step are looked up first; the steps that they point to are then held against it in full.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ckptcheck.comparison.landmarks import Landmarks, Score
from ckptcheck.errors import TraceError
from ckptcheck.trace.reading import Trace

ENOUGH: Final = 0.5
"""The share of parameters or of state tensors that must agree for a step to be told by them alone."""
COUNTING: Final = frozenset({"schedule", "scaler", "hyper"})
"""Kinds that say how far a training has come, and nothing of its content."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """The place of a resumed trace.

    Attributes:
        step: k: what the resumed run loaded is the reference after this step, so that its step j is step k + j.
        by: "content" (parameters and state agree), "counters" (update counters or schedules agree), "hint" (only what
            the user or the experiment said), "start" (it begins where the reference begins; a hint places it).
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
    """Place a resumed trace on the reference; `hint` is the step after which its checkpoint was taken, if known.

    Where content and counters tell nothing, the hint is taken, else the start; `why` says so.
    Raises TraceError when the digests were made by different algorithms.
    """
    if reference.header["digest"] != resumed.header["digest"]:
        raise TraceError(
            f"{reference.path} holds {reference.header['digest']} digests, {resumed.path} "
            f"{resumed.header['digest']}: unlike digests cannot be compared; record both with the same --digest"
        )
    landmarks = Landmarks(reference, resumed)
    if not landmarks.loaded:
        return _told(landmarks.start, hint, None, "the resumed trace holds nothing from before its first step")
    scores = {step: landmarks.score(step) for step in landmarks.candidates(hint)}
    start = scores.pop(landmarks.start)
    best = _best(scores, hint)
    counted = landmarks.step_by_counters()
    if best is not None and (max(best.params, best.state) >= ENOUGH or best.step in (counted, hint)):
        return _placed(best, "content", _by_content(best))
    if counted is not None:
        why = f"update counters and schedules stand as after step {counted}; parameters and state tell no step"
        held = landmarks.score(counted) if counted in landmarks.steps else None
        return Alignment(counted, "counters", held.matched if held else 0, held.of if held else 0, why)
    if best is not None:
        return _placed(best, "content", _by_content(best))
    other = max(scores.values(), key=lambda one: _rank(one, hint), default=None)
    if other is not None and other.told:
        return _placed(other, "counters" if other.told <= COUNTING else "content", _by_others(other))
    if start.of and start.matched == start.of:
        seen = "the resumed run begins as the reference began" + (": it loaded nothing" if hint is not None else "")
        return replace(_told(landmarks.start, hint, start, seen), by="start")
    return _told(landmarks.start, hint, start, "nothing of what the resumed run begins with is found in the reference")


def _rank(one: Score, hint: int | None) -> tuple[float, float, float, bool, int]:
    return one.params + one.state, one.params, one.others, one.step == hint, -one.step


def _best(scores: Mapping[int, Score], hint: int | None) -> Score | None:
    """The step of which most parameters and state tensors agree; None where none does."""
    best = max(scores.values(), key=lambda one: _rank(one, hint), default=None)
    if best is None or not (best.params or best.state):
        return None
    hinted = scores.get(hint) if hint is not None else None
    if hinted is None or (hinted.params, hinted.state) == (best.params, best.state):
        return best
    # Weights of one step and state of another: the one that was meant is where it should be placed.
    return hinted if min(best.params, best.state) < 1 and max(hinted.params, hinted.state) == 1 else best


def _placed(score: Score, by: str, why: str) -> Alignment:
    return Alignment(score.step, by, score.matched, score.of, why)


def _told(start: int, hint: int | None, score: Score | None, seen: str) -> Alignment:
    """Where nothing but the hint is left."""
    matched, of = (score.matched, score.of) if score is not None else (0, 0)
    if hint is None:
        return Alignment(start, "start", matched, of, f"{seen}; it is compared from the reference's first step on")
    return Alignment(hint, "hint", matched, of, f"{seen}; it is compared as resumed after step {hint}, as was said")


def _by_content(score: Score) -> str:
    what = f"{score.matched} of {score.of} parameters and state tensors"
    return f"{what} that it begins with are those of the reference after step {score.step}"


def _by_others(score: Score) -> str:
    listed = ", ".join(sorted(score.told))
    return f"parameters and state tell no step; what it begins with of {listed} is as after step {score.step}"
