"""The figure of a comparison: the gap of two runs by position, and its difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from brace_diag.plots import style
from brace_diag.plots.gap import explain
from brace_diag.plots.gap_data import Array
from brace_diag.plots.keyed_data import Series
from brace_diag.plots.layout import Panel, figure_of, fit_left, header, stack
from brace_diag.plots.scale import position_axis
from brace_diag.plots.words import (
    AXIS_LABELS,
    NO_BREAK,
    V_MU,
    V_PI,
    elide,
    percent,
    plain,
    signed,
)
from brace_diag.results import Estimate
from brace_diag.results_compare import Comparison, Difference

LOOKS: dict[str, tuple[str, str, Any]] = {
    "a": (style.INK, "s", "solid"),
    "b": (style.VERMILION, "o", (0, (5, 1.5))),
}
BAND = 0.16
NAME_LENGTH = 26


def comparison_figure(result: Comparison, *, size: style.Size = style.DOUBLE_COLUMN) -> Figure:
    """Both gaps by position with their intervals, and beneath them b less a.

    Rings: positions at which the difference holds for all positions at once (Holm).

    Args:
        result: a comparison.
        size: width and height in inches.

    Returns: the figure, not registered with pyplot.

    Raises:
        InputError: `size` is too small for the labels.
    """
    cells = [one for one in result.cells if one.a.value is not None or one.b.value is not None]
    with style.drawing(size[0]):
        figure = style.new_figure(size)
        legends = [_handles(result, cells)]
        top = header(figure, finding(result), _basis(result), _cautions(result), legends)
        panels = [Panel(0.0, f"gap by position, {V_PI} − {V_MU}; units of the return")]
        if cells:
            panels.append(Panel(0.42 * (size[1] - top), "gap of b less gap of a"))
        stacked = stack(figure, panels, top=top, right=0.14, bottom=0.42)
        if cells:
            _gaps(stacked[0], cells)
            _difference(stacked[1], cells, 1.0 - result.settings.level)
        else:
            stacked[0].set_ylabel("gap")
            explain(stacked[0], _why_nothing(result))
        stacked[-1].set_xlabel(AXIS_LABELS["position"])
        fit_left(figure, stacked)
        _axis(stacked[0], cells)
    return figure


def _gaps(axes: Axes, cells: list[Difference]) -> None:
    axes.set_ylabel("gap")
    for name, (colour, marker, dash) in LOOKS.items():
        _line(axes, cells, lambda one, n=name: getattr(one, n), colour, marker, dash, name)  # type: ignore[misc]
    _zero(axes)


def _difference(axes: Axes, cells: list[Difference], alpha: float) -> None:
    axes.set_ylabel("b − a")
    _line(axes, cells, lambda one: one.difference, style.BLUE, "D", "solid", "difference")
    x = _middle(cells)
    sure = np.array([one.p_holm is not None and one.p_holm < alpha for one in cells])
    if sure.any():
        y = Series.of(one.difference for one in cells).value
        axes.plot(
            x[sure], y[sure], linestyle="none", marker="o", markersize=8.0, zorder=5,
            markerfacecolor="none", markeredgecolor=style.INK, markeredgewidth=0.9, label="holm",
        )  # fmt: skip
    _zero(axes)


def _line(
    axes: Axes,
    cells: list[Difference],
    read: Callable[[Difference], Estimate],
    colour: str,
    marker: str,
    dash: Any,
    label: str,
) -> None:
    x, series = _middle(cells), Series.of(read(one) for one in cells)
    axes.fill_between(
        x, series.low, series.high, color=colour, alpha=BAND, lw=0, label=f"{label} interval"
    )
    axes.plot(
        x, series.value, color=colour, marker=marker, linestyle=dash, lw=style.LINE,
        markersize=3.0, markeredgecolor="white", markeredgewidth=0.4, zorder=3, label=label,
    )  # fmt: skip


def _zero(axes: Axes) -> None:
    axes.axhline(0.0, color=style.INK, lw=style.THIN, zorder=1.5, label="zero")
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))


def _middle(cells: list[Difference]) -> Array:
    return np.array([((one.low or 0) + (one.high or 0)) / 2.0 for one in cells], np.float64)


def _axis(axes: Axes, cells: list[Difference]) -> None:
    if not cells:
        axes.set_xticks([])
        return
    inches = float(axes.get_window_extent().width) / figure_of(axes).dpi
    end = float((cells[-1].high or 0) + 1)
    position_axis(axes, -0.6, end, inches, style.Type.at(inches).small)


def finding(result: Comparison) -> str:
    """Whether the gaps at the first token differ, by how much."""
    if result.a.invalid is not None or result.b.invalid is not None:
        return "The gaps of these runs cannot be compared"
    own = result.figure("b_hat").difference
    if own.value is None or own.ci_low is None or own.ci_high is None:
        return "The gaps at the first token cannot be compared"
    half = (own.ci_high - own.ci_low) / 2.0
    size = f"{signed(own.value, 3)} ± {half:.2g} ({percent(own.level)})".replace(" ", NO_BREAK)
    if own.ci_low <= 0.0 <= own.ci_high:
        return f"The gaps at the first token are not told apart: b − a = {size}"
    return f"The gaps at the first token differ: b − a = {size}"


def _why_nothing(result: Comparison) -> str:
    own = result.figure("b_hat").difference
    return plain(f"No gap to compare: {own.reason or 'neither run has one'}")


def _basis(result: Comparison) -> str:
    how = "paired by prompt" if result.paired else "as independent logs"
    parts = [
        *(
            f"{name}: {plain(elide(side.source, NAME_LENGTH))}, "
            f"{side.quality.n_rollouts:,} rollouts"
            for name, side in (("a", result.a), ("b", result.b))
        ),
        f"{result.n_shared_prompts:,} prompts in both, {how}",
        f"γ = {result.settings.gamma:g}",
    ]
    return " · ".join(part.replace(" ", NO_BREAK) for part in parts)


def _cautions(result: Comparison) -> list[str]:
    return [
        plain(f"{name}: {side.invalid}")
        for name, side in (("a", result.a), ("b", result.b))
        if side.invalid is not None
    ]


def _handles(result: Comparison, cells: list[Difference]) -> list[Artist]:
    if not cells:
        return []
    found: list[Artist] = [
        Line2D([], [], color=colour, marker=marker, linestyle=dash, lw=style.LINE, markersize=3.0,
               label=name)
        for name, (colour, marker, dash) in LOOKS.items()
    ]  # fmt: skip
    label = f"{percent(result.settings.level)} interval, each position alone"
    found.append(Patch(color=style.MUTED, alpha=BAND, lw=0, label=label))
    alpha = 1.0 - result.settings.level
    if any(one.p_holm is not None and one.p_holm < alpha for one in cells):
        ring: dict[str, Any] = {"marker": "o", "markersize": 6.5, "markerfacecolor": "none"}
        words = "differs at all these positions at once (Holm)"
        found.append(
            Line2D([], [], linestyle="none", markeredgecolor=style.INK, label=words, **ring)
        )
    return found
