"""The options that several commands share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import Any, Final

import click

from ckptcheck.cli.completion import formats
from ckptcheck.cli.demands import SETTINGS
from ckptcheck.cli.kinds import (
    FORMATS,
    Amount,
    Place,
    format_name,
    freeze_rule,
    pattern,
    report_file,
    rule_codes,
    rule_codes_or_pattern,
)
from ckptcheck.cli.streams import check_writable
from ckptcheck.finding import FAIL_ON
from ckptcheck.state.digest import LINEAR_128, XXH3_128

Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class View:
    """What the user wants to see of a result, and what its verdict shall mean to the caller.

    `form` is a report format, `reports` are (format, path); `color` is "auto", "always" or "never";
    `on_inconclusive` is "fail", "pass" or None for an exit code of its own; `top` is how many differences a section of
    a text shows.
    """

    form: str = "text"
    reports: Sequence[tuple[str, Path]] = ()
    fail_on: str = "error"
    on_inconclusive: str | None = None
    quiet: bool = False
    verbose: bool = False
    progress: bool = True
    color: str = "auto"
    top: int = 10


_VIEW: Final = (
    click.option("--format", "form", type=format_name, default="text", show_default=True, metavar="FORMAT",
                 shell_complete=formats, help=f"What goes to stdout: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}."),
    click.option("--report", "reports", type=report_file, multiple=True, metavar="FORMAT=PATH",
                 help="Write a file as well, in any format, such as junit=report.xml. Repeatable."),
    click.option("-q", "--quiet", is_flag=True, help="Say the first line only; report files are whole."),
    click.option("-v", "--verbose", is_flag=True, help="Say all there is."),
    click.option("--no-progress", is_flag=True, help="Show no progress."),
    click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
                 help="Colour on stdout; auto honours NO_COLOR."),
)  # fmt: skip
_SELECT: Final = click.option("--select", type=rule_codes, multiple=True, default=["CK"], show_default=True,
                              metavar="CODES", help="Judge by these rules: codes or their beginnings.")  # fmt: skip
_ON_INCONCLUSIVE: Final = click.option(
    "--on-inconclusive", type=click.Choice(["fail", "pass"]), help="Exit 1 or 0 instead of 3."
)


def _fail_on(said: str) -> Callable[[Command], Command]:
    return click.option("--fail-on", type=click.Choice(list(FAIL_ON)), default="error", show_default=True, help=said)


_GATE: Final = (
    _SELECT,
    click.option("--ignore", type=rule_codes, multiple=True, metavar="CODES", help="Leave these rules out."),
    _fail_on("The least severe finding that fails what would pass. A divergence always fails."),
    _ON_INCONCLUSIVE,
)
_CONTENT_GATE: Final = (
    click.option("--only", type=pattern, multiple=True, metavar="PATTERN",
                 help="Compare only what matches, such as 'optimizer/*' or '*.bias'. Repeatable."),
    click.option("--ignore", "ignored", type=rule_codes_or_pattern, multiple=True, metavar="PATTERN|CODES",
                 help="Leave out what matches, or these rules. Repeatable."),
    click.option("--gate", type=click.Choice(["content", "findings"]), default="content", show_default=True,
                 help="What exits 1: any difference of content, or only findings of the rules, by --fail-on."),
    _SELECT,
    _fail_on("With --gate findings, the least severe finding that fails."),
    _ON_INCONCLUSIVE,
)  # fmt: skip
_FREEZE: Final = click.option(
    "--freeze", type=freeze_rule, multiple=True, metavar="GLOB=CONTRACT",
    help="What must hold for frozen parameters: no-grad, no-update, hold, removed or reset. Repeatable.",
)  # fmt: skip
_REQUIRE: Final = click.option(
    "--require", type=rule_codes, multiple=True, metavar="CODES",
    help="Fail where one of these rules could not judge: codes or their beginnings. Repeatable.",
)  # fmt: skip
_TOLERANCE: Final = (
    click.option(
        "--rtol", type=Amount(min=0), default=0.0, metavar="NUMBER", help="Relative tolerance. Default: exact."
    ),
    click.option(
        "--atol", type=Amount(min=0), default=0.0, metavar="NUMBER", help="Absolute tolerance. Default: exact."
    ),
)
_RUN: Final = (
    click.option("--device", default="cpu", show_default=True, metavar="DEVICE",
                 help="Where to train: cpu, cuda, cuda:1, ..."),
    click.option("--seed", type=int, default=0, show_default=True, metavar="SEED",
                 help="Handed to the target as ctx.seed."),
    click.option("--timeout", "timeout_s", type=Amount(min=0, min_open=True), default=600.0, show_default=True,
                 metavar="SECONDS", help="Give a run up that makes no progress for so long."),
)  # fmt: skip
_DIGEST: Final = (
    click.option("--digest", type=click.Choice([XXH3_128, LINEAR_128]), show_default="by device",
                 help="How tensors are told apart in the trace; linear_128 is the same on CPU and GPU."),
)  # fmt: skip


def view_options(command: Command) -> Command:
    """Add what shapes the output; the command gets it all as `view`. Unwritable reports are refused at once."""

    @wraps(command)
    def with_view(*, form: str, reports: Sequence[tuple[str, Path]], quiet: bool, verbose: bool,
                  no_progress: bool, color: str, **rest: Any) -> None:  # fmt: skip
        if quiet and verbose:
            raise click.UsageError("-q and -v exclude each other", click.get_current_context())
        for _, path in reports:
            check_writable(path)
        gate = {key: rest.pop(key) for key in ("fail_on", "on_inconclusive", "top") if key in rest}
        view = View(
            form=form, reports=reports, quiet=quiet, verbose=verbose, progress=not no_progress, color=color, **gate
        )
        command(view=view, **rest)

    return _with(_VIEW, with_view)


def gate_options(command: Command) -> Command:
    """Add which rules judge and what fails."""

    @wraps(command)
    def with_codes(*, select: Sequence[Sequence[str]], ignore: Sequence[Sequence[str]], **rest: Any) -> None:
        command(select=tuple(chain(*select)), ignore=tuple(chain(*ignore)), **rest)

    return _with(_GATE, with_codes)


def content_gate_options(command: Command) -> Command:
    """Add what is compared and what of it fails; --ignore takes patterns and codes, told by their form."""

    @wraps(command)
    def with_both(
        *, select: Sequence[Sequence[str]], ignored: Sequence[str | tuple[str, ...]], only: Sequence[str], **rest: Any
    ) -> None:
        codes = [one for one in ignored if not isinstance(one, str)]
        if not codes:  # patterns do not take the place of the codes that the settings ignore
            settings = click.get_current_context().default_map or {}
            codes = [tuple(settings.get("ignored", ()))]
        patterns = [one for one in ignored if isinstance(one, str)]
        command(
            select=tuple(chain(*select)), ignore=tuple(chain(*codes)), only=tuple(only), without=tuple(patterns), **rest
        )

    return _with(_CONTENT_GATE, with_both)


def freeze_option(command: Command) -> Command:
    """Add the freeze contracts; the command gets them as a dict by glob."""

    @wraps(command)
    def with_contracts(*, freeze: Sequence[tuple[str, str]], **rest: Any) -> None:
        command(freeze=dict(freeze), **rest)

    return _with((_FREEZE,), with_contracts)


def require_option(command: Command) -> Command:
    """Add the codes that must be judged; the command gets them as a tuple."""

    @wraps(command)
    def with_codes(*, require: Sequence[Sequence[str]], **rest: Any) -> None:
        command(require=tuple(chain(*require)), **rest)

    return _with((_REQUIRE,), with_codes)


def config_option(command: Command) -> Command:
    """Add --config, and take what the command line leaves open from the project's settings."""
    return _with((_CONFIG,), command)


def _take_settings(context: click.Context, parameter: click.Parameter, given: Path | None) -> None:
    """Make the settings the defaults of the command's options. UsageError where they cannot be read."""
    if context.resilient_parsing:
        return
    from ckptcheck.config import load_config

    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise click.UsageError("the current folder has been removed: go into one that is there") from None
    config = load_config(given, here)
    own = config.verify if context.info_name == "verify" else {}
    told = {key.replace("-", "_"): value for key, value in {**config.settings, **own}.items()}
    told["freeze"] = [f"{glob}={contract}" for glob, contract in config.freeze.items()]
    told["ignored"] = told.get("ignore", [])  # the name under which diff takes codes and patterns
    known = {one.name for one in context.command.params}
    context.meta[SETTINGS] = config
    context.default_map = {name: value for name, value in told.items() if name in known and value not in ([], ())}


_CONFIG: Final = click.option(
    "--config", type=Place(), is_eager=True, expose_value=False, callback=_take_settings, metavar="FILE",
    help="Take settings from this file instead of the nearest ckptcheck.toml or pyproject.toml.",
)  # fmt: skip


def tolerance_options(command: Command) -> Command:
    """Add the two tolerances."""
    return _with(_TOLERANCE, command)


def run_options(command: Command) -> Command:
    """Add what every training run needs to know."""
    return _with(_RUN, command)


def digest_option(command: Command) -> Command:
    """Add the choice of a digest: two traces compare only where they have the same."""
    return _with(_DIGEST, command)


def _with(options: Sequence[Callable[[Command], Command]], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
