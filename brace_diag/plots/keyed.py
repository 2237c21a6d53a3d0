"""The figure of the gap by trainer step or staleness: does it grow, does the critic follow?"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from brace_diag.plots import style
from brace_diag.plots.gap import explain, margin_band, margin_handles
from brace_diag.plots.gap_data import Array, lonely
from brace_diag.plots.keyed_data import KeyedData, Series, b_limits, keyed_data, reward_limits
from brace_diag.plots.layout import Panel, fit_left, header, stack
from brace_diag.plots.words import (
    V_MU,
    V_PI,
    basis,
    cautions,
    percent,
    plain,
)
from brace_diag.results import ValueGap

BARS_UP_TO = 80
"""With more keys than this, intervals merge: they are drawn as a band."""
VECTORS_UP_TO = 1000
"""With more keys than this, points are pixels inside SVG and PDF, which else grow too large."""
KEY_LABELS = {"step": "trainer step", "staleness": "staleness, in versions behind the trainer"}
RETURNS: dict[str, tuple[str, dict[str, Any], float]] = {
    "reward_mu": (r"$E_{\mu}[R]$", {"color": style.INK, "marker": "s", "linestyle": "-"}, -0.12),
    "reward_pi": (r"$E_{\pi}[R]$", {"color": style.BLUE, "marker": "o", "linestyle": "--"}, 0.0),
    "critic_mean": (
        "mean critic V",
        {"color": style.VERMILION, "marker": "D", "linestyle": ":"},
        0.12,
    ),
}


TINTS = {"reward_mu": "#B0B0B080", "reward_pi": "#8FBDDC80", "critic_mean": "#EBA37A80"}
"""Half transparent: bands of the three returns lie over each other."""


def keyed_figure(result: ValueGap, *, size: style.Size = style.DOUBLE_COLUMN) -> Figure:
    """Gap at the first token by step or staleness, and below it both returns and the critic.

    Every interval is at the level asked for and for its key alone. Keys without an estimate are
    marked along the bottom by their gate.

    Args:
        result: a value gap asked for with `by`, in units of the return.
        size: width and height in inches.

    Returns: the figure, not registered with pyplot.

    Raises:
        InputError: the result has no key, or `size` is too small for the labels.
    """
    data = keyed_data(result)
    with style.drawing(size[0]):
        figure = style.new_figure(size)
        top = header(
            figure,
            keyed_finding(result, data),
            basis(result),
            cautions(result),
            [_handles(data), gate_handles(data)],
        )
        panels = [Panel(0.0, f"gap at the first token, {V_PI} − {V_MU}; units of the return")]
        if len(data.key):
            tall = 0.38 * (size[1] - top)
            panels.append(Panel(tall, "return and critic at the first token"))
        stacked = stack(figure, panels, top=top, right=0.12, bottom=0.42)
        gap_panel(stacked[0], data)
        if len(data.key):
            returns_panel(stacked[1], data)
        key_axis(stacked[0], data)
        stacked[-1].set_xlabel(KEY_LABELS[data.by])
        fit_left(figure, stacked)
    return figure


def keyed_finding(result: ValueGap, data: KeyedData) -> str:
    """At how many keys the gap can be told from 0."""
    if result.invalid is not None:
        return "This log cannot tell the gap"
    n = int(data.b.known.sum())
    if n == 0:
        return f"No estimate of the gap at any {data.by}"
    one, many = {
        "step": ("step", "steps"),
        "staleness": ("level of staleness", "levels of staleness"),
    }[data.by]
    alone = f"({percent(data.level)}, each alone)"
    if data.n_apart:
        where = f"{data.n_apart} of {n} {many}" if n > 1 else f"the only {one}"
        return f"The gap at the first token differs from 0 at {where} {alone}"
    where = f"any of {n} {many}" if n > 1 else f"the only {one}"
    return f"The gap at the first token cannot be told from 0 at {where} {alone}"


def gap_panel(axes: Axes, data: KeyedData) -> None:
    """b by key with intervals and gates."""
    axes.set_ylim(b_limits(data))
    axes.set_ylabel(r"$\hat{b}(0)$")
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    if data.b.known.any():
        margin_band(axes, data.margin)
    else:
        explain(axes, plain(data.reason))
    intervals(axes, data.key, data.b, style.BLUE, style.BAND_POINTWISE, "interval")
    axes.plot(data.key, data.b.value, color=style.BLUE, lw=style.LINE, zorder=3, label="b")
    options: dict[str, Any] = {"rasterized": len(data.key) > VECTORS_UP_TO}
    if len(data.key) > BARS_UP_TO:
        options |= {"markersize": 2.2, "markeredgewidth": 0.2}
    style.gate_layer(axes, data.gates, data.key, data.b.value, **options)


def returns_panel(axes: Axes, data: KeyedData) -> None:
    """E_mu[R], E_pi[R] and the mean critic by key, each with its interval, side by side."""
    axes.set_ylim(reward_limits(data))
    axes.set_ylabel("return")
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    few = len(data.key) <= BARS_UP_TO
    step = float(np.diff(data.key).min()) if len(data.key) > 1 else 1.0
    for name, (_, look, aside) in RETURNS.items():
        series: Series = getattr(data, name)
        x = data.key + (aside * step if few else 0.0)
        intervals(axes, x, series, look["color"], TINTS[name], f"{name} interval")
        marker = look["marker"] if few else "none"
        axes.plot(
            x,
            series.value,
            **(look | {"marker": marker}),
            lw=style.LINE,
            markersize=2.8,
            zorder=4,
            label=name,
        )


def intervals(axes: Axes, x: Array, series: Series, bar: str, band: str, label: str) -> None:
    """Bars; a band where keys are many, with bars at keys whose neighbours have no interval."""
    barred = np.isfinite(series.low)
    if len(x) > BARS_UP_TO:
        axes.fill_between(x, series.low, series.high, color=band, lw=0, zorder=1, label=label)
        barred = lonely(barred)
    low, high = series.low[barred], series.high[barred]
    axes.vlines(x[barred], low, high, colors=bar, lw=style.LINE, zorder=2, label=label)


def key_axis(axes: Axes, data: KeyedData) -> None:
    """Whole numbers along the key, with a little room at both ends."""
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    if not len(data.key):
        axes.set_xticks([])
    else:
        first, last = float(data.key[0]), float(data.key[-1])
        room = 0.03 * (last - first) or 1.0
        axes.set_xlim(first - room, last + room)


def _handles(data: KeyedData) -> list[Artist]:
    found: list[Artist] = []
    if data.b.known.any():
        label = f"$\\hat{{b}}(0)$ by wdr with its {percent(data.level)} interval"
        found.append(Line2D([], [], color=style.BLUE, lw=style.THICK, label=label))
    for name, (label, look, _) in RETURNS.items():
        if getattr(data, name).known.any():
            found.append(Line2D([], [], **look, lw=style.LINE, markersize=2.8, label=label))
    return found + (margin_handles(data.margin) if data.b.known.any() else [])


def gate_handles(data: KeyedData) -> list[Artist]:
    """The gates that occur, for the legend."""
    return [
        Line2D([], [], linestyle="none", label=style.GATE_MARKS[g].meaning, **style.mark_options(g))
        for g in data.gates_met
    ]
