"""A line through slopes whose errors are correlated: generalised least squares, by statsmodels.

The slopes of all octaves share their clusters, so their jackknife covariance Σ̂ is full. With
design D = (1, x) and x = log2(mean h + 1), the line is (DᵀΣ̂⁻¹D)⁻¹ DᵀΣ̂⁻¹ β, which treats Σ̂ as
known. It is not: from g groups it has ν = g - 1 degrees of freedom, and weights made of it fit its
noise. The covariance of the line is therefore (Rao 1967, growth curves with an estimated
dispersion)

    (DᵀΣ̂⁻¹D)⁻¹ · ν/(ν - p + q) · (ν - 1)/(ν - p + q - 1),   p octaves, q = 2,

with ν - p + q degrees of freedom. Whether a line describes the slopes at all is told by Hotelling's
test of the residuals, rᵀΣ̂⁻¹r ~ T²(p - q, ν). Where g is too small for p octaves the weights are
1/Σ̂_ii alone, and the joint covariance stays in the standard error.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from brace_diag.estimators.intervals import or_none
from brace_diag.results import Estimate
from brace_diag.results_slope import Trend
from brace_diag.settings import GateThresholds
from brace_diag.sums import Jackknife, t_quantile

Array = npt.NDArray[np.float64]

GROUPS_PER_OCTAVE = 3
"""Groups for each octave from which on the weights are worth what they cost."""
MIN_CLUSTERS = GateThresholds().min_clusters


def trend(jack: Jackknife, x: Array, n_tokens: int, n_rollouts: int, level: float) -> Trend:
    """Line of jackknifed slopes on x over the octaves that have one.

    Args: x: (n_octaves,), log2(mean h + 1).
    """
    se = jack.se
    used = np.flatnonzero(np.isfinite(jack.value) & np.isfinite(se) & (np.nan_to_num(se) > 0))
    n_groups = int(jack.n_groups[used].min(initial=np.iinfo(np.int64).max)) if len(used) else 0
    if len(used) < 3:
        reason = f"{len(used)} octaves of horizon with a standard error above 0; a line needs 3"
        nothing = _estimate(math.nan, math.nan, level, n_tokens, n_rollouts, n_groups, 1.0, reason)
        return Trend(nothing, nothing, None)
    covariance = jack.covariance[np.ix_(used, used)]
    line, error, freedom, method, misfit = _fit(jack.value[used], x[used], covariance, n_groups)
    made = [
        _estimate(v, s, level, n_tokens, n_rollouts, n_groups, freedom, None, method)
        for v, s in zip(line, error, strict=True)
    ]
    return Trend(slope=made[1], intercept=made[0], misfit=misfit)


def _fit(
    beta: Array, x: Array, covariance: Array, n_groups: int
) -> tuple[Array, Array, float, str, float | None]:
    """Intercept and slope, standard errors, degrees of freedom, how it was done, and its misfit."""
    from statsmodels.regression.linear_model import GLS

    design = np.column_stack([np.ones_like(x), x])
    p, q = design.shape
    nu = n_groups - 1
    if n_groups >= GROUPS_PER_OCTAVE * p:
        # Scaled to a unit diagonal: octaves may differ in error by orders of magnitude.
        scale = np.sqrt(np.diag(covariance))
        fit = GLS(beta / scale, design / scale[:, None], covariance / np.outer(scale, scale)).fit()
        freedom = nu - p + q
        inflation = nu / freedom * (nu - 1) / (freedom - 1)
        error = np.sqrt(np.diag(fit.normalized_cov_params) * inflation)
        misfit = _misfit(float(fit.ssr), p - q, nu)
        return np.asarray(fit.params), error, float(freedom), "GLS, joint covariance", misfit
    fit = GLS(beta, design, np.diag(covariance)).fit()
    weights = np.linalg.pinv(design / np.sqrt(np.diag(covariance))[:, None])
    weights /= np.sqrt(np.diag(covariance))
    error = np.sqrt(np.einsum("ij,jk,ik->i", weights, covariance, weights))
    method = "GLS, variances alone; joint covariance in the error"
    return np.asarray(fit.params), error, float(nu), method, None


def _misfit(t_squared: float, p: int, nu: int) -> float:
    """P-value of Hotelling's T² with p dimensions and ν degrees of freedom."""
    from scipy.special import fdtrc

    freedom = nu - p + 1
    return float(fdtrc(p, freedom, t_squared * freedom / (nu * p)))


def _estimate(
    value: float,
    se: float,
    level: float,
    n_tokens: int,
    n_rollouts: int,
    n_groups: int,
    freedom: float,
    reason: str | None,
    method: str = "GLS",
) -> Estimate:
    half = float(t_quantile(0.5 + level / 2, freedom + 1)) * se
    reliable = reason is None and n_groups >= MIN_CLUSTERS
    if reason is None and not reliable:
        reason = f"{n_groups} clusters of prompts, fewer than {MIN_CLUSTERS}: the interval is rough"
    return Estimate(
        or_none(value),
        or_none(se),
        or_none(value - half),
        or_none(value + half),
        level,
        n_tokens,
        n_rollouts,
        n_groups,
        f"{method}, per doubling of h + 1",
        reliable,
        reason,
    )
