"""Which steps a resumed script made, told from what it loaded: again, left out, none, or after a signal lost."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Course:
    """Where a resumed script went on, and how far it went.

    Attributes:
        copied_after: the step after which the run that was resumed was stopped.
        went_on_after: the step after which the resumed run went on, by the content that it loaded; None where it made
            no step.
        newest: the step of the newest checkpoint that it could have loaded; None where nobody knows.
        from_start: it loaded nothing: it is again where the first run began.
        last: the last step that the uninterrupted run made.
        rank: a process that the first run had and the resumed one has not; None where none is missing.
    """

    copied_after: int
    went_on_after: int | None
    newest: int | None
    last: int
    from_start: bool = False
    rank: int | None = None

    @property
    def astray(self) -> bool:
        """Whether it made other steps than those that were left to make."""
        return self.went_on_after is None or self.rank is not None or bool(self.again or self.left_out)

    @property
    def again(self) -> tuple[int, ...]:
        """Steps that it made once more although a newer checkpoint held them."""
        if self.from_start or self.went_on_after is None or self.newest is None:
            return ()
        return tuple(range(self.went_on_after + 1, self.newest + 1))

    @property
    def left_out(self) -> tuple[int, ...]:
        """Steps that it skipped: it went on from a later one than the run had come to."""
        if self.from_start or self.went_on_after is None:
            return ()
        return tuple(range(self.copied_after + 1, self.went_on_after + 1))


@dataclass(frozen=True, slots=True)
class Interruption:
    """What a signal left behind.

    Attributes:
        signal: its name, such as "SIGTERM".
        step: the step after which it was sent.
        kept: the step of the newest checkpoint that the run left; 0 where it left none, None where nobody knows.
        how: how the run ended, in words.
    """

    signal: str
    step: int
    kept: int | None
    how: str

    @property
    def lost(self) -> tuple[int, ...]:
        """The steps that no checkpoint holds."""
        return tuple(range(self.kept + 1, self.step + 1)) if self.kept is not None else ()
