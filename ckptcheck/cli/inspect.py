"""`ckptcheck inspect`: what is in a checkpoint?"""

from pathlib import Path

import click

from ckptcheck.cli.calls import verbs_of
from ckptcheck.cli.kinds import Place
from ckptcheck.cli.options import View, view_options
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
    help="Read every tensor, and print a stable line of each: the form that git diff can compare.",
)
@view_options
@click.pass_context
def command(context: click.Context, /, view: View, checkpoint: Path, names: Path | None, textconv: bool) -> None:
    """Say what is in CKPT: who wrote it, its tensors by section, param groups by name, and what a resume would lack.

    Only its description is read, whatever its size; nothing in it is executed.
    """
    from ckptcheck.cli.deliver import deliver
    from ckptcheck.cli.live import shown_progress

    if textconv and (view.form != "text" or view.reports):
        raise click.UsageError("--textconv is a form of its own: leave --format and --report out", context)
    with shown_progress(view) as progress:
        result = verbs_of(context).inspect(checkpoint, names=names, digests=textconv, progress=progress)
    if not textconv:
        context.exit(deliver(result, view))
    from ckptcheck.cli.streams import write_out
    from ckptcheck.reports import listing

    write_out(listing.render(result))
    context.exit(EXIT_PASS)
