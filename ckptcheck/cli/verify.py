"""`ckptcheck verify`: does a resumed run reproduce the uninterrupted one?"""

from typing import Any, Final

import click
from click.core import ParameterSource

from ckptcheck.cli.calls import verbs_of
from ckptcheck.cli.kinds import Place, interruption, pattern, setting
from ckptcheck.cli.options import (
    View,
    config_option,
    digest_option,
    freeze_option,
    gate_options,
    require_option,
    run_options,
    tolerance_options,
    view_options,
)
from ckptcheck.cli.sections import SectionedCommand

OF_TARGET: Final = {"device": "cpu", "resume_device": None, "seed": 0, "deterministic": False}
"""What only a target has a use for, with what stands for "not given"."""
OF_COMMANDS: Final = {
    "interrupt": None, "folder": None, "share": (), "env": (), "online": False,
    "every": 1, "only": (), "grads": True, "digest": None,
}  # fmt: skip
"""What only commands have a use for."""
SECTIONS: Final = {
    "The experiment": ("steps", "resume_at", "quick", "repeats", "timeout_s", "jobs"),
    "A target": tuple(OF_TARGET),
    "Commands": ("run", "resume", *OF_COMMANDS),
    "Judging": ("policy", "rtol", "atol", "freeze", "select", "ignore", "require", "fail_on", "on_inconclusive"),
}


HELP: Final = """Train once through and once stopped and resumed, and compare every step.

TARGET is path/to/file.py[:factory] or package.module:factory; the factory, `build` unless named, takes a
ckptcheck.Context and returns a ckptcheck.Run. Any script is tested by two commands in place of a TARGET:

\b
ckptcheck verify --run "python train.py --out {dir}"
                 --resume "python train.py --out {dir} --resume {ckpt}"
"""


@click.command(
    "verify",
    cls=SectionedCommand,
    sections=SECTIONS,
    help=HELP,
    short_help="Does a resumed run reproduce the uninterrupted one?",
)
@click.argument("target", required=False)
@click.option("--run", metavar="CMD", help="Trains from the start to the end; {dir} is its output folder.")
@click.option("--resume", metavar="CMD", help="Resumes, in a copy of that folder; {ckpt} is the checkpoint in it.")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    show_default="20 for a target; a script comes to its own end",
    help="Length of the whole run.",
)
@click.option(
    "--resume-at",
    type=int,
    multiple=True,
    metavar="K",
    show_default="half of the steps, or near it where a script saves",
    help="Stop after step K and resume. Repeatable for a target.",
)
@click.option("--interrupt", type=interruption, metavar="SIGNAL@K", help="Stop by a signal after step K, as TERM@7.")
@click.option("--resume-device", metavar="DEVICE", help="Where to resume, if elsewhere.")
@click.option("--quick", is_flag=True, help="Run no repeat while all is equal: the noise floor is then not judged.")
@click.option(
    "--policy",
    type=click.Choice(["exact", "state-exact"]),
    default="exact",
    show_default=True,
    help="state-exact: the restored state must be exact, what follows within the measured noise.",
)
@click.option("--deterministic", is_flag=True, help="Set torch's deterministic switches in every run.")
@click.option("--repeats", type=click.IntRange(min=1), default=1, show_default=True, help="Runs for the noise floor.")
@click.option("--folder", type=Place(), metavar="DIR", show_default="this one", help="Where the commands work.")
@click.option("--share", type=pattern, multiple=True, metavar="GLOB",
              help="Link to this in copies of that folder: large data that is only read. Repeatable.")  # fmt: skip
@click.option("--env", type=setting, multiple=True, metavar="NAME=VALUE", help="Set this in every run. Repeatable.")
@click.option("--online", is_flag=True, help="Leave experiment trackers and hubs online.")
@click.option("--every", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="Record every N-th step only.")  # fmt: skip
@click.option("--only", type=pattern, multiple=True, metavar="PATTERN",
              help="Record only parameters and buffers whose names match. Repeatable.")  # fmt: skip
@click.option("--no-grads", "grads", flag_value=False, default=True, help="Record no gradients.")
@digest_option
@freeze_option
@click.option("--jobs", type=click.IntRange(min=1), show_default="by device and cores", help="Runs side by side.")
@run_options
@tolerance_options
@gate_options
@require_option
@config_option
@view_options
@click.pass_context
def command(context: click.Context, /, view: View, **options: Any) -> None:
    """Train TARGET, or two commands, once through and once stopped and resumed, and compare every step."""
    from ckptcheck.cli.deliver import deliver
    from ckptcheck.cli.live import shown_progress

    asked = _what_is_asked(context, options)
    target = asked.pop("target")
    asked["env"] = dict(asked["env"])
    with shown_progress(view) as progress:
        result = verbs_of(context).verify(target, progress=progress, **asked)
    context.exit(deliver(result, view))


def _what_is_asked(context: click.Context, options: dict[str, Any]) -> dict[str, Any]:
    """The options for a target or for commands, whichever the command line names, else the settings.

    UsageError where it names both or neither, or gives an option that the other has no use for; what the settings say
    for the other is left out.
    """
    told = {name for name in options if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    subjects = ("target", "run", "resume")
    named = [name for name in subjects if name in told] or [name for name in subjects if options[name] is not None]
    if not named:
        raise click.UsageError("Missing argument 'TARGET', or --run and --resume in its place", context)
    if "target" in named and len(named) > 1:
        raise click.UsageError("a TARGET and --run or --resume exclude each other", context)
    is_target = "target" in named
    unused = {**OF_COMMANDS, "run": None, "resume": None} if is_target else {**OF_TARGET, "target": None}
    foreign = next((name for name in unused if name in told), None)
    if foreign is not None:
        whose = "commands: a TARGET has no use for it" if is_target else "a TARGET: the commands say such things"
        raise click.UsageError(f"{_spelled(context, foreign)} is for {whose}", context)
    return {**options, **unused}


def _spelled(context: click.Context, name: str) -> str:
    return next(one.opts[0] for one in context.command.params if one.name == name)
