"""The fixed frame of critic sums: which returns are reachable, and where bins of values are cut."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from brace_diag.estimators.gap_cells import returns_to_go
from brace_diag.rollouts import Rollouts

Array = npt.NDArray[np.float64]

CALIBRATION_BINS, DENSITY_BINS = 160, 48
"""Equal bins inside the range of returns, for the calibration and for the density."""
PER_OCTAVE, OCTAVES = 2, 20
"""Bins far beyond the range double their width this often, this many times, on either side."""
SLACK = 1e-6
"""Rounding of float32 values that is no excursion, relative to the range's ends."""


def equal_bins(n_bins: int) -> int:
    """Number of equal bins where n_bins of them cover the range: half as many lie beside it."""
    return n_bins + 2 * (n_bins // 4)


@dataclass(frozen=True, slots=True)
class Frame:
    """What every shard of a log must agree on before its sums add up.

    Attributes:
        low, high: smallest and largest return to go that the log shows; high >= low.
        centre: subtracted from returns and values before they are squared, against rounding.
        gamma: discount of the returns.
    """

    low: float
    high: float
    centre: float
    gamma: float

    @property
    def constant(self) -> bool:
        """Whether all returns of the log are equal."""
        return self.high <= self.low

    @property
    def limits(self) -> tuple[float, float]:
        """Ends beyond which a critic value can be no return."""
        slack = SLACK * max(abs(self.low), abs(self.high), 1e-12)
        return self.low - slack, self.high + slack

    def edges(self, n_bins: int) -> Array:
        """Edges of n_bins equal bins over the range, of as many to a quarter beyond, then wider.

        Bin i holds edges[i-1] <= x < edges[i]; bins 0 and len(edges) are open.
        """
        low, high = self.limits
        if self.constant:
            half = max(abs(self.low), 1.0) / 2.0
            low, high = self.low - half, self.high + half
        margin = (high - low) / 4.0
        low, high = low - margin, high + margin
        inner = np.linspace(low, high, equal_bins(n_bins) + 1)
        growth = 2.0 ** (np.arange(1, PER_OCTAVE * OCTAVES + 1) / PER_OCTAVE)
        # The first of them is as wide as an equal bin.
        outer = (inner[1] - inner[0]) * (growth - 1.0) / (growth[0] - 1.0)
        return np.concatenate([low - outer[::-1], inner, high + outer])


@njit(cache=True, nogil=True)
def _extent(offsets, rewards, dense, bootstrap, known, gamma, scratch):  # type: ignore[no-untyped-def]
    low = np.inf
    high = -np.inf
    for i in range(len(known)):
        length = offsets[i + 1] - offsets[i]
        if not known[i] or length == 0:
            continue
        returns_to_go(rewards, dense, i, offsets[i], length, bootstrap[i], gamma, scratch)
        for t in range(length):
            low = min(low, scratch[t])
            high = max(high, scratch[t])
    return low, high


def returns_extent(batches: Iterable[Rollouts], gamma: float) -> tuple[float, float]:
    """Smallest and largest return to go over all tokens; (0, 0) where none is known."""
    low, high = np.inf, -np.inf
    for batch in batches:
        scratch = np.empty(int(batch.lengths.max(initial=0)))
        least, most = _extent(
            batch.offsets,
            batch.rewards,
            batch.dense,
            batch.bootstrap,
            batch.has_reward,
            gamma,
            scratch,
        )
        low, high = min(low, least), max(high, most)
    return (low, high) if low <= high else (0.0, 0.0)
