"""`ckptcheck compare`: do two recorded trajectories agree?"""

from pathlib import Path
from typing import Any

import click

from ckptcheck.cli.calls import verbs_of
from ckptcheck.cli.kinds import Place
from ckptcheck.cli.options import View, gate_options, tolerance_options, view_options


@click.command("compare", short_help="Do two recorded trajectories agree?")
@click.argument("left", type=Place())
@click.argument("right", type=Place())
@tolerance_options
@gate_options
@view_options
@click.pass_context
def command(context: click.Context, /, view: View, left: Path, right: Path, **options: Any) -> None:
    """Compare the traces LEFT and RIGHT at every step that both hold.

    A folder with the traces of several processes is compared rank by rank. The trace of a resumed run may be given on
    either side; that of a script counts its own steps, and is placed on the other one by what it loaded.
    """
    from ckptcheck.cli.deliver import deliver

    context.exit(deliver(verbs_of(context).compare(left, right, **options), view))
