"""`brace-diag weights`: how fast products of importance weights fall, and what the weights are."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from brace_diag.errors import InputError

from . import options as opt
from .document import result_document
from .progress import progress
from .sources import column_remarks, open_source, source_block
from .terminal import Terminal, emit, say
from .weights_text import weights_text

if TYPE_CHECKING:
    from brace_diag.readers import Run
    from brace_diag.results_importance import ImportanceProducts


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for; see `importance_products`."""

    c_bar: float
    rho_bar: float
    gamma: float
    lam: float
    level: float
    by: opt.By | None
    staleness: opt.Staleness
    threads: int | None


def weights(
    source: list[str],
    request: Request,
    *,
    format: opt.LogFormat,
    map: list[str] | None,
    steps: str | None,
    json: bool,
    plot: Path | None,
    figure: opt.WeightsFigure | None,
    quiet: bool,
) -> None:
    """Run the command."""
    opt.check_staleness(request.by, request.staleness)
    opt.check_plot(plot)
    if figure is not None and plot is None:
        raise InputError("--figure chooses what --plot draws; add --plot FILE")
    measured, run = _measure(source, request, format=format, map=map, steps=steps, quiet=quiet)
    if json:
        emit(weights_document(source, steps, run, measured))
    else:
        emit(weights_text(measured, Terminal.of(sys.stdout), column_remarks(run)))
    if plot is not None:
        draw(measured, plot, figure or opt.WeightsFigure.PRODUCTS, quiet=quiet)


def _measure(
    source: list[str],
    request: Request,
    *,
    format: opt.LogFormat,
    map: list[str] | None,
    steps: str | None,
    quiet: bool,
) -> tuple[ImportanceProducts, Run]:
    run = open_source(source, format=format, map=map, steps=steps)
    from brace_diag.engines.importance import importance_products

    with progress("weighing tokens", quiet=quiet) as report:
        measured = importance_products(
            run,
            c_bar=request.c_bar,
            rho_bar=request.rho_bar,
            gamma=request.gamma,
            lam=request.lam,
            level=request.level,
            by=None if request.by is None else request.by.value,
            staleness=request.staleness.value,
            threads=request.threads,
            progress=report,
        )
    return measured, run


def weights_document(
    source: list[str], steps: str | None, run: Run, measured: ImportanceProducts
) -> str:
    """The JSON document of `weights`."""
    return result_document("weights", source_block(source, steps, run), measured)


def draw(
    measured: ImportanceProducts, path: Path, figure: opt.WeightsFigure, *, quiet: bool
) -> None:
    """Write one of the three figures."""
    from brace_diag.plots import place_figure, products_figure, save_figure, tails_figure

    make = {"products": products_figure, "tails": tails_figure, "positions": place_figure}
    save_figure(make[figure.value](measured), path)
    say(f"wrote {path}", quiet=quiet)
