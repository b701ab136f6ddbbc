"""A survey taken while the members of a checkpoint are verified, from the blocks that checksums are held against.

What cannot be seen there is read afterwards, in blocks. Memory does not grow with the tensors.
"""

import threading
from collections.abc import Hashable
from typing import Final

from ckptcheck.comparison.counting import Count, counted, part_dtype
from ckptcheck.comparison.crew import Worker, thread_count, work_off
from ckptcheck.comparison.survey import Content, Survey, Underflow
from ckptcheck.comparison.survey_plan import Plan
from ckptcheck.comparison.underflow import Zeros, find_lost
from ckptcheck.errors import CheckpointError
from ckptcheck.progress import Progress
from ckptcheck.state.raw import Defect
from ckptcheck.state.tensor import ITEMSIZE_BYTES
from ckptcheck.trace.items import Item

READ_BYTES: Final = 1 << 20
"""Read at once of what was not seen while members were verified."""
TINY_BYTES: Final = 64
"""Blocks up to this size are counted once for all that are equal: 20,000 step counters."""
MOST_ALIKE: Final = 4_096
"""Of these, so many are remembered."""
DAMAGED: Final = "its stored bytes are damaged"


class Sight:
    """What one member showed: counts by tensor, which hold if the member is whole. One thread writes it."""

    def __init__(self, surveyor: "Surveyor") -> None:
        self._surveyor = surveyor
        self.counts: dict[int, Count] = {}
        self.zeros: list[tuple[int, int, int]] = []
        self.cut: list[tuple[int, int]] = []

    def __call__(self, home: Hashable, position: int, block: memoryview) -> None:
        """A `Watch`."""
        known = self._surveyor.plan.homes.get(home)
        if known is None:
            return
        end = position + len(block)
        for part in known.met(position, end):
            width = self._surveyor.widths[part.place]
            low, high = max(position, part.begin), min(end, part.end)
            at = part.start + low - part.begin
            first, last = -(-at // width), (at + high - low) // width
            if high < part.end and (at + high - low) % width:
                self.cut.append((part.place, last))  # the next block has the rest of this element
            if last > first:
                begin = low - position + first * width - at
                self._count(part.place, first, block[begin : begin + (last - first) * width])

    def _count(self, place: int, first: int, block: memoryview) -> None:
        total = self.counts.setdefault(place, Count())
        for start, found in self._surveyor.counts_of(place, block):
            total.add(found, first + start)
            if found.zeros and place in self._surveyor.seconds:
                self.zeros.append((place, first + start, found.numel))


class Surveyor:
    """Takes the survey of one plan: `begin` and `end` around each member, then `finish`. Threads share it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.dtypes = [part_dtype(ref.spec.dtype) or "" for ref in plan.refs]
        self.widths = [ITEMSIZE_BYTES.get(dtype, 1) for dtype in self.dtypes]
        self.numels = [ref.spec.nbytes // width for ref, width in zip(plan.refs, self.widths, strict=True)]
        """Parts of each tensor: twice its elements where it is complex."""
        self.seconds = {second for second, _ in plan.pairs.values()}
        self._counts: dict[int, Count] = {}
        self._zeros: dict[int, Zeros] = {}
        self._cut: list[tuple[int, int]] = []
        self._reasons: dict[int, str] = {}
        self._alike: dict[tuple[str, bytes], list[tuple[int, Count]]] = {}
        self._lock = threading.Lock()

    def begin(self) -> Sight:
        """What a member that is verified next shall be shown to."""
        return Sight(self)

    def end(self, sight: Sight, defect: Defect | None) -> None:
        """Keep what a member showed; tensors that look into a damaged one are not surveyed."""
        with self._lock:
            if defect is not None:
                self._reasons |= dict.fromkeys(sight.counts, DAMAGED)
                return
            for place, found in sight.counts.items():
                self._counts.setdefault(place, Count()).add(found)
            for place, start, numel in sight.zeros:
                self._zeros.setdefault(place, Zeros()).add(start, numel)
            self._cut += sight.cut

    def counts_of(self, place: int, block: memoryview) -> list[tuple[int, Count]]:
        """First index and counts of the pieces of a block of a tensor."""
        dtype = self.dtypes[place]
        if len(block) > TINY_BYTES:
            return list(counted(block, dtype))
        key = dtype, bytes(block)
        found = self._alike.get(key)
        if found is None:
            found = list(counted(block, dtype))
            if len(self._alike) < MOST_ALIKE:
                self._alike[key] = found
        return found

    def finish(self, name: str, progress: Progress | None = None) -> Survey:
        """Read what was not seen, and look twice at second moments with zeros. `name` is the checkpoint's."""
        for place, element in dict.fromkeys(self._cut):
            if place not in self._reasons:
                self._try(place, element, element + 1, None)
        waiting = [
            place
            for place, numel in enumerate(self.numels)
            if place not in self._reasons and (place not in self._counts or self._counts[place].numel != numel)
        ]
        total_bytes = sum(self.plan.refs[place].spec.nbytes for place in waiting)
        done_bytes = 0

        def read(place: int, worker: Worker) -> None:
            nonlocal done_bytes
            self._read_whole(place, worker)
            with self._lock:
                done_bytes += self.plan.refs[place].spec.nbytes
                if progress is not None:
                    progress.update(name, "MiB surveyed", done_bytes >> 20, total_bytes >> 20)

        work_off(waiting, read, thread_count() if total_bytes > READ_BYTES else 1)
        return self._survey(self._underflows())

    def _read_whole(self, place: int, worker: Worker) -> None:
        with self._lock:
            self._counts[place] = Count()
            self._zeros.pop(place, None)
        step = READ_BYTES // self.widths[place]
        for start in range(0, self.numels[place], step):
            worker.check()
            if not self._try(place, start, min(start + step, self.numels[place]), worker):
                return

    def _try(self, place: int, start: int, stop: int, worker: Worker | None) -> bool:
        """Count some parts of a tensor; where they cannot be read, that is why it is not surveyed."""
        width = self.widths[place]
        nbytes = (stop - start) * width
        view = worker.views(nbytes, 0)[0] if worker is not None else memoryview(bytearray(nbytes))
        try:
            self.plan.refs[place].read_into(start * width, view)
        except CheckpointError as trouble:
            with self._lock:
                self._reasons[place] = str(trouble)
            return False
        found = self.counts_of(place, view)
        with self._lock:
            total = self._counts.setdefault(place, Count())
            for at, one in found:
                total.add(one, start + at)
                if one.zeros and place in self.seconds:
                    self._zeros.setdefault(place, Zeros()).add(start + at, one.numel)
        return True

    def _underflows(self) -> dict[tuple[int, int], Underflow]:
        """Of each pair of second and first moment that has some."""
        found: dict[tuple[int, int], Underflow] = {}
        pairs = [pair for pair in dict.fromkeys(self.plan.pairs.values()) if self._can_be_lost(*pair)]

        def look(pair: tuple[int, int], worker: Worker) -> None:
            second, first = pair
            refs = self.plan.refs[second], self.plan.refs[first]
            try:
                lost = find_lost(refs, (self.dtypes[second], self.dtypes[first]), self._zeros[second], worker)
            except CheckpointError as trouble:
                with self._lock:
                    self._reasons[second] = str(trouble)
                return
            if lost.count and lost.first is not None:
                at = self._index(second, lost.first)
                found[pair] = Underflow(lost.count, self.numels[second], at, lost.largest)

        work_off(pairs, look, thread_count())
        return found

    def _can_be_lost(self, second: int, first: int) -> bool:
        if {second, first} & self._reasons.keys() or self.numels[second] != self.numels[first]:
            return False
        moment = self._counts[first]
        return second in self._zeros and moment.zeros < moment.numel

    def _survey(self, underflows: dict[tuple[int, int], Underflow]) -> Survey:
        contents: dict[Item, Content] = {}
        unread = dict(self.plan.unread)
        for place, items in enumerate(self.plan.items):
            if place in self._reasons:
                unread |= dict.fromkeys(items, self._reasons[place])
            else:
                contents |= dict.fromkeys(items, self._content(place))
        lost = {item: underflows[pair] for item, pair in self.plan.pairs.items() if pair in underflows}
        read = (place for place in range(len(self.plan.refs)) if place not in self._reasons)
        return Survey(contents, lost, unread, sum(self.plan.refs[place].spec.nbytes for place in read))

    def _content(self, place: int) -> Content:
        one = self._counts.get(place, Count())
        return Content(
            numel=one.numel,
            nan=one.nan,
            inf=one.inf,
            minus_inf=one.minus_inf,
            negative=one.negative,
            zeros=one.zeros,
            first_at=None if one.first is None else self._index(place, one.first),
            first_negative_at=None if one.first_negative is None else self._index(place, one.first_negative),
            largest=one.largest,
        )

    def _index(self, place: int, flat: int) -> tuple[int, ...]:
        """The index of the element that a part belongs to."""
        spec, axes = self.plan.refs[place].spec, self.plan.axes[place]
        flat //= max(self.numels[place] // max(spec.numel, 1), 1)
        index = [0] * len(axes)
        for axis, length in zip(reversed(axes), reversed(spec.shape), strict=True):
            flat, index[axis] = divmod(flat, length)
        return tuple(index)
