"""`brace-diag compare`: how two runs differ, figure by figure and position by position."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import options as opt
from .compare_text import compare_text
from .document import document
from .progress import progress
from .sources import open_with_critic, source_block
from .terminal import Terminal, emit, say

if TYPE_CHECKING:
    from brace_diag.results_trend import FigureSettings


def compare(
    a: str,
    b: str,
    settings: FigureSettings,
    *,
    critic: opt.Critic,
    format: opt.LogFormat,
    map: list[str] | None,
    steps: str | None,
    json: bool,
    plot: Path | None,
    threads: int | None,
    quiet: bool,
) -> None:
    """Run the command."""
    opt.check_plot(plot)
    one = open_with_critic([a], critic, format=format, map=map, steps=steps)
    two = open_with_critic([b], critic, format=format, map=map, steps=steps)
    from brace_diag.engines.compare import compare as measure

    with progress("comparing", quiet=quiet) as report:
        found = measure(one, two, settings, threads=threads, progress=report)
    if json:
        blocks = [source_block([a], steps, one), source_block([b], steps, two)]
        text = document(
            "compare",
            source={"a": blocks[0], "b": blocks[1]},
            settings=found.settings.to_dict(),
            quality=(found.a.quality + found.b.quality).to_dict(),
            results=found.to_dict(),
            notes=found.notes,
        )
    else:
        text = compare_text(found, Terminal.of(sys.stdout))
    emit(text)
    if plot is not None:
        from brace_diag.plots import comparison_figure, save_figure

        save_figure(comparison_figure(found), plot)
        say(f"wrote {plot}", quiet=quiet)
