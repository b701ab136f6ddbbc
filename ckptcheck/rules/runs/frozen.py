"""CK4: frozen parameters that move, and freeze sets that change."""

from collections.abc import Iterator
from json import loads

from ckptcheck.comparison.freezing import Breach
from ckptcheck.finding import Place, Severity
from ckptcheck.rules.rule import Evidence, rule
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.words import at_load, count, kept, names, place_of

HOW_TO_FREEZE = (
    "set requires_grad=False and p.grad=None (zero_grad(set_to_none=True)), or keep it out of the optimizer: "
    "a zero gradient still decays weights and carries momentum on"
)


def _of(case: Case, *what: str) -> list[Breach]:
    return [one for one in case.breaches or () if one.what in what]


def _place(one: Breach, stage: str) -> Place:
    return Place(parameter=one.parameter, key=one.key or None, optimizer=one.optimizer, step=one.step, stage=stage)


@rule("CK401", "frozen-parameter-moved", Severity.ERROR, "breaches")
def frozen_parameter_moved(case: Case) -> Iterator[Evidence]:
    """The value of a parameter under a freeze contract changed.

    Why: what should stay as pretrained drifts, by decay, old momentum or a stale gradient.
    Example: `requires_grad=False` with gradients left at zero under AdamW.
    Fix: give a frozen parameter no gradient at all, or keep it out of the optimizer.
    Limits: buffers (BatchNorm statistics) are not parameters.
    """
    for one in _of(case, "param"):
        yield Evidence(
            f"{one.parameter} is under contract {one.contract!r} and moved in step {one.step} of the "
            f"{case.breached_run} run, its gradient being {one.presence}",
            _place(one, "param"),
            {"contract": one.contract, "pattern": one.pattern, "gradient": one.presence, "moved": "value"},
            HOW_TO_FREEZE,
        )


@rule("CK402", "frozen-state-drift", Severity.ERROR, "breaches")
def frozen_state_drift(case: Case) -> Iterator[Evidence]:
    """The optimizer state of a parameter under `hold` changed, or was kept under `reset`.

    Why: moments decay while it is frozen and are wrong when it is thawed.
    Example: zero gradients advance Adam's moments and step counter.
    Fix: give a frozen parameter no gradient at all.
    Limits: none known.
    """
    for one in _of(case, "state", "kept-state"):
        moved = "changed" if one.what == "state" else "was kept"
        yield Evidence(
            f"{one.key} of {one.parameter}, which is under contract {one.contract!r}, {moved} in step {one.step} "
            f"of the {case.breached_run} run",
            _place(one, "state"),
            {"contract": one.contract, "pattern": one.pattern, "gradient": one.presence, "moved": one.key},
            HOW_TO_FREEZE,
        )


@rule("CK403", "gradient-on-frozen-parameter", Severity.WARNING, "breaches")
def gradient_on_frozen_parameter(case: Case) -> Iterator[Evidence]:
    """A parameter under a freeze contract has a gradient, zero or not.

    Why: an optimizer step that reads it decays the weights and moves the state, also where it is zero.
    Example: `zero_grad(set_to_none=False)`, or a gradient left over from before the freeze.
    Fix: set `p.grad = None` when you freeze.
    Limits: an error where a step read it and the parameter or its state moved, or the contract is no-grad.
    """
    hurt = {one.parameter for one in _of(case, "param", "state")}
    for one in _of(case, "gradient"):
        worse = one.read and (one.parameter in hurt or one.contract == "no-grad")
        yield Evidence(
            f"{one.parameter} is under contract {one.contract!r} and has a {one.presence} gradient in step {one.step} "
            f"of the {case.breached_run} run" + (", which the optimizer read" if one.read else ""),
            _place(one, "grad"),
            {"contract": one.contract, "pattern": one.pattern, "gradient": one.presence, "read": one.read},
            "set p.grad = None when you freeze, and clear gradients with set_to_none=True",
            Severity.ERROR if worse else None,
        )
    for one in _of(case, "member"):
        yield Evidence(
            f"{one.parameter} is under contract 'removed' and is in optimizer {one.optimizer} in step {one.step} of "
            f"the {case.breached_run} run",
            _place(one, "hyperparameters"),
            {"contract": one.contract, "pattern": one.pattern},
            "leave it out of the optimizer's groups",
            Severity.ERROR,
        )


@rule("CK405", "freeze-set-changed", Severity.ERROR, "load")
def freeze_set_changed(case: Case) -> Iterator[Evidence]:
    """Other parameters are trained after the load than when it was saved.

    Why: layers thawed before the stop are frozen again for the rest of the run, or the other way round.
    Example: the constructor freezes, the training loop thaws at some epoch, the resumed run never gets there.
    Fix: restore `requires_grad` from the checkpoint.
    Limits: a later thaw that both runs make at the same step is no change.
    """
    if case.load is not None and (case.load.frozen or case.load.unfrozen):
        frozen, thawed = case.load.frozen, case.load.unfrozen
        parts = [
            f"no longer trained: {names(frozen)}" if frozen else "",
            f"now trained: {names(thawed)}" if thawed else "",
        ]
        yield Evidence(
            f"{count(frozen + thawed, 'parameter')} changed requires_grad; {'; '.join(part for part in parts if part)}",
            at_load(case.step, parameter=(*frozen, *thawed)[0]),
            {"frozen": kept(frozen), "thawed": kept(thawed)},
            "save which parameters are trained and restore requires_grad before the optimizer is built",
        )
    first = case.first
    if first is not None and first.item.kind == "structure" and first.item.name == "frozen":
        sides = [set(loads(str(side.value))) if side is not None else set() for side in (first.left, first.right)]
        frozen, thawed = tuple(sorted(sides[1] - sides[0])), tuple(sorted(sides[0] - sides[1]))
        yield Evidence(
            f"{count(frozen + thawed, 'parameter')} {'is' if len(frozen + thawed) == 1 else 'are'} trained by one run "
            f"only from step {first.step} on: {names(frozen + thawed)}",
            place_of(first),
            {"frozen": kept(frozen), "thawed": kept(thawed)},
            "make freezing and thawing depend on the step, not on how long this process has run",
        )


@rule("CK406", "frozen-state-dropped", Severity.ERROR, "load")
def frozen_state_dropped(case: Case) -> Iterator[Evidence]:
    """A frozen parameter that had optimizer state when saved has none after the load.

    Why: when it is thawed, its moments restart from zero.
    Example: a helper that filters on requires_grad when it loads.
    Fix: save and load the state of frozen parameters too.
    Limits: not judged where all state is lost, which is CK201.
    """
    if case.load is None:
        return
    for one in case.bound:
        held = {name: case.load.left.parameters.get(name) for name in one.missing}  # None: the model holds it nowhere
        frozen = [name for name, live in held.items() if live is not None and live.requires_grad is False]
        if frozen and not one.none_loaded and case.other_step is None:
            yield Evidence(
                f"{count(frozen, 'frozen parameter')} lost optimizer state in the load: {names(frozen)}",
                at_load(case.step, optimizer=one.optimizer, parameter=frozen[0]),
                {"parameters": kept(frozen)},
                "keep the state of frozen parameters in the checkpoint",
            )


RULES = (
    frozen_parameter_moved,
    frozen_state_drift,
    gradient_on_frozen_parameter,
    freeze_set_changed,
    frozen_state_dropped,
)
