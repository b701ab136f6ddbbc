"""The pytest plugin: the fixture `resume_check`, a resume experiment as a test.

pytest imports this module in every session, so it imports nothing of ours before a test asks for the fixture.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest

if TYPE_CHECKING:
    from ckptcheck.config import Config
    from ckptcheck.finding import Result

ON_INCONCLUSIVE: Final = ("fail", "skip", "pass")
SUBJECTS: Final = ("target", "run", "resume")
NOT_GIVEN: Final = ("progress", "write_baseline")
"""What `verify` takes and a test has no use for."""
SEVERAL: Final = ("resume_at", "select", "ignore", "require", "only", "share")
"""Options that are given several values, or one by itself."""
TOLERANCES: Final = frozenset({"rtol", "atol", "tolerances"})
"""Options of which any one takes the place of the tolerances in the settings."""
STEPS: Final = 20
"""Steps of a run unless the test or the settings say otherwise."""


class ResumeCheck(Protocol):
    """What the fixture is: call it with a target, or with two commands."""

    def __call__(
        self,
        target: str | None = None,
        *,
        run: str | None = None,
        resume: str | None = None,
        steps: int = 20,
        resume_at: int | str | Sequence[int | str] = 10,
        device: str = "cpu",
        on_inconclusive: str = "fail",
        **options: Any,
    ) -> "Result":
        """Run the experiment; the result where the verdict is pass, else the test fails or is skipped."""
        ...


@pytest.fixture
def resume_check(request: pytest.FixtureRequest) -> ResumeCheck:
    """Check that a training, stopped and resumed in fresh processes, goes on exactly; fail the test where it does not.

    resume_check(target=None, *, run=None, resume=None, steps=20, resume_at=10, device="cpu", on_inconclusive="fail",
    **options) takes a target, "train.py:build" or "package.module:build", or the two commands of `ckptcheck verify`. A
    file is looked for in the folder of the test, then in the rootdir; commands are run in the rootdir. Unless given,
    resume_at is half of the steps. on_inconclusive is "fail", "skip" or "pass". The options are those of
    `ckptcheck.verify`. What is not given comes from [tool.ckptcheck] of the rootdir, as on the command line.
    Returns the result.
    """
    return _ResumeCheck(request)


class _ResumeCheck:
    """The fixture for one test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._root = request.config.rootpath
        self._here = request.path.parent

    def __call__(self, target: str | None = None, **given: Any) -> "Result":
        from ckptcheck.errors import CkptcheckError

        trouble = ""
        try:
            result, on_inconclusive = self._result(target, given)
        except CkptcheckError as error:
            trouble = _in_short(error)
        if trouble:  # outside of the handler, so that no other error stands beside it
            pytest.fail(trouble, pytrace=False)
        told = self._told(result)
        first = told.partition("\n")[0]
        self._request.node.user_properties.append(("ckptcheck", first))
        if result.verdict == "inconclusive" and on_inconclusive != "fail":
            if on_inconclusive == "skip":
                pytest.skip(first)
        elif not result.passed:
            pytest.fail(f"{_code_of(result)}: {target or given.get('run') or 'ckptcheck'}\n{told}", pytrace=False)
        return result

    def _result(self, target: str | None, given: Mapping[str, Any]) -> "tuple[Result, str]":
        """Make the experiment. Raises CkptcheckError for what cannot be asked, and for runs that fail."""
        from ckptcheck.config import load_config
        from ckptcheck.errors import UsageError
        from ckptcheck.verbs import verify

        _check_names(given)
        config = load_config(None, self._root)
        asked = asked_of(config, {"target": target, **given} if target is not None else dict(given))
        on_inconclusive = asked.pop("on_inconclusive", "fail")
        if on_inconclusive not in ON_INCONCLUSIVE:
            raise UsageError(f"on_inconclusive={on_inconclusive!r}: use {', '.join(ON_INCONCLUSIVE)}")
        if asked.get("target") is not None:
            asked["target"] = self._found(asked["target"])
        elif asked.get("run") is not None:
            asked["folder"] = self._root / asked.get("folder", "")
        return verify(**asked), on_inconclusive

    def _found(self, target: str) -> str:
        """The target with the path of its file; of a module as it is, to be found where the tests find it."""
        from ckptcheck.errors import TargetError
        from ckptcheck.experiment.target import is_file

        place, colon, factory = str(target).rpartition(":")
        if not colon or not factory.isidentifier():
            place, colon, factory = str(target), "", ""
        if not is_file(place):
            self._let_import()
            return str(target)
        path = next((folder / place for folder in (self._here, self._root) if (folder / place).is_file()), None)
        if path is None:
            raise TargetError(f"the target {target!r} names a file that is neither in {self._here} nor in {self._root}")
        return f"{path}{colon}{factory}"

    def _let_import(self) -> None:
        """Let the runs of this test import what is in the rootdir, and where pytest's own `pythonpath` says."""
        import os

        first = [str(one) for one in (*self._request.config.getini("pythonpath"), self._root)]
        patch: pytest.MonkeyPatch = self._request.getfixturevalue("monkeypatch")
        patch.setenv("PYTHONPATH", os.pathsep.join(first), prepend=os.pathsep)

    def _told(self, result: "Result") -> str:
        """The report as text, as wide as pytest's own output."""
        import shutil
        import sys

        from ckptcheck.reports.page import Detail, Page
        from ckptcheck.reports.text import render

        verbosity = self._request.config.getoption("verbose", 0)
        encoding = (getattr(sys.__stdout__, "encoding", None) or "utf-8").lower()
        page = Page(
            width=max(shutil.get_terminal_size().columns, 40),
            ascii_only=not encoding.startswith("utf"),
            detail=Detail.ALL if verbosity > 1 else Detail.NORMAL,
        )
        return render(result, page)


def _code_of(result: "Result") -> str:
    """The code of the cause, which is what a summary of many tests has place for; else the verdict."""
    return result.cause.code if result.cause is not None else result.verdict.upper()


def _in_short(error: Exception) -> str:
    """What goes wrong as the command line says it, after the last lines of a run that failed."""
    from ckptcheck.errors import RunFailedError
    from ckptcheck.reports.page import escaped

    last = error.last_lines.splitlines() if isinstance(error, RunFailedError) else []
    return "\n".join([*(f"    {escaped(line)}" for line in last), f"ckptcheck: error: {escaped(str(error))}"])


def _check_names(given: Mapping[str, Any]) -> None:
    """UsageError for an option that there is not, with the nearest that there is."""
    from difflib import get_close_matches
    from inspect import signature

    from ckptcheck.errors import UsageError
    from ckptcheck.verbs import verify

    known = [*(name for name in signature(verify).parameters if name not in NOT_GIVEN), "on_inconclusive"]
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"the options are {', '.join(known[1:])}"
            raise UsageError(f"resume_check has no option {name!r}; {hint}")


def asked_of(config: "Config", given: dict[str, Any]) -> dict[str, Any]:
    """What is asked: what the test gives, else what the project has set, else as `verify` has it.

    Of a target what the settings say of commands is left out, and the other way round, as on the command line.
    """
    from ckptcheck.config import Demands
    from ckptcheck.errors import UsageError
    from ckptcheck.verdict.asking import FOR_COMMANDS, FOR_TARGET
    from ckptcheck.verdict.demands_of_project import of_verify

    told = {key.replace("-", "_"): value for key, value in {**config.settings, **config.verify}.items()}
    named = {name for name in SUBJECTS if given.get(name) is not None}
    if named:
        told = {name: value for name, value in told.items() if name not in SUBJECTS}
    commands = "target" not in named if named else "target" not in told
    foreign = FOR_TARGET if commands else (*FOR_COMMANDS, "run", "resume")
    told = {name: value for name, value in told.items() if name not in foreign}
    policy = {"freeze": config.freeze, "severity": config.severity, "accept": config.accept}
    if not TOLERANCES & {*given}:
        policy["tolerances"] = config.tolerance
    asked = {"steps": STEPS, **{name: value for name, value in policy.items() if value}, **told, **given}
    asked |= {name: (value,) for name in SEVERAL if isinstance(value := asked.get(name), int | str)}
    if not isinstance(asked["steps"], int):
        raise UsageError(f"steps={asked['steps']!r}: give a whole number")
    if told.get("require") and "require" not in given:
        own = {name: tuple(told.get(name, ())) for name in ("select", "ignore") if name not in given}
        demands = Demands(config.path, tuple(told["require"]), own.get("select") or ("CK",), own.get("ignore", ()))
        asked["require"] = of_verify(
            demands, asked.get("select", ("CK",)), asked.get("ignore", ()),
            commands=commands, interrupted=asked.get("interrupt") is not None,
        )  # fmt: skip
    return asked
