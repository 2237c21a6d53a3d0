"""The figure of one question: how heavy are the tails of log w, and what do the caps cut off?"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from brace_diag.plots import style
from brace_diag.plots.gap import explain
from brace_diag.plots.layout import Panel, fit_left, header, stack
from brace_diag.plots.products_data import EXTREME, TailsData, tails_data
from brace_diag.plots.products_words import basis, cautions, short, tails_finding
from brace_diag.plots.words import percent
from brace_diag.results_importance import ImportanceProducts

CAP_COLOURS = {"c": style.GREEN, "ρ": style.PURPLE}


def tails_figure(result: ImportanceProducts, *, size: style.Size = style.DOUBLE_COLUMN) -> Figure:
    """Survival of log w on both sides: share of tokens at least so far from 0, log axes.

    Vertical lines mark log c_bar and log rho_bar, with the share of tokens beyond each and its
    interval; the noise floor, the mean |log w| of rollouts of staleness 0; and |log w| = 5.

    Args:
        result: importance products.
        size: width and height in inches; `SINGLE_COLUMN` fits one column of a paper.

    Returns: the figure, not registered with pyplot.

    Raises:
        InputError: `size` is too small for the labels.
    """
    data = tails_data(result)
    with style.drawing(size[0]):
        figure = style.new_figure(size)
        handles = [] if data.reason is not None else _handles(result, data)
        top = header(figure, tails_finding(result, data), basis(result), cautions(result), handles)
        caption = "" if data.reason else "share of tokens with log w at least as far from 0"
        (axes,) = stack(figure, [Panel(0.0, caption)], top=top, right=0.14, bottom=0.42)
        if data.reason is not None:
            explain(axes, f"No tails: {data.reason}")
            axes.set_xticks([])
            axes.set_ylabel("share of tokens")
        else:
            tail_panel(axes, data)
        axes.set_xlabel("|log w|")
        fit_left(figure, [axes])
    return figure


def tail_panel(axes: Axes, data: TailsData) -> None:
    """Both survival curves, the caps and the floors."""
    up, down = (np.where(s > 0.0, s, np.nan) for s in (data.above, data.below))
    axes.plot(data.x, up, color=style.BLUE, lw=style.THICK, zorder=3, label="above")
    axes.plot(
        data.x, down, color=style.VERMILION, lw=style.THICK, linestyle=(0, (4, 1.5)), zorder=3,
        label="below",
    )  # fmt: skip
    for name, at, share in data.caps:
        axes.axvline(at, color=CAP_COLOURS[name], lw=style.LINE, zorder=1, label=f"{name} bar")
        if share.value:
            low, high = (share.value if e is None else e for e in (share.ci_low, share.ci_high))
            error = [[max(share.value - max(low, 1e-12), 0.0)], [max(high - share.value, 0.0)]]
            axes.errorbar(
                [at], [share.value], yerr=error, color=CAP_COLOURS[name], marker="o", capsize=2,
                lw=style.LINE, zorder=5, label=f"{name} share",
            )  # fmt: skip
    if data.floor.value:
        axes.axvline(data.floor.value, color=style.MUTED, lw=style.LINE, linestyle=(0, (1, 1)),
                     zorder=1, label="floor")  # fmt: skip
    if data.x[-1] > EXTREME:
        axes.axvline(EXTREME, color=style.EDGE, lw=style.LINE, linestyle=(0, (6, 2)), zorder=1,
                     label="extreme")  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    reach = [float(data.x[-1]), *(1.2 * at for _, at, _ in data.caps)]
    axes.set_xlim(float(data.x[0]), max(reach))
    least = np.nanmin(np.concatenate([up, down]))
    axes.set_ylim(0.5 * float(least), 1.4)
    axes.set_ylabel("share of tokens")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(LogLocator(10, numticks=10))


def _handles(result: ImportanceProducts, data: TailsData) -> list[list[Artist]]:
    lines: list[Artist] = [
        Line2D([], [], color=style.BLUE, lw=style.THICK, label="log w ≥ x (likelier under π)"),
        Line2D([], [], color=style.VERMILION, lw=style.THICK, linestyle=(0, (4, 1.5)),
               label="log w ≤ −x (less likely under π)"),
    ]  # fmt: skip
    marks: list[Artist] = []
    caps = {"c": result.settings.c_bar, "ρ": result.settings.rho_bar}
    level = percent(result.settings.level)
    for name, _, _ in data.caps:
        label = f"{name}̄ = {caps[name]:g}, share clipped ({level})"
        look: dict[str, Any] = {"color": CAP_COLOURS[name], "marker": "o", "lw": style.LINE}
        marks.append(Line2D([], [], label=label, **look))
    if data.floor.value:
        label = f"noise floor: mean |log w| = {short(data.floor)} at staleness 0"
        marks.append(
            Line2D([], [], color=style.MUTED, lw=style.LINE, linestyle=(0, (1, 1)), label=label)
        )
    if data.x[-1] > EXTREME:
        n = result.tails.n_extreme
        label = f"|log w| = {EXTREME:g}: {n:,} token{'' if n == 1 else 's'} beyond"
        marks.append(
            Line2D([], [], color=style.EDGE, lw=style.LINE, linestyle=(0, (6, 2)), label=label)
        )
    return [lines, marks]
