"""The library calls that commands make, as a type, so that a test can hand in others."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import click

from ckptcheck.config import Acceptance
from ckptcheck.finding import Result
from ckptcheck.progress import Progress


class Verbs(Protocol):
    """What `ckptcheck.verbs` offers to the command line."""

    def verify(
        self,
        target: str | None = None,
        *,
        run: str | None = None,
        resume: str | None = None,
        steps: int | None = None,
        resume_at: Sequence[int | str] = (),
        interrupt: str | None = None,
        device: str = "cpu",
        resume_device: str | None = None,
        seed: int = 0,
        deterministic: bool = False,
        folder: Path | None = None,
        share: Sequence[str] = (),
        env: Mapping[str, str] = {},
        online: bool = False,
        every: int = 1,
        only: Sequence[str] = (),
        grads: bool = True,
        digest: str | None = None,
        quick: bool = False,
        repeats: int = 1,
        policy: str = "exact",
        rtol: float = 0.0,
        atol: float = 0.0,
        tolerances: Mapping[str, tuple[float, float]] = {},
        freeze: Mapping[str, str] = {},
        timeout_s: float = 600.0,
        jobs: int | None = None,
        select: Sequence[str] = ("CK",),
        ignore: Sequence[str] = (),
        require: Sequence[str] = (),
        fail_on: str = "error",
        bisect: bool = False,
        severity: Mapping[str, str] = {},
        accept: Sequence[Acceptance] = (),
        baseline: Path | None = None,
        write_baseline: Path | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Run the resume experiment."""

    def save(
        self,
        target: str,
        *,
        steps: int,
        output: Path,
        trace: Path | None = None,
        store: bool = False,
        device: str = "cpu",
        seed: int = 0,
        digest: str | None = None,
        timeout_s: float = 600.0,
        progress: Progress | None = None,
    ) -> Result:
        """Train to a step and save."""

    def resume(
        self,
        target: str,
        checkpoint: Path,
        *,
        steps: int,
        output: Path,
        step: int | None = None,
        store: bool = False,
        device: str = "cpu",
        seed: int = 0,
        digest: str | None = None,
        timeout_s: float = 600.0,
        progress: Progress | None = None,
    ) -> Result:
        """Load, go on and record."""

    def record(
        self,
        command: Sequence[str],
        *,
        output: Path,
        every: int = 1,
        only: Sequence[str] = (),
        grads: bool = True,
        digest: str | None = None,
        python: str | None = None,
        select: Sequence[str] = ("CK",),
        ignore: Sequence[str] = (),
    ) -> Result:
        """Run a command and record it."""

    def compare(
        self,
        left: Path,
        right: Path,
        *,
        rtol: float = 0.0,
        atol: float = 0.0,
        tolerances: Mapping[str, tuple[float, float]] = {},
        select: Sequence[str] = ("CK",),
        ignore: Sequence[str] = (),
        fail_on: str = "error",
        severity: Mapping[str, str] = {},
        accept: Sequence[Acceptance] = (),
        baseline: Path | None = None,
        write_baseline: Path | None = None,
    ) -> Result:
        """Compare two traces."""

    def diff(
        self,
        left: Path,
        right: Path,
        *,
        only: Sequence[str] = (),
        without: Sequence[str] = (),
        renames: Sequence[tuple[str, str]] = (),
        left_section: str = "",
        right_section: str = "",
        cast: str = "",
        rtol: float = 0.0,
        atol: float = 0.0,
        tolerances: Mapping[str, tuple[float, float]] = {},
        statistics: bool = True,
        gate: str = "content",
        select: Sequence[str] = ("CK",),
        ignore: Sequence[str] = (),
        require: Sequence[str] = (),
        freeze: Mapping[str, str] = {},
        fail_on: str = "error",
        severity: Mapping[str, str] = {},
        accept: Sequence[Acceptance] = (),
        baseline: Path | None = None,
        write_baseline: Path | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Compare two checkpoints."""

    def check(
        self,
        path: Path,
        *,
        target: str | None = None,
        purpose: str = "auto",
        freeze: Mapping[str, str] = {},
        select: Sequence[str] = ("CK",),
        ignore: Sequence[str] = (),
        require: Sequence[str] = (),
        fail_on: str = "error",
        severity: Mapping[str, str] = {},
        accept: Sequence[Acceptance] = (),
        baseline: Path | None = None,
        write_baseline: Path | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Judge one checkpoint."""

    def inspect(
        self, path: Path, *, names: Path | None = None, digests: bool = False, progress: Progress | None = None
    ) -> Result:
        """Say what is in a checkpoint."""

    def probe(
        self,
        subject: str = "",
        *,
        arguments: Mapping[str, Any] = {},
        exact: bool = False,
        baseline: Path | None = None,
        freeze: Mapping[str, str] = {},
        device: str = "cpu",
        seed: int = 0,
        steps: int = 20,
        timeout_s: float = 600.0,
        select: Sequence[str] = ("CK",),
        ignore: Sequence[str] = (),
        fail_on: str = "error",
        severity: Mapping[str, str] = {},
        accept: Sequence[Acceptance] = (),
        progress: Progress | None = None,
    ) -> Result:
        """Probe an optimizer's contract."""

    def demo(self, *, progress: Progress | None = None) -> tuple[Result, Result]:
        """Run a clean resume and a broken one."""


def verbs_of(context: click.Context) -> Verbs:
    """Return the verbs that the context holds, else the library's own."""
    if context.obj is not None:
        return cast(Verbs, context.obj)
    from ckptcheck import verbs

    return verbs
