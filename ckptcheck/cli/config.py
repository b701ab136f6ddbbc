"""`ckptcheck config`: which settings are in force, and where does each come from?"""

from typing import Final

import click

from ckptcheck.cli.options import View, config_option, view_options
from ckptcheck.cli.policy import settings_of

FORMATS: Final = ("text", "json")


@click.command("config", short_help="Which settings are in force, and where does each come from?")
@config_option
@view_options
@click.pass_context
def command(context: click.Context, /, view: View) -> None:
    """Show every setting, its value, and whether that is the default or stands in a file, and at which line.

    Settings stand in ckptcheck.toml or in [tool.ckptcheck] of pyproject.toml, of which the nearest from here up holds.
    Acceptances are shown with their dates, and those that have expired as such.
    """
    from ckptcheck.cli.deliver import deliver
    from ckptcheck.verdict.settings_in_force import settings_in_force

    foreign = next((form for form in (view.form, *(form for form, _ in view.reports)) if form not in FORMATS), None)
    if foreign is not None:
        raise click.UsageError(f"settings have no form {foreign}: choose {' or '.join(FORMATS)}", context)
    context.exit(deliver(settings_in_force(settings_of(context)), view))
