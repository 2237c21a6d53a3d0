"""The figure of one question: where in the response do the weights move, and where the extremes?"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from brace_diag.plots import style
from brace_diag.plots.gap import explain
from brace_diag.plots.layout import Panel, figure_of, fit_left, header, stack
from brace_diag.plots.products_data import PlaceData, place_data
from brace_diag.plots.products_words import basis, cautions, place_finding, short
from brace_diag.plots.scale import position_axis
from brace_diag.plots.words import percent, plain
from brace_diag.results_importance import ImportanceProducts

LOOKS: dict[str, dict[str, Any]] = {
    "position": {"color": style.BLUE, "linestyle": "solid", "marker": "."},
    "horizon": {"color": style.VERMILION, "linestyle": (0, (4, 1.5)), "marker": "x"},
}
LABELS = {"position": "from the first token: t", "horizon": "to the last token: T − 1 − t"}
BAND = 0.22
"""Opacity of the intervals: two of them lie over each other."""


def place_figure(result: ImportanceProducts, *, size: style.Size = style.DOUBLE_COLUMN) -> Figure:
    """Mean |log w|, and the share of tokens with |log w| > 5, counted from both ends.

    Args:
        result: importance products.
        size: width and height in inches; `SINGLE_COLUMN` fits one column of a paper.

    Returns: the figure, not registered with pyplot.

    Raises:
        InputError: `size` is too small for the labels.
    """
    lines = {
        "position": place_data(result.abs_by_position),
        "horizon": place_data(result.abs_by_horizon),
    }
    start, end = lines["position"], lines["horizon"]
    known = bool(np.isfinite(start.mean).any())
    with style.drawing(size[0]):
        figure = style.new_figure(size)
        top = header(
            figure,
            place_finding(result, start, end),
            basis(result),
            cautions(result, told=False),
            [_handles(result)] if known else [],
        )
        some = bool(max(start.share.max(initial=0.0), end.share.max(initial=0.0)) > 0.0)
        caption = "mean |log w|" if some else "mean |log w|; no token has |log w| > 5"
        panels = [Panel(0.0, caption if known else "")]
        if known and some:
            panels.append(Panel(0.34 * (size[1] - top), "share of tokens with |log w| > 5"))
        stacked = stack(figure, panels, top=top, right=0.2, bottom=0.42)
        if not known:
            cells = result.abs_by_position.cells
            why = cells[0].estimate.reason if cells else "no rollout with weights"
            explain(stacked[0], f"No mean |log w| at any position: {plain(why or 'unknown')}")
            stacked[0].set_xticks([])
            stacked[0].set_ylabel("E|log w|")
        else:
            mean_panel(stacked[0], lines, result)
            if some:
                share_panel(stacked[1], lines)
            stacked[-1].set_xlabel("policy tokens, counted from either end")
        fit_left(figure, stacked)
        if known:
            box = stacked[0].get_window_extent()
            inches = float(box.width) / figure_of(stacked[0]).dpi
            last = 1.05 * float(max(start.x[-1], end.x[-1])) + 0.6
            position_axis(stacked[0], -0.6, last, inches, style.Type.at(inches).small)
    return figure


def mean_panel(axes: Axes, lines: dict[str, PlaceData], result: ImportanceProducts) -> None:
    """Mean |log w| with its intervals, and the noise floor where the log has one."""
    for name, data in lines.items():
        _line(axes, name, data.x, data.mean, data.mean_low, data.mean_high)
    floor = result.noise_floor
    if floor.value is not None:
        axes.axhline(floor.value, color=style.MUTED, lw=style.LINE, linestyle=(0, (1, 1)),
                     label="floor")  # fmt: skip
    axes.set_ylim(bottom=0.0)
    axes.set_ylabel("E|log w|")
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))


def share_panel(axes: Axes, lines: dict[str, PlaceData]) -> None:
    """Share of extremes with its intervals."""
    most = 0.0
    for name, data in lines.items():
        low, high = np.clip(data.share_low, 0.0, 1.0), np.clip(data.share_high, 0.0, 1.0)
        _line(axes, name, data.x, data.share, low, high)
        most = max(most, float(np.nanmax(data.share)))
    axes.set_ylim(0.0, 1.15 * most)
    axes.set_ylabel("share")
    axes.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))


def _line(axes: Axes, name: str, x: Any, value: Any, low: Any, high: Any) -> None:
    colour = LOOKS[name]["color"]
    axes.fill_between(x, low, high, color=colour, alpha=BAND, lw=0, zorder=1, label=f"{name} band")
    axes.plot(x, value, lw=style.LINE, zorder=3, label=name, **LOOKS[name])


def _handles(result: ImportanceProducts) -> list[Artist]:
    handles: list[Artist] = [
        Line2D([], [], lw=style.LINE, label=LABELS[name], **look) for name, look in LOOKS.items()
    ]
    level = percent(result.settings.level)
    handles.append(Patch(color=style.MUTED, alpha=BAND, lw=0, label=f"{level} intervals"))
    if result.noise_floor.value is not None:
        label = f"noise floor {short(result.noise_floor)} (staleness 0)"
        handles.append(
            Line2D([], [], color=style.MUTED, lw=style.LINE, linestyle=(0, (1, 1)), label=label)
        )
    return handles
