"""`brace-diag beta`: how much of the reward reaches each value target of a log."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import options as opt
from .beta_text import beta_text
from .document import result_document
from .progress import progress
from .sources import column_remarks, open_source, source_block
from .terminal import Terminal, emit, say

if TYPE_CHECKING:
    from brace_diag.readers import Run
    from brace_diag.results_slope import RewardSlope


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for.

    Attributes:
        targets: as typed; none for the usual ones.
        defaults: parameters that a target takes where it does not state them.
        level: of the intervals.
        by, staleness: key of the keyed figures.
        threads: threads to use, None for all cores.
    """

    targets: list[str]
    defaults: dict[str, float]
    level: float
    by: opt.By | None
    staleness: opt.Staleness
    threads: int | None


def beta(
    source: list[str],
    request: Request,
    *,
    format: opt.LogFormat,
    map: list[str] | None,
    steps: str | None,
    json: bool,
    plot: Path | None,
    quiet: bool,
) -> None:
    """Run the command."""
    opt.check_staleness(request.by, request.staleness)
    opt.check_plot(plot)
    measured, run = _measure(source, request, format=format, map=map, steps=steps, quiet=quiet)
    if json:
        emit(beta_document(source, steps, run, measured))
    else:
        emit(beta_text(measured, Terminal.of(sys.stdout), column_remarks(run)))
    if plot is not None:
        from brace_diag.plots import save_figure, slope_figure

        save_figure(slope_figure(measured), plot)
        say(f"wrote {plot}", quiet=quiet)


def _measure(
    source: list[str],
    request: Request,
    *,
    format: opt.LogFormat,
    map: list[str] | None,
    steps: str | None,
    quiet: bool,
) -> tuple[RewardSlope, Run]:
    from brace_diag.settings import parse_targets

    # Targets are read before the log is: a slip of the pen costs no pass.
    specs = parse_targets(request.targets or opt.SLOPE_TARGETS, **request.defaults)
    run = open_source(source, format=format, map=map, steps=steps)
    from brace_diag.engines.reward_slope import reward_slope

    with progress("measuring slopes", quiet=quiet) as report:
        measured = reward_slope(
            run,
            specs,
            level=request.level,
            by=None if request.by is None else request.by.value,
            staleness=request.staleness.value,
            threads=request.threads,
            progress=report,
        )
    return measured, run


def beta_document(source: list[str], steps: str | None, run: Run, measured: RewardSlope) -> str:
    """The JSON document of `beta`."""
    return result_document("beta", source_block(source, steps, run), measured)
