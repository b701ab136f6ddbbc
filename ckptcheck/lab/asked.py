"""What was asked to be probed: an optimizer of torch, one of the user's own, or a target."""

import inspect
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import ModuleType
from typing import Any, Final

import torch

from ckptcheck.errors import TargetError
from ckptcheck.experiment.run import Context, Run
from ckptcheck.experiment.target import DEFAULT_FACTORY, check_run, import_place, split_target
from ckptcheck.lab.subject import HOW_TO_NAME, Subject, parameters_of, torch_classes, torch_subject

_TAKES_PARAMETERS: Final = re.compile(r"(\w*_)?(params|parameters|param_groups|groups)")
"""First argument of a function that makes an optimizer; the one of a target's factory is its context."""
_TORCH: Final = ("torch.optim.", "torch.optim:", "optim.")

_EITHER, _BY_NAME = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY

Target = Callable[[Context], Run]


def asked_for(text: str, arguments: Mapping[str, Any]) -> Subject | Target:
    """The subject, or the target's factory, which checks what it builds.

    Imports the user's code: what that raises passes through. TargetError for a name that leads nowhere, and for what is
    neither an optimizer's class, nor a function of parameters, nor a target's factory.
    """
    front = next((one for one in _TORCH if text.startswith(one)), None)
    if front is not None:
        return torch_subject(text.removeprefix(front), arguments)
    if text.isidentifier():
        return torch_subject(text, arguments)
    place, name = split_target(text)
    module = import_place(place)
    found = getattr(module, name, None)
    if found is None:
        raise TargetError(_not_there(text, name, module))
    if isinstance(found, type):
        if not is_optimizer_class(found):
            raise TargetError(f"{text}: the class {name} is no optimizer: it has no step(); {HOW_TO_NAME}")
        return Subject(text, found, arguments)
    if not callable(found):
        raise TargetError(f"{text}: {name} is a {type(found).__name__}, neither a class nor a function; {HOW_TO_NAME}")
    first = next(iter(parameters_of(found)), "")
    if _TAKES_PARAMETERS.fullmatch(first) or _makes_optimizer(found):
        return Subject(text, found, arguments)
    if arguments:
        raise TargetError(
            f"--arg is for an optimizer: {text!r} is taken for a target, which makes its own; a function that makes an "
            f"optimizer has params as its first argument"
        )
    return lambda context: check_run(text, found(context))


def _makes_optimizer(found: Callable[..., Any]) -> bool:
    """Whether a function says by its annotation that it returns an optimizer."""
    said = getattr(found, "__annotations__", {}).get("return")
    if isinstance(said, str):
        return said.rpartition(".")[2] == "Optimizer"
    return isinstance(said, type) and is_optimizer_class(said)


def is_optimizer_class(found: type) -> bool:
    """Whether a class is one of optimizers: by descent, or by what it can do."""
    return issubclass(found, torch.optim.Optimizer) or (
        callable(getattr(found, "step", None)) and callable(getattr(found, "zero_grad", None))
        and not issubclass(found, torch.nn.Module)
    )  # fmt: skip


def _not_there(text: str, name: str, module: ModuleType) -> str:
    """That a module lacks the name, and which one may be meant."""
    own = {
        key: one for key, one in vars(module).items()
        if isinstance(one, type) and is_optimizer_class(one) and one is not torch.optim.Optimizer
        and one not in torch_classes().values()
    }  # fmt: skip
    near = get_close_matches(name, own, n=1)
    said = f"{text} has no {name!r}"
    if near:
        return f"{said}: did you mean {near[0]}?"
    if own and name == DEFAULT_FACTORY:
        return f"{said}, and so is no target; for an optimizer name its class: {text}:{next(iter(own))}"
    return f"{said}{': it has ' + ', '.join(own) if own else ''}; {HOW_TO_NAME}"


def made_or_refused(subject: Subject, make: Callable[[], Any]) -> Any:
    """What `make` makes of a subject. TargetError where it cannot be made, with how to give arguments."""
    try:
        made = make()
    except Exception as error:
        raise TargetError(_cannot_be_made(subject, error)) from error
    if not hasattr(made, "param_groups") or not callable(getattr(made, "step", None)):
        raise TargetError(
            f"{subject.name} makes a {type(made).__name__}, which is no optimizer: it has no param_groups and step()"
        )
    return made


def _cannot_be_made(subject: Subject, error: Exception) -> str:
    taken = parameters_of(subject.make)
    names = [*taken][1:]
    ordinary = [one for one in names if taken[one].kind in (_EITHER, _BY_NAME)]
    empty = [one for one in ordinary if taken[one].default is inspect.Parameter.empty]
    lacking = [one for one in empty if one not in subject.arguments]
    wanting = next((name for name in lacking if "optimizer" in name), None)
    if wanting is not None:
        return (f"{subject.name} wants another optimizer as {wanting}: write a function of params that makes both, "
                f"and name that as path/to/file.py:function")  # fmt: skip
    if lacking:
        example = " ".join(f"--arg {name}=..." for name in lacking)
        return f"{subject.name} needs the argument{'s' * (len(lacking) > 1)} {', '.join(lacking)}: give {example}"
    open_ended = len(ordinary) < len(names)
    unknown = [name for name in subject.arguments if name not in names and not open_ended]
    if unknown:
        return f"{subject.name} takes no argument {unknown[0]!r}: --arg takes {', '.join(names) or 'none'}"
    said = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")
    return f"{subject.name} cannot be made: {said}; give its arguments by --arg, such as --arg lr=0.1"
