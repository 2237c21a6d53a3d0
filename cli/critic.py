"""`brace-diag critic`: how well a log's critic fits its returns, and how far from its targets."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brace_diag.errors import InputError

from . import options as opt
from .critic_text import critic_text
from .document import result_document
from .progress import progress
from .sources import column_remarks, open_source, source_block
from .terminal import Terminal, emit, say

if TYPE_CHECKING:
    from brace_diag.readers import Run
    from brace_diag.results_critic import CriticFit
    from brace_diag.settings import TargetSpec


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for.

    Attributes:
        targets: as typed; none for the usual ones.
        defaults: parameters that a target takes where it does not state them, gamma among them.
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


def critic(
    source: list[str],
    request: Request,
    *,
    format: opt.LogFormat,
    map: list[str] | None,
    steps: str | None,
    json: bool,
    plot: Path | None,
    figure: opt.CriticFigure | None,
    quiet: bool,
) -> None:
    """Run the command."""
    opt.check_staleness(request.by, request.staleness)
    opt.check_plot(plot)
    if figure is not None and plot is None:
        raise InputError(f"--figure {figure} belongs to --plot FILE; add it")
    specs = _specs(request)
    run = open_source(source, format=format, map=map, steps=steps)
    fit = measure(run, request, specs or _usual(run, request), quiet=quiet)
    if json:
        emit(critic_document(source, steps, run, fit))
    else:
        emit(critic_text(fit, Terminal.of(sys.stdout), column_remarks(run)))
    if plot is not None:
        _draw(fit, plot, figure or opt.CriticFigure.CALIBRATION, quiet=quiet)


def _specs(request: Request) -> tuple[TargetSpec, ...]:
    """The targets that were asked for, read before the log is: a slip of the pen costs no pass."""
    from brace_diag.settings import parse_targets

    return parse_targets(request.targets, **request.defaults) if request.targets else ()


def _usual(run: Run, request: Request) -> tuple[TargetSpec, ...]:
    from brace_diag.engines.critic_fit import usual_targets
    from brace_diag.settings import parse_targets

    return parse_targets(usual_targets(run.columns), **request.defaults)


def measure(run: Run, request: Request, specs: tuple[TargetSpec, ...], *, quiet: bool) -> CriticFit:
    """The fit of a run's critic, with progress on stderr."""
    from brace_diag.engines.critic_fit import critic_fit

    with progress("measuring the critic", quiet=quiet) as report:
        return critic_fit(
            run,
            specs,
            gamma=request.defaults["gamma"],
            level=request.level,
            by=None if request.by is None else request.by.value,
            staleness=request.staleness.value,
            threads=request.threads,
            progress=report,
        )


def critic_document(source: list[str], steps: str | None, run: Run, fit: CriticFit) -> str:
    """The JSON document of `critic`."""
    return result_document("critic", source_block(source, steps, run), fit)


def _draw(fit: CriticFit, path: Path, which: opt.CriticFigure, *, quiet: bool) -> None:
    from brace_diag.plots import calibration_figure, save_figure, target_figure

    make: Any = calibration_figure if which is opt.CriticFigure.CALIBRATION else target_figure
    save_figure(make(fit), path)
    say(f"wrote {path}", quiet=quiet)
