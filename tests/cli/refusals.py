"""What every refusal of a command line has in common."""

from collections.abc import Callable

from click.testing import Result as Outcome

from tests.cli.fakes import FakeVerbs


def assert_is_refused(ckptcheck: Callable[..., Outcome], line: str, said: str) -> None:
    verbs = FakeVerbs()
    outcome = ckptcheck(*line.split(), verbs=verbs)
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("ckptcheck: error: ")
    assert outcome.stderr.count("\n") == 1
    assert said in outcome.stderr
    assert verbs.called == {}
