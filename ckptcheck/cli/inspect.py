"""`ckptcheck inspect`: what is in a checkpoint?"""

from pathlib import Path
from typing import NoReturn

import click

from ckptcheck.cli.calls import verbs_of
from ckptcheck.cli.kinds import Place
from ckptcheck.cli.options import View, view_options
from ckptcheck.errors import CheckpointError
from ckptcheck.finding import EXIT_PASS


@click.command("inspect", short_help="What is in a checkpoint?")
@click.argument("checkpoint", type=Place(), metavar="CKPT")
@click.option(
    "--names",
    type=Place(),
    metavar="FILE",
    help="Parameter names in the optimizer's order, one a line, for a checkpoint that does not hold them.",
)
@click.option(
    "--textconv",
    is_flag=True,
    help="Read every tensor, and print a stable line of each: the form that git diff can compare. What cannot be read "
    "is one line, and exit code 0, so that git goes on.",
)
@view_options
@click.pass_context
def command(context: click.Context, /, view: View, checkpoint: Path, names: Path | None, textconv: bool) -> None:
    """Say what is in CKPT: who wrote it, its tensors by section, param groups by name, and what a resume would lack.

    Only its description is read, whatever its size; nothing in it is executed.
    """
    from ckptcheck.cli.deliver import deliver
    from ckptcheck.cli.live import shown_progress
    from ckptcheck.reports import listing

    if textconv and (view.form != "text" or view.reports):
        raise click.UsageError("--textconv is a form of its own: leave --format and --report out", context)
    try:
        with shown_progress(view) as progress:
            result = verbs_of(context).inspect(checkpoint, names=names, digests=textconv, progress=progress)
    except CheckpointError as trouble:
        if not textconv or not checkpoint.exists():
            raise
        _listed(listing.unreadable(str(trouble).removeprefix(f"{checkpoint}: ")), context)
    else:
        if not textconv:
            context.exit(deliver(result, view))
        _listed(listing.render(result), context)


def _listed(text: str, context: click.Context) -> NoReturn:
    from ckptcheck.cli.streams import write_out

    write_out(text)
    context.exit(EXIT_PASS)
