"""Imports our modules in a process that is not ours, where the name `ckptcheck` is another's, or nobody's.

They stand in sys.modules under names that nobody else uses, and their own imports of `ckptcheck` lead to those; so a
script sees, finds and imports exactly what it would without us. This file imports nothing of ours itself.
"""

import builtins
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

PACKAGE: Final = "ckptcheck"
HIDDEN: Final = "_ckptcheck_recorder"
"""What our package is called in the script's process."""
_HOME: Final = Path(__file__).resolve().parents[2]


def ours(name: str) -> ModuleType:
    """Our module of that name ("ckptcheck.trace.items"), imported. FileNotFoundError where there is none."""
    hidden = HIDDEN + name.removeprefix(PACKAGE)
    if hidden in sys.modules:
        return sys.modules[hidden]
    parent, _, last = name.rpartition(".")
    above = ours(parent) if parent else None
    place = _HOME.joinpath(*name.split(".")[1:])
    folders = [str(place)] if place.is_dir() else None
    file = place / "__init__.py" if folders else place.with_name(f"{place.name}.py")
    spec = spec_from_file_location(hidden, file, submodule_search_locations=folders)
    assert spec is not None and spec.loader is not None
    module = sys.modules[hidden] = module_from_spec(spec)
    vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[hidden]
        raise
    if above is not None:
        setattr(above, last, module)
    return module


def _import(
    name: str,
    globals: Mapping[str, Any] | None = None,  # noqa: A002 - the names that __import__ has
    locals: Mapping[str, Any] | None = None,  # noqa: A002
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """What an import statement in one of our modules calls."""
    if name.partition(".")[0] != PACKAGE:
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    module = ours(name)
    for one in fromlist or ():
        if not hasattr(module, one):
            with suppress(FileNotFoundError):  # the statement itself says what is missing
                ours(f"{name}.{one}")
    return module if fromlist else ours(PACKAGE)
