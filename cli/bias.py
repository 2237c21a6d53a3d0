"""`brace-diag bias`: the value gap of a log, as a table, as JSON, as a figure."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brace_diag.errors import InputError

from . import options as opt
from .document import result_document
from .files import refuse_to_replace
from .gap_text import gap_text
from .progress import progress
from .sources import column_remarks, open_fresh, open_with_critic, source_block
from .terminal import Terminal, emit, say

if TYPE_CHECKING:
    from brace_diag.engines.local import Watch
    from brace_diag.readers import Run
    from brace_diag.results import ValueGap
    from brace_diag.settings import GapSettings

    from .sources import OpenedRun


def bias(
    source: list[str],
    *,
    by: opt.By | None,
    staleness: opt.Staleness,
    positions: bool,
    axis: opt.Axis,
    baseline: opt.Baseline,
    gamma: float,
    level: float,
    fresh: str | None,
    critic: opt.Critic,
    format: opt.LogFormat,
    map: list[str] | None,
    steps: str | None,
    json: bool,
    plot: Path | None,
    per_rollout: Path | None,
    force: bool,
    threads: int | None,
    quiet: bool,
) -> None:
    """Run the command."""
    from brace_diag.settings import GapSettings

    if positions and by is None:
        raise InputError("--positions belongs to --by step or --by staleness; add one of them")
    opt.check_staleness(by, staleness)
    settings = GapSettings(
        gamma=gamma,
        level=level,
        baseline=baseline.value,
        by=None if by is None else by.value,
        by_positions=positions,
        staleness=staleness.value,
        axis=axis.value,
    )
    opt.check_plot(plot)
    _check_table(per_rollout, force)
    run = open_with_critic(source, critic, format=format, map=map, steps=steps)
    drawn = open_fresh(fresh, format=format, map=map)
    gap = _measured(
        run, settings, per_rollout, fresh=drawn, force=force, threads=threads, quiet=quiet
    )
    if json:
        emit(bias_document(source, steps, run, gap))
    else:
        emit(gap_text(gap, Terminal.of(sys.stdout), column_remarks(run)))
    draw(gap, plot, quiet=quiet)


def measure(
    run: OpenedRun,
    settings: GapSettings,
    *,
    threads: int | None,
    quiet: bool,
    watch: Watch | None = None,
    fresh: Run | None = None,
) -> ValueGap:
    """The gap of a run, with progress on stderr; `watch` sees every batch."""
    from brace_diag.engines.local import value_gap

    with progress("measuring the gap", quiet=quiet) as report:
        return value_gap(run, settings, threads=threads, progress=report, watch=watch, fresh=fresh)


def _measured(
    run: OpenedRun,
    settings: GapSettings,
    per_rollout: Path | None,
    *,
    fresh: Run | None,
    force: bool,
    threads: int | None,
    quiet: bool,
) -> ValueGap:
    """As `measure`, with the table of rollouts written on the way where one was asked for."""
    if per_rollout is None:
        return measure(run, settings, threads=threads, quiet=quiet, fresh=fresh)
    from brace_diag.engines.per_rollout import RolloutTable

    with RolloutTable(per_rollout, gamma=settings.gamma, force=force) as rows:
        gap = measure(run, settings, threads=threads, quiet=quiet, watch=rows.add, fresh=fresh)
    say(f"wrote {per_rollout}", quiet=quiet)
    return gap


def _check_table(path: Path | None, force: bool) -> None:
    """Refuse the table's name before anything is computed for it."""
    if path is None:
        return
    if path.suffix != ".parquet":
        raise InputError(
            f"--per-rollout {path}: the table is Parquet; let the name end in .parquet"
        )
    opt.check_folder(path, "--per-rollout")
    refuse_to_replace(path, force=force)


def bias_document(source: list[str], steps: str | None, run: OpenedRun, gap: ValueGap) -> str:
    """The JSON document of `bias`."""
    return result_document("bias", source_block(source, steps, run), gap)


def draw(gap: ValueGap, path: Path | None, *, quiet: bool) -> None:
    """Write the figure of a gap where one was asked for."""
    if path is None:
        return
    from brace_diag.plots import gap_figure, keyed_figure, save_figure

    make: Any = gap_figure if gap.settings.by is None else keyed_figure
    save_figure(make(gap), path)
    say(f"wrote {path}", quiet=quiet)
