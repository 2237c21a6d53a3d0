"""Where things stand on a figure: a measured header, then panels one above the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from brace_diag.plots.style import INK, MUTED, VERMILION, Type

EDGE = 0.08
"""Empty border of every figure, in inches."""
SPACING = 1.28
"""Line spacing in units of the font size."""
ASCENT = 0.95
"""From the top of a line to its baseline in units of the font size; a hat on a letter needs it."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of a stack.

    Attributes:
        height: inches, or 0 for what the others leave.
        caption: words above its top left corner, or none.
    """

    height: float
    caption: str = ""


def renderer(figure: Figure) -> Any:
    """The Agg renderer that measures text."""
    return cast(Any, figure.canvas).get_renderer()


def figure_of(axes: Axes) -> Figure:
    """The whole figure that axes stand on, subfigures or not."""
    figure = axes.get_figure()
    assert figure is not None
    return figure.figure


def wrapped(figure: Figure, text: str, size: float, inches: float) -> list[str]:
    """Lines of `text` no wider than `inches` at font `size`, broken at spaces."""
    probe = figure.text(0, 0, "", fontsize=size)
    lines: list[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        probe.set_text(longer)
        if lines and probe.get_window_extent(renderer(figure)).width > inches * figure.dpi:
            lines.append(word)
        else:
            lines[-1:] = [longer]
    probe.remove()
    return lines


def header(
    figure: Figure,
    title: str,
    basis: str,
    cautions: Sequence[str],
    legends: Sequence[Sequence[Artist]],
) -> float:
    """Title, basis, cautions and legends from the top left corner down.

    Returns: inches from the top of the figure to the end of the last of them.
    """
    width, height = figure.get_size_inches()
    sizes = Type.at(float(width))
    room = float(width) - 2 * EDGE
    down = EDGE
    rows = [(title, sizes.title, INK), (basis, sizes.small, MUTED)]
    rows += [(caution, sizes.small, VERMILION) for caution in cautions]
    for text, size, colour in rows:
        for line in wrapped(figure, text, size, room):
            figure.text(
                EDGE / width,
                1 - (down + ASCENT * size / 72) / height,
                line,
                fontsize=size,
                color=colour,
                va="baseline",
            )
            down += SPACING * size / 72
        down += 0.02
    down += 0.04
    for handles in legends:
        if handles:
            down += _legend(figure, handles, down, room) + 0.03
    return down


def _legend(figure: Figure, handles: Sequence[Artist], down: float, room: float) -> float:
    """A legend in as few rows as fit `room`, evenly filled; returns its height in inches."""
    width, height = figure.get_size_inches()
    n = len(handles)
    for rows in range(1, n + 1):
        columns = -(-n // rows)
        legend = figure.legend(
            handles=list(handles),
            loc="upper left",
            bbox_to_anchor=(EDGE / width, 1 - down / height),
            ncols=columns,
            frameon=False,
            borderaxespad=0.0,
            borderpad=0.0,
            handlelength=1.7,
            handletextpad=0.5,
            columnspacing=1.4,
            labelspacing=0.35,
        )
        box = legend.get_window_extent(renderer(figure))
        if columns == 1 or box.width <= room * figure.dpi:
            return float(box.height) / figure.dpi
        legend.remove()
    return 0.0


def stack(
    figure: Figure, panels: Sequence[Panel], *, top: float, right: float, bottom: float
) -> list[Axes]:
    """Axes one above the other with one x axis; only the lowest labels it.

    Args:
        top, right, bottom: inches that the panels leave free at the sides of the figure.
    """
    width, height = (float(side) for side in figure.get_size_inches())
    sizes = Type.at(width)
    gaps = [(0.11 + SPACING * sizes.small / 72) if p.caption else 0.08 for p in panels]
    free = height - top - bottom - sum(gaps) - sum(p.height for p in panels)
    left = 0.6
    made: list[Axes] = []
    down = top
    for panel, gap in zip(panels, gaps, strict=True):
        down += gap
        tall = panel.height or free
        box = (
            left / width,
            1 - (down + tall) / height,
            1 - (left + right) / width,
            tall / height,
        )
        axes = figure.add_axes(box, sharex=made[0] if made else None)
        if panel.caption:
            axes.annotate(
                panel.caption,
                (0, 1),
                xytext=(0, 2),
                xycoords="axes fraction",
                textcoords="offset points",
                fontsize=sizes.small,
                color=MUTED,
                va="bottom",
            )
        made.append(axes)
        down += tall
    for axes in made[:-1]:
        axes.tick_params(axis="x", which="both", labelbottom=False)
    return made


def fit_left(figure: Figure, stacked: Sequence[Axes]) -> None:
    """Move the left end of all panels so that the widest y labels just fit the border."""
    figure.align_ylabels(stacked)
    width = float(figure.get_figwidth())
    boxes = [axes.yaxis.get_tightbbox(renderer(figure)) for axes in stacked]
    leftmost = min(box.x0 for box in boxes if box is not None) / figure.dpi
    shift = (EDGE - leftmost) / width
    for axes in stacked:
        box = axes.get_position()
        axes.set_position((box.x0 + shift, box.y0, box.width - shift, box.height))
