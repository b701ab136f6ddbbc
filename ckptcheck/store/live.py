"""The live objects of a run in one shape, for saving and for loading."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ckptcheck.errors import StoreError
from ckptcheck.state.naming import LiveNames, resolve


@dataclass(frozen=True, slots=True)
class Live:
    """What there is to save or to load into.

    `sections` maps schedule, scaler, ema, data and extra, where the run has them, to their objects by a label:
    the position, or in `extra` the name.
    """

    names: LiveNames
    optimizers: tuple[Any, ...]
    sections: Mapping[str, Mapping[str, Any]]


def live(
    *,
    model: Any,
    optimizer: Any = None,
    scheduler: Any = None,
    scaler: Any = None,
    ema: Any = None,
    data: Any = None,
    extra: Mapping[str, Any] | None = None,
) -> Live:
    """The live objects in one shape; StoreError for one that has no state_dict or load_state_dict."""
    try:
        names = resolve(model)
    except TypeError as trouble:
        raise StoreError(f"{trouble}: pass a module or a dict of modules") from None
    named = {
        "schedule": _labelled(scheduler),
        "scaler": _labelled(scaler),
        "ema": _labelled(ema),
        "data": _labelled(data),
        "extra": {str(name): one for name, one in (extra or {}).items()},
    }
    found = Live(names, tuple(_listed(optimizer)), {section: objects for section, objects in named.items() if objects})
    for place, one in enumerate(found.optimizers):
        _check(one, f"optimizer {place}")
    for section, objects in found.sections.items():
        for label, one in objects.items():
            _check(one, f"{section} {label!r}")
    return found


def live_of_run(run: Any) -> Live:
    """The live objects of an object with the fields of `ckptcheck.Run`."""
    return live(
        model=run.model,
        optimizer=run.optimizer,
        scheduler=run.scheduler,
        scaler=run.scaler,
        ema=run.ema,
        data=run.data,
        extra=run.extra,
    )


def _listed(one_or_many: Any) -> list[Any]:
    if one_or_many is None:
        return []
    return list(one_or_many) if isinstance(one_or_many, list | tuple) else [one_or_many]


def _labelled(one_or_many: Any) -> dict[str, Any]:
    return {str(place): one for place, one in enumerate(_listed(one_or_many))}


def _check(one: Any, what: str) -> None:
    lacking = [name for name in ("state_dict", "load_state_dict") if not callable(getattr(one, name, None))]
    if lacking:
        raise StoreError(
            f"{what} is a {type(one).__name__} without {' and '.join(lacking)}: wrap it in an object that has both"
        )
