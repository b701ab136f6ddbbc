"""`ckptcheck check`: can a checkpoint be resumed from, or released?"""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import click

from ckptcheck.cli.calls import verbs_of
from ckptcheck.cli.kinds import Place, freeze_rule, rule_codes
from ckptcheck.cli.options import View, gate_options, view_options


@click.command("check", short_help="Can a checkpoint be resumed from, or released?")
@click.argument("checkpoint", type=Place(), metavar="CKPT")
@click.option(
    "--for",
    "purpose",
    type=click.Choice(["auto", "resume", "release"]),
    default="auto",
    show_default=True,
    help="What CKPT is for: auto takes one of weights only for a release, any other for a resume.",
)
@click.option(
    "--target",
    metavar="TARGET",
    help="Training code that shall load CKPT, as path/to/file.py[:factory]: say what the load would get wrong.",
)
@click.option(
    "--freeze",
    type=freeze_rule,
    multiple=True,
    metavar="GLOB=CONTRACT",
    help="What must hold for frozen parameters: no-grad, no-update, hold, removed or reset. Repeatable.",
)
@click.option(
    "--require",
    type=rule_codes,
    multiple=True,
    metavar="CODES",
    help="Fail where one of these rules could not judge: codes or their beginnings. Repeatable.",
)
@gate_options
@view_options
@click.pass_context
def command(
    context: click.Context,
    /,
    view: View,
    checkpoint: Path,
    freeze: Sequence[tuple[str, str]],
    require: Sequence[Sequence[str]],
    **options: Any,
) -> None:
    """Judge CKPT as it lies: whether its files are whole, and whether a training can go on from it.

    Damaged files, missing optimizer state, schedules and generators, groups that do not fit, broken numbers; of a
    release, what must not ship. Nothing in CKPT is executed.
    """
    from ckptcheck.cli.deliver import deliver
    from ckptcheck.cli.live import shown_progress

    options |= {"freeze": dict(freeze), "require": tuple(chain(*require))}
    with shown_progress(view) as progress:
        result = verbs_of(context).check(checkpoint, fail_on=view.fail_on, progress=progress, **options)
    context.exit(deliver(result, view))
