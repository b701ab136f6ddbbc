"""`ckptcheck check`: can a checkpoint be resumed from, or released?"""

from pathlib import Path
from typing import Any

import click

from ckptcheck.cli.calls import verbs_of
from ckptcheck.cli.completion import files
from ckptcheck.cli.demands import demands_of_settings
from ckptcheck.cli.kinds import Place
from ckptcheck.cli.options import View, config_option, freeze_option, gate_options, require_option, view_options
from ckptcheck.cli.policy import policy_options


@click.command("check", short_help="Can a checkpoint be resumed from, or released?")
@click.argument("checkpoint", type=Place(), metavar="CKPT")
@click.option(
    "--for",
    "purpose",
    type=click.Choice(["auto", "resume", "release"]),
    default="auto",
    show_default=True,
    help="What CKPT is for: auto takes weights, alone or with counters, for a release, any other for a resume.",
)
@click.option(
    "--target",
    metavar="TARGET",
    shell_complete=files,
    help="Training code that shall load CKPT, as path/to/file.py[:factory]: say what the load would get wrong.",
)
@freeze_option
@gate_options
@require_option
@policy_options
@config_option
@view_options
@click.pass_context
def command(context: click.Context, /, view: View, checkpoint: Path, **options: Any) -> None:
    """Judge CKPT as it lies: whether its files are whole, and whether a training can go on from it.

    Damaged files, missing optimizer state, schedules and generators, groups that do not fit, broken numbers; of a
    release, what must not ship. Nothing in CKPT is executed.
    """
    from ckptcheck.cli.deliver import deliver
    from ckptcheck.cli.live import shown_progress

    if (demands := demands_of_settings(context)) is not None:
        from ckptcheck.verdict.demands_of_project import of_check

        purpose, target = options["purpose"], options["target"] is not None
        options["require"] = of_check(demands, purpose=purpose, target=target, folder=checkpoint.is_dir())
    with shown_progress(view) as progress:
        result = verbs_of(context).check(checkpoint, fail_on=view.fail_on, progress=progress, **options)
    context.exit(deliver(result, view))
