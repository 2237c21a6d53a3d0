"""Whether a figure moves along steps: least squares with a HAC error that keeps its level.

    y_s = a + c x_s + e_s,   s = 1 .. n steps, weighted by rollouts,

with the Newey-West covariance at the wide lag L = 1.3 √n (Lazarus, Lewis, Stock & Watson 2018) by
statsmodels. Normal or t quantiles would reject far too often with so few steps: at level .05, 17 %
with 8 independent steps and 11 % with 20. The statistic is therefore held against its own
distribution at this design, weight and lag under independent normal errors (20,000 draws, fixed
seed): exact there, and at autocorrelation 1/2 the level is .12 (8 steps), .10 (20), .07 (100).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from brace_diag.estimators.intervals import or_none
from brace_diag.results import Estimate
from brace_diag.results_trend import TrendTest

Array = npt.NDArray[np.float64]
LEAST = 4
"""Fewer points hold no evidence on their own scatter."""
ROUGH = 8
DRAWS = 20_000
ROUNDING = 1e-9
"""Scatter below this part of the figure itself is rounding."""
BLOCK = 2_000_000
"""Numbers drawn at once."""


def trend_test(keys: npt.NDArray[np.int64], figures: list[Estimate], level: float) -> TrendTest:
    """The trend of one figure over its keys (ascending); keys without a value are left out."""
    known = [i for i, own in enumerate(figures) if own.value is not None]
    own = [figures[i] for i in known]
    lag = round(1.3 * math.sqrt(len(own)))
    method = f"least squares, HAC (Newey-West, lag {lag}), fixed-lag critical value"

    def estimate(value: float, se: float, half: float, reason: str | None) -> Estimate:
        return Estimate(
            or_none(value), or_none(se), or_none(value - half), or_none(value + half), level,
            sum(e.n_tokens for e in own), sum(e.n_rollouts for e in own),
            min((e.n_clusters for e in own), default=0), method, reason is None, reason,
        )  # fmt: skip

    if len(own) < LEAST:
        keys_met = "1 key has" if len(own) == 1 else f"{len(own)} keys have"
        reason = f"{keys_met} this figure; a trend needs {LEAST}"
        return TrendTest(estimate(math.nan, math.nan, math.nan, reason), None, lag, len(own))
    x = keys[known].astype(np.float64)
    y = np.array([e.value for e in own], np.float64)
    weights = np.array([max(e.n_rollouts, 1) for e in own], np.float64)
    lag = min(lag, len(own) - 2)
    slope, se = _fit(x, y, weights, lag)
    if not se * np.ptp(x) > ROUNDING * np.abs(y).max():
        reason = "the figure does not vary about its line: nothing to test"
        return TrendTest(estimate(slope, math.nan, math.nan, reason), None, lag, len(own))
    drawn = null_statistics(x, weights, lag)
    critical = float(np.quantile(drawn, level))
    p_value = (1.0 + float(np.sum(drawn >= abs(slope) / se))) / (1.0 + len(drawn))
    few = f"{len(own)} keys, fewer than {ROUGH}: autocorrelation cannot be judged"
    rough = few if len(own) < ROUGH else None
    return TrendTest(estimate(slope, se, critical * se, rough), p_value, lag, len(own))


def _fit(x: Array, y: Array, weights: Array, lag: int) -> tuple[float, float]:
    from statsmodels.regression.linear_model import WLS

    design = np.column_stack([np.ones_like(x), x - np.average(x, weights=weights)])
    how = {"maxlags": lag, "use_correction": False}
    fit = WLS(y, design, weights=weights).fit(cov_type="HAC", cov_kwds=how)
    return float(fit.params[1]), float(fit.bse[1])


def null_statistics(x: Array, weights: Array, lag: int) -> Array:
    """|slope / HAC error| of draws whose errors are independent normal, variance 1/weight."""
    # A fixed seed: the interval is part of the result and must not change from run to run.
    rng = np.random.default_rng(0)
    block = max(1, BLOCK // len(x))
    parts = [
        _statistics(rng.standard_normal((min(block, DRAWS - start), len(x))), x, weights, lag)
        for start in range(0, DRAWS, block)
    ]
    return np.concatenate(parts)


def _statistics(draws: Array, x: Array, weights: Array, lag: int) -> Array:
    """The statistic of rows of √weight · error; the same as `_fit` of each, in one go."""
    root = np.sqrt(weights)
    centred = root * (x - np.average(x, weights=weights))
    total = float(centred @ centred)
    slope = draws @ centred / total
    level = draws @ root / float(root @ root)
    scores = (draws - level[:, None] * root - slope[:, None] * centred) * centred
    variance = np.einsum("ri,ri->r", scores, scores)
    for step in range(1, lag + 1):
        product = np.einsum("ri,ri->r", scores[:, step:], scores[:, :-step])
        variance += 2.0 * (1.0 - step / (lag + 1.0)) * product
    se = np.sqrt(np.maximum(variance, 0.0)) / total
    with np.errstate(divide="ignore"):
        return np.asarray(np.abs(slope) / se)
