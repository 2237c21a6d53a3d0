"""Thin panels under a gap: how many rollouts it rests on, how far its weights can be trusted."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from brace_diag.plots import style
from brace_diag.plots.gap_data import GapData, stairs
from brace_diag.plots.layout import figure_of
from brace_diag.results import Gate
from brace_diag.settings import GateThresholds

LOG_FROM = 50.0
"""Ratio of the largest to the smallest count from which the strip of rollouts is logarithmic."""
V_FLOOR, V_ROOF = 0.1, 20.0
"""The variance strip reaches at least this far, so that all limits of the gates are seen."""
V_LEAST = 0.02
"""Smaller variances lie on the lower edge: they are all good alike."""
V_MOST = 100.0
"""Larger variances lie on the upper edge, so that the zones of the gates stay legible."""
_GATES = GateThresholds()
ZONES: tuple[tuple[Gate, float, float, str], ...] = (
    ("good", 0.0, _GATES.good, "good"),
    ("fair", _GATES.good, _GATES.limit, "fair"),
    ("direction", _GATES.limit, _GATES.refuse, "sign only"),
    ("refused", _GATES.refuse, np.inf, "refused"),
)
TINTS: dict[Gate, str] = {
    "good": "#DDF1EB",
    "fair": "#FBF7C8",
    "direction": "#FBE6C0",
    "refused": "#F6D3BF",
}


def rollouts_strip(axes: Axes, data: GapData) -> None:
    """Rollouts alive in every cell, as filled stairs."""
    x, n = stairs(data, data.n_rollouts)
    alive = n[n > 0]
    logarithmic = alive.size > 0 and float(alive.max() / alive.min()) > LOG_FROM
    least = 0.7 if logarithmic else 0.0
    axes.fill_between(x, least, np.maximum(n, least), color="#C9C9C9", lw=0, label="rollouts")
    axes.plot(x, np.where(n > 0, n, np.nan), color=style.MUTED, lw=style.LINE, label="rollouts")
    most = float(alive.max()) if alive.size else 1.0
    if logarithmic:
        axes.set_yscale("log")
        axes.set_ylim(least, 3.0 * most)
        axes.yaxis.set_major_locator(LogLocator(10, numticks=4))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(0.0, 1.25 * most)
        axes.yaxis.set_major_locator(FixedLocator([0.0, most]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))


def variance_strip(axes: Axes, data: GapData) -> None:
    """v(t) on a log axis over the zones of the gates."""
    low, high = variance_limits(data)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    sizes = style.Type.at(float(figure_of(axes).get_figwidth()))
    for gate, start, stop, name in ZONES:
        bottom, top = max(start, low), min(stop, high)
        axes.axhspan(bottom, top, color=TINTS[gate], lw=0, zorder=0.5, label=f"zone {gate}")
        axes.annotate(
            name,
            (1.0, float(np.sqrt(bottom * top))),
            xytext=(4, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            fontsize=sizes.small - 0.5,
            color=style.MUTED,
            va="center",
            annotation_clip=False,
        )
    for limit in (_GATES.good, _GATES.limit, _GATES.refuse):
        axes.axhline(limit, color=style.MUTED, lw=style.THIN, zorder=1, label="limit")
    axes.plot(
        data.x,
        np.clip(data.v, low, high),
        color=style.INK,
        lw=style.LINE,
        marker="o",
        markersize=1.6,
        zorder=3,
        label="v",
        clip_on=False,
    )
    beyond = data.v > high
    axes.plot(
        data.x[beyond],
        np.full(int(beyond.sum()), high),
        color=style.INK,
        marker="^",
        markersize=3.0,
        linestyle="none",
        zorder=3,
        label="v leaves",
        clip_on=False,
    )
    ticks = [_GATES.good, _GATES.limit, _GATES.refuse, *(t for t in (0.1, 100.0) if low < t < high)]
    axes.yaxis.set_major_locator(FixedLocator(sorted(ticks)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def variance_limits(data: GapData) -> tuple[float, float]:
    """Frame of the variance strip: v and the zones, between `V_LEAST` and `V_MOST`."""
    v = data.v[np.isfinite(data.v) & (data.v > 0.0)]
    if v.size == 0:
        return V_FLOOR, V_ROOF
    low = max(min(V_FLOOR, 0.8 * float(v.min())), V_LEAST)
    return low, min(max(V_ROOF, 1.4 * float(v.max())), V_MOST)


def variance_caption(data: GapData) -> str:
    """What the strip shows, and how far v goes where it leaves the frame."""
    text = "v(t), within-prompt variance of the log product"
    beyond = data.v[data.v > variance_limits(data)[1]]
    return f"{text} (▲ up to {float(beyond.max()):,.0f})" if beyond.size else text


def count(value: float) -> str:
    """A count in few characters: 512, 4096, 20k, 3.25M."""
    if value < 1e4:
        return f"{value:g}"
    size, unit = next(pair for pair in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if value >= pair[0])
    return f"{value / size:.3g}{unit}"
