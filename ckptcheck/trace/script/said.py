"""An exception as one line of text."""

import sys
from typing import Any, Final

MAX_SAID: Final = 2000
"""Characters that are told."""
_KNOWN: Final = frozenset({"torch", "numpy", __name__.partition(".")[0]}) | sys.stdlib_module_names
_PLAIN: Final = frozenset({str, bytes, bool, int, float, type(None)})


def said(error: BaseException) -> str:
    """The class and the message; never raises, whatever the exception's own `__str__` does."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001  an exception of the script's that cannot say what it is
        text = "it cannot say what"
    return f"{type(error).__name__}: {text}"[:MAX_SAID] if text else type(error).__name__


def said_by_itself(error: BaseException) -> str:
    """As `said`; the class alone where the message would have to be asked of code of the script's."""
    kind: Any = type(error)
    owner = getattr(kind.__str__, "__module__", None)  # None where it is written in C
    runs_nothing = owner is None or str(owner).partition(".")[0] in _KNOWN
    return said(error) if runs_nothing and all(type(one) in _PLAIN for one in error.args) else str(kind.__name__)
