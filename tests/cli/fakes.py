"""Stand-ins for the library's verbs: each keeps what it was called with and returns what it was told to."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckptcheck.config import Acceptance
from ckptcheck.finding import Result, Verdict
from ckptcheck.progress import Progress


class FakeVerbs:
    """Has the signatures of the real verbs, so that a wrong option name fails here too."""

    def __init__(self, result: Result | None = None, *, broken: Result | None = None,
                 during: Callable[[], None] = lambda: None) -> None:  # fmt: skip
        self.result = Result("verify", Verdict.PASS) if result is None else result
        self.broken = Result("verify", Verdict.FAIL) if broken is None else broken
        self.during = during
        self.called: dict[str, Any] = {}

    def verify(self, target: str | None = None, *, run: str | None = None, resume: str | None = None,
               steps: int | None = None, resume_at: Sequence[int] = (), interrupt: str | None = None,
               device: str = "cpu", resume_device: str | None = None, seed: int = 0, deterministic: bool = False,
               folder: Path | None = None, share: Sequence[str] = (), env: Mapping[str, str] = {},
               online: bool = False, every: int = 1, only: Sequence[str] = (), grads: bool = True,
               digest: str | None = None, quick: bool = False, repeats: int = 1, policy: str = "exact",
               rtol: float = 0.0, atol: float = 0.0, tolerances: Mapping[str, tuple[float, float]] = {},
               freeze: Mapping[str, str] = {}, timeout_s: float = 600.0,
               jobs: int | None = None, select: Sequence[str] = ("CK",), ignore: Sequence[str] = (),
               require: Sequence[str] = (), fail_on: str = "error", bisect: bool = False,
               severity: Mapping[str, str] = {}, accept: Sequence[Acceptance] = (), baseline: Path | None = None,
               write_baseline: Path | None = None, progress: Progress | None = None) -> Result:  # fmt: skip
        return self._keep(locals())

    def save(self, target: str, *, steps: int, output: Path, trace: Path | None = None, store: bool = False,
             device: str = "cpu", seed: int = 0, digest: str | None = None, timeout_s: float = 600.0,
             progress: Progress | None = None) -> Result:  # fmt: skip
        return self._keep(locals())

    def resume(self, target: str, checkpoint: Path, *, steps: int, output: Path, step: int | None = None,
               store: bool = False, device: str = "cpu", seed: int = 0, digest: str | None = None,
               timeout_s: float = 600.0, progress: Progress | None = None) -> Result:  # fmt: skip
        return self._keep(locals())

    def compare(self, left: Path, right: Path, *, rtol: float = 0.0, atol: float = 0.0,
                tolerances: Mapping[str, tuple[float, float]] = {}, select: Sequence[str] = ("CK",),
                ignore: Sequence[str] = (), fail_on: str = "error", severity: Mapping[str, str] = {},
                accept: Sequence[Acceptance] = (), baseline: Path | None = None,
                write_baseline: Path | None = None) -> Result:  # fmt: skip
        return self._keep(locals())

    def diff(self, left: Path, right: Path, *, only: Sequence[str] = (), without: Sequence[str] = (),
             renames: Sequence[tuple[str, str]] = (), left_section: str = "", right_section: str = "", cast: str = "",
             rtol: float = 0.0, atol: float = 0.0, tolerances: Mapping[str, tuple[float, float]] = {},
             statistics: bool = True, gate: str = "content", select: Sequence[str] = ("CK",),
             ignore: Sequence[str] = (), require: Sequence[str] = (), freeze: Mapping[str, str] = {},
             fail_on: str = "error", severity: Mapping[str, str] = {}, accept: Sequence[Acceptance] = (),
             baseline: Path | None = None, write_baseline: Path | None = None,
             progress: Progress | None = None) -> Result:  # fmt: skip
        return self._keep(locals())

    def check(self, path: Path, *, target: str | None = None, purpose: str = "auto", freeze: Mapping[str, str] = {},
              select: Sequence[str] = ("CK",), ignore: Sequence[str] = (), require: Sequence[str] = (),
              fail_on: str = "error", severity: Mapping[str, str] = {}, accept: Sequence[Acceptance] = (),
              baseline: Path | None = None, write_baseline: Path | None = None,
              progress: Progress | None = None) -> Result:  # fmt: skip
        return self._keep(locals())

    def inspect(self, path: Path, *, names: Path | None = None, digests: bool = False,
                progress: Progress | None = None) -> Result:  # fmt: skip
        return self._keep(locals())

    def probe(self, subject: str = "", *, arguments: Mapping[str, Any] = {}, exact: bool = False,
              baseline: Path | None = None, freeze: Mapping[str, str] = {}, device: str = "cpu", seed: int = 0,
              steps: int = 20, timeout_s: float = 600.0, select: Sequence[str] = ("CK",),
              ignore: Sequence[str] = (), fail_on: str = "error",
              severity: Mapping[str, str] = {}, accept: Sequence[Acceptance] = (),
              progress: Progress | None = None) -> Result:  # fmt: skip
        return self._keep(locals())

    def demo(self, *, progress: Progress | None = None) -> tuple[Result, Result]:
        return self._keep(locals()), self.broken

    def _keep(self, arguments: dict[str, Any]) -> Result:
        self.called = {name: value for name, value in arguments.items() if name not in ("self", "progress")}
        self.during()
        return self.result


def raising(error: BaseException) -> Callable[[], None]:
    """Return something to do during a verb: raise."""

    def during() -> None:
        raise error

    return during
