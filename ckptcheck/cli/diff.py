"""`ckptcheck diff`: do two checkpoints hold the same?"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ckptcheck.cli.calls import verbs_of
from ckptcheck.cli.demands import demands_of_settings
from ckptcheck.cli.kinds import Amount, Place, dtype_name, renaming, tolerance
from ckptcheck.cli.options import (
    View,
    config_option,
    content_gate_options,
    freeze_option,
    require_option,
    view_options,
)
from ckptcheck.cli.policy import policy_options, tolerances_of_settings


@click.command("diff", short_help="Do two checkpoints, of any formats, hold the same?")
@click.argument("left", type=Place())
@click.argument("right", type=Place())
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="Show the N largest differences of each section in the text; JSON has all.",
)
@click.option("--stat", is_flag=True, help="Say what differs, without measuring how far.")
@click.option(
    "--rtol",
    type=Amount(min=0),
    default=0.0,
    help="Relative tolerance, as a part of LEFT, of what training computes in floating point: parameters, buffers, "
    "gradients, optimizer state, averages. Default: exact.",
)
@click.option("--atol", type=Amount(min=0), default=0.0, help="Absolute tolerance of the same. Default: exact.")
@click.option(
    "--tolerance",
    "tolerances",
    type=tolerance,
    multiple=True,
    metavar="ROLE[:DTYPE]=RTOL[,ATOL]",
    help="Tolerance of one role and dtype: param, buffer, grad, state, ema; also hyper, scheduler, scaler, data, "
    "progress and other, which are exact otherwise. Generators and truth values always are. Repeatable.",
)
@click.option("--left-section", default="", metavar="NAME", help="Take this part of LEFT for its model, such as ema.")
@click.option("--right-section", default="", metavar="NAME", help="Take this part of RIGHT for its model.")
@click.option(
    "--cast",
    type=dtype_name,
    metavar="DTYPE",
    help="Tensors that are equal once both are cast to DTYPE count as equal, and are told.",
)
@click.option(
    "--map",
    "renames",
    type=renaming,
    multiple=True,
    metavar="PATTERN=REPLACEMENT",
    help="Rename parameters of LEFT: a regular expression, of which the first match in a name is replaced, and its "
    "replacement. Repeatable.",
)
@freeze_option
@content_gate_options
@require_option
@policy_options
@config_option
@view_options
@click.pass_context
def command(
    context: click.Context,
    /,
    view: View,
    left: Path,
    right: Path,
    **options: Any,
) -> None:
    """Compare the checkpoints LEFT and RIGHT by content: parameters by name, every byte, in any two formats.

    Exit codes: 0 identical content, whatever the container; 1 different; 2 a side cannot be read; 3 nothing compared.
    With --gate findings LEFT is the earlier checkpoint of one training and RIGHT a later one, and only what the rules
    find fails; --freeze, --require and a baseline imply it.
    """
    from ckptcheck.cli.deliver import deliver
    from ckptcheck.cli.live import shown_progress

    options |= _gate(context, **{name: options[name] for name in ("freeze", "gate", "require")})
    options["tolerances"] = dict(options["tolerances"])
    if options["gate"] == "findings":  # whether the content is the same is asked exactly
        options["tolerances"] |= _of_checkpoints(tolerances_of_settings(context))
    options["cast"] = options["cast"] or ""
    options["statistics"] = not options.pop("stat")
    with shown_progress(view) as progress:
        result = verbs_of(context).diff(left, right, fail_on=view.fail_on, progress=progress, **options)
    context.exit(deliver(result, view))


def _gate(context: click.Context, *, freeze: Mapping[str, str], gate: str, require: Sequence[str]) -> dict[str, Any]:
    """What gates: --freeze, --require and a baseline imply findings, and what a file says holds where these gate."""
    asked = [name for name in ("freeze", "require", "baseline", "write_baseline") if _is_given(context, name)]
    if asked and gate == "content" and _is_given(context, "gate"):
        option = asked[0].replace("_", "-")
        raise click.UsageError(f"--{option} judges by findings: leave --gate content out", context)
    if not asked and gate == "content":
        return {"freeze": {}, "require": ()}
    if (demands := demands_of_settings(context)) is not None:
        from ckptcheck.verdict.demands_of_project import of_diff

        require = of_diff(demands)
    return {"freeze": freeze, "gate": "findings", "require": require}


def _of_checkpoints(tolerances: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Without those of the loss, which no checkpoint holds."""
    return {role: pair for role, pair in tolerances.items() if role.partition(":")[0] != "loss"}


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE
