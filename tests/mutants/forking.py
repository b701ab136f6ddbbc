"""The near end of the forking server."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutants.copying import environment

PASSED, NOTHING = 0, 5
"""Exit codes of pytest."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run of pytest ended. `seconds` of wall time; `log` is the end of what it printed."""

    code: int
    seconds: float
    timed_out: bool
    log: str

    @property
    def passed(self) -> bool:
        """Whether no test failed; also where none was left to run."""
        return self.code in (PASSED, NOTHING)


class Server:
    """One copy of the repository with a server of its own."""

    def __init__(self, root: Path, *, writing: bool = False, bare: bool = False) -> None:
        """`writing` keeps compiled tests; a `bare` server has nothing imported beforehand."""
        self.root = root
        self._log = root.with_name(root.name + ".log")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.mutants.server", *(["--bare"] if bare else [])],
            cwd=root,
            env=environment(root, writing=writing),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def run(
        self,
        files: Sequence[str],
        tests: Sequence[str] | None,
        limit_s: float,
        marks: dict[str, str] | None = None,
    ) -> Outcome:
        """Run pytest on files, on the given tests of them where these are named."""
        order = {"files": list(files), "tests": tests, "limit_s": limit_s, "log": str(self._log), "map": marks}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        tail = self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""
        return Outcome(answer["code"], answer["seconds"], answer["timed_out"], tail)

    def close(self) -> None:
        """End the server."""
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server of {self.root} has ended with code {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found
