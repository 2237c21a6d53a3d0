"""The vectorisable exp against the true exponential."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from numba import njit

from brace_diag.exponential import LOWEST, exp


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260913)


@njit
def over(x):
    out = np.empty_like(x)
    for i in range(len(x)):
        out[i] = exp(x[i])
    return out


def test_within_one_unit_in_the_last_place_of_numpy(rng):
    x = np.concatenate(
        [
            rng.uniform(LOWEST, 709.0, 200_000),
            rng.normal(0, 0.05, 200_000),
            rng.normal(0, 5.0, 200_000),
            np.log(2.0) * (np.arange(-2000, 2000) / 2.0)[1000:3000],
        ]
    )
    x = x[(x > LOWEST) & (x < 709.0)]
    # numpy's own exp is within 1 unit of the truth, ours too: 2 apart at the very most.
    ulps = np.abs(over(x) - np.exp(x)) / np.spacing(np.exp(x))
    assert ulps.max() <= 2.0
    assert np.mean(ulps) < 0.2


def test_within_one_unit_of_the_truth(rng):
    for x in [*rng.uniform(-700, 700, 2000), *rng.normal(0, 0.3, 2000)]:
        true = mpmath.exp(mpmath.mpf(float(x)))
        got = float(over(np.array([x]))[0])
        assert abs(mpmath.mpf(got) - true) <= np.spacing(float(true))


@pytest.mark.parametrize(
    ("x", "wanted"),
    [(0.0, 1.0), (-0.0, 1.0), (-math.inf, 0.0), (-745.0, 0.0), (-1e300, 0.0)],
)
def test_exact_values(x, wanted):
    assert over(np.array([x]))[0] == wanted


def test_nan_stays_nan_whatever_its_payload():
    payload = np.array([0x7FF8000000000001, 0xFFF80000000007FF], dtype=np.uint64)
    assert np.isnan(over(payload.view(np.float64))).all()
