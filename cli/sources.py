"""From the words after a command to an opened run, and what a document says about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import options as opt

if TYPE_CHECKING:
    from brace_diag.engines.group_mean import GroupMeanRun
    from brace_diag.readers import Run

    OpenedRun = Run | GroupMeanRun


def open_source(
    sources: list[str], *, format: opt.LogFormat, map: list[str] | None, steps: str | None
) -> Run:
    """Open a log as the shared options ask."""
    columns_map = opt.parse_map(map)
    from brace_diag import readers

    source = sources[0] if len(sources) == 1 else sources
    return readers.open_run(source, columns_map=columns_map, format=format.value, steps=steps)


def open_with_critic(
    sources: list[str],
    critic: opt.Critic,
    *,
    format: opt.LogFormat,
    map: list[str] | None,
    steps: str | None,
) -> OpenedRun:
    """As `open_source`; with the group mean for a critic where that is asked for."""
    run = open_source(sources, format=format, map=map, steps=steps)
    if critic is opt.Critic.VALUES:
        return run
    from brace_diag.engines.group_mean import with_group_mean

    return with_group_mean(run)


def open_fresh(fresh: str | None, *, format: opt.LogFormat, map: list[str] | None) -> Run | None:
    """Fresh rollouts as a run, where there are any; their steps are not filtered."""
    return None if fresh is None else open_source([fresh], format=format, map=map, steps=None)


def source_block(sources: list[str], steps: str | None, run: OpenedRun) -> dict[str, Any]:
    """What was read: names as typed, and columns; nothing that hangs on the number of files."""
    return {
        "paths": sources,
        "steps": steps,
        "columns": {name: _theirs(use.how, use.theirs) for name, use in run.uses.items()},
        "unused": list(run.unused),
    }


def column_remarks(run: OpenedRun) -> list[str]:
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
