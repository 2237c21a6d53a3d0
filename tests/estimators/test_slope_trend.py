"""The line through correlated slopes: its formula, and that its error is the error it has."""

import numpy as np
import numpy.typing as npt
import pytest

from brace_diag.estimators.slope_trend import trend
from brace_diag.sums import Jackknife, t_quantile

Array = npt.NDArray[np.float64]


def jackknife_of_means(z: Array) -> Jackknife:
    """Means over groups, z (n_groups, n_octaves): the plainest statistic that has a jackknife."""
    n, p = z.shape
    mean = z.mean(axis=0)
    return Jackknife(mean, -(z - mean) / (n - 1), np.full(p, n, np.int64))


def spread(p: int, rng: np.random.Generator) -> Array:
    """A root of a full covariance whose entries differ in size."""
    covariance = np.cov(rng.normal(size=(4 * p, p)), rowvar=False) + 0.1
    return np.asarray(np.linalg.cholesky(covariance) * np.geomspace(1.0, 0.05, p)[:, None])


def test_the_line_is_generalised_least_squares() -> None:
    rng = np.random.default_rng(1)
    p, g = 7, 60
    jack = jackknife_of_means(rng.normal(size=(g, p)) @ spread(p, rng).T + 0.8 - 0.1 * np.arange(p))
    x = np.arange(p) + 0.3
    line = trend(jack, x, 10, 10, 0.95)
    design = np.column_stack([np.ones(p), x])
    inverse = np.linalg.inv(jack.covariance)
    bread = np.linalg.inv(design.T @ inverse @ design)
    wanted = bread @ design.T @ inverse @ jack.value
    # Two ways to solve one 7 x 7 system of condition about 1e4.
    assert line.intercept.value == pytest.approx(wanted[0], rel=1e-9)
    assert line.slope.value == pytest.approx(wanted[1], rel=1e-9)
    nu = g - 1
    inflation = nu / (nu - p + 2) * (nu - 1) / (nu - p + 1)
    assert line.slope.se == pytest.approx(np.sqrt(bread[1, 1] * inflation), rel=1e-9)
    half = line.slope.ci_high - line.slope.value  # type: ignore[operator]
    assert half == pytest.approx(float(t_quantile(0.975, nu - p + 3)) * line.slope.se)
    assert line.slope.method.startswith("GLS, joint covariance")


@pytest.mark.parametrize(("n_groups", "p"), [(24, 8), (40, 8), (64, 10), (12, 8)])
def test_intervals_cover_and_the_misfit_is_a_p_value(n_groups: int, p: int) -> None:
    """600 draws: two standard errors at .95 are .018; few groups may cost .02 more."""
    rng = np.random.default_rng(2)
    root, x = spread(p, rng), np.arange(float(p))
    found = [
        trend(
            jackknife_of_means(rng.normal(size=(n_groups, p)) @ root.T + 1 - 0.1 * x), x, 1, 1, 0.95
        )
        for _ in range(600)
    ]
    covered = np.mean([line.slope.ci_low <= -0.1 <= line.slope.ci_high for line in found])  # type: ignore[operator]
    assert covered >= 0.91
    values = np.array([line.slope.value for line in found], np.float64)
    errors = np.array([line.slope.se for line in found], np.float64)
    # The mean variance claimed against the variance seen, whose own error is 6 % here.
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(np.std(values), rel=0.15)
    misfits = [line.misfit for line in found if line.misfit is not None]
    assert len(misfits) == (600 if n_groups >= 3 * p else 0)
    if misfits:
        assert np.mean(np.array(misfits) < 0.05) <= 0.08


def test_a_bend_is_told_from_a_line() -> None:
    rng = np.random.default_rng(3)
    x = np.arange(8.0)
    bent = jackknife_of_means(rng.normal(0.0, 0.1, (64, 8)) + np.exp(-x))
    line = trend(bent, x, 1, 1, 0.95)
    assert line.misfit is not None and line.misfit < 1e-6


def test_octaves_without_an_error_take_no_part() -> None:
    rng = np.random.default_rng(4)
    z = rng.normal(0.5, 0.1, (40, 6))
    z[:, 0] = 1.0  # the same in every group
    z[:, 3] = np.nan
    x = np.arange(6.0)
    kept = [1, 2, 4, 5]
    whole = trend(jackknife_of_means(z), x, 1, 1, 0.9)
    part = trend(jackknife_of_means(z[:, kept]), x[kept], 1, 1, 0.9)
    # The same four columns, summed in another memory layout.
    for name in ("value", "se", "ci_low"):
        wanted = getattr(part.slope, name)
        assert getattr(whole.slope, name) == pytest.approx(wanted, rel=1e-9, abs=1e-13)
    assert whole.misfit == pytest.approx(part.misfit, rel=1e-9)
    too_few = trend(jackknife_of_means(z[:, :3]), x[:3], 1, 1, 0.9)
    assert too_few.slope.value is None and too_few.misfit is None
    assert too_few.slope.reason is not None
    assert too_few.slope.reason.startswith("2 octaves of horizon")


def test_few_clusters_are_marked() -> None:
    rng = np.random.default_rng(5)
    line = trend(jackknife_of_means(rng.normal(0.5, 0.1, (7, 4))), np.arange(4.0), 1, 1, 0.95)
    assert line.slope.value is not None
    assert not line.slope.reliable
    assert line.slope.reason == "7 clusters of prompts, fewer than 10: the interval is rough"
