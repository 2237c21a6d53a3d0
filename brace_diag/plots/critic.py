"""The figures of the critic: is it calibrated, and where does each target pull it?"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from brace_diag.plots import style
from brace_diag.plots.critic_data import (
    CalibrationData,
    TargetData,
    TargetPanel,
    calibration_data,
    target_data,
)
from brace_diag.plots.critic_words import (
    calibration_finding,
    critic_basis,
    critic_cautions,
    frame_cautions,
    target_finding,
    with_half_width,
)
from brace_diag.plots.gap import explain
from brace_diag.plots.layout import EDGE, Panel, fit_left, header, renderer, stack
from brace_diag.plots.words import percent, plain
from brace_diag.results_critic import CriticFit

CRITIC = "critic V(s) at the token"
COLOURS = "cividis_r"
"""Even steps of lightness in grey and under every common colour blindness."""
DECADES = 5
"""Densities further below the largest share one colour."""


def calibration_figure(result: CriticFit, *, size: style.Size = style.DOUBLE_COLUMN) -> Figure:
    """Mean return to go by the critic's value, with intervals, the diagonal and the fitted line.

    Below it the density of the critic's values, and the range of returns that the log reaches.
    Bins whose interval cannot be believed (few prompts, equal returns) are hollow.

    Args:
        result: a critic's fit.
        size: width and height in inches.

    Returns: the figure, not registered with pyplot.

    Raises:
        InputError: `size` is too small for the labels.
    """
    data = calibration_data(result)
    with style.drawing(size[0]):
        figure = style.new_figure(size)
        top = header(
            figure,
            calibration_finding(result),
            critic_basis(result),
            critic_cautions(result),
            [_calibration_handles(result, data)],
        )
        panels = [Panel(0.0, "mean return to go G after tokens of that value")]
        if len(data.critic):
            panels.append(Panel(0.16 * size[1], "density of the critic's values"))
        stacked = stack(figure, panels, top=top, right=0.14, bottom=0.42)
        _calibration_panel(stacked[0], result, data)
        if len(data.critic):
            _value_strip(stacked[1], result, data)
        stacked[0].set_xlim(data.x)
        stacked[-1].set_xlabel(CRITIC)
        fit_left(figure, stacked)
    return figure


def _calibration_panel(axes: Axes, result: CriticFit, data: CalibrationData) -> None:
    axes.set_ylabel("mean return")
    axes.set_ylim(data.y)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    if data.reason is not None:
        explain(axes, f"No calibration: {plain(data.reason)}")
        return
    ends = np.array([min(data.x[0], data.y[0]), max(data.x[1], data.y[1])])
    axes.plot(ends, ends, color=style.EDGE, lw=style.LINE, zorder=1, label="diagonal")
    slope, intercept = result.fit.slope.value, result.fit.intercept.value
    if slope is not None and intercept is not None:
        axes.plot(ends, intercept + slope * ends, zorder=2, label="fit", **_FIT)
    axes.vlines(data.critic, data.ci_low, data.ci_high, colors=style.BLUE, lw=style.THICK,
                zorder=3, label="interval")  # fmt: skip
    for good, face in ((True, style.BLUE), (False, "white")):
        at = data.reliable == good
        axes.plot(
            data.critic[at],
            data.value[at],
            linestyle="none",
            zorder=4,
            label="reliable" if good else "unreliable",
            **_POINT | {"markerfacecolor": face},
        )


_FIT: dict[str, Any] = {"color": style.VERMILION, "lw": style.LINE, "linestyle": (0, (4, 1.5))}
_POINT: dict[str, Any] = {"marker": "o", "markeredgecolor": style.BLUE, "color": style.BLUE}


def _value_strip(axes: Axes, result: CriticFit, data: CalibrationData) -> None:
    low, high = result.extent.return_low, result.extent.return_high
    if low is not None and high is not None:
        axes.axvspan(low, high, color=style.FAINT, lw=0, zorder=0.5, label="range of returns")
    density = np.nan_to_num(data.density)
    axes.bar(
        data.low,
        density,
        width=data.high - data.low,
        align="edge",
        color=style.BAND_POINTWISE,
        edgecolor="white",
        linewidth=0.3,
        zorder=1,
        label="density",
    )
    axes.set_ylim(0.0, 1.1 * float(density.max()) or 1.0)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.set_ylabel("density")


def _calibration_handles(result: CriticFit, data: CalibrationData) -> list[Artist]:
    if data.reason is not None:
        return []
    level = percent(result.settings.level)
    found: list[Artist] = [
        Line2D([], [], lw=style.THICK, label=f"mean return, {level} each", **_POINT)
    ]
    if not data.reliable.all():
        label = "interval not reliable"
        look = _POINT | {"markerfacecolor": "white"}
        found.append(Line2D([], [], lw=style.THICK, label=label, **look))
    found.append(Line2D([], [], color=style.EDGE, lw=style.LINE, label="calibrated: G = V"))
    if result.fit.slope.value is not None:
        label = f"least squares: slope {with_half_width(result.fit.slope)}"
        found.append(Line2D([], [], label=label, **_FIT))
    found.append(Patch(color=style.FAINT, lw=0, label="range of returns"))
    return found


def target_figure(
    result: CriticFit, *, target: str | None = None, size: style.Size | None = None
) -> Figure:
    """Density of tokens by critic value and target, log colour, mean |target - V| in every panel.

    A panel per target; with by="staleness" a panel per level for one target, as the paper's
    figure 10 has it. What lies on the diagonal would not move the critic.

    Args:
        result: a critic's fit.
        target: label of the one target to draw; by default all, or with keys the last.
        size: width and height in inches; by default as wide as a page, with square panels.

    Returns: the figure, not registered with pyplot.

    Raises:
        InputError: there is no such target, or `size` is too small for the labels.
    """
    data = target_data(result, target)
    lone = len(data.panels) <= 1
    width, height = size or (LONE_WIDTH if lone else style.DOUBLE_COLUMN[0], 5.0)
    with style.drawing(width):
        figure = style.new_figure((width, height))
        top = _target_header(figure, result, data)
        if size is None:
            height = _square_height(max(len(data.panels), 1), width, top)
            figure = style.new_figure((width, height))
            top = _target_header(figure, result, data)
        grid = _grid(figure, max(len(data.panels), 1), top)
        if not data.panels:
            explain(grid[0], f"Nothing to draw: {plain(data.reason or '')}")
            return figure
        for axes, panel in zip(grid, data.panels, strict=True):
            picture = _target_panel(figure, axes, data, panel)
        _colour_bar(figure, grid, picture)
    return figure


def _target_header(figure: Figure, result: CriticFit, data: TargetData) -> float:
    return header(
        figure,
        target_finding(result, data),
        critic_basis(result),
        [*critic_cautions(result), *frame_cautions(data)],
        [_target_handles() if data.panels else []],
    )


LEFT, RIGHT, BOTTOM, CAPTION, GAP = 0.58, 0.82, 0.42, 0.36, 0.14
"""Inches around and between the panels; captions stand above each."""
LONE_WIDTH = 5.4
"""Width of the figure of one panel, which would else fill a page."""


def _columns(n: int, width: float) -> int:
    return min(n, 3) if width >= 5.0 else min(n, 2)


def _panel_width(n: int, width: float) -> float:
    columns = _columns(n, width)
    return (width - LEFT - RIGHT - GAP * (columns - 1)) / columns


def _square_height(n: int, width: float, top: float) -> float:
    """Height of a figure whose panels are square, or a little higher where it is small."""
    rows = -(-n // _columns(n, width))
    return max(top + BOTTOM + rows * (CAPTION + _panel_width(n, width)), style.SMALLEST[1])


def _grid(figure: Figure, n: int, top: float) -> list[Axes]:
    """Axes of equal size in rows of at most three, sharing both scales."""
    width, height = (float(side) for side in figure.get_size_inches())
    columns = _columns(n, width)
    rows = -(-n // columns)
    wide = _panel_width(n, width)
    tall = (height - top - BOTTOM) / rows - CAPTION
    made: list[Axes] = []
    for i in range(n):
        row, column = divmod(i, columns)
        x = LEFT + column * (wide + GAP)
        y = height - top - (row + 1) * (CAPTION + tall)
        box = (x / width, y / height, wide / width, tall / height)
        first = made[0] if made else None
        axes = figure.add_axes(box, sharex=first, sharey=first)
        axes.tick_params(labelleft=column == 0, labelbottom=i + columns >= n)
        if column == 0:
            axes.set_ylabel("target")
        if i + columns >= n:
            axes.set_xlabel("critic V")
        made.append(axes)
    return made


def _target_panel(figure: Figure, axes: Axes, data: TargetData, panel: TargetPanel) -> Any:
    least, most = data.colours
    norm = LogNorm(max(least, most / 10.0**DECADES), most * 1.0001, clip=True)
    picture = axes.pcolormesh(
        data.edges, data.edges, np.ma.masked_invalid(panel.density.T), norm=norm, cmap=COLOURS,
        rasterized=True, label="density",
    )  # fmt: skip
    ends = np.array(data.frame)
    axes.plot(ends, ends, color=style.VERMILION, lw=style.LINE, zorder=3, label="diagonal")
    axes.set_xlim(data.frame)
    axes.set_ylim(data.frame)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    sizes = style.Type.at(float(figure.get_figwidth()))
    distance = f"|target − V| {with_half_width(panel.fit.distance)}"
    for line, (text, colour) in enumerate(
        ((distance, style.INK), (plain(panel.name), style.MUTED))
    ):
        axes.annotate(
            text,
            (0, 1),
            xytext=(0, 2 + 1.25 * sizes.small * line),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=_fitting(figure, axes, text, sizes.small),
            color=colour,
            va="bottom",
        )
    return picture


def _fitting(figure: Figure, axes: Axes, text: str, points: float) -> float:
    """Font size at which a caption is no wider than its axes; 5 points at least."""
    probe = figure.text(0, 0, text, fontsize=points)
    wide = float(probe.get_window_extent(renderer(figure)).width)
    probe.remove()
    return max(5.0, points * min(1.0, float(axes.get_window_extent().width) / wide))


def _colour_bar(figure: Figure, grid: list[Axes], picture: Any) -> None:
    width = float(figure.get_figwidth())
    boxes = [axes.get_position() for axes in grid]
    bottom, top = min(b.y0 for b in boxes), max(b.y1 for b in boxes)
    left = max(b.x1 for b in boxes) + 0.12 / width
    axes = figure.add_axes((left, bottom, 0.12 / width, top - bottom))
    bar = figure.colorbar(picture, cax=axes)
    bar.set_label("share of tokens per unit²", labelpad=2)
    box = axes.get_tightbbox(renderer(figure))
    assert box is not None
    over = box.x1 / figure.dpi - (width - EDGE)
    if over > 0:
        spot = axes.get_position()
        axes.set_position((spot.x0 - over / width, spot.y0, spot.width, spot.height))


def _target_handles() -> list[Artist]:
    return [Line2D([], [], color=style.VERMILION, lw=style.LINE, label="target = V: no pull")]
