"""The figure of a sweep: what each setting would recover of the gap, and at which variance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, PercentFormatter

from brace_diag.plots import style
from brace_diag.plots.gap import explain
from brace_diag.plots.layout import Panel, fit_left, header, stack
from brace_diag.plots.sweep_data import (
    Array,
    SettingLine,
    Spot,
    SweepData,
    share_limits,
    sweep_data,
)
from brace_diag.plots.words import elide, percent, plain, with_interval
from brace_diag.results_sweep import Sweep

COLOURS = (style.VERMILION, style.BLUE, style.GREEN, style.PURPLE, style.ORANGE, style.SKY)
MARKERS = ("o", "s", "^", "D", "v", "X")
DASHES: tuple[Any, ...] = ("solid", (0, (4, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.5, 1, 1.5)))
SPREAD = 0.3
"""Lines stand side by side over this part of a window's column, so that intervals stay apart."""


def sweep_figure(result: Sweep, *, size: style.Size = style.DOUBLE_COLUMN) -> Figure:
    """Share of the gap recovered by window, and beneath it the variance of the target.

    Colour tells rho_bar, marker and dash c_bar. Rings: the recommended setting (solid) and the
    paper's default (dotted). Intervals are at the level asked for, each alone.

    Args:
        result: a sweep.
        size: width and height in inches.

    Returns: the figure, not registered with pyplot.

    Raises:
        InputError: `size` is too small for the labels.
    """
    data = sweep_data(result)
    with style.drawing(size[0]):
        figure = style.new_figure(size)
        legends = [_cap_handles(data), _ring_handles(data)]
        top = header(figure, _finding(result), _basis(result), _cautions(result), legends)
        panels = [Panel(0.0, "share of the gap that a critic fitted to the end recovers")]
        if data.lines:
            caption = "variance of target − V, as a part of the return's (log scale)"
            panels.append(Panel(0.36 * (size[1] - top), caption))
        stacked = stack(figure, panels, top=top, right=0.12, bottom=0.42)
        if data.lines:
            _share_panel(stacked[0], data)
            _variance_panel(stacked[1], data)
        else:
            stacked[0].set_ylabel("share")
            explain(stacked[0], "No rollout has all that a sweep needs")
        stacked[-1].set_xlabel("window k, in policy tokens")
        _window_axis(stacked[-1], data)
        fit_left(figure, stacked)
    return figure


def _share_panel(axes: Axes, data: SweepData) -> None:
    axes.set_ylim(share_limits(data))
    axes.set_ylabel("share")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    for at in (0.0, 1.0):
        axes.axhline(at, color=style.EDGE, lw=style.THIN, zorder=0.5)
    for i, line in enumerate(data.lines):
        x, look = _x(data, i), _look(data, line)
        known = np.isfinite(line.low)
        axes.vlines(
            x[known], line.low[known], line.high[known], color=look["color"], lw=style.LINE,
            alpha=0.6, zorder=2,
        )  # fmt: skip
        axes.plot(x, line.share, zorder=3, label=_name(line), **look)
    _rings(axes, data, [line.share for line in data.lines])


def _variance_panel(axes: Axes, data: SweepData) -> None:
    axes.set_yscale("log")
    axes.set_ylabel("ratio")
    axes.axhline(1.0, color=style.EDGE, lw=style.THIN, zorder=0.5)
    for i, line in enumerate(data.lines):
        axes.plot(_x(data, i), line.variance, zorder=3, label=_name(line), **_look(data, line))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    _rings(axes, data, [line.variance for line in data.lines])


def _x(data: SweepData, i: int) -> Array:
    n = len(data.lines)
    shift = SPREAD * ((i + 0.5) / n - 0.5)
    return np.arange(len(data.windows), dtype=np.float64) + shift


def _look(data: SweepData, line: SettingLine) -> dict[str, Any]:
    c = data.c_bars.index(line.c_bar)
    return {
        "color": COLOURS[data.rho_bars.index(line.rho_bar) % len(COLOURS)],
        "marker": MARKERS[c % len(MARKERS)],
        "linestyle": DASHES[c % len(DASHES)],
        "lw": style.LINE,
        "markersize": 3.6,
        "markeredgecolor": "white",
        "markeredgewidth": 0.4,
    }


def _rings(axes: Axes, data: SweepData, columns: list[Array]) -> None:
    for spot, options in _spots(data):
        y = columns[spot.line][spot.window]
        axes.plot([_x(data, spot.line)[spot.window]], [y], zorder=5, **options)


def _spots(data: SweepData) -> list[tuple[Spot, dict[str, Any]]]:
    ring: dict[str, Any] = {
        "marker": "o", "markersize": 9.0, "markerfacecolor": "none", "linestyle": "none",
        "markeredgecolor": style.INK,
    }  # fmt: skip
    found = []
    if data.chosen is not None:
        found.append((data.chosen, ring | {"markeredgewidth": 1.3, "label": "recommended"}))
    if data.paper is not None and data.paper != data.chosen:
        paper = ring | {"marker": "s", "markersize": 8.0, "markeredgewidth": 0.7}
        found.append((data.paper, paper | {"label": "paper's default"}))
    return found


def _cap_handles(data: SweepData) -> list[Artist]:
    colours = [
        Line2D([], [], color=COLOURS[i % len(COLOURS)], lw=style.THICK, label=f"ρ̄ = {rho:g}")
        for i, rho in enumerate(data.rho_bars)
    ]
    traces = [
        Line2D(
            [],
            [],
            color=style.MUTED,
            lw=style.LINE,
            linestyle=DASHES[i % len(DASHES)],
            marker=MARKERS[i % len(MARKERS)],
            markersize=3.6,
            label=f"c̄ = {c:g}",
        )
        for i, c in enumerate(data.c_bars)
    ]
    return [*colours, *traces]


def _ring_handles(data: SweepData) -> list[Artist]:
    return [Line2D([], [], **options) for _, options in _spots(data)]


def _name(line: SettingLine) -> str:
    return f"rho_bar={line.rho_bar:g}, c_bar={line.c_bar:g}"


def _window_axis(axes: Axes, data: SweepData) -> None:
    n = len(data.windows)
    if not n:
        axes.set_xticks([])
        return
    axes.set_xlim(-0.5, n - 0.5)
    labels = ["whole response" if k == math.inf else f"{k:g}" for k in data.windows]
    axes.xaxis.set_major_locator(FixedLocator(list(range(n))))
    axes.set_xticklabels(labels)


def _finding(result: Sweep) -> str:
    own = result.recommendation
    if own is None:
        if result.invalid is not None:
            return "This log cannot tell what a corrected target would recover"
        return "The gap cannot be told from 0: there is no share of it to recover"
    share, ratio = own.chosen.share.value, own.chosen.variance_ratio.value
    whole = result.column_of(own.chosen) == math.inf
    k = "the whole response" if whole else f"{own.chosen.k:g} tokens"
    return (
        f"Correcting over {k} with ρ̄ = {own.chosen.rho_bar:g}, c̄ = {own.chosen.c_bar:g} recovers "
        f"{share:.0%} of the gap at {ratio:.2g} of the return's variance"
    )


def _basis(result: Sweep) -> str:
    b = result.b_hat
    parts = [
        elide(result.source),
        f"{b.n_rollouts:,} rollouts",
        f"{b.n_clusters} clusters of prompts",
        f"γ = {result.settings.gamma:g}",
        f"λ = {result.settings.lam:g}",
        f"{percent(result.settings.level)} intervals",
    ]
    if b.value is not None:
        parts.append(with_interval(b))
    return "  ·  ".join(parts)


def _cautions(result: Sweep) -> list[str]:
    if result.invalid is not None:
        return [plain(result.invalid)]
    if result.doubt is None:
        return []
    return [f"Shares are not to be relied on: {plain(result.doubt)}."]
