"""Pareto k-hat: how heavy the upper tail of the trajectory weights is."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def tail_length(n: int) -> int:
    """Number of largest weights that the tail fit uses, ⌊min(n/5, 3√n)⌋ (Vehtari et al. 2024)."""
    return math.floor(3.0 * math.sqrt(n)) if n > 225 else n // 5


def pareto_k_limit(n: int) -> float:
    """Largest k-hat at which n draws are trusted: min(1 - 1/log10 n, .7) (Vehtari et al. 2024)."""
    return min(1.0 - 1.0 / math.log10(n), 0.7) if n > 10 else 0.0


def pareto_k(largest: Array, n: int) -> float | None:
    """Shape of the generalised Pareto law fitted to the upper tail of exp(log weights).

    Args:
        largest: ascending largest log-weights (-inf pads the front); at least the tail and the
            cutoff below it where n allows.
        n: number of weights in all.

    Returns: k-hat with the weakly informative prior of Vehtari et al. (2024); None where the tail
        has fewer than 5 draws or does not vary.
    """
    known = largest[np.isfinite(largest)]
    m = min(tail_length(n), len(known) - 1)
    if m < 5:
        return None
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.exp(known - known[-1])
    # Weights equal to the cutoff do not exceed it; many are equal where a policy repeats itself.
    tail = (scaled[-m:] - scaled[-m - 1])[known[-m:] > known[-m - 1]]
    if len(tail) < 5 or tail[-1] <= 0.0 or tail[0] == tail[-1]:
        return None
    return generalised_pareto_shape(np.maximum(tail, np.finfo(np.float64).tiny))


def generalised_pareto_shape(excess: Array) -> float:
    """Shape k of a generalised Pareto law by the empirical-Bayes mean of Zhang & Stephens (2009).

    `excess` are ascending positive exceedances, (n,). k is shrunk towards .5 as if 10 draws more
    had shown it (Vehtari et al. 2024).
    """
    n = len(excess)
    m = 30 + int(math.sqrt(n))
    b = 1.0 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))
    b /= 3.0 * excess[int(n / 4 + 0.5) - 1]
    b += 1.0 / excess[-1]
    k = np.mean(np.log1p(-b[:, None] * excess), axis=1)
    profile = n * (np.log(-b / k) - k - 1.0)
    with np.errstate(over="ignore"):  # a weight of 1/inf is the 0 that is meant
        weights = 1.0 / np.sum(np.exp(profile - profile[:, None]), axis=1)
    keep = weights >= 10 * np.finfo(np.float64).eps
    weights = weights[keep] / weights[keep].sum()
    b_mean = float(np.sum(b[keep] * weights))
    shape = float(np.mean(np.log1p(-b_mean * excess)))
    return (n * shape + 5.0) / (n + 10.0)
