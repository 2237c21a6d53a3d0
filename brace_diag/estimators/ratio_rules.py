"""When pi/mu is no importance ratio: the two rules that every question applies alike.

E_mu[w] = 1 and E_mu[Σ(w - 1)] = 0 hold for any importance ratio, however stale. A failure that is
both significant and large enough to matter is no staleness.
"""

from __future__ import annotations

MEAN_WEIGHT_TOLERANCE = 0.01
U_TOLERANCE = 0.05


def mean_off_one(mean: float | None, low: float | None, high: float | None) -> bool:
    """Whether a mean weight differs from 1 by more than .01 and its interval leaves 1 out.

    False where any of the three does not exist.
    """
    if mean is None or low is None or high is None:
        return False
    return abs(mean - 1.0) > MEAN_WEIGHT_TOLERANCE and not low <= 1.0 <= high


def control_off_zero(u: float | None, se: float | None) -> bool:
    """Whether the mean of Σ(w - 1) is off 0 by more than 3 standard errors and more than .05."""
    return u is not None and se is not None and abs(u) > max(3.0 * se, U_TOLERANCE)
