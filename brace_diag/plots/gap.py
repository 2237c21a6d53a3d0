"""The figure of one question: where in the response does V^pi differ from V^mu, and by how much."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from brace_diag.plots import style
from brace_diag.plots.gap_data import (
    Array,
    GapData,
    gap_data,
    lonely,
    outside,
    y_limits,
)
from brace_diag.plots.layout import Panel, figure_of, fit_left, header, stack, wrapped
from brace_diag.plots.scale import position_axis, relative_axis
from brace_diag.plots.strips import rollouts_strip, variance_caption, variance_strip
from brace_diag.plots.words import (
    AXIS_LABELS,
    GAP_LABELS,
    basis,
    cautions,
    finding,
    percent,
    plain,
    signed,
)
from brace_diag.results import ValueGap

BRACKET: dict[str, dict[str, Any]] = {
    "first_order": {"color": style.PURPLE, "linestyle": (0, (4, 1.5))},
    "doubly_robust": {"color": style.INK, "linestyle": (0, (1.2, 1.2))},
}
LEGEND_BOX: dict[str, Any] = {"framealpha": 0.9, "edgecolor": "none", "fancybox": False}
UNIT = "in units of the return; above 0: π earns more than μ from t on"


def gap_figure(
    result: ValueGap, *, ax: Axes | None = None, size: style.Size = style.DOUBLE_COLUMN
) -> Figure:
    """Gap b(t) = V^pi - V^mu by position, its bands, its bracket, its gates and what it rests on.

    The main panel holds b by wdr with the pointwise interval (dark) and the simultaneous sup-t band
    (light), `first_order` and `doubly_robust` as thin lines, and the margin ±.1 s_A. The frame
    follows wdr: triangles on its edge say where a line of the bracket leaves it. Cells without an
    estimate interrupt the line, and are marked along the bottom by their gate. Strips below hold
    the rollouts alive and the within-prompt variance of the log product with the gates' limits.

    Args:
        result: a value gap, in units of the return.
        ax: draws the main panel alone, with title and legend, into these axes.
        size: width and height in inches; `SINGLE_COLUMN` fits one column of a paper.

    Returns: the figure (of `ax` where given), not registered with pyplot.

    Raises:
        InputError: `size` is too small for the labels.
    """
    data = gap_data(result)
    if ax is not None:
        return _into(ax, result, data)
    with style.drawing(size[0]):
        figure = style.new_figure(size)
        bands, gates = legend_handles(data)
        warnings = cautions(result, axis=data.axis)
        top = header(figure, finding(result), basis(result), warnings, [bands, gates])
        small = size[1] < 4.8
        panels = [Panel(0.0, UNIT if data.reason is None else "")]
        if len(data.x):
            panels.append(Panel(0.42 if small else 0.5, "rollouts alive"))
            panels.append(Panel(0.72 if small else 0.85, variance_caption(data)))
        stacked = stack(figure, panels, top=top, right=0.62, bottom=0.42)
        main_panel(stacked[0], data)
        if len(data.x):
            rollouts_strip(stacked[1], data)
            variance_strip(stacked[2], data)
        stacked[-1].set_xlabel(AXIS_LABELS[data.axis])
        fit_left(figure, stacked)
        x_axis(stacked[0], data)
    return figure


def _into(ax: Axes, result: ValueGap, data: GapData) -> Figure:
    figure = figure_of(ax)
    with style.drawing(float(figure.get_figwidth())):
        main_panel(ax, data)
        x_axis(ax, data)
        ax.set_xlabel(AXIS_LABELS[data.axis])
        ax.set_title("\n".join([finding(result), *cautions(result, axis=data.axis)]), loc="left")
        bands, gates = legend_handles(data)
        ax.legend(handles=[*bands, *gates], loc="best", ncols=2, **LEGEND_BOX)
    return figure


def main_panel(axes: Axes, data: GapData) -> None:
    """Draw b with everything around it into the axes; the x axis is set apart, by `x_axis`."""
    limits = y_limits(data)
    axes.set_ylim(limits)
    axes.set_ylabel(GAP_LABELS[data.axis])
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    if data.reason is not None:
        explain(axes, f"No estimate at any position: {plain(data.reason)}")
    else:
        margin_band(axes, data.margin)
    _bands(axes, data)
    for name in BRACKET:
        _bracket_line(axes, name, data, limits)
    axes.plot(data.x, data.value, color=style.BLUE, lw=style.THICK, zorder=4, label="wdr")
    style.gate_layer(axes, data.gates, data.x, data.value)


def _bands(axes: Axes, data: GapData) -> None:
    bands = (
        ("simultaneous", data.sim_low, data.sim_high, style.BAND_SIMULTANEOUS, style.LINE),
        ("pointwise", data.ci_low, data.ci_high, style.BAND_POINTWISE, 2 * style.THICK),
    )
    alone = lonely(data.known)
    for order, (name, low, high, colour, width) in enumerate(bands):
        z = 1.0 + 0.1 * order
        axes.fill_between(data.x, low, high, color=colour, lw=0, zorder=z, label=name)
        has = alone & np.isfinite(low)
        if has.any():
            x = data.x[has]
            axes.vlines(
                x, low[has], high[has], colors=colour, lw=width, zorder=z, label=f"{name} alone"
            )


def _bracket_line(axes: Axes, name: str, data: GapData, limits: tuple[float, float]) -> None:
    series: Array = getattr(data, name)
    axes.plot(data.x, series, lw=style.LINE, zorder=3, label=name, **BRACKET[name])
    for cell, sign in outside(series, limits):
        axes.plot(
            data.x[cell],
            0.97 if sign > 0 else 0.03,
            transform=axes.get_xaxis_transform(),
            marker="^" if sign > 0 else "v",
            color=BRACKET[name]["color"],
            markersize=3.5,
            linestyle="none",
            zorder=3,
            label=f"{name} leaves",
        )


def margin_band(axes: Axes, margin: float | None) -> None:
    """The line of no gap, and the margin as a faint band whose edges show through the intervals."""
    axes.axhline(0.0, color=style.INK, lw=style.THIN, zorder=1.5, label="zero")
    if margin is not None:
        axes.axhspan(-margin, margin, color=style.FAINT, lw=0, zorder=0.5, label="margin")
        for edge in (-margin, margin):
            axes.axhline(edge, color=style.EDGE, lw=style.THIN, zorder=1.4, label="margin edge")


def explain(axes: Axes, reason: str) -> None:
    """Say in an axes without numbers why there are none."""
    figure = figure_of(axes)
    inches = float(axes.get_window_extent().width) / figure.dpi
    size = style.Type.at(float(figure.get_figwidth())).base
    axes.set_yticks([])
    axes.text(
        0.5,
        0.55,
        "\n".join(wrapped(figure, reason, size, 0.85 * inches)),
        transform=axes.transAxes,
        ha="center",
        va="center",
        fontsize=size,
        color=style.MUTED,
        label="reason",
    )


def x_axis(axes: Axes, data: GapData) -> None:
    """Scale, ticks and limits of the x axis, for the width that the axes have by now."""
    if data.axis == "relative":
        relative_axis(axes)
        return
    if not len(data.x):
        axes.set_xticks([])
        return
    box = axes.get_window_extent()
    inches = float(box.width) / figure_of(axes).dpi
    position_axis(axes, -0.6, float(data.end[-1]), inches, style.Type.at(inches).small)


def legend_handles(data: GapData) -> tuple[list[Artist], list[Artist]]:
    """Legend entries of the lines and bands that are there, and of the gates that occur."""
    lines: list[Artist] = []
    if data.known.any():
        lines.append(Line2D([], [], color=style.BLUE, lw=style.THICK, label="b by wdr"))
        lines += _band_handles(data)
        lines += [_bracket_handle(name, data) for name in BRACKET]
        lines += margin_handles(data.margin)
    gates: list[Artist] = []
    for gate in data.gates_met:
        none = not (data.at_gate(gate) & data.known).any()
        label = f"{style.GATE_MARKS[gate].meaning}{', no estimate' if none else ''}"
        options = style.mark_options(gate)
        gates.append(Line2D([], [], linestyle="none", label=label, **options))
    return lines, gates


def margin_handles(margin: float | None) -> list[Artist]:
    """Legend entry of the margin, where there is one."""
    if margin is None:
        return []
    label = f"margin ±0.1 $s_A$ = ±{margin:.2g}"
    return [Patch(facecolor=style.FAINT, edgecolor=style.EDGE, lw=style.THIN, label=label)]


def _band_handles(data: GapData) -> list[Artist]:
    level = percent(data.level)
    found: list[Artist] = []
    if np.isfinite(data.ci_low).any():
        found.append(Patch(color=style.BAND_POINTWISE, lw=0, label=f"{level} pointwise"))
    if np.isfinite(data.sim_low).any():
        label = f"{level} simultaneous (sup-t)"
        found.append(Patch(color=style.BAND_SIMULTANEOUS, lw=0, label=label))
    return found


def _bracket_handle(name: str, data: GapData) -> Artist:
    series: Array = getattr(data, name)
    label = name.replace("_", " ")
    limits = y_limits(data)
    if outside(series, limits):
        gone = np.where((series < limits[0]) | (series > limits[1]), series, 0.0)
        far = float(gone[np.argmax(np.abs(gone))])
        label += f" ({'▲' if far > 0 else '▼'} to {signed(far)})"
    return Line2D([], [], lw=style.LINE, label=label, **BRACKET[name])
