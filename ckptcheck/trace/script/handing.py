"""What has been handed over to be measured beside the training, until it need not rest any longer."""

from dataclasses import dataclass, field

from ckptcheck.trace.items import Item, Sample
from ckptcheck.trace.script.resting import Seen, Trust
from ckptcheck.trace.script.worker import Job


@dataclass(slots=True)
class Awaited:
    """A sample that is not made yet; it has its place among the others. None at the end: it was not to be had."""

    sample: Sample | None = None


class Handed(Awaited):
    """The sample of one tensor that is on its way to be measured. `take` gives up what was looked at, once."""

    __slots__ = ("_looked", "item")

    def __init__(self, item: Item, looked: Seen) -> None:
        self.sample = None
        self.item = item
        self._looked: Seen | None = looked

    @property
    def looked(self) -> Seen:
        """What was looked at, until it is taken."""
        assert self._looked is not None
        return self._looked

    def take(self) -> Seen:
        """What was looked at, which is held no longer."""
        looked, self._looked = self.looked, None
        return looked


@dataclass(frozen=True, slots=True)
class Trial:
    """A tensor that should rest, with its digest from when it was looked at."""

    item: Item
    looked: Seen
    digest: bytes


@dataclass(slots=True)
class Rest:
    """A time in which items rest: what was handed over in it, and what is on trial until it ends."""

    trust: Trust = field(default_factory=Trust)
    jobs: list[Job] = field(default_factory=list)
    awaited: list[Handed] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
