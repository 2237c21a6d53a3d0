"""Log-probs and values as statistics may use them: fills and infinities become NaN, all counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag import rollouts_kernels as kernels
from brace_diag.rollouts import Floats
from brace_diag.rollouts_columns import read_only

FILL_BELOW = -9000.0
"""Log-probs at or below this are fills: -9999 is one in use, and exp(-9000) is no probability."""

ZERO_TAIL_CEILING = -0.05
"""A run of exact zeros is a fill where the other policy's mean log-prob on it is below this."""


def clean_logprobs(
    mu: Floats | None, pi: Floats | None, offsets: npt.NDArray[np.int64]
) -> tuple[Floats | None, Floats | None, dict[str, int]]:
    """Log-probs with fills and +inf as NaN, and the counts of everything unusual.

    Fills are: at most -9000; exactly +1; a run of two or more exact zeros at the end of a rollout
    on which the other policy's log-probs are clearly not zero. -inf is kept, and so is what is
    positive. An array is copied only if an entry of it must change.

    Args:
        mu, pi: packed (n_tokens,), or None.
        offsets: int64 (n_rollouts + 1,).

    Returns: mu, pi, counts by field of `DataQuality`.
    """
    mu, mu_counts = _clean_entries(mu)
    pi, pi_counts = _clean_entries(pi)
    mu_runs = _tails(mu, pi, offsets)
    pi_runs = _tails(pi, mu, offsets)
    mu, mu_tail = _blank(mu, mu_runs, offsets)
    pi, pi_tail = _blank(pi, pi_runs, offsets)
    return (
        mu,
        pi,
        {
            "mu_missing": mu_counts[0] + mu_counts[1],
            "mu_impossible": mu_counts[2],
            "mu_filled": mu_counts[3] + mu_tail,
            "mu_positive": mu_counts[4],
            "pi_missing": pi_counts[0] + pi_counts[1],
            "pi_zero": pi_counts[2],
            "pi_filled": pi_counts[3] + pi_tail,
            "pi_positive": pi_counts[4],
        },
    )


def clean_values(values: Floats | None) -> tuple[Floats | None, int]:
    """Values with infinities as NaN, and how many are missing; a copy only if one is infinite."""
    if values is None:
        return None, 0
    missing = int(kernels.count_nonfinite(values))
    if missing and np.isinf(values).any():
        values = np.where(np.isinf(values), np.nan, values).astype(values.dtype)
        return read_only(values), missing
    return values, missing


def _clean_entries(x: Floats | None) -> tuple[Floats | None, tuple[int, int, int, int, int]]:
    """One array cleaned entry by entry; counts of (NaN, +inf, -inf, fills, positive)."""
    if x is None:
        return None, (0, 0, 0, 0, 0)
    number: Any = x.dtype.type
    low = number(FILL_BELOW)
    # Almost every log takes one of the two short ways.
    if kernels.all_within(x, low, number(0)):
        return x, (0, 0, 0, 0, 0)
    if kernels.all_within(x, low, np.nextafter(number(1), number(0))):
        return x, (0, 0, 0, 0, int(kernels.count_positive(x)))
    counts = kernels.classify(x, low)
    if counts[1] + counts[3]:
        x = x.copy()
        kernels.blank_fills(x, low)
        x = read_only(x)
    return x, counts


def _tails(
    x: Floats | None, other: Floats | None, offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64] | None:
    """Lengths of trailing runs of zeros in `x` that `other` gives away, or None if there are none.

    Without the other policy's log-probs a run of zeros cannot be told from certain tokens.
    """
    if x is None or other is None:
        return None
    long_enough = offsets[1:] - offsets[:-1] >= 2
    ends = offsets[1:][long_enough]
    if not ((x[ends - 1] == 0) & (x[ends - 2] == 0)).any():
        return None
    runs: npt.NDArray[np.int64] = kernels.zero_tails(x, other, offsets, ZERO_TAIL_CEILING)
    return runs if runs.any() else None


def _blank(
    x: Floats | None, runs: npt.NDArray[np.int64] | None, offsets: npt.NDArray[np.int64]
) -> tuple[Floats | None, int]:
    if x is None or runs is None:
        return x, 0
    x = x.copy()
    kernels.blank_tails(x, offsets, runs)
    return read_only(x), int(runs.sum())
