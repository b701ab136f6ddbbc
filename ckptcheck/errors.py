"""One tree for every input that we refuse; each error is one line that says what to do."""


class CkptcheckError(Exception):
    """An input that we refuse: what was promised, what was found, where, and what to do. Exit code 2."""


class UsageError(CkptcheckError):
    """A wrong option or argument."""


class TargetError(CkptcheckError):
    """A target that cannot be found, imported or built, or that breaks its own contract."""


class RunFailedError(CkptcheckError):
    """A run of the user's training that raised, died or hung where it had to finish.

    `last_lines` is the end of what the run printed, without lines of our own; it may be empty.
    """

    def __init__(self, message: str, last_lines: str = "") -> None:
        super().__init__(message)
        self.last_lines = last_lines


class StoreError(CkptcheckError):
    """A stored training state that is absent, damaged, or does not fit the live objects."""


class CheckpointError(CkptcheckError):
    """A checkpoint that is absent, of no kind that we read, or made to mislead."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint that was one once: cut short, half saved, a file missing, bytes that do not fit each other.

    `flaw` is one of `ckptcheck.state.raw.Flaw`.
    """

    def __init__(self, message: str, flaw: str = "unreadable") -> None:
        super().__init__(message)
        self.flaw = flaw


class TraceError(CkptcheckError):
    """A trace that is absent, damaged, empty, or written by a newer schema."""


class OutputError(CkptcheckError):
    """An output that cannot be written.

    `result_is_told` says that a result was there by then, and went to every other place that was asked for.
    """

    def __init__(self, message: str, *, result_is_told: bool = False) -> None:
        super().__init__(message)
        self.result_is_told = result_is_told
