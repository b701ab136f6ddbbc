"""What of a script could not be seen, said once each in plain sentences, for the trace."""


class Notes:
    """Sentences in the order in which they were first said."""

    def __init__(self) -> None:
        self._said: dict[str, None] = {}

    def say(self, sentence: str) -> None:
        """Add a sentence, unless it was said before."""
        self._said.setdefault(sentence)

    def all(self) -> tuple[str, ...]:
        """Everything said so far."""
        return tuple(self._said)
