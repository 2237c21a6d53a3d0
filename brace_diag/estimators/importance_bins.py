"""Counts of signed numbers in fixed bins, eight to the octave of |x|: they add up exactly.

The bin of x is read off its bits: sign, exponent and the first three bits of the mantissa, so the
edges are ±2^e (1 + j/8). Zero has a bin of its own, since most tokens of a capped or fresh log sit
there. |x| below 2^-24 or from 2^20 on is counted in the first or last bin of its side.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

PER_OCTAVE_BITS = 3
LOWEST, HIGHEST = -24, 20
SIDE = (HIGHEST - LOWEST) << PER_OCTAVE_BITS
ZERO = SIDE
"""Index of the bin of 0; bins of negative numbers come before it, all in ascending order."""
N_BINS = 2 * SIDE + 1
_SHIFT = 52 - PER_OCTAVE_BITS
_FIRST = (1023 + LOWEST) << PER_OCTAVE_BITS


@njit(cache=True, nogil=True)
def add_counts(values, n, counts):  # type: ignore[no-untyped-def]
    """Count values[:n] in counts (N_BINS,)."""
    for i in range(n):
        x = np.float64(values[i])
        # Without branches: signs and sizes of log-weights cannot be foreseen.
        k = (np.float64(abs(x)).view(np.int64) >> _SHIFT) - _FIRST
        k = k if k > 0 else 0  # type: ignore[assignment]
        k = k if k < SIDE else SIDE - 1  # type: ignore[assignment]
        sign = np.int64(x > 0.0) - np.int64(x < 0.0)
        counts[ZERO + sign * (k + 1)] += 1


def magnitudes() -> Array:
    """Edges of |x|, (SIDE + 1,): bin k of a side holds edges[k] <= |x| < edges[k + 1]."""
    index = np.arange(SIDE + 1)
    octave = 2.0 ** (LOWEST + (index >> PER_OCTAVE_BITS))
    return np.asarray(octave * (1.0 + (index & 7) / 8.0))


def _bounds() -> tuple[Array, Array]:
    """Lower and upper edge of every bin, (N_BINS,)."""
    edges = magnitudes()
    # What lies below the first edge is counted in the first bin, which so reaches down to 0.
    edges[0] = 0.0
    low = np.concatenate([-edges[:0:-1], [0.0], edges[:-1]])
    high = np.concatenate([-edges[-2::-1], [0.0], edges[1:]])
    return low, high


def below(counts: Counts, x: float) -> float:
    """Share of the counted numbers that are at most x, linear inside a bin; NaN without any."""
    total = counts.sum()
    if total == 0:
        return float("nan")
    low, high = _bounds()
    width = np.where(high > low, high - low, 1.0)
    inside = np.clip((x - low) / width, 0.0, 1.0)
    inside[ZERO] = float(x >= 0.0)
    return float(np.sum(counts * inside) / total)


def within(counts: Counts, low: float, high: float) -> float:
    """Share of the counted numbers in [low, high]; an interval of no width holds its own bin's 0.

    NaN where nothing is counted.
    """
    at_zero = counts[ZERO] / max(int(counts.sum()), 1) if low == 0.0 else 0.0
    return below(counts, high) - below(counts, low) + at_zero


def quantile(counts: Counts, probability: float) -> float:
    """Quantile, linear inside a bin; NaN without numbers."""
    total = int(counts.sum())
    if total == 0:
        return float("nan")
    low, high = _bounds()
    cumulative = np.cumsum(counts)
    b = int(np.searchsorted(cumulative, max(probability * total, 1e-9)))
    share = (probability * total - (cumulative[b] - counts[b])) / counts[b]
    return float(low[b] + min(max(share, 0.0), 1.0) * (high[b] - low[b]))


def survival(counts: Counts, sign: int) -> Array:
    """Share of all counted numbers with sign · x at or beyond each edge of `magnitudes`."""
    side = counts[ZERO + 1 :] if sign > 0 else counts[ZERO - 1 :: -1]
    beyond = np.concatenate([np.cumsum(side[::-1])[::-1], [0]])
    return np.asarray(beyond / max(int(counts.sum()), 1), np.float64)
