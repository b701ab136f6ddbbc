"""`ckptcheck verify`: does a resumed run reproduce the uninterrupted one?"""

from typing import Any, Final

import click
from click.core import ParameterSource

from ckptcheck.cli import policy
from ckptcheck.cli.calls import verbs_of
from ckptcheck.cli.completion import files
from ckptcheck.cli.demands import demands_of_settings
from ckptcheck.cli.kinds import Place, interruption, pattern, resume_point, setting
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
    "The experiment": ("steps", "resume_at", "quick", "repeats", "bisect", "timeout_s", "jobs"),
    "A script": ("run", "resume", *OF_COMMANDS),
    "A target": tuple(OF_TARGET),
    "Judging": (
        "policy",
        "rtol",
        "atol",
        "freeze",
        "select",
        "ignore",
        "require",
        "fail_on",
        "on_inconclusive",
        *policy.NAMES,
    ),
}


USAGES: Final = ("--run CMD --resume CMD [OPTIONS]", "TARGET [OPTIONS]")
HELP: Final = """Train once through and once stopped and resumed, in fresh processes, and compare every step.

Any script is tested as it is, by two commands. {dir} stands for the run's output folder, {ckpt} for the checkpoint of
the step that is resumed after. Without {dir}, each run works in its own copy of the working folder.

TARGET is path/to/file.py[:factory] or package.module:factory; the factory, `build` unless named, takes a
ckptcheck.Context and returns a ckptcheck.Run.
"""
EXAMPLES: Final = """Examples:

\b
  ckptcheck verify --run "python train.py --out {dir}" \\
                   --resume "python train.py --out {dir} --resume {ckpt}"
  ckptcheck verify --run "python train.py" --resume "python train.py --resume out/last.pt"
  ckptcheck verify --run "torchrun --nproc-per-node 2 train.py {dir}" \\
                   --resume "torchrun --nproc-per-node 2 train.py {dir} {ckpt}" --interrupt TERM@7
  ckptcheck verify my_run.py --steps 100 --resume-at 30 --resume-at 60
  ckptcheck verify my_run.py --steps 100 --resume-at auto

Exit codes: 0 pass, 1 fail, 2 usage or tool error, 3 inconclusive.
"""


@click.command(
    "verify",
    cls=SectionedCommand,
    sections=SECTIONS,
    usages=USAGES,
    help=HELP,
    epilog=EXAMPLES,
    short_help="Does a resumed run reproduce the uninterrupted one?",
)
@click.argument("target", required=False, shell_complete=files)
@click.option("--run", metavar="CMD", help="What trains from the start to the end.")
@click.option("--resume", metavar="CMD", help="What resumes, in a copy of its folder as it stood after step K.")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="20 for a target; a script goes on to its own end",
    help="End every run after step N.",
)
@click.option(
    "--resume-at",
    type=resume_point,
    multiple=True,
    metavar="K|auto",
    show_default="half of the steps; for a script where it saves, nearest to that",
    help="Stop after step K and resume; auto: where something happens, as shown by a run that is made first. "
    "Repeatable for a target.",
)
@click.option("--interrupt", type=interruption, metavar="SIGNAL@K",
              help="Send a signal after step K, such as TERM@7, and resume from what is left.")  # fmt: skip
@click.option("--resume-device", metavar="DEVICE", help="Where to resume, if elsewhere.")
@click.option("--quick", is_flag=True,
              help="Make no repeat while all is equal: reproducibility is then not judged. "
                   "With --resume-at auto, which needs a repeat, make no more than that.")  # fmt: skip
@click.option(
    "--policy",
    type=click.Choice(["exact", "state-exact"]),
    default="exact",
    show_default=True,
    help="state-exact: the restored state must be exact, what follows within the measured noise.",
)
@click.option("--deterministic", is_flag=True, help="Set torch's deterministic switches in every run.")
@click.option("--repeats", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="Repeats of the uninterrupted run, which measure the noise.")  # fmt: skip
@click.option("--bisect", is_flag=True,
              help="Prove the cause of a divergence by further runs that put back parts of the state.")  # fmt: skip
@click.option("--folder", type=Place(), metavar="DIR", show_default="the current one",
              help="Working folder of the commands.")  # fmt: skip
@click.option("--share", type=pattern, multiple=True, metavar="GLOB",
              help="Link to this in copies of the working folder: data that is only read. Repeatable.")  # fmt: skip
@click.option("--env", type=setting, multiple=True, metavar="NAME=VALUE",
              help="Set an environment variable in every run. Repeatable.")  # fmt: skip
@click.option("--online", is_flag=True, help="Let experiment trackers upload, and allow a push to a hub.")
@click.option("--every", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="Record every N-th step only.")  # fmt: skip
@click.option("--only", type=pattern, multiple=True, metavar="PATTERN",
              help="Record only parameters and buffers with such names, as 'head.*'. Repeatable.")  # fmt: skip
@click.option("--no-grads", "grads", flag_value=False, default=True, help="Record no gradients.")
@digest_option
@freeze_option
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", show_default="by device and cores",
              help="Runs side by side.")  # fmt: skip
@run_options
@tolerance_options
@gate_options
@require_option
@policy.policy_options
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
    asked["tolerances"] = policy.tolerances_of_settings(context)
    if (demands := demands_of_settings(context)) is not None:
        from ckptcheck.verdict.demands_of_project import of_verify

        asked["require"] = of_verify(
            demands, asked["select"], asked["ignore"],
            commands=target is None, interrupted=asked["interrupt"] is not None,
        )  # fmt: skip
    with shown_progress(view) as progress:
        result = verbs_of(context).verify(target, fail_on=view.fail_on, progress=progress, **asked)
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
    if is_target and " " in str(options["target"]).strip():
        said = f"{options['target']!r} is a command and no TARGET: give it as --run, with --resume"
        raise click.UsageError(said, context)
    unused = {**OF_COMMANDS, "run": None, "resume": None} if is_target else {**OF_TARGET, "target": None}
    foreign = next((name for name in unused if name in told), None)
    if foreign is not None:
        whose = "commands: a TARGET has no use for it" if is_target else "a TARGET: the commands say such things"
        raise click.UsageError(f"{_spelled(context, foreign)} is for {whose}", context)
    return {**options, **unused}


def _spelled(context: click.Context, name: str) -> str:
    return next(one.opts[0] for one in context.command.params if one.name == name)
