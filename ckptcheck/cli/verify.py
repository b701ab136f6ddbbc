"""`ckptcheck verify`: does a resumed run reproduce the uninterrupted one?"""

from typing import Any

import click

from ckptcheck.cli.calls import verbs_of
from ckptcheck.cli.options import (
    View,
    config_option,
    freeze_option,
    gate_options,
    require_option,
    run_options,
    tolerance_options,
    view_options,
)


@click.command("verify", short_help="Does a resumed run reproduce the uninterrupted one?")
@click.argument("target")
@click.option("--steps", type=click.IntRange(min=1), default=20, show_default=True, help="Length of the whole run.")
@click.option(
    "--resume-at",
    type=int,
    multiple=True,
    metavar="K",
    show_default="half of the steps",
    help="Stop after step K and resume. Repeatable.",
)
@click.option("--resume-device", metavar="DEVICE", help="Where to resume, if elsewhere.")
@click.option("--quick", is_flag=True, help="Run no repeat while all is equal: the noise floor is then not judged.")
@click.option(
    "--policy",
    type=click.Choice(["exact", "state-exact"]),
    default="exact",
    show_default=True,
    help="state-exact: the restored state must be exact, what follows within the measured noise.",
)
@click.option("--deterministic", is_flag=True, help="Set torch's deterministic switches in every run.")
@click.option("--repeats", type=click.IntRange(min=1), default=1, show_default=True, help="Runs for the noise floor.")
@freeze_option
@click.option("--jobs", type=click.IntRange(min=1), show_default="by device and cores", help="Runs side by side.")
@run_options
@tolerance_options
@gate_options
@require_option
@config_option
@view_options
@click.pass_context
def command(context: click.Context, /, view: View, target: str, **options: Any) -> None:
    """Train TARGET once through and once stopped and resumed, and compare every step.

    TARGET is path/to/file.py[:factory] or package.module:factory; the factory, `build` unless named, takes a
    ckptcheck.Context and returns a ckptcheck.Run.
    """
    from ckptcheck.cli.deliver import deliver
    from ckptcheck.cli.live import shown_progress

    with shown_progress(view) as progress:
        result = verbs_of(context).verify(target, progress=progress, **options)
    context.exit(deliver(result, view))
