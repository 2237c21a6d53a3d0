"""What can be called: one file for each command's name, options and help.

A command's body lives beside this folder and is imported when the command runs, so that `--help`
and shell completion answer at once.
"""

from __future__ import annotations

import typer

from . import (
    audit,
    beta,
    bias,
    compare,
    critic,
    demo,
    inspect,
    report,
    simulate,
    sweep,
    targets,
    trend,
    weights,
)

IN_ORDER_OF_HELP = (
    demo,
    inspect,
    audit,
    report,
    sweep,
    trend,
    compare,
    bias,
    beta,
    targets,
    critic,
    weights,
    simulate,
)


def add_commands(app: typer.Typer) -> None:
    """Declare every command on the program."""
    for module in IN_ORDER_OF_HELP:
        app.command(module.NAME, short_help=module.SHORT_HELP)(module.command)
