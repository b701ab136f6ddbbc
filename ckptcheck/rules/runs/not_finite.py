"""CK501 over two runs: what is NaN in both is equal whatever was lost."""

from collections.abc import Iterator

from ckptcheck.finding import Place, Severity
from ckptcheck.rules.rule import Evidence, also
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.stored.numbers import non_finite
from ckptcheck.rules.words import count, count_of, kept, names


@also(non_finite, "non_finite")
def not_finite_in_both(case: Case) -> Iterator[Evidence]:
    """Parameters, state or losses that are NaN or infinite in both runs: an error where nothing else was compared."""
    found = case.non_finite
    if found is None:
        return
    parameters = [one for one in found.first if one.kind == "param"]
    states = [one for one in found.first if one.kind == "state"]
    if parameters or states:
        odd = [f"{len(parameters)} of {count_of(found.parameters, 'parameter')}"] if parameters else []
        odd += [count(states, "state tensor")] if states else []
        (first, since), told = next(iter(found.first.items())), "nothing" if found.hides_all else "little"
        yield Evidence(
            f"from step {since} on {' and '.join(odd)} are not finite, in both runs: {told} can be told from them: "
            f"{names(one.name for one in parameters or states)}",
            Place(step=since, stage=first.stage, parameter=first.name, key=first.key or None),
            {
                "from_step": since,
                "hides_all": found.hides_all,
                "parameters": kept(one.name for one in parameters),
                "state": kept(f"{one.name}.{one.key}" for one in states),
            },
            "mend the training first, or verify steps in which it is finite",
            None if found.hides_all else Severity.WARNING,
        )
    elif found.losses:
        steps = [str(step) for step in found.losses]
        yield Evidence(
            f"the loss is not finite in both runs, at step {names(steps)}: nothing can be told from it there",
            Place(step=found.losses[0], stage="loss"),
            {"steps": kept(steps)},
            "look for what makes the loss NaN or infinite in these steps",
            Severity.WARNING,
        )


RULES = (not_finite_in_both,)
