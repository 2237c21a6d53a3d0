"""log10 kappa is the derivative of the target in the last reward."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from brace_diag.errors import InputError
from brace_diag.targets import log10_kappa


@pytest.mark.parametrize("window", [1, 3, 6, 11, 12, math.inf])
def test_is_the_numerical_derivative(
    target, flavour, window, rng, make_batch, expected, parameters
):
    batch = make_batch((0, 1, 5, 12), rng)
    given = parameters(target, window, flavour)
    at_end = np.zeros(len(batch.values))
    at_end[batch.offsets[1:][1:] - 1] = 1.0
    # Targets are linear in the rewards, so a difference of any size is the derivative.
    raised = expected(batch, target, rewards=batch.rewards + 8.0 * at_end, **given)
    slope = (raised - expected(batch, target, **given)) / 8.0
    got = log10_kappa(batch.mu, batch.pi, target=target, offsets=batch.offsets, **given)
    # The difference of two sums of order 1 carries an error of 1e-14.
    np.testing.assert_allclose(10.0**got, slope, rtol=1e-11, atol=1e-13)


def test_exact_zeros_are_minus_infinity():
    mu, pi = np.full(4, -1.0), np.array([-1.0, -np.inf, -1.0, -1.0])
    got = log10_kappa(mu, pi, k=1)
    np.testing.assert_array_equal(got, [0, -np.inf, 0, 0])
    np.testing.assert_array_equal(
        log10_kappa(mu, mu, target="vtrace", n=2), [-np.inf, -np.inf, 0, 0]
    )
    np.testing.assert_array_equal(
        log10_kappa(mu, target="gae", lam=0.0), [-np.inf, -np.inf, -np.inf, 0]
    )


def test_missing_ratios_touch_their_windows_only():
    mu = np.array([-1.0, -1.0, np.nan, -1.0, -1.0])
    pi = np.full(5, -1.0)
    nan = np.nan
    np.testing.assert_array_equal(log10_kappa(mu, pi, k=1), [0, 0, nan, 0, 0])
    np.testing.assert_array_equal(log10_kappa(mu, pi, k=2), [0, nan, nan, 0, 0])
    np.testing.assert_array_equal(log10_kappa(mu, pi, target="vtrace"), [nan, nan, nan, 0, 0])
    np.testing.assert_array_equal(
        log10_kappa(mu, pi, target="vtrace", n=3), [-np.inf, -np.inf, nan, 0, 0]
    )
    mu = np.array([-1.0, -1.0, -np.inf])  # impossible at the last token: brace never reads it
    np.testing.assert_array_equal(log10_kappa(mu, pi[:3], k=9), [0, 0, 0])
    np.testing.assert_array_equal(log10_kappa(mu, pi[:3], target="capped"), [nan, nan, nan])


def test_off_the_mask_is_nan():
    mu = torch.zeros(2, 3)
    mask = torch.tensor([[1, 0, 1], [0, 0, 0]])
    got = log10_kappa(mu, mu, mask=mask, gamma=0.1)
    np.testing.assert_allclose(got.numpy(), [[-1, np.nan, 0], [np.nan] * 3], rtol=1e-7)
    assert got.dtype == torch.float32


def test_each_target_has_its_own_default_caps():
    mu = np.zeros(3)
    pi = np.log([3.0, 3.0, 3.0])
    both = np.log10([1.1 * 1.1, 1.1, 1.0])
    np.testing.assert_allclose(log10_kappa(mu, pi), both, rtol=1e-12, atol=1e-15)
    capped = log10_kappa(mu, pi, target="capped")
    np.testing.assert_allclose(capped, both + math.log10(1.2), rtol=1e-12)
    np.testing.assert_allclose(log10_kappa(mu, pi, target="vtrace"), 0.0, atol=1e-15)


def test_errors():
    with pytest.raises(InputError, match="target is 'td'; allowed: mc, gae, vtrace, capped, brace"):
        log10_kappa(np.zeros(2), np.zeros(2), target="td")
    with pytest.raises(InputError, match="pi_logprobs is None"):
        log10_kappa(np.zeros(2))
