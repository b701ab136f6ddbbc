"""What the settings demand of a command: a demand on the command line is none of these, and stays strict."""

from typing import Final

import click
from click.core import ParameterSource

from ckptcheck.config import Config, Demands

SETTINGS: Final = "ckptcheck.settings"
"""Where a context keeps the settings of the project."""


def demands_of_settings(context: click.Context) -> Demands | None:
    """The demands where they come from the settings; None where there are none, or the command line has its own."""
    config: Config | None = context.meta.get(SETTINGS)
    if config is None or context.get_parameter_source("require") is not ParameterSource.DEFAULT_MAP:
        return None
    told = {name: tuple(config.settings.get(name, ())) for name in ("require", "select", "ignore")}
    # What the command line selects or ignores takes the place of what the file says.
    select = told["select"] if not _is_given(context, "select") else ()
    ignore = told["ignore"] if not (_is_given(context, "ignore") or _is_given(context, "ignored")) else ()
    return Demands(config.path, told["require"], select or ("CK",), ignore)


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE
