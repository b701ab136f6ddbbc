"""Finding and building a target: a file or module with a factory that returns a Run."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ckptcheck.config import CONTRACTS
from ckptcheck.errors import TargetError
from ckptcheck.experiment.run import Context, Run

DEFAULT_FACTORY = "build"
HOW_TO_NAME = "name a target as path/to/file.py[:factory] or package.module:factory"


def split_target(target: str) -> tuple[str, str]:
    """A target's file or module and its factory's name. Raises TargetError for a file that is not there."""
    head, colon, tail = target.rpartition(":")
    place, factory = (head, tail) if colon and tail.isidentifier() else (target, DEFAULT_FACTORY)
    if not place:
        raise TargetError(f"{target!r} names no file and no module: {HOW_TO_NAME}")
    if is_file(place):
        if Path(place).is_dir():
            raise TargetError(f"the target {target!r} names a folder: {HOW_TO_NAME}")
        if not Path(place).is_file():
            raise TargetError(f"the target {target!r} names the file {place}, which does not exist: {HOW_TO_NAME}")
    elif not all(part.isidentifier() for part in place.split(".")):
        raise TargetError(f"the target {target!r} is neither a .py file nor a module name: {HOW_TO_NAME}")
    return place, factory


def is_file(place: str) -> bool:
    """Whether a target's first part is a path and not a module name."""
    return place.endswith(".py") or "/" in place or "\\" in place


def load_factory(target: str) -> Callable[[Context], Any]:
    """Import the target and return its factory. What the target's own code raises passes through.

    Raises TargetError where the module or the factory is not there.
    """
    place, name = split_target(target)
    module = import_place(place)
    factory = getattr(module, name, None)
    if factory is None:
        offered = [key for key, value in vars(module).items() if callable(value) and key.startswith("build")]
        hint = f"; it has {', '.join(offered)}" if offered else ""
        as_it_is = "; a script as it is takes --run and --resume instead" if is_file(place) and not offered else ""
        said = f"the target {target!r} has no factory {name!r}{hint}: define {name}(ctx) -> ckptcheck.Run{as_it_is}"
        raise TargetError(said)
    if not callable(factory):
        raise TargetError(f"{name!r} of the target {target!r} is a {type(factory).__name__}, not a function of ctx")
    return factory  # type: ignore[no-any-return]


def import_place(place: str) -> ModuleType:
    """Import the file or the module that a target's first part names. What its own code raises passes through."""
    return _import_file(Path(place)) if is_file(place) else _import_module(place)


def _import_file(path: Path) -> ModuleType:
    # As `python file.py` does: the file's own folder comes first, so that its neighbours can be imported.
    folder, stem = str(path.resolve().parent), path.stem
    sys.path.insert(0, folder)
    name = stem if stem.isidentifier() and stem not in sys.modules else f"ckptcheck_target_{stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python file: {HOW_TO_NAME}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise TargetError(f"there is no module {name!r} here or installed: {HOW_TO_NAME}") from error
        raise


def check_run(target: str, run: Any) -> Run:
    """The run itself, if its fields are what `Run` asks for; TargetError otherwise."""
    if not isinstance(run, Run):
        raise TargetError(f"the factory of {target!r} returned {type(run).__name__!r}, not a ckptcheck.Run")
    if not callable(run.step):
        raise TargetError(f"Run.step of {target!r} is a {type(run.step).__name__}, not a function of the step number")
    if (run.save is None) != (run.load is None):
        given, other = ("save", "load") if run.load is None else ("load", "save")
        raise TargetError(f"{target!r} gives Run.{given} but no Run.{other}: give both, or neither for the tool's own")
    for pattern, contract in run.freeze.items():
        if contract not in CONTRACTS:
            raise TargetError(f"freeze={{{pattern!r}: {contract!r}}} of {target!r}: use one of {', '.join(CONTRACTS)}")
    _check_objects(target, run)
    return run


def _check_objects(target: str, run: Run) -> None:
    from ckptcheck.state.naming import roots_of
    from ckptcheck.trace.subjects import as_list

    try:
        roots_of(run.model)
    except TypeError as error:
        raise TargetError(f"Run.model of {target!r}: {error}") from error
    for optimizer in as_list(run.optimizer):
        if not hasattr(optimizer, "param_groups"):
            kind = type(optimizer).__name__
            raise TargetError(f"Run.optimizer of {target!r} holds a {kind}, which has no param_groups")
    parts = {"scheduler": run.scheduler, "scaler": run.scaler, "ema": run.ema, "data": run.data}
    for name, part in [*parts.items(), *((f"extra[{key!r}]", value) for key, value in run.extra.items())]:
        for one in as_list(part):
            if not hasattr(one, "state_dict"):
                raise TargetError(f"Run.{name} of {target!r} is a {type(one).__name__} without state_dict()")
