"""One subject through all that the lab has: variants, implementations, scenarios."""

from collections.abc import Iterator, Mapping

from ckptcheck.lab.agreement import agreements
from ckptcheck.lab.asked import made_or_refused
from ckptcheck.lab.bench import Bench, StepRaisedError, UnsuitableError, said_of
from ckptcheck.lab.contract import Contracts, Row
from ckptcheck.lab.keeping import keeping
from ckptcheck.lab.scenarios.table import OF_EVERY_VARIANT, OF_THE_DEFAULTS, Scenario
from ckptcheck.lab.subject import Subject
from ckptcheck.lab.variants import VARIANTS, implementations_of, variants_of


def probed(subject: Subject, device: str) -> Contracts:
    """All rows of a subject. TargetError where it cannot be made with its arguments."""
    flat = _takes_flat_only(subject, device)
    defaults = _defaults(subject, device, flat)
    rows: list[Row] = []
    left_out: dict[str, str] = {}
    variants = list(variants_of(subject, defaults))
    for variant in variants:
        for implementation in implementations_of(subject):
            bench = Bench(subject, variant, implementation, device, flat=flat)
            if _works(bench):
                scenarios = OF_EVERY_VARIANT if variant.name else {**OF_EVERY_VARIANT, **OF_THE_DEFAULTS}
                rows += _rows(bench, scenarios, left_out)
    computed = [one for one in variants if one.hyperparameters.get("differentiable")]  # they cannot be reloaded
    kept = tuple(keeping(Bench(subject, one, device=device, flat=flat)) for one in variants if one not in computed)
    agreeing = tuple(agreements(subject, variants, device, flat=flat))
    reasons = tuple((subject.name, scenario, reason) for scenario, reason in left_out.items())
    return Contracts(tuple(rows), implementations=agreeing, keeping=kept, left_out=reasons)


def _takes_flat_only(subject: Subject, device: str) -> bool:
    """Whether it steps parameters of one dimension and none of two: some are for biases and scales alone."""

    def steps(flat: bool) -> bool:
        try:
            Bench(subject, VARIANTS[0], device=device, flat=flat).twin(history=1)
        except Exception:  # noqa: BLE001  the optimizer may be the user's own; what it says is told by the scenarios
            return False
        return True

    return not steps(flat=False) and steps(flat=True)


def _defaults(subject: Subject, device: str, flat: bool) -> dict[str, object]:
    """The hyperparameters that it has by itself."""
    bench = Bench(subject, VARIANTS[0], device=device, flat=flat)
    made = made_or_refused(subject, lambda: bench.optimizer(bench.parameters().values()))
    return {key: value for key, value in made.param_groups[0].items() if key != "params"}


def _works(bench: Bench) -> bool:
    """Whether an implementation is there for this device at all: "for" always is."""
    if bench.implementation == "for":
        return True
    try:
        bench.twin(history=1)
    except Exception:  # noqa: BLE001  whatever it says, it is not there
        return False
    return True


def _rows(bench: Bench, scenarios: Mapping[str, Scenario], left_out: dict[str, str]) -> Iterator[Row]:
    """The rows; into `left_out` goes each scenario that came to no step, with the reason."""
    for name, scenario in scenarios.items():
        try:
            yield from scenario(bench)
        except StepRaisedError as error:
            yield bench.failed(name, error)
        except UnsuitableError as error:
            left_out[name] = str(error)
        except Exception as error:  # noqa: BLE001  the optimizer may lack what the scenario asks of it
            left_out[name] = said_of(error)
