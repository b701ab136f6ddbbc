"""`ckptcheck compare`: do two recorded trajectories agree?"""

from pathlib import Path
from typing import Any, Final

import click

from ckptcheck.cli import policy
from ckptcheck.cli.calls import verbs_of
from ckptcheck.cli.kinds import Place
from ckptcheck.cli.options import View, config_option, gate_options, tolerance_options, view_options
from ckptcheck.cli.sections import SectionedCommand

SECTIONS: Final = {
    "Judging": ("rtol", "atol", "select", "ignore", "fail_on", "on_inconclusive", *policy.NAMES)
}  # fmt: skip
HELP: Final = """Compare the traces LEFT and RIGHT at every step that both hold.

Each is a folder or a file that `record`, `resume` or `save --trace` wrote. Several processes are compared rank by rank.
The trace of a resumed run may be on either side; that of a script is placed on the other one by what it loaded.
Traces hold digests and norms, no values: a tolerance applies to single numbers, such as the loss.
"""
EXAMPLES: Final = """Exit codes: 0 the same, 1 different, 2 usage or tool error, 3 nothing to compare."""


@click.command(
    "compare",
    cls=SectionedCommand,
    sections=SECTIONS,
    help=HELP,
    epilog=EXAMPLES,
    short_help="Do two recorded trajectories agree?",
)
@click.argument("left", type=Place())
@click.argument("right", type=Place())
@tolerance_options
@gate_options
@policy.policy_options
@config_option
@view_options
@click.pass_context
def command(context: click.Context, /, view: View, left: Path, right: Path, **options: Any) -> None:
    """Compare two traces: options in, exit code out."""
    from ckptcheck.cli.deliver import deliver

    options["tolerances"] = policy.tolerances_of_settings(context)
    result = verbs_of(context).compare(left, right, fail_on=view.fail_on, **options)
    context.exit(deliver(result, view))
