"""From the words after a command to an opened run, and what a document says about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import options as opt

if TYPE_CHECKING:
    from brace_diag.readers import Run


def open_source(
    source: str, *, format: opt.LogFormat, map: list[str] | None, steps: str | None
) -> Run:
    """Open a log as the shared options ask."""
    columns_map, wanted = opt.parse_map(map), opt.parse_steps(steps)
    from brace_diag.readers import open_run

    return open_run(source, columns_map=columns_map, format=format.value, steps=wanted)


def source_block(source: str, steps: str | None, run: Run) -> dict[str, Any]:
    """What was read: the name as typed and the columns; nothing that its cut into files changes."""
    return {
        "path": source,
        "steps": steps,
        "n_rows": run.n_rows,
        "columns": dict(run.columns),
        "unused": list(run.unused),
    }
