"""`ckptcheck probe`: what does an optimizer make of a gradient that is none, zero or not?"""

from typing import Any, Final

import click
from click.core import ParameterSource

from ckptcheck.cli.calls import verbs_of
from ckptcheck.cli.completion import files
from ckptcheck.cli.kinds import Place, argument
from ckptcheck.cli.options import View, config_option, freeze_option, gate_options, run_options, view_options
from ckptcheck.cli.policy import settings_of

EXAMPLES: Final = """Examples:

\b
  ckptcheck probe AdamW
  ckptcheck probe my_optimizer.py:Lion --arg lr=0.001
  ckptcheck probe my_run.py --freeze 'backbone.*=hold'
  ckptcheck probe --all --exact

Exit codes: 0 pass, 1 fail, 2 usage or tool error, 3 inconclusive.
"""


@click.command("probe", short_help="What does an optimizer make of gradients that are none or zero?", epilog=EXAMPLES)
@click.argument("subject", required=False, metavar="[OPTIMIZER|TARGET]", shell_complete=files)
@click.option("--all", "every", is_flag=True, help="Probe every class of torch.optim.")
@click.option("--exact", is_flag=True, help="Show the nine exact transitions, in fractions and in float64 steps.")
@click.option("--arg", "arguments", type=argument, multiple=True, metavar="NAME=VALUE",
              help="Give the optimizer's constructor an argument, such as lr=0.1. Repeatable.")  # fmt: skip
@click.option("--baseline", type=Place(), metavar="RESULT.json",
              help="Fail where the contract is no longer that of an earlier probe.")  # fmt: skip
@click.option("--steps", type=click.IntRange(min=1), default=20, show_default=True, metavar="N",
              help="Real steps of a TARGET.")  # fmt: skip
@freeze_option
@run_options
@gate_options
@config_option
@view_options
@click.pass_context
def command(context: click.Context, /, view: View, subject: str | None, every: bool, **options: Any) -> None:
    """Show by real steps on twins what an optimizer makes of a parameter whose gradient is none, zero or not.

    OPTIMIZER is a class of torch.optim, path/to/file.py:Class or package.module:Class. A TARGET, as of verify, is
    probed with its own optimizer and groups, on copies.
    """
    from ckptcheck.cli.deliver import deliver
    from ckptcheck.cli.live import shown_progress

    if every and subject:
        raise click.UsageError(f"--all and {subject} exclude each other", context)
    if not (every or subject or options["exact"]):
        raise click.UsageError(
            "Missing argument 'OPTIMIZER' or 'TARGET'; --all probes every class of torch.optim", context
        )
    is_of_torch = every or (subject or "").isidentifier()
    if is_of_torch and options["freeze"]:
        if context.get_parameter_source("freeze") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--freeze is for a TARGET: it says which of its parameters shall rest", context)
        options["freeze"] = {}  # the settings are for the targets of the project
    options["arguments"] = dict(options["arguments"])
    config = settings_of(context)
    options |= {"severity": config.severity, "accept": config.accept}
    with shown_progress(view) as progress:
        result = verbs_of(context).probe(
            "all" if every else subject or "", fail_on=view.fail_on, progress=progress, **options
        )
    context.exit(deliver(result, view))
