"""The figure of a trend: gap against its margin, returns and critic, fit, and weights by key."""

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
from brace_diag.plots.gap_data import Array
from brace_diag.plots.keyed import (
    BARS_UP_TO,
    KEY_LABELS,
    RETURNS,
    gap_panel,
    gate_handles,
    intervals,
    key_axis,
    returns_panel,
)
from brace_diag.plots.keyed_data import KeyedData, Series
from brace_diag.plots.layout import Panel, fit_left, header, stack
from brace_diag.plots.trend_data import trend_data, trend_series
from brace_diag.plots.words import NO_BREAK, V_MU, V_PI, elide, percent, plain
from brace_diag.results_trend import KEYS, Trend

WEIGHTS: dict[str, tuple[str, str, str]] = {
    "ess_rollout": ("ESS of rollouts", style.PURPLE, "o"),
    "kept_rho_bar": ("tokens with w ≤ ρ̄", style.GREEN, "s"),
    "kept_c_bar": ("tokens with w ≤ c̄", style.ORANGE, "^"),
}
TALL = (7.0, 7.0)
"""Four panels need more height than the other figures."""


def trend_figure(result: Trend, *, size: style.Size = TALL) -> Figure:
    """Gap with its margin, returns and critic, explained variance, and weights, by key.

    Intervals are at the level asked for, each for its key alone. The margin is each key's own.

    Args:
        result: a trend.
        size: width and height in inches.

    Returns: the figure, not registered with pyplot.

    Raises:
        InputError: `size` is too small for the labels.
    """
    data = trend_data(result)
    with style.drawing(size[0]):
        figure = style.new_figure(size)
        legends = [_handles(result, data), gate_handles(data)]
        top = header(figure, finding(result), _basis(result), _cautions(result), legends)
        drawn = _panels(result, data)
        room = (size[1] - top) / (len(drawn) + 1.2)
        panels = [
            Panel(0.0 if i == 0 else 0.72 * room, caption) for i, (caption, _) in enumerate(drawn)
        ]
        stacked = stack(figure, panels, top=top, right=0.12, bottom=0.42)
        for axes, (_, draw) in zip(stacked, drawn, strict=True):
            draw(axes)
        key_axis(stacked[0], data)
        stacked[-1].set_xlabel(KEY_LABELS[data.by])
        fit_left(figure, stacked)
    return figure


def _panels(result: Trend, data: KeyedData) -> list[tuple[str, Any]]:
    """Captions and what draws under them; only what the log tells."""
    found: list[tuple[str, Any]] = [
        (
            f"gap at the first token, {V_PI} − {V_MU}; units of the return",
            lambda axes: _gap(axes, result, data),
        )
    ]
    if len(data.key):
        found.append(
            ("return and critic at the first token", lambda axes: returns_panel(axes, data))
        )
    fit = trend_series(result, "explained_variance")
    if fit.known.any():
        caption = "explained variance of the returns by the critic"
        found.append((caption, lambda axes: _fit(axes, data, fit)))
    if any(trend_series(result, name).known.any() for name in WEIGHTS):
        caption = "effective sample size, and tokens that the caps leave alone"
        found.append((caption, lambda axes: _weights(axes, result, data)))
    return found


def _gap(axes: Axes, result: Trend, data: KeyedData) -> None:
    gap_panel(axes, data)
    margin = np.array([np.nan if p.margin is None else p.margin for p in result.points], np.float64)
    if data.b.known.any() and np.isfinite(margin).any():
        low, high = axes.get_ylim()
        reach = float(np.nanmax(margin)) * 1.08
        axes.set_ylim(min(low, -reach), max(high, reach))
        axes.fill_between(
            data.key, -margin, margin, step="mid", color=style.FAINT, lw=0, zorder=0.2,
            label="margin",
        )  # fmt: skip
        if len(data.key) == 1:
            axes.hlines([-margin[0], margin[0]], -1e9, 1e9, color=style.EDGE, lw=style.THIN)
    beyond = np.array([p.beyond is True for p in result.points], np.bool_)
    if beyond.any():
        axes.plot(
            data.key[beyond], data.b.value[beyond], linestyle="none", marker="o", markersize=9.0,
            markerfacecolor="none", markeredgecolor=style.VERMILION, markeredgewidth=1.1,
            zorder=6, label="beyond",
        )  # fmt: skip


def _fit(axes: Axes, data: KeyedData, fit: Series) -> None:
    axes.set_ylabel("EV")
    axes.axhline(0.0, color=style.EDGE, lw=style.THIN, zorder=0.5)
    _line(axes, data.key, fit, style.INK, "D", "explained_variance")
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))


def _weights(axes: Axes, result: Trend, data: KeyedData) -> None:
    axes.set_ylabel("share")
    axes.set_ylim(-0.03, 1.05)
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    for name, (_, colour, marker) in WEIGHTS.items():
        _line(axes, data.key, trend_series(result, name), colour, marker, name)


def _line(axes: Axes, x: Array, series: Series, colour: str, marker: str, label: str) -> None:
    intervals(axes, x, series, colour, f"{colour}40", f"{label} interval")
    shape = marker if len(x) <= BARS_UP_TO else "none"
    axes.plot(
        x, series.value, color=colour, marker=shape, markersize=2.8, lw=style.LINE, zorder=4,
        label=label,
    )  # fmt: skip


def finding(result: Trend) -> str:
    """Whether, and since when, the gap lies beyond the margin."""
    unit = f"{result.settings.margin:g}{NO_BREAK}s_A".replace("s_A", r"$s_A$")
    key = result.settings.by
    if result.invalid is not None:
        return "This log cannot tell the gap"
    if not result.n_judged:
        return f"The gap cannot be told at any {key}"
    of = f"{result.n_judged} {KEYS[key]}"
    if result.first_beyond is None:
        return f"The gap is not seen beyond the margin of {unit} at any of {of}"
    return (
        f"The gap first lies beyond the margin of {unit} at {key} {result.first_beyond} "
        f"({result.n_beyond} of {of})"
    )


def _basis(result: Trend) -> str:
    n = sum(point.figures["reward_mu"].n_rollouts for point in result.points)
    parts = [
        plain(elide(result.source)),
        f"{n:,} rollouts",
        f"{len(result.points)} {KEYS[result.settings.by]}",
        f"γ = {result.settings.gamma:g}",
        f"c̄ = {result.settings.c_bar:g}",
        f"ρ̄ = {result.settings.rho_bar:g}",
    ]
    test = result.tests["b_hat"]
    if test.p_value is not None:
        parts.append(f"trend of b: p = {test.p_value:.2g} (HAC)")
    return " · ".join(part.replace(" ", NO_BREAK) for part in parts)


def _cautions(result: Trend) -> list[str]:
    return [] if result.invalid is None else [plain(result.invalid)]


def _handles(result: Trend, data: KeyedData) -> list[Artist]:
    found: list[Artist] = []
    if data.b.known.any():
        label = f"$\\hat{{b}}(0)$ by wdr with its {percent(data.level)} interval"
        found.append(Line2D([], [], color=style.BLUE, lw=style.THICK, label=label))
        if any(p.margin is not None for p in result.points):
            words = f"margin, ± {result.settings.margin:g} $s_A$ of the key"
            found.append(Patch(color=style.FAINT, lw=0, label=words))
    if any(p.beyond for p in result.points):
        ring = Line2D(
            [], [], linestyle="none", marker="o", markersize=7.0, markerfacecolor="none",
            markeredgecolor=style.VERMILION, label="beyond it",
        )  # fmt: skip
        found.append(ring)
    for name, (label, look, _) in RETURNS.items():
        if getattr(data, name).known.any():
            found.append(Line2D([], [], **look, lw=style.LINE, markersize=2.8, label=label))
    for name, (label, colour, marker) in WEIGHTS.items():
        if trend_series(result, name).known.any():
            found.append(
                Line2D(
                    [], [], color=colour, marker=marker, lw=style.LINE, markersize=2.8, label=label
                )
            )
    return found
