"""`brace-diag trend`: the same figures at every step or staleness, and whether they move."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import options as opt
from .document import result_document
from .progress import progress
from .sources import column_remarks, open_with_critic, source_block
from .terminal import Terminal, emit, say
from .tracker import check_tracker, log_result
from .trend_text import trend_text

if TYPE_CHECKING:
    from brace_diag.results_trend import TrendSettings


def trend(
    source: list[str],
    settings: TrendSettings,
    *,
    critic: opt.Critic,
    format: opt.LogFormat,
    map: list[str] | None,
    steps: str | None,
    json: bool,
    plot: Path | None,
    log_to: str | None,
    threads: int | None,
    quiet: bool,
) -> None:
    """Run the command."""
    opt.check_plot(plot)
    check_tracker(log_to, by_step=settings.by == "step")
    run = open_with_critic(source, critic, format=format, map=map, steps=steps)
    from brace_diag.engines.trend import trend as measure

    with progress(f"measuring every {settings.by}", quiet=quiet) as report:
        found = measure(run, settings, threads=threads, progress=report)
    if json:
        text = result_document("trend", source_block(source, steps, run), found)
    else:
        text = trend_text(found, Terminal.of(sys.stdout), column_remarks(run))
    emit(text)
    log_result(log_to, found, quiet=quiet)
    if plot is not None:
        from brace_diag.plots import save_figure, trend_figure

        save_figure(trend_figure(found), plot)
        say(f"wrote {plot}", quiet=quiet)
