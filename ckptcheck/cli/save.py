"""`ckptcheck save`: train to a step and save the training state."""

from typing import Any

import click

from ckptcheck.cli.calls import verbs_of
from ckptcheck.cli.completion import files
from ckptcheck.cli.kinds import Place
from ckptcheck.cli.options import View, digest_option, run_options, view_options


@click.command("save", short_help="Train to a step and save the training state.")
@click.argument("target", shell_complete=files)
@click.option("--steps", type=click.IntRange(min=1), required=True, metavar="K", help="Train to this step.")
@click.option("-o", "--output", type=Place(), required=True, help="Where to save.")
@click.option("--trace", type=Place(), help="Record the trajectory there, for compare.")
@click.option("--store", is_flag=True, help="Save into the tool's own store even if the target has a save.")
@digest_option
@run_options
@view_options
@click.pass_context
def command(context: click.Context, /, view: View, target: str, **options: Any) -> None:
    """Train TARGET to step K and save its training state, by the target's own save if it has one."""
    from ckptcheck.cli.deliver import deliver
    from ckptcheck.cli.live import shown_progress

    with shown_progress(view) as progress:
        result = verbs_of(context).save(target, progress=progress, **options)
    context.exit(deliver(result, view))
