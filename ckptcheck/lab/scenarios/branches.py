"""Parameters that take part in some forward passes and not in others."""

from collections.abc import Iterator

from ckptcheck.finding import Json
from ckptcheck.lab.bench import HISTORY, Bench, presence
from ckptcheck.lab.contract import NONE, Row
from ckptcheck.lab.scenarios.modules import Branches, Shared, training


def branch_inactive(bench: Bench) -> Iterator[Row]:
    """A branch that trained, and that the next batch does not use: its gradient is none or zero as it was cleared."""
    for set_to_none in (True, False) if not bench.subject.sparse else ():
        own = training(bench, Branches)
        own.train()
        own.module.used = ("other",)
        own.backward(set_to_none=set_to_none)
        yield bench.row("branch-inactive", own.optimizer, own.module.one.weight, own.update, history=HISTORY,
                        name="one.weight", facts={"set_to_none": set_to_none})  # fmt: skip


def branch_never_active(bench: Bench) -> Iterator[Row]:
    """A branch that no batch has used: to set gradients to zero makes none where there never was one."""
    if bench.subject.sparse:
        return
    own = training(bench, Branches)
    own.module.used = ("other",)
    own.train(set_to_none=False)
    own.backward(set_to_none=False)
    made = presence(own.module.one.weight.grad) != NONE
    facts: dict[str, Json] = {"set_to_none": False, "gradient_made_of_nothing": made}
    yield bench.row("branch-never-active", own.optimizer, own.module.one.weight, own.update, history=0,
                    name="one.weight", facts=facts)  # fmt: skip


def shared(bench: Bench) -> Iterator[Row]:
    """A weight of two modules, of which the next batch uses both, one or none: it is one parameter, stepped once."""
    for used in (("first", "second"), ("first",), ()) if not bench.subject.sparse else ():
        own = training(bench, Shared)
        own.train()
        own.module.used = (*used, "beside")
        own.backward()
        yield bench.row("shared", own.optimizer, own.module.first.weight, own.update, history=HISTORY,
                        name="first.weight", facts={"used_by": [*used]})  # fmt: skip
