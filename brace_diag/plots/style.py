"""One look for all figures: sizes, colours, line widths, and what each gate is drawn as."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import style as mpl_style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from brace_diag.errors import InputError
from brace_diag.results import Gate
from brace_diag.settings import GateThresholds

Array = npt.NDArray[np.float64]
Size = tuple[float, float]

DOUBLE_COLUMN: Size = (7.0, 5.0)
SINGLE_COLUMN: Size = (3.5, 4.6)
"""Width and height in inches of a figure over two columns of a paper, and over one."""
SMALLEST: Size = (3.0, 3.5)
"""Below this the header, three panels and their labels no longer fit without overlap."""

# Okabe & Ito, Color Universal Design (2008): told apart under every common colour blindness.
BLACK = "#000000"
ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
INK = "#222222"
MUTED = "#5F5F5F"
FAINT, EDGE = "#E8E8E8", "#A8A8A8"

THIN, LINE, THICK = 0.6, 0.9, 1.5
BAND_POINTWISE, BAND_SIMULTANEOUS = "#8FBDDC", "#D6E6F2"
"""Opaque tints of BLUE, so that bands print the same from every format and stay apart in grey."""


FOOT = 0.045
"""Height of the row of marks for what has no estimate, as a share of the panel."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How points of one gate are drawn: shape and fill say in grey what the colour says."""

    shape: str
    colour: str
    filled: bool
    meaning: str


_GATES = GateThresholds()
GATE_MARKS: dict[Gate, Mark] = {
    "good": Mark("o", GREEN, True, f"good (v ≤ {_GATES.good:g})"),
    "fair": Mark("s", YELLOW, True, f"fair (v ≤ {_GATES.limit:g})"),
    "direction": Mark("^", ORANGE, True, f"sign only (v ≤ {_GATES.refuse:g})"),
    "refused": Mark("X", VERMILION, True, f"refused (v > {_GATES.refuse:g})"),
    "unknown": Mark("D", "#FFFFFF", False, "v unknown"),
}
"""In order of trust; v is the within-prompt variance of the log product."""


@dataclass(frozen=True, slots=True)
class Type:
    """Font sizes in points at one figure width."""

    title: float
    base: float
    small: float
    marker: float

    @classmethod
    def at(cls, width: float) -> Type:
        """Sizes for a figure `width` inches wide: 6 points is the least that print carries."""
        return cls(10.0, 8.5, 7.0, 4.2) if width >= 5.0 else cls(8.0, 7.0, 6.0, 3.0)


def drawing(width: float = DOUBLE_COLUMN[0]) -> AbstractContextManager[None]:
    """Context in which figures are made and saved: our settings over matplotlib's own defaults.

    The user's own settings (a dark theme, a tight bounding box) are put back on leaving.
    """
    return mpl_style.context(["default", _settings(Type.at(width))])


def _settings(size: Type) -> dict[str, Any]:
    return {
        "font.family": "DejaVu Sans",
        "font.size": size.base,
        "axes.labelsize": size.base,
        "axes.titlesize": size.title,
        "xtick.labelsize": size.small,
        "ytick.labelsize": size.small,
        "legend.fontsize": size.small,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.linewidth": THIN,
        "xtick.major.width": THIN,
        "ytick.major.width": THIN,
        "xtick.minor.width": THIN,
        "xtick.major.size": 3.0,
        "ytick.major.size": 3.0,
        "xtick.minor.size": 1.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        # Unhinted glyphs have the same widths at every resolution: what fits when measured, fits.
        "text.hinting": "none",
        "lines.linewidth": LINE,
        "lines.markersize": size.marker,
        # Text stays text in SVG, fonts stay fonts in PDF; ids in SVG depend on the content alone.
        "svg.fonttype": "none",
        "svg.hashsalt": "brace-diag",
        "pdf.fonttype": 42,
    }


def new_figure(size: Size) -> Figure:
    """An empty figure of `size` inches on an Agg canvas, unknown to pyplot.

    Raises:
        InputError: the figure is smaller than its labels allow.
    """
    width, height = size
    if not (width >= SMALLEST[0] and height >= SMALLEST[1]):
        raise InputError(
            f"a figure of {width:g} x {height:g} inches is too small for its labels; "
            f"at least {SMALLEST[0]:g} x {SMALLEST[1]:g} are needed"
        )
    figure = Figure(figsize=size, dpi=100, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def gate_layer(
    axes: Axes, gates: Sequence[Gate | None], x: Array, y: Array, **options: Any
) -> None:
    """Points in the mark of their gate; where y is NaN the mark stands at the foot of the axes.

    Lines are labelled by their gate, at the foot by "<gate>, none"; a gate of None is not drawn.
    """
    for gate in GATE_MARKS:
        at = np.array([g == gate for g in gates], np.bool_)
        shown, missing = at & np.isfinite(y), at & ~np.isfinite(y)
        look = mark_options(gate) | {"linestyle": "none", "zorder": 5.0} | options
        if shown.any():
            axes.plot(x[shown], y[shown], label=gate, **look)
        if missing.any():
            foot = np.full(int(missing.sum()), FOOT)
            rug = axes.get_xaxis_transform()
            axes.plot(x[missing], foot, label=f"{gate}, none", transform=rug, **look)


def mark_options(gate: Gate) -> dict[str, Any]:
    """Marker options of a gate, for points and legend alike."""
    mark = GATE_MARKS[gate]
    return {
        "marker": mark.shape,
        "markerfacecolor": mark.colour if mark.filled else "white",
        "markeredgecolor": INK,
        "markeredgewidth": 0.5,
    }
