"""`brace-diag sweep`: which target settings would recover the gap, at which price."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import options as opt
from .document import result_document
from .progress import progress
from .sources import column_remarks, open_with_critic, source_block
from .sweep_text import sweep_text
from .terminal import Terminal, emit, say

if TYPE_CHECKING:
    from brace_diag.results_sweep import SweepSettings


def settings_of(
    k: list[float] | None,
    rho_bar: list[float] | None,
    c_bar: list[float] | None,
    gamma: float,
    lam: float,
    level: float,
) -> SweepSettings:
    """The grid as typed; what is not given keeps its default."""
    from brace_diag.results_sweep import SweepSettings

    asked = {"k": k, "rho_bar": rho_bar, "c_bar": c_bar}
    given = {name: tuple(values) for name, values in asked.items() if values}
    return SweepSettings(gamma=gamma, lam=lam, level=level, **given)


def sweep(
    source: list[str],
    settings: SweepSettings,
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
    run = open_with_critic(source, critic, format=format, map=map, steps=steps)
    from brace_diag.engines.sweep import sweep as measure

    with progress("trying settings", quiet=quiet) as report:
        found = measure(run, settings, threads=threads, progress=report)
    if json:
        text = result_document("sweep", source_block(source, steps, run), found)
    else:
        text = sweep_text(found, Terminal.of(sys.stdout), column_remarks(run))
    emit(text)
    if plot is not None:
        from brace_diag.plots import save_figure, sweep_figure

        save_figure(sweep_figure(found), plot)
        say(f"wrote {plot}", quiet=quiet)
