"""The trend test: its arithmetic against statsmodels, its level, its power, its refusals."""

import numpy as np
import numpy.typing as npt
import pytest
import statsmodels.api as sm

from brace_diag.estimators.trend_test import DRAWS, _statistics, null_statistics, trend_test
from brace_diag.results import Estimate

Array = npt.NDArray[np.float64]


def estimates(values: Array, rollouts: npt.ArrayLike = 100) -> list[Estimate]:
    counts = np.broadcast_to(rollouts, np.shape(values))
    return [
        Estimate(None if np.isnan(v) else float(v), 0.1, None, None, 0.95, 1000, int(n), 32, "x",
                 True, None)
        for v, n in zip(values, counts, strict=True)
    ]  # fmt: skip


def test_slope_and_error_are_those_of_statsmodels() -> None:
    rng = np.random.default_rng(0)
    x = np.array([0, 1, 2, 4, 5, 7, 8, 9, 12, 13, 14, 20])
    y, n = rng.normal(size=12), rng.integers(50, 500, 12)
    found = trend_test(x, estimates(y, n), 0.9)
    assert (found.lag, found.n_keys) == (5, 12)  # 1.3 √12 = 4.5, to even
    fit = sm.WLS(y, sm.add_constant(x.astype(float)), weights=n).fit(
        cov_type="HAC", cov_kwds={"maxlags": 5, "use_correction": False}
    )
    assert found.slope.value == pytest.approx(fit.params[1], rel=1e-9)
    assert found.slope.se == pytest.approx(fit.bse[1], rel=1e-9)
    draws = np.sqrt(n) * y
    own = _statistics(draws[None], x.astype(float), n.astype(float), 5)
    assert own[0] == pytest.approx(abs(fit.params[1] / fit.bse[1]), rel=1e-9)
    # The interval inverts the test: at the level of the interval, 0 is inside as p > .1.
    assert found.p_value is not None
    assert found.slope.ci_low is not None and found.slope.ci_high is not None
    assert (found.slope.ci_low < 0.0 < found.slope.ci_high) == (found.p_value > 0.1)


@pytest.mark.parametrize("n", [4, 8, 20])
def test_independent_errors_are_rejected_at_the_level(n: int) -> None:
    """.05 of 20,000 other draws: the share rejected is off by more than .01 once in 10^6."""
    x, weights, lag = np.arange(n, dtype=float), np.ones(n), min(round(1.3 * n**0.5), n - 2)
    critical = np.quantile(null_statistics(x, weights, lag), 0.95)
    fresh = np.random.default_rng(9).standard_normal((DRAWS, n))
    rejected = float(np.mean(_statistics(fresh, x, weights, lag) > critical))
    assert rejected == pytest.approx(0.05, abs=0.01)


def test_autocorrelated_errors_are_rejected_not_much_more() -> None:
    """AR(1) with 1/2: plain least squares with t rejects about .25 of such series, n = 20."""
    n, rng = 20, np.random.default_rng(10)
    noise = rng.standard_normal((4000, n + 50))
    for i in range(1, n + 50):
        noise[:, i] = 0.5 * noise[:, i - 1] + np.sqrt(0.75) * noise[:, i]
    x, weights, lag = np.arange(n, dtype=float), np.ones(n), round(1.3 * n**0.5)
    critical = np.quantile(null_statistics(x, weights, lag), 0.95)
    rejected = float(np.mean(_statistics(noise[:, 50:], x, weights, lag) > critical))
    assert 0.05 < rejected < 0.13


def test_a_trend_is_found_with_its_sign_and_size() -> None:
    x = np.arange(30)
    y = 0.02 * x + np.random.default_rng(1).normal(0, 0.05, 30)
    found = trend_test(x, estimates(y), 0.95)
    assert found.p_value is not None and found.p_value < 0.001
    assert found.slope.ci_low is not None and found.slope.ci_high is not None
    assert found.slope.ci_low < 0.02 < found.slope.ci_high
    assert found.slope.reliable


def test_what_cannot_be_tested_says_why() -> None:
    x = np.arange(10)
    few = np.full(10, np.nan)
    few[:3] = [1.0, 2.0, 3.0]
    found = trend_test(x, estimates(few), 0.95)
    assert (found.slope.value, found.p_value, found.n_keys) == (None, None, 3)
    assert found.slope.reason == "3 keys have this figure; a trend needs 4"
    for same in (np.full(10, 0.4), 0.4 + 1e-17 * x, 0.1 + 0.3 * x):
        still = trend_test(x, estimates(same), 0.95)
        assert still.p_value is None
        assert still.slope.reason is not None and "nothing to test" in still.slope.reason
    rough = trend_test(x[:5], estimates(np.array([1.0, 3.0, 2.0, 5.0, 4.0])), 0.95)
    assert rough.p_value is not None
    assert not rough.slope.reliable
    assert rough.slope.reason == "5 keys, fewer than 8: autocorrelation cannot be judged"
