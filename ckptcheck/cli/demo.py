"""`ckptcheck demo`: a clean resume and a broken one."""

from typing import Final

import click

from ckptcheck.cli.calls import verbs_of
from ckptcheck.cli.options import View, view_options
from ckptcheck.finding import EXIT_FAIL, EXIT_PASS, Verdict

TITLES: Final = ("A checkpoint that holds everything:", "The same, and its load forgets the optimizer:")


@click.command("demo", short_help="A clean resume and a broken one, in under a minute.")
@view_options
@click.pass_context
def command(context: click.Context, /, view: View) -> None:
    """Verify two small bundled targets: one that resumes as it should, and one that does not.

    Exit code 0 where the first passes and the second fails, as they must; with --format json, a list of both results.
    """
    from ckptcheck.cli.deliver import show
    from ckptcheck.cli.live import shown_progress

    with shown_progress(view) as progress:
        clean, broken = verbs_of(context).demo(progress=progress)
    show((clean, broken), view, () if view.quiet else TITLES)
    as_told = clean.verdict is Verdict.PASS and broken.verdict is Verdict.FAIL
    context.exit(EXIT_PASS if as_told else EXIT_FAIL)
