"""ckptcheck: does a stopped PyTorch training run, once resumed, go on exactly as if it had never stopped?

Importing this package imports neither torch nor numpy; what needs them is loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckptcheck.experiment.run import Context as Context
    from ckptcheck.experiment.run import Run as Run
    from ckptcheck.store.load import load as load
    from ckptcheck.store.save import save as save
    from ckptcheck.verbs import check as check
    from ckptcheck.verbs import compare as compare
    from ckptcheck.verbs import diff as diff
    from ckptcheck.verbs import inspect as inspect
    from ckptcheck.verbs import resume as resume
    from ckptcheck.verbs import verify as verify

__version__ = "0.1.0"

__all__ = ["Context", "Run", "__version__", "check", "compare", "diff", "inspect", "load", "resume", "save", "verify"]

_HOMES = {
    "Context": "ckptcheck.experiment.run",
    "Run": "ckptcheck.experiment.run",
    "check": "ckptcheck.verbs",
    "compare": "ckptcheck.verbs",
    "diff": "ckptcheck.verbs",
    "inspect": "ckptcheck.verbs",
    "load": "ckptcheck.store.load",
    "resume": "ckptcheck.verbs",
    "save": "ckptcheck.store.save",
    "verify": "ckptcheck.verbs",
}


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'ckptcheck' has no attribute {name!r}") from None
    return getattr(import_module(home), name)
