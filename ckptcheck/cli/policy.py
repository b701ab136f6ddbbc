"""What a project has decided about findings: its baseline on the command line, everything else in its settings."""

from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from ckptcheck.cli.demands import SETTINGS
from ckptcheck.cli.kinds import Place
from ckptcheck.cli.options import Command
from ckptcheck.cli.streams import check_writable
from ckptcheck.config import Config

NAMES: Final = ("baseline", "write_baseline")
"""The options, as a help lists them."""
_BASELINE: Final = click.option(
    "--baseline", type=Place(), metavar="FILE", help="Gate only what is new: findings in this file are accepted."
)
_WRITE_BASELINE: Final = click.option(
    "--write-baseline", type=Place(), metavar="FILE", help="Write what is found to this file, and accept it."
)
_TOLERANCES: Final = ("rtol", "atol", "tolerances")
"""Options of which any one takes the place of the tolerances in the settings."""


def policy_options(command: Command) -> Command:
    """Add the baseline; the command gets it with what the settings accept and weigh. Beside `config_option` only."""

    @wraps(command)
    def with_decisions(*, baseline: Path | None, write_baseline: Path | None, **rest: Any) -> None:
        if write_baseline is not None:
            check_writable(write_baseline)
        config = settings_of(click.get_current_context())
        command(
            baseline=baseline, write_baseline=write_baseline, accept=config.accept, severity=config.severity, **rest
        )

    return _BASELINE(_WRITE_BASELINE(with_decisions))


def settings_of(context: click.Context) -> Config:
    """The settings that a command has read."""
    return context.meta.get(SETTINGS) or Config()


def tolerances_of_settings(context: click.Context) -> dict[str, tuple[float, float]]:
    """The tolerances by role that the settings give; none where the command line gives any."""
    given = any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in _TOLERANCES)
    return {} if given else dict(settings_of(context).tolerance)
