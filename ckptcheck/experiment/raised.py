"""What the user's code raised, in one line."""

from typing import Final

MAX_MESSAGE: Final = 10_000
"""Characters of an exception's message that are told."""


def one_line(error: BaseException) -> str:
    """The class and the message; never raises, whatever the exception's own `__str__` does."""
    try:
        text = " ".join(str(error)[:MAX_MESSAGE].split())
    except Exception as second:  # noqa: BLE001  its own __str__ is the user's code too
        text = f"(its message cannot be made: {type(second).__name__})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
