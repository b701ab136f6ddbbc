"""CK309: parameters and buffers that are on one side only, and statistics that began anew."""

from collections.abc import Iterator, Sequence
from typing import Final

from ckptcheck.comparison.checkpoint_diff import Kind
from ckptcheck.finding import Place, Severity
from ckptcheck.rules.pairs.course import both, model_rows, unnamed
from ckptcheck.rules.pairs.pair import Pair
from ckptcheck.rules.rule import Evidence
from ckptcheck.rules.words import brief, count, kept, names
from ckptcheck.state.scalars import finite_number
from ckptcheck.state.training_state import Optimizer

_STATISTICS: Final = ("running_mean", "running_var")
_BATCHES: Final = "num_batches_tracked"
_HOW: Final = "load with strict=True, or look at the missing and unexpected keys that load_state_dict returns"


def unlike_names(pair: Pair) -> Iterator[Evidence]:
    """Parameters without a partner: an error where the right optimizer still steps them."""
    parameters = {**pair.diff.left.state.parameters, **pair.diff.right.state.parameters}
    rows = [(name, row) for name, row in model_rows(pair.diff).items() if name in parameters]
    gone = [name for name, row in rows if row.kind in (Kind.REMOVED, Kind.RENAMED)]
    new = [name for name, row in rows if row.kind is Kind.ADDED]
    if not (gone or new):
        return
    parts = [f"{names(gone)} of the left checkpoint only" if gone else "",
             f"{names(new)} of the right one only" if new else ""]  # fmt: skip
    stepped = [name for name in gone if name in _still_stepped(pair)]
    more = f"; the right optimizer still holds state of {names(stepped)}" if stepped else ""
    if not stepped and gone and (counts := _more_than_the_model(pair)):
        more = f"; the right optimizer still steps {counts[0]} parameters, and the model has {counts[1]}"
    plain = Severity.WARNING if gone and pair.diff.right.state.optimizers else Severity.INFO
    yield Evidence(
        f"{count([*gone, *new], 'parameter')} {'has' if len(gone) + len(new) == 1 else 'have'} no partner: "
        f"{'; '.join(part for part in parts if part)}{more}",
        Place(parameter=(*stepped, *gone, *new)[0]),
        {"left_only": kept(gone), "right_only": kept(new), **({"still_stepped": kept(stepped)} if stepped else {})},
        "save the module that the optimizer steps, under the same names each time" if more else _HOW,
        None if more else plain,
    )


def _still_stepped(pair: Pair) -> set[str]:
    """Parameters that the optimizers of both sides hold by names that are certain, with state on the right."""
    return {
        name for one, left, right in both(pair.diff) if not unnamed(pair.diff, one)
        for name in left.members if right.state.get(name) and name in right.members
    }  # fmt: skip


def _more_than_the_model(pair: Pair) -> tuple[int, int] | None:
    """Parameters of the right's optimizers and model, where the left's model had one for each of its optimizers'."""
    sides = [
        (len(side.state.parameters), _stepped(side.state.optimizers)) for side in (pair.diff.left, pair.diff.right)
    ]
    (had, were_stepped), (has, are_stepped) = sides
    return (are_stepped, has) if had >= were_stepped > 0 and has < are_stepped else None


def _stepped(optimizers: Sequence[Optimizer]) -> int:
    return sum(len(group.members) for one in optimizers for group in one.groups)


def unlike_buffers(pair: Pair) -> Iterator[Evidence]:
    """Buffers that only the left has, of modules that both have: statistics are lost, others are made anew."""
    right = pair.diff.right.state
    modules = {_module(name) for name in (*right.parameters, *right.buffers)}
    gone = [
        name for name, row in model_rows(pair.diff).items()
        if name in pair.diff.left.state.buffers and row.kind is Kind.REMOVED and _module(name) in modules
    ]  # fmt: skip
    if gone:
        lost = [name for name in gone if name.endswith(_STATISTICS)]
        yield Evidence(
            f"{count(gone, 'buffer')} of modules that both have {'is' if len(gone) == 1 else 'are'} in the left "
            f"checkpoint only: {names([*lost, *gone])}",
            Place(parameter=(*lost, *gone)[0]),
            {"left_only": kept(gone)},
            _HOW,
            None if lost and right.optimizers else Severity.WARNING,
        )


def statistics_anew(pair: Pair) -> Iterator[Evidence]:
    """Counters of batches that went back: the statistics beside them began anew."""
    fallen = {}
    for name, row in model_rows(pair.diff).items():
        if name.endswith(_BATCHES) and row.kind is Kind.CHANGED:
            before, after = finite_number(row.left), finite_number(row.right)
            if before is not None and after is not None and after < before:
                fallen[name] = (before, after)
    for name, (before, after) in [*fallen.items()][:1] if not pair.released else ():
        yield Evidence(
            f"the running statistics of {count([*fallen], 'module')} began anew: {name} went from {brief(before)} to "
            f"{brief(after)}{'' if len(fallen) == 1 else f', as did {names([*fallen][1:])}'}",
            Place(parameter=name),
            {"buffers": kept(fallen), "left": before, "right": after},
            "load the buffers with the weights; where update_bn made them anew on purpose, nothing is to be done",
            Severity.INFO if after else Severity.WARNING,  # update_bn counts some batches
        )


def _module(name: str) -> str:
    return name.rpartition(".")[0]
