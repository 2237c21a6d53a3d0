"""Position axis: one unit per token below 8, four units per octave above, as the cells are cut."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedFormatter, FixedLocator

from brace_diag.settings import EXACT_BELOW, PER_OCTAVE

Array = npt.NDArray[np.float64]


def to_units(position: npt.ArrayLike) -> Array:
    """u(t) = t below 8, 8 + 4 log2(t / 8) from there on: continuous, increasing, cells ~1 wide."""
    t = np.asarray(position, np.float64)
    above = EXACT_BELOW + PER_OCTAVE * np.log2(np.maximum(t, EXACT_BELOW) / EXACT_BELOW)
    return np.where(t < EXACT_BELOW, t, above)


def to_positions(units: npt.ArrayLike) -> Array:
    """Inverse of `to_units`."""
    u = np.asarray(units, np.float64)
    above = EXACT_BELOW * 2.0 ** (np.maximum(u - EXACT_BELOW, 0.0) / PER_OCTAVE)
    return np.where(u < EXACT_BELOW, u, above)


def position_ticks(last: float, inches: float, points: float) -> tuple[list[int], list[int]]:
    """Ticks 0, 1, 2, 4, 8, ... up to `last`: those with a label, and those without.

    Labels are kept from the largest power down, then 0, wherever they stand apart on an axis of
    `inches` at a font of `points`.
    """
    powers = [2**i for i in range(int(np.log2(max(last, 1.0))) + 1)]
    ticks = [0, *powers]
    per_unit = inches / max(float(to_units(last)), 1.0)
    # A DejaVu digit is .636 em wide; one em is left between two labels.
    widths = {t: (0.636 * len(str(t)) + 1.0) * points / 72.0 for t in ticks}
    octave = PER_OCTAVE * per_unit
    stride = int(np.ceil(max(widths.values()) / octave)) if len(powers) > 4 else 1
    wide = powers[3::][::stride]
    kept: list[int] = []
    for tick in [*wide, 0, 4, 2, 1]:
        near = (
            abs(float(to_units(tick) - to_units(k))) * per_unit < (widths[tick] + widths[k]) / 2
            for k in kept
        )
        if tick in ticks and not any(near):
            kept.append(tick)
    return sorted(kept), [t for t in ticks if t not in kept]


def position_axis(axes: Axes, first: float, last: float, inches: float, points: float) -> None:
    """Give the x axis the position scale from `first` to `last`, with its ticks."""
    axes.set_xscale("function", functions=(to_units, to_positions))
    major, minor = position_ticks(last, inches, points)
    axes.xaxis.set_major_locator(FixedLocator(major))
    axes.xaxis.set_major_formatter(FixedFormatter([str(t) for t in major]))
    axes.xaxis.set_minor_locator(FixedLocator(minor))
    axes.xaxis.set_minor_formatter(FixedFormatter([""] * len(minor)))
    axes.set_xlim(first, last)


def relative_axis(axes: Axes) -> None:
    """Give the x axis shares of the response from 0 to 100 %."""
    ticks = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{100 * t:.0f} %" for t in ticks]))
    axes.set_xlim(-0.02, 1.0)
