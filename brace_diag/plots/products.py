"""The figure of one question: how do log-products of weights fall and spread with their length?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from brace_diag.plots import style
from brace_diag.plots.gap import explain
from brace_diag.plots.layout import Panel, figure_of, fit_left, header, stack
from brace_diag.plots.products_data import ProductsData, products_data
from brace_diag.plots.products_words import basis, cautions, numbers, products_finding
from brace_diag.plots.words import percent, plain
from brace_diag.results_importance import ImportanceProducts

LOOKS: dict[str, dict[str, Any]] = {
    "naive": {"color": style.VERMILION, "linestyle": (0, (4, 1.5))},
    "hac": {"color": style.INK, "linestyle": (0, (1.2, 1.2))},
    "prompt": {"color": style.BLUE, "linestyle": "solid"},
}
NAMES = {
    "naive": r"$\sqrt{n}\,\sigma$ (naive: independent tokens, one drift)",
    "hac": r"$\sqrt{n}\,s_{HAC}$",
    "prompt": r"$\sqrt{n\,s_{HAC}^2 + n^2\tau^2}$",
}

PRODUCT_LABEL = r"$\log\,C_{s:s+n}$"


def products_figure(
    result: ImportanceProducts, *, size: style.Size = style.DOUBLE_COLUMN
) -> Figure:
    """Observed and forecast log-products by window length, with the three spreads.

    The upper panel holds the windows' mean log-product and their central part (black), and n m with
    ± z times each spread. Below: the standard deviation, seen and forecast, both axes logarithmic;
    and the share of windows inside each forecast, with the nominal level as a line.

    Args:
        result: importance products.
        size: width and height in inches; `SINGLE_COLUMN` fits one column of a paper.

    Returns: the figure, not registered with pyplot.

    Raises:
        InputError: `size` is too small for the labels.
    """
    data = products_data(result)
    with style.drawing(size[0]):
        figure = style.new_figure(size)
        handles = [_seen_handles(data), _spread_handles()] if data.reason is None else []
        words = basis(result) if data.reason is not None else f"{basis(result)} · {numbers(result)}"
        top = header(figure, products_finding(result, data), words, cautions(result), handles)
        panels = [Panel(0.0, "" if data.reason else "log-product of n tokens in a row")]
        if data.reason is None:
            room = size[1] - top
            panels.append(
                Panel(0.22 * room, f"its standard deviation, with {percent(data.level)} intervals")
            )
            panels.append(Panel(0.15 * room, "share of windows inside n m ± z spread"))
        stacked = stack(figure, panels, top=top, right=0.14, bottom=0.42)
        if data.reason is not None:
            explain(stacked[0], f"No log-product: {plain(data.reason)}")
            stacked[0].set_xticks([])
            stacked[0].set_ylabel(PRODUCT_LABEL)
        else:
            log_product_panel(stacked[0], data)
            spread_panel(stacked[1], data)
            coverage_panel(stacked[2], data)
            stacked[-1].set_xlabel("window length n, in policy tokens")
        fit_left(figure, stacked)
        if data.reason is None:
            _length_axis(stacked[0], data)
    return figure


def log_product_panel(axes: Axes, data: ProductsData) -> None:
    """Windows seen, and n m ± z spread."""
    axes.axhline(0.0, color=style.EDGE, lw=style.THIN, zorder=0.5, label="zero")
    wide = data.z * data.spread["prompt"]
    axes.fill_between(
        data.n, data.forecast - wide, data.forecast + wide, color=style.BAND_SIMULTANEOUS, lw=0,
        zorder=1.0, label="prompt band",
    )  # fmt: skip
    axes.plot(data.n, data.forecast, color=style.BLUE, lw=style.LINE, zorder=2, label="n m")
    for name, look in LOOKS.items():
        for sign in (-1.0, 1.0):
            edge = data.forecast + sign * data.z * data.spread[name]
            axes.plot(data.n, edge, lw=style.LINE, zorder=2.5, label=f"{name} edge", **look)
    axes.vlines(data.n, data.low, data.high, colors=style.INK, lw=style.THICK, zorder=4,
                label="central part")  # fmt: skip
    axes.plot(
        data.n, data.mean, color=style.INK, marker="o", linestyle="none", zorder=5, label="mean"
    )
    for end in (data.mean_low, data.mean_high):
        axes.plot(data.n, end, color=style.INK, marker="_", markersize=8.0, linestyle="none",
                  zorder=5, label="mean interval")  # fmt: skip
    axes.set_ylabel(PRODUCT_LABEL)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))


def spread_panel(axes: Axes, data: ProductsData) -> None:
    """Standard deviations on log axes: sqrt(n) and n are straight lines of slope 1/2 and 1."""
    for name, look in LOOKS.items():
        axes.plot(data.n, _positive(data.spread[name]), lw=style.LINE, label=name, **look)
    seen = _positive(data.observed_sd)
    axes.plot(data.n, seen, color=style.INK, marker="o", linestyle="none", zorder=5, label="seen")
    low, high = _positive(data.sd_low), data.sd_high
    axes.vlines(data.n, low, high, colors=style.INK, lw=style.LINE, zorder=4, label="seen interval")
    axes.set_ylabel("sd")
    if np.isfinite(_positive(data.observed_sd)).any():
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(10, subs=(1.0, 3.0), numticks=6))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _positive(series: Any) -> Any:
    return np.where(series > 0.0, series, np.nan)


def coverage_panel(axes: Axes, data: ProductsData) -> None:
    """Share of windows inside each forecast."""
    axes.axhline(data.level, color=style.EDGE, lw=style.THIN, zorder=0.5, label="level")
    for name, look in LOOKS.items():
        axes.plot(data.n, data.coverage[name], lw=style.LINE, marker=".", label=name, **look)
    axes.set_ylim(0.0, 1.05)
    axes.yaxis.set_major_locator(FixedLocator([0.0, 0.5, data.level]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))


def _length_axis(axes: Axes, data: ProductsData) -> None:
    """Powers of two on a log axis, every so-manieth with a label where they stand close."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.8, 1.25 * float(data.n[-1]))
    names = [f"{int(n):,}" for n in data.n]
    inches = float(axes.get_window_extent().width) / figure_of(axes).dpi
    size = style.Type.at(float(figure_of(axes).get_figwidth())).small
    # A DejaVu digit is .636 em wide; one em is left between two labels.
    wide = (0.636 * max(map(len, names)) + 1.0) * size / 72.0
    stride = max(1, math.ceil(wide * len(names) / inches))
    shown = list(range(len(names) - 1, -1, -stride))
    axes.xaxis.set_major_locator(FixedLocator([float(data.n[i]) for i in shown]))
    axes.xaxis.set_major_formatter(FixedFormatter([names[i] for i in shown]))
    axes.xaxis.set_minor_locator(FixedLocator(data.n.tolist()))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _seen_handles(data: ProductsData) -> list[Artist]:
    level = percent(data.level)
    return [
        Line2D(
            [],
            [],
            color=style.INK,
            marker="o",
            linestyle="none",
            label=f"windows seen: mean, {level} (ticks)",
        ),
        Line2D([], [], color=style.INK, lw=style.THICK, label=f"their central {level}"),
        Line2D([], [], color=style.BLUE, lw=style.LINE, label="forecast n m"),
        Patch(color=style.BAND_SIMULTANEOUS, lw=0, label=f"{level} forecast with τ"),
    ]


def _spread_handles() -> list[Artist]:
    return [
        Line2D([], [], lw=style.LINE, label=f"± z {NAMES[name]}", **LOOKS[name]) for name in NAMES
    ]
