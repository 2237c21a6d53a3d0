"""Signs that a log does not hold what its column names say, from a bounded sample of its tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from brace_diag.estimators.value_range import ValueRange
from brace_diag.rollouts import Rollouts

LAGS = (-2, -1, 1, 2)
SAMPLE_TOKENS = 400_000
"""Tokens after which the probe has seen enough; whole rollouts, from the start of the log."""


@njit(cache=True, nogil=True)
def _lag_sums(offsets, mu, pi, lag, sums):  # type: ignore[no-untyped-def]
    """Add Σ|pi_t - mu_(t+lag)|, Σ|pi_t - mu_t| over the same tokens, and their number."""
    for i in range(len(offsets) - 1):
        first, last = offsets[i], offsets[i + 1]
        for t in range(max(first, first - lag), min(last, last - lag)):
            p = np.float64(pi[t])
            here = np.float64(mu[t])
            there = np.float64(mu[t + lag])
            if np.isfinite(p) and np.isfinite(here) and np.isfinite(there):
                sums[0] += abs(p - there)
                sums[1] += abs(p - here)
                sums[2] += 1


@dataclass(slots=True)
class LogProbe:
    """Sums over the first tokens of a log; exact whatever the batches are.

    Attributes:
        lag_sums: by lag of `LAGS`: Σ|pi_t - mu_(t+lag)|, Σ|pi_t - mu_t|, number of terms.
        n_tokens: tokens seen; n_compared: with both log-probs; n_equal: bit-identical ones.
        n_grid_seen: mu log-probs other than 0; n_bfloat, n_half: those on the 16-bit grids.
    """

    budget: int = SAMPLE_TOKENS
    n_tokens: int = 0
    n_compared: int = 0
    n_equal: int = 0
    n_bfloat: int = 0
    n_half: int = 0
    n_grid_seen: int = 0
    lag_sums: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros((len(LAGS), 3)))

    def update(self, batch: Rollouts) -> None:
        """Look at whole rollouts until the budget is spent."""
        if self.n_tokens >= self.budget or batch.n_tokens == 0:
            return
        ends = batch.offsets[1:]
        n = int(np.searchsorted(ends, self.budget - self.n_tokens)) + 1
        offsets = batch.offsets[: n + 1]
        stop = int(offsets[-1])
        self.n_tokens += stop
        mu = None if batch.mu_logprobs is None else batch.mu_logprobs[:stop]
        if mu is None:
            return
        self._grid(mu)
        if batch.pi_logprobs is not None:
            pi = batch.pi_logprobs[:stop]
            both = np.isfinite(mu) & np.isfinite(pi)
            self.n_compared += int(both.sum())
            self.n_equal += int((both & (mu == pi)).sum())
            for lag, sums in zip(LAGS, self.lag_sums, strict=True):
                _lag_sums(offsets, mu, pi, lag, sums)

    def _grid(self, mu: npt.NDArray[np.floating[Any]]) -> None:
        # Exact zeros lie on every grid and say nothing.
        told = mu[np.isfinite(mu) & (mu != 0)].astype(np.float32)
        self.n_grid_seen += len(told)
        bits = told.view(np.uint32)
        self.n_bfloat += int(((bits & np.uint32(0xFFFF)) == 0).sum())
        with np.errstate(over="ignore"):
            self.n_half += int((told.astype(np.float16).astype(np.float32) == told).sum())

    def best_lag(self) -> int | None:
        """Shift of mu that fits pi far better than none, or None.

        A shift is named when its mean |pi_t - mu_(t+lag)| is under half of that without a shift,
        over 100 tokens or more, or under .8 of it over 2,000 (pi fits the token it is of best,
        however stale it is); three tokens do where shifted columns agree to the last digit.
        """
        n = self.lag_sums[:, 2]
        with np.errstate(invalid="ignore", divide="ignore"):
            shifted, straight = self.lag_sums[:, 0] / n, self.lag_sums[:, 1] / n
        exact = (shifted < 1e-6) & (straight > 0.05) & (n >= 3)
        clear = (shifted < 0.5 * straight) & (n >= 100) | (shifted < 0.8 * straight) & (n >= 2000)
        named = np.where(exact | clear, shifted, np.inf)
        best = int(np.argmin(named))
        return LAGS[best] if np.isfinite(named[best]) else None

    def grid(self) -> str | None:
        """`bfloat16` or `float16` where practically every mu log-prob lies on that grid."""
        if self.n_grid_seen < 50:
            return None
        if self.n_bfloat >= 0.999 * self.n_grid_seen:
            return "bfloat16"
        if self.n_half >= 0.999 * self.n_grid_seen:
            return "float16"
        return None

    def copied(self) -> bool:
        """Whether pi equals mu bit by bit on more than 99 % of the tokens."""
        return self.n_compared > 0 and self.n_equal > 0.99 * self.n_compared


@dataclass(slots=True)
class LogSigns:
    """Everything a pass learns about a log's fitness while it estimates.

    Attributes:
        probe: alignment, copies and precision; values: the critic's range.
        n_stale: rollouts whose staleness is logged and above 0.
    """

    values: ValueRange
    probe: LogProbe = field(default_factory=LogProbe)
    n_stale: int = 0

    def update(self, batch: Rollouts) -> None:
        """Add a batch, in reading order."""
        self.probe.update(batch)
        self.values.update(batch)
        staleness = batch.staleness
        if staleness is not None:
            self.n_stale += int((staleness > 0).sum())
