"""`ckptcheck resume`: load a saved training state, go on, and record."""

from pathlib import Path
from typing import Any

import click

from ckptcheck.cli.calls import verbs_of
from ckptcheck.cli.completion import files
from ckptcheck.cli.kinds import Place
from ckptcheck.cli.options import View, digest_option, run_options, view_options


@click.command("resume", short_help="Load a training state, go on, and record the trajectory.")
@click.argument("target", shell_complete=files)
@click.argument("checkpoint", type=Place(), metavar="CKPT")
@click.option("--steps", type=click.IntRange(min=1), required=True, metavar="N", help="Go on to this step.")
@click.option("-o", "--output", type=Place(), required=True, help="Record the trajectory there.")
@click.option(
    "--step", type=click.IntRange(min=0), metavar="K", help="The step CKPT was saved after, if it does not say."
)
@click.option("--store", is_flag=True, help="Load from the tool's own store even if the target has a load.")
@digest_option
@run_options
@view_options
@click.pass_context
def command(context: click.Context, /, view: View, target: str, checkpoint: Path, **options: Any) -> None:
    """Load CKPT into TARGET, on this device or another, go on to step N and record the trajectory."""
    from ckptcheck.cli.deliver import deliver
    from ckptcheck.cli.live import shown_progress

    with shown_progress(view) as progress:
        result = verbs_of(context).resume(target, checkpoint, progress=progress, **options)
    context.exit(deliver(result, view))
