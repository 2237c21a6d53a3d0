"""The oracle against numbers worked by hand and identities that hold on paper."""

from __future__ import annotations

import math

import numpy as np
import pytest

from brace_diag.targets import reference

V = np.array([0.5, 0.4, 0.6])
R = np.array([0.0, 0.0, 1.0])
W = np.array([1.5, 0.5, 1.0])
MU = np.array([-1.0, -2.0, -0.5])
PI = MU + np.log(W)
PI_HALF = MU + np.log([1.5, 0.5, 0.5])

# Sums of at most three terms of order one: a few units in the last place.
EXACT = {"rtol": 0, "atol": 1e-15}


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        (reference.gae(V, R), [1, 1, 1]),
        (reference.mc(R), [1, 1, 1]),
        (reference.vtrace(MU, PI, V, R), [0.7, 0.7, 1]),
        (reference.vtrace(MU, PI, V, R, n=1), [0.4, 0.5, 1]),
        (reference.brace(MU, PI, V, R, k=0), [1, 1, 1]),
        (reference.brace(MU, PI, V, R, k=1), [1.04, 0.70, 1]),
        (reference.brace(MU, PI, V, R, k=2), [0.71, 0.70, 1]),
        (reference.brace(MU, PI, V, R, k=3), [0.71, 0.70, 1]),
        (reference.brace(MU, PI, V, R, k=math.inf), [0.71, 0.70, 1]),
        (reference.capped(MU, PI, V, R, k=1), [0.93, 0.70, 1]),
        (reference.capped(MU, PI_HALF, V, R, k=1), [0.71, 0.60, 0.80]),
        (reference.brace(MU, PI_HALF, V, R, k=1), [1.04, 0.70, 1]),
        (reference.advantages(np.array([1.04, 0.7, 1.0]), V, R), [0.2, 0.6, 0.4]),
    ],
)
def test_worked_numbers(got, wanted):
    np.testing.assert_allclose(got, wanted, **EXACT)


def test_discount_bootstrap_and_dense_rewards_by_hand():
    # T = 2, gamma = .5, w = 1, V = [1, 2], r = [3, 4], bootstrap 8: G = [3 + .5 * 8, 4 + .5 * 8].
    v, r = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    np.testing.assert_allclose(reference.mc(r, bootstrap=8.0, gamma=0.5), [7, 8], **EXACT)
    # delta = [3 + .5 * 2 - 1, 4 + .5 * 8 - 2] = [3, 6]; gae with lambda .5: 1 + 3 + .25 * 6.
    got = reference.gae(v, r, bootstrap=8.0, gamma=0.5, lam=0.5)
    np.testing.assert_allclose(got, [5.5, 8], **EXACT)


def test_missing_ratios():
    assert math.isnan(reference.weight(math.nan, -1.0))
    assert math.isnan(reference.weight(-1.0, math.nan))
    assert math.isnan(reference.weight(-math.inf, -1.0))
    assert math.isnan(reference.weight(-math.inf, -math.inf))
    assert reference.weight(-1.0, -math.inf) == 0.0
    assert reference.weight(-1.0, -1.0) == 1.0


def test_kappa_by_hand():
    # w = [1.5, .5, 1]: c = [1.1, .5, 1] for brace; c = [1, .5], rho_2 = 1 for V-trace.
    np.testing.assert_allclose(
        10 ** reference.log10_kappa("brace", MU, PI, k=1, gamma=0.5),
        [0.25 * 1.1, 0.5 * 0.5, 1],
        **EXACT,
    )
    vtrace = reference.log10_kappa("vtrace", MU, PI, n=2, rho_bar=1.0, c_bar=1.0)
    np.testing.assert_allclose(10**vtrace, [0, 0.5, 1], **EXACT)
    np.testing.assert_allclose(
        10 ** reference.log10_kappa("capped", MU, PI_HALF, k=1), [0.55, 0.25, 0.5], **EXACT
    )
    gae = reference.log10_kappa("gae", MU, PI, gamma=0.5, lam=0.5)
    np.testing.assert_allclose(10**gae, [1 / 16, 1 / 4, 1], **EXACT)
    mc = reference.log10_kappa("mc", MU, PI, gamma=0.5)
    np.testing.assert_allclose(10**mc, [1 / 4, 1 / 2, 1], **EXACT)
