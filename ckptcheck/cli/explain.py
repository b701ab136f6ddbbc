"""`ckptcheck explain`: what does a rule find, why does it matter, and what is to be done?"""

from typing import Final

import click
from click.shell_completion import CompletionItem

from ckptcheck.cli.options import View, view_options

FORMATS: Final = ("text", "json")


def _codes(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """The codes that begin so, for a shell."""
    from ckptcheck.rules.table import BY_CODE

    return [CompletionItem(one.code, help=one.name) for one in BY_CODE.values() if one.code.startswith(begun.upper())]


@click.command("explain", short_help="What does a rule find, and what is to be done about it?")
@click.argument("code", required=False, shell_complete=_codes)
@view_options
@click.pass_context
def command(context: click.Context, /, view: View, code: str | None) -> None:
    """Show the card of a rule: what it finds, why it matters, how it comes about, what to do, what it does not see.

    CODE is a code as CK402, a rule's name, or the beginning of codes as CK4, which lists a family. Without it all rules
    are listed.
    """
    from ckptcheck.cli.deliver import deliver
    from ckptcheck.verdict.explaining import explain

    foreign = next((form for form in (view.form, *(form for form, _ in view.reports)) if form not in FORMATS), None)
    if foreign is not None:
        raise click.UsageError(f"a card has no form {foreign}: choose {' or '.join(FORMATS)}", context)
    context.exit(deliver(explain(code), view))
