"""Critic values against the returns that the log shows possible."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from brace_diag.rollouts import Rollouts

Array = npt.NDArray[np.float64]


@njit(cache=True, nogil=True)
def _extent(values, low, high):  # type: ignore[no-untyped-def]
    """Finite values, those outside [low, high], the smallest and the largest."""
    n = 0
    outside = 0
    smallest = np.inf
    largest = -np.inf
    for i in range(len(values)):
        v = np.float64(values[i])
        if np.isfinite(v):
            n += 1
            outside += (v < low) | (v > high)
            smallest = min(smallest, v)
            largest = max(largest, v)
    return n, outside, smallest, largest


@dataclass(slots=True)
class ValueRange:
    """Critic values against the range of returns that the log shows.

    Attributes:
        low, high: smallest and largest return to go of the log.
        n_values, n_outside: finite critic values; those outside the range.
    """

    low: float
    high: float
    n_values: int = 0
    n_outside: int = 0
    smallest: float = np.inf
    largest: float = -np.inf

    def update(self, batch: Rollouts) -> None:
        """Add a batch; values that are not finite are left out."""
        if batch.values is None:
            return
        slack = 1e-6 * max(abs(self.low), abs(self.high), 1e-12)
        n, outside, low, high = _extent(batch.values, self.low - slack, self.high + slack)
        self.n_values += n
        self.n_outside += outside
        self.smallest, self.largest = min(self.smallest, low), max(self.largest, high)

    @property
    def broken(self) -> bool:
        """Most values can be no return at all."""
        return self.high > self.low and self.n_outside > 0.5 * max(self.n_values, 1)

    def words(self) -> str:
        share = 100.0 * self.n_outside / max(self.n_values, 1)
        return (
            f"{share:.0f} % of the critic's values lie outside the returns' range "
            f"[{self.low:g}, {self.high:g}] (values from {self.smallest:.3g} to {self.largest:.3g})"
        )


def returns_range(total_reward: Array) -> tuple[float, float]:
    """Smallest and largest known return; (0, 0) where none is known."""
    known = total_reward[np.isfinite(total_reward)]
    if len(known) == 0:
        return 0.0, 0.0
    return float(known.min()), float(known.max())
