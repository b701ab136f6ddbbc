"""Where in a trace some content has been seen before: at which step, of which item."""

from collections.abc import Iterable

from ckptcheck.trace.items import STEP, Item
from ckptcheck.trace.reading import Trace


class Origins:
    """Looks content up in a trace by its digest."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._last_update: dict[tuple[int, int], tuple[int, int] | None] = {}

    def steps_of(self, item: Item, digest: bytes) -> set[int]:
        """The steps after which the item had this very content."""
        return {step for step, seen in self._trace.digests(item) if seen == digest}

    def common_step(self, contents: Iterable[tuple[Item, bytes]]) -> int | None:
        """The first step after which every one of the items had its given content; None where there is no such step."""
        return min(self.common_steps(contents), default=None)

    def common_steps(self, contents: Iterable[tuple[Item, bytes]]) -> set[int]:
        """The steps after which every one of the items had its given content; none where no item is given."""
        common: set[int] | None = None
        for item, digest in contents:
            if common is None:
                common = self.steps_of(item, digest)
            else:  # of many items only the first is looked for at every step
                common = {step for step in common if self._trace.digest(step, STEP, item) == digest}
            if not common:
                return set()
        return common or set()

    def has_inputs(self, step: int) -> bool:
        """Whether the step recorded an input whose content is known: a tensor, an array, a number or a text."""
        inputs = [sample for item, sample in self._trace.samples(step, STEP).items() if item.kind == "inputs"]
        return any(one.spec is not None or not str(one.value).startswith("<") for one in inputs)

    def inputs_of(self, step: int) -> list[Item]:
        """What entered a module in a step, call by call."""
        return [item for item in self._trace.samples(step, STEP) if item.kind == "inputs"]

    def updated(self, step: int, optimizer: int) -> bool:
        """Whether an optimizer made an update in a step."""
        sample = self._trace.sample(step, STEP, Item("updates", optimizer=optimizer))
        return sample is not None and bool(sample.value)

    def last_read(self, step: int, optimizer: int, name: str, digest: bytes) -> bool:
        """Whether the last update that an optimizer made up to a step read a gradient of this content."""
        if (step, optimizer) not in self._last_update:
            self._last_update[step, optimizer] = next(
                (
                    (one, made)
                    for one in reversed(self._trace.steps)
                    if one <= step and (made := self._made(one, optimizer))
                ),
                None,
            )
        last = self._last_update[step, optimizer]
        if last is None:
            return False
        items = (Item("grad", name, part=part) for part in range(last[1]))
        return any(self._trace.digest(last[0], STEP, item) == digest for item in items)

    def _made(self, step: int, optimizer: int) -> int:
        sample = self._trace.sample(step, STEP, Item("updates", optimizer=optimizer))
        return sample.value if sample is not None and isinstance(sample.value, int) else 0

    def scaler_rested(self, step: int) -> bool:
        """Whether no gradient scaler moved in a step: what updates or overflows is told to it."""
        known = [item for item, _ in self._trace.tensors() if item.kind == "scaler"]
        return step > 1 and all(
            self._trace.digest(step, STEP, item) == self._trace.digest(step - 1, STEP, item) for item in known
        )

    def step_with_value(self, item: Item, value: float) -> int | None:
        """The first step at which a plain value, say a learning rate, was this one."""
        for step in self._trace.steps:
            sample = self._trace.sample(step, STEP, item)
            if sample is not None and sample.value == value:
                return step
        return None
