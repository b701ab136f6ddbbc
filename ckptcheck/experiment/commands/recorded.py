"""How a recorded command ended, and what it left."""

from dataclasses import dataclass
from pathlib import Path

from ckptcheck.trace.reading import Trace


@dataclass(frozen=True, slots=True)
class Recorded:
    """One run of a command.

    Attributes:
        name: "reference", "repeat", "resumed", "interrupted", "recording".
        words: the command as it was started.
        status: "ended" (exit code 0), "stopped" (by us, after the last step asked for), "failed" (another exit code),
            "died" (by a signal that was not ours), "hung" (no progress for the time limit).
        exit_code: as the shell gives it, 128 + n for signal n.
        error: "" where it ended or was stopped, else what happened, in one line.
        last_lines: the end of what it printed; "" where that went to the user's own terminal.
        total_s: its life, in seconds.
        output: its output folder, or its copy of the working folder; None where it has none of its own.
        traces: one for each process that trained, ascending by rank; they are open.
        notes: what the processes said of their recording: errors of the recorder, what it cannot see.
    """

    name: str
    words: tuple[str, ...]
    status: str
    exit_code: int
    error: str = ""
    last_lines: str = ""
    total_s: float = 0.0
    output: Path | None = None
    traces: tuple[Trace, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def last_step(self) -> int:
        """The last step that any of its processes told of; 0 where none made one."""
        return max((step for trace in self.traces for step, _ in trace.moments), default=0)


def not_seen(trace: Trace) -> list[str]:
    """What a process says of its recording, in sentences: that it broke off, and what of the script was not seen."""
    header = trace.header
    said = [f"The recorder failed: {header['broken']}."] if header.get("broken") else []
    said += [str(one) for one in header.get("notes") or ()]
    moved = [str(item[1]) for item in header.get("moved") or ()]
    if moved:
        count = "1 tensor" if len(moved) == 1 else f"{len(moved)} tensors"
        said.append(f"{count} changed between two updates, and are left out of the steps in which they did: {moved[0]}"
                    f"{' for one' if moved[1:] else ''}.")  # fmt: skip
    return said
