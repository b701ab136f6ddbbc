"""`ckptcheck check`: are a checkpoint's files whole?"""

from pathlib import Path
from typing import Any

import click

from ckptcheck.cli.calls import verbs_of
from ckptcheck.cli.kinds import Place
from ckptcheck.cli.options import View, gate_options, view_options


@click.command("check", short_help="Are a checkpoint's files whole, and safe to load?")
@click.argument("checkpoint", type=Place(), metavar="CKPT")
@gate_options
@view_options
@click.pass_context
def command(context: click.Context, /, view: View, checkpoint: Path, **options: Any) -> None:
    """Hold every byte of CKPT that carries a checksum against it, and judge its files by the rules of family CK1.

    Truncated and half-saved files, missing and surplus shards, pickles that can run code, storage that no tensor uses.
    Nothing in CKPT is executed.
    """
    from ckptcheck.cli.deliver import deliver
    from ckptcheck.cli.live import shown_progress

    with shown_progress(view) as progress:
        result = verbs_of(context).check(checkpoint, fail_on=view.fail_on, progress=progress, **options)
    context.exit(deliver(result, view))
