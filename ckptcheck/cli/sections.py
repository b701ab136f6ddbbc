"""Help of a command with many options, in sections."""

from collections.abc import Mapping, Sequence
from typing import Any

import click


class SectionedCommand(click.Command):
    """A command whose help lists options under titles; `sections` maps a title to names of parameters.

    `usages` are the ways in which it is called, where there are several.
    """

    def __init__(
        self, *args: Any, sections: Mapping[str, Sequence[str]], usages: Sequence[str] = (), **rest: Any
    ) -> None:
        super().__init__(*args, **rest)
        self._sections = sections
        self._usages = usages

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each way."""
        for place, one in enumerate(self._usages):
            formatter.write_usage(ctx.command_path, one, prefix=None if place == 0 else "       ")
        if not self._usages:
            super().format_usage(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section, then what is in none."""
        rows = {one.name: row for one in self.get_params(ctx)
                if isinstance(one, click.Option) and (row := one.get_help_record(ctx)) is not None}  # fmt: skip
        for title, names in self._sections.items():
            listed = [rows.pop(name) for name in names if name in rows]
            if listed:
                with formatter.section(title):
                    formatter.write_dl(listed)
        with formatter.section("Output and settings"):
            formatter.write_dl(list(rows.values()))
