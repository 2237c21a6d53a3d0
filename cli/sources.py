"""From the words after a command to an opened run, and what a document says about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import options as opt

if TYPE_CHECKING:
    from brace_diag.readers import Run


def open_source(
    sources: list[str], *, format: opt.LogFormat, map: list[str] | None, steps: str | None
) -> Run:
    """Open a log as the shared options ask."""
    columns_map = opt.parse_map(map)
    from brace_diag import readers

    source = sources[0] if len(sources) == 1 else sources
    return readers.open_run(source, columns_map=columns_map, format=format.value, steps=steps)


def source_block(sources: list[str], steps: str | None, run: Run) -> dict[str, Any]:
    """What was read: names as typed, and columns; nothing that hangs on the number of files."""
    return {
        "paths": sources,
        "steps": steps,
        "columns": {name: _theirs(use.how, use.theirs) for name, use in run.uses.items()},
        "unused": list(run.unused),
    }


def column_remarks(run: Run) -> list[str]:
    """Which columns were taken under another name, and which were not used: a sentence each."""
    taken = [
        f"{name} is taken from {_theirs(use.how, use.theirs) or 'the folder names step=N'}"
        for name, use in run.uses.items()
        if use.how != "exact"
    ]
    if run.unused:
        taken.append(f"columns not used: {', '.join(run.unused)} (--map gives a column a meaning)")
    return taken


def _theirs(how: str, theirs: str) -> str | None:
    return None if how == "folder" else theirs
