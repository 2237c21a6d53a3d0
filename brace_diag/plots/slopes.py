"""The figure of one question: how much of the reward reaches each value target, and from where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from brace_diag.plots import style
from brace_diag.plots.gap import explain
from brace_diag.plots.gap_data import lonely
from brace_diag.plots.layout import Panel, figure_of, fit_left, header, stack
from brace_diag.plots.scale import position_axis
from brace_diag.plots.slopes_data import Line, SlopeLine, SlopesData, frame, slopes_data
from brace_diag.plots.slopes_words import cautions, finding, slopes_basis, target_words
from brace_diag.plots.strips import rollouts_strip
from brace_diag.plots.words import percent
from brace_diag.results_slope import RewardSlope

WITHIN_BAND, POOLED_BAND = 0.24, 0.09
"""Opacity of the bands: several targets lie over each other."""
FEW = 14
"""Up to this many cells every one has its marker; beyond, every so-manieth."""


@dataclass(frozen=True, slots=True)
class Look:
    """Colour and marker of a target: told apart in grey and under every common colour blindness."""

    colour: str
    marker: str
    dash: Any


_COLOURS = (style.BLUE, style.VERMILION, style.GREEN, style.PURPLE, style.ORANGE, style.SKY)
_MARKERS = ("o", "s", "^", "D", "v", "X")
LOOKS = tuple(
    Look(colour, marker, dash)
    for dash in ("solid", (0, (5, 1.5)), (0, (1.5, 1.2)))
    for colour, marker in zip(_COLOURS, _MARKERS, strict=True)
)
"""Targets in order; the eighteenth is followed by the first again."""


def slope_figure(result: RewardSlope, *, size: style.Size = style.DOUBLE_COLUMN) -> Figure:
    """Reward slope and return weight of every target by remaining horizon (the paper's Fig 2b).

    The upper panel holds beta within prompts (thick, marked, with its interval) and pooled (thin,
    with a fainter one); the panel below it the return weight E[γ^h C]. 1: the whole reward arrives,
    0: none of it. The strip counts the rollouts that reach each horizon. Windows and caps stand in
    the legend.

    Args:
        result: reward slopes of one target or more.
        size: width and height in inches; `SINGLE_COLUMN` fits one column of a paper.

    Returns: the figure, not registered with pyplot.

    Raises:
        InputError: `size` is too small for the labels.
    """
    data = slopes_data(result)
    with style.drawing(size[0]):
        figure = style.new_figure(size)
        top = header(
            figure,
            finding(result),
            slopes_basis(result),
            cautions(result),
            [_target_handles(data), _line_handles(data)],
        )
        captions = (
            "slope of target − V on G − V",
            "return weight $E[γ^h C]$: part of the return in the target",
        )
        panels = [Panel(0.0, captions[0])]
        if len(data.x):
            panels.append(Panel(0.3 * (size[1] - top), captions[1]))
            panels.append(Panel(0.4 if size[1] < 4.8 else 0.45, "rollouts with a token there"))
        stacked = stack(figure, panels, top=top, right=0.14, bottom=0.42)
        _draw(stacked, data)
        stacked[-1].set_xlabel("remaining horizon h = T − 1 − t, in policy tokens")
        fit_left(figure, stacked)
        _horizon_axis(stacked[0], data)
    return figure


def _draw(stacked: list[Axes], data: SlopesData) -> None:
    if not len(data.x):
        stacked[0].set_ylabel(r"$\beta$")
        explain(stacked[0], "No rollout has all that a slope needs")
        return
    slope_panel(stacked[0], data)
    weight_panel(stacked[1], data)
    # The strip reads the cells and counts alone, which both kinds of data have.
    rollouts_strip(stacked[2], cast(Any, data))


def slope_panel(axes: Axes, data: SlopesData) -> None:
    """Slopes within prompts and pooled, with their intervals."""
    _frame(axes, data, [line for t in data.targets for line in (t.within, t.pooled)])
    axes.set_ylabel(r"$\beta$")
    for look, target in zip(_looks(data), data.targets, strict=True):
        name = target.spec.label
        _band(axes, data, target.pooled, look, POOLED_BAND, f"{name} pooled interval")
        _band(axes, data, target.within, look, WITHIN_BAND, f"{name} within interval")
        axes.plot(
            data.x,
            target.pooled.value,
            color=look.colour,
            linestyle=(0, (1, 1)),
            lw=style.LINE,
            zorder=3,
            label=f"{name} pooled",
        )
        _line(axes, data, target.within, look, f"{name} within")


def weight_panel(axes: Axes, data: SlopesData) -> None:
    """Return weights with their intervals."""
    _frame(axes, data, [t.return_weight for t in data.targets])
    axes.set_ylabel("weight")
    for look, target in zip(_looks(data), data.targets, strict=True):
        name = target.spec.label
        _band(axes, data, target.return_weight, look, WITHIN_BAND, f"{name} weight interval")
        _line(axes, data, target.return_weight, look, f"{name} weight")


def _frame(axes: Axes, data: SlopesData, lines: list[Line]) -> None:
    axes.set_ylim(frame(data, lines))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    for at in (0.0, 1.0):
        axes.axhline(at, color=style.EDGE, lw=style.THIN, zorder=0.5, label=f"{at:g}")


def _band(axes: Axes, data: SlopesData, line: Line, look: Look, opacity: float, label: str) -> None:
    options: dict[str, Any] = {"color": look.colour, "alpha": opacity, "zorder": 1.0}
    axes.fill_between(data.x, line.low, line.high, lw=0, label=label, **options)
    # A band has no width at a cell whose neighbours have no interval.
    alone = lonely(np.isfinite(line.low))
    if alone.any():
        options |= {"alpha": 2.0 * opacity}
        x, low, high = data.x[alone], line.low[alone], line.high[alone]
        axes.vlines(x, low, high, lw=3 * style.THICK, label=f"{label} alone", **options)


def _line(axes: Axes, data: SlopesData, line: Line, look: Look, label: str) -> None:
    axes.plot(
        data.x,
        line.value,
        color=look.colour,
        linestyle=look.dash,
        lw=style.THICK,
        marker=look.marker,
        markevery=1 if len(data.x) <= FEW else -(-len(data.x) // FEW),
        markersize=3.4,
        markeredgecolor="white",
        markeredgewidth=0.4,
        zorder=4,
        label=label,
    )


def _looks(data: SlopesData) -> list[Look]:
    return [LOOKS[i % len(LOOKS)] for i in range(len(data.targets))]


def _horizon_axis(axes: Axes, data: SlopesData) -> None:
    if not len(data.x):
        axes.set_xticks([])
        return
    inches = float(axes.get_window_extent().width) / figure_of(axes).dpi
    position_axis(axes, -0.6, float(data.end[-1]), inches, style.Type.at(inches).small)


def _target_handles(data: SlopesData) -> list[Artist]:
    return [
        Line2D(
            [],
            [],
            color=look.colour,
            linestyle=look.dash,
            lw=style.THICK,
            marker=look.marker,
            markersize=3.4,
            markeredgecolor="white",
            markeredgewidth=0.4,
            label=target_words(target.spec),
        )
        for look, target in zip(_looks(data), data.targets, strict=True)
    ]


def _line_handles(data: SlopesData) -> list[Artist]:
    """What thick, thin and shaded mean; only what is there."""
    found: list[Artist] = []
    if _any(data, "within"):
        found.append(Line2D([], [], color=style.MUTED, lw=style.THICK, label="within prompts"))
    if _any(data, "pooled"):
        dots = Line2D([], [], color=style.MUTED, lw=style.LINE, linestyle=(0, (1, 1)))
        dots.set_label("pooled over prompts")
        found.append(dots)
    if any(np.isfinite(line.low).any() for t in data.targets for line in t.lines):
        label = f"{percent(data.level)} interval, each cell alone"
        found.append(Patch(color=style.MUTED, alpha=WITHIN_BAND, lw=0, label=label))
    return found


def _any(data: SlopesData, name: str) -> bool:
    lines: list[SlopeLine] = list(data.targets)
    return any(np.isfinite(getattr(t, name).value).any() for t in lines)
