"""Everything the tool does with a checkpoint, in a process of its own that is watched for time and memory.

A `Watch` starts one interpreter without torch; for each job it forks a child, so that a job that hangs, grows or dies
harms nobody. Jobs run in the watch's own folder: what a pickle would have executed leaves its mark there.
"""

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from ckptcheck.errors import CkptcheckError, DamagedCheckpointError
from ckptcheck.readers.reading import read_raw
from ckptcheck.reports.page import escaped
from ckptcheck.state.raw import Danger, RawTree, tensors_in

LIMIT_S = 5.0
PATIENCE = 4
"""How many times the limit may pass on a clock, as others use the machine too."""
LIMIT_RSS_BYTES = 400 << 20
_BLOCK_BYTES = 1 << 20
_STOP_RSS_BYTES = 600 << 20
"""Where a child is ended before it harms the machine."""


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    `kind` is "fine", "refused", "damaged", "traceback", "timeout" or "died"; `said` the one line as the command line
    shows it, or the traceback. `seconds` are of the processor.
    `found` is what the job returned.
    """

    kind: str
    said: str = ""
    flaw: str = ""
    seconds: float = 0.0
    rss_bytes: int = 0
    found: dict[str, Any] = field(default_factory=dict)

    @property
    def is_proper(self) -> bool:
        """Whether it ended in time, in bounded memory, and with one printable line where it was refused."""
        ended = self.kind in ("fine", "refused", "damaged")
        one_line = "\n" not in self.said and (self.kind == "fine" or bool(self.said))
        return ended and one_line and self.seconds < LIMIT_S and self.rss_bytes < LIMIT_RSS_BYTES


def explore(path: str, strict: bool = True) -> dict[str, Any]:
    """Read all of a checkpoint as `inspect`, `diff` and `check` do together, every tensor's bytes included."""
    raw = read_raw(path, strict=strict)
    defects = [*raw.defects, *(found for one in raw.members if (found := one.verify()) is not None)]
    fetched = _fetch_all(raw)
    raw.check_unchanged()
    return (
        {
            "container": raw.container,
            "defects": [[one.flaw.value, one.file, one.said] for one in defects],
            "runs_code": sorted({one.name for one in raw.globals if one.danger is Danger.RUNS_CODE}),
            "unknown": sorted({one.name for one in raw.globals if one.danger is Danger.UNKNOWN}),
            "tensors": fetched,
        }
        | _explained(raw)
        | {"torch": "torch" in sys.modules}
    )


def _fetch_all(raw: RawTree) -> int:
    count = 0
    buffer = memoryview(bytearray(_BLOCK_BYTES))
    for tensor in tensors_in(raw.root):
        count += 1
        for start in range(0, tensor.spec.nbytes, _BLOCK_BYTES):
            tensor.read_into(start, buffer[: min(_BLOCK_BYTES, tensor.spec.nbytes - start)])
    return count


def _explained(raw: RawTree) -> dict[str, Any]:
    from ckptcheck.conventions.explaining import explain

    checkpoint = explain(raw)
    return {"convention": checkpoint.convention, "parameters": len(checkpoint.state.parameters)}


def diff(left: str, right: str) -> dict[str, Any]:
    """Compare two checkpoints as the verb does."""
    from ckptcheck.comparison.checkpoints import diff_checkpoints
    from ckptcheck.conventions.explaining import explain

    found = diff_checkpoints(explain(read_raw(left)), explain(read_raw(right)))
    return {"same": found.same_content, "rows": len(found.rows)}


def corrupted(original: str, damaged: str) -> dict[str, Any]:
    """What `check` says of a damaged checkpoint, for either purpose, then what `diff` says of it and the original."""
    from ckptcheck.verbs import check

    try:
        results = [check(damaged, purpose=one) for one in ("auto", "resume", "release")]
    except DamagedCheckpointError as trouble:
        raise AssertionError("damage is a finding of check") from trouble
    damage = {*CODES.values(), "CK104", "CK105", "CK106"}
    files = {one.code for one in results[0].findings if one.code in damage and one.severity != "info"}
    twice = [one.message for one in results[0].findings if one.message.count(damaged) > 1]
    return {
        **diff(original, damaged),
        "verdicts": [one.verdict.value for one in results],
        "findings": sorted(files),
        "path_twice": twice,
    }


def judge(path: str) -> dict[str, Any]:
    """What `check` says of a checkpoint."""
    from ckptcheck.verbs import check

    result = check(path)
    return {"verdict": result.verdict.value, "codes": sorted({one.code for one in result.findings})}


def compare(path: str) -> dict[str, Any]:
    """What `diff` says of a checkpoint and itself."""
    from ckptcheck.verbs import diff

    return {"verdict": diff(path, path).verdict.value}


def describe(path: str, strict: bool = True) -> dict[str, Any]:
    """Read a checkpoint as far as its description, as `inspect` does."""
    raw = read_raw(path, strict=strict)
    return {"nbytes": raw.nbytes} | _explained(raw)


CODES = {"unreadable": "CK101", "checksum": "CK102", "incomplete": "CK103", "shard-set": "CK107"}
"""Which rule tells of a flaw."""


def flaws_of(expected: dict[str, Any]) -> set[str]:
    """The flaws that reading came upon, whether it ended there or not."""
    lax = expected.get("lax", expected)
    return {expected["flaw"]} if "flaw" in lax else {flaw for flaw, _, _ in lax.get("defects", ())}


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "explore": explore,
    "describe": describe,
    "judge": judge,
    "compare": compare,
    "diff": diff,
    "corrupted": corrupted,
}


WANTED = (
    "numpy",
    "ckptcheck.readers.table",
    "ckptcheck.conventions.table",
    "ckptcheck.comparison.checkpoints",
    "ckptcheck.rules.files",
    "ckptcheck.verdict.checking",
    "ckptcheck.rules.stored.table",
    "ckptcheck.verdict.series",
    "ckptcheck.verdict.two_checkpoints",
)


class Watch:
    """The watched process. `folder` is where its jobs run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.readers.exploring"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, job: str, *arguments: Any) -> Outcome:
        """Do a job."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps([job, list(map(_plain, arguments))]), file=self._process.stdin, flush=True)
        return Outcome(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def serve() -> None:
    """Take jobs from stdin, a line each, and answer on stdout."""
    for module in WANTED:  # here, so that no child has to
        import_module(module)
    for line in sys.stdin:
        job, arguments = json.loads(line)
        print(json.dumps(forked(job, arguments)), flush=True)


def forked(job: str, arguments: list[Any]) -> dict[str, Any]:
    """Do a job in a child."""
    reading, writing = os.pipe()
    started = time.monotonic()
    child = os.fork()
    if not child:
        os.close(reading)
        _work(job, arguments, writing)
    os.close(writing)
    said = b""
    late = big = False
    while True:
        if select.select([reading], [], [], 0.02)[0]:
            part = os.read(reading, 1 << 16)
            if not part:
                break
            said += part
        late, big = time.monotonic() - started > PATIENCE * LIMIT_S, _rss_bytes(child) > _STOP_RSS_BYTES
        if late or big:
            os.kill(child, signal.SIGKILL)
            break
    os.close(reading)
    _, status, usage = os.wait4(child, 0)
    answer = (
        json.loads(said) if said and not (late or big) else {"kind": "timeout" if late else "died", "said": str(status)}
    )
    return {**answer, "seconds": usage.ru_utime + usage.ru_stime, "rss_bytes": usage.ru_maxrss * 1024}


def _rss_bytes(process: int) -> int:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * resource.getpagesize()


def _work(job: str, arguments: list[Any], writing: int) -> None:
    """The child's part; never returns."""
    try:
        answer: dict[str, Any] = {"kind": "fine", "found": JOBS[job](*arguments)}
    except DamagedCheckpointError as trouble:
        answer = {"kind": "damaged", "said": escaped(str(trouble)), "flaw": str(trouble.flaw)}
    except CkptcheckError as trouble:
        answer = {"kind": "refused", "said": escaped(str(trouble))}
    except BaseException:  # noqa: BLE001 - whatever else escapes is what the tests are about
        answer = {"kind": "traceback", "said": traceback.format_exc()[-3000:]}
    with open(writing, "wb") as target:
        target.write(json.dumps(answer).encode())
    os._exit(0)


if __name__ == "__main__":
    serve()
