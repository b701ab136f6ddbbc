"""Whether an optimizer keeps what it needs where a checkpoint finds it."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.finding import Place, Severity
from ckptcheck.lab.contract import Contracts
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, rule
from ckptcheck.rules.words import names


@rule("CK703", "state-outside-optimizer", Severity.WARNING)
def state_outside_optimizer(found: Contracts) -> Iterator[Evidence | Unjudged]:
    """An optimizer that loaded its own `state_dict()` does not make the same next steps.

    Why: what it keeps elsewhere is in no checkpoint, and every resume begins it anew.
    Example: momentum in a list of the instance, a step counter in `self.t`.
    Fix: keep it in `self.state[p]` or in the group, or give `state_dict` and `load_state_dict` of your own.
    Limits: shown by 13 steps after a reload that follows seven. What changes on the instance and has no effect on
    them is no finding. Not judged of an optimizer whose steps do not repeat, nor of one whose `state_dict()` cannot be
    saved or loaded.
    """
    told: set[str] = set()
    for one in found.keeping:
        if one.optimizer in told or one.exact is True:
            continue
        if one.exact is None:
            yield Unjudged(f"a reload of {one.optimizer} cannot be judged: {one.reason}")
            continue
        told.add(one.optimizer)
        where = f"; on the instance these change with the steps: {names(one.outside)}" if one.outside else ""
        how = (
            "keeps state outside of what state_dict() gives" if one.outside else "is not given back by its state_dict()"
        )
        yield Evidence(
            f"{one.optimizer} {how}: {one.difference}{where}",
            Place(key=one.outside[0] if one.outside else None),
            {"optimizer": one.optimizer, "variant": one.variant, "attributes": [*one.outside]},
            "keep it in self.state[p], or in the param group where it belongs to no single parameter"
            if one.outside
            else "look at what the steps use beside self.state, and at what load_state_dict() puts in its place",
        )


RULES: Final[tuple[Rule[Contracts], ...]] = (state_outside_optimizer,)
