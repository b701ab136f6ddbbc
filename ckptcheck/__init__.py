"""ckptcheck: does a stopped PyTorch training run, once resumed, go on exactly as if it had never stopped?

Importing this package imports neither torch nor numpy; what needs them is loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckptcheck.config import Acceptance as Acceptance
    from ckptcheck.errors import CkptcheckError as CkptcheckError
    from ckptcheck.experiment.run import Context as Context
    from ckptcheck.experiment.run import Run as Run
    from ckptcheck.finding import Result as Result
    from ckptcheck.store.load import load as load
    from ckptcheck.store.save import save as save
    from ckptcheck.verbs import check as check
    from ckptcheck.verbs import compare as compare
    from ckptcheck.verbs import diff as diff
    from ckptcheck.verbs import inspect as inspect
    from ckptcheck.verbs import probe as probe
    from ckptcheck.verbs import record as record
    from ckptcheck.verbs import resume as resume
    from ckptcheck.verbs import verify as verify
    from ckptcheck.verdict.explaining import explain as explain

__version__ = "0.1.0"

__all__ = [
    "Acceptance", "CkptcheckError", "Context", "Result", "Run", "__version__",
    "check", "compare", "diff", "explain", "inspect", "load", "probe", "record", "resume", "save", "verify",
]  # fmt: skip

_HOMES = {
    "Acceptance": "ckptcheck.config",
    "CkptcheckError": "ckptcheck.errors",
    "Context": "ckptcheck.experiment.run",
    "Result": "ckptcheck.finding",
    "Run": "ckptcheck.experiment.run",
    "check": "ckptcheck.verbs",
    "compare": "ckptcheck.verbs",
    "diff": "ckptcheck.verbs",
    "explain": "ckptcheck.verdict.explaining",
    "inspect": "ckptcheck.verbs",
    "load": "ckptcheck.store.load",
    "probe": "ckptcheck.verbs",
    "record": "ckptcheck.verbs",
    "resume": "ckptcheck.verbs",
    "save": "ckptcheck.store.save",
    "verify": "ckptcheck.verbs",
}
"""Where each name comes from. `save` and `load` are those of the tool's own store, for a training of yours; to train a
target and save it as the command `save` does, there is `ckptcheck.verbs.save`."""


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'ckptcheck' has no attribute {name!r}") from None
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
