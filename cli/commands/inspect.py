"""How `brace-diag inspect` is called."""

from __future__ import annotations

from .. import options as opt

NAME = "inspect"
SHORT_HELP = "Say what is in a log, and what it can answer."


def command(
    source: opt.Sources,
    format: opt.FormatOption = opt.LogFormat.AUTO,
    map: opt.MapOption = None,
    steps: opt.StepsOption = None,
    json: opt.JsonOption = False,
    quiet: opt.QuietOption = False,
    debug: opt.DebugOption = False,
) -> None:
    """Say what is in a log: columns, counts, oddities, and which questions it can answer."""
    from ..inspect_log import inspect_log

    inspect_log(source, format=format, map=map, steps=steps, json=json, quiet=quiet)
