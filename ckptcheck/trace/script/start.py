"""Where recording begins in a process of a script: called once, when torch has been imported."""

import atexit
import os
from collections.abc import Callable

from ckptcheck.trace.script import loads
from ckptcheck.trace.script.listening import Listening
from ckptcheck.trace.script.modules import Modules
from ckptcheck.trace.script.optimizers import Optimizers
from ckptcheck.trace.script.orders import orders_of
from ckptcheck.trace.script.recording import Recording
from ckptcheck.trace.script.sections import Sections


def start() -> None:
    """Listen to this process, as the environment says."""
    orders = orders_of()
    if orders is None:
        return
    modules, optimizers, sections = Modules(), Optimizers(), Sections()
    recording = Recording(orders, modules, optimizers, sections)
    undo: list[Callable[[], None]] = [
        modules.listen(), optimizers.listen(), sections.listen(), Listening(recording).listen(), loads.listen(recording.loads)
    ]  # fmt: skip
    process = os.getpid()

    def end() -> None:
        if os.getpid() == process:
            for one in undo:
                one()
            recording.end()

    atexit.register(end)
