"""What must hold between the targets whatever the data; and long rollouts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from brace_diag.targets import (
    advantages,
    brace_targets,
    capped_targets,
    gae_targets,
    log10_kappa,
    mc_targets,
    vtrace_targets,
)

LENGTHS = (0, 1, 2, 9, 40)
# Sums of at most 40 terms of order 1, weighted by products below 1e2.
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def common(batch):
    return {"offsets": batch.offsets, "bootstrap": batch.bootstrap}


@pytest.mark.parametrize("rewards", ["rewards", "terminal"])
def test_k_0_is_monte_carlo(rewards, rng, make_batch):
    batch = make_batch(LENGTHS, rng)
    arguments = batch.arguments("brace", getattr(batch, rewards))
    brace = brace_targets(*arguments, k=0, gamma=0.9, lam=0.5, **common(batch))
    mc = mc_targets(getattr(batch, rewards), gamma=0.9, **common(batch))
    np.testing.assert_array_equal(brace, mc)


@pytest.mark.parametrize("k", [1, 5, 100, math.inf])
def test_on_policy_undiscounted_is_monte_carlo(k, rng, make_batch):
    batch = make_batch(LENGTHS, rng)
    arguments = (batch.mu, batch.mu, batch.values, batch.rewards)
    mc = mc_targets(batch.rewards, **common(batch))
    caps = {"rho_bar": 1.0, "c_bar": 1.0}
    for function in (brace_targets, capped_targets):
        np.testing.assert_allclose(function(*arguments, k=k, **caps, **common(batch)), mc, **CLOSE)
    np.testing.assert_allclose(vtrace_targets(*arguments, **common(batch)), mc, **CLOSE)
    gae = gae_targets(batch.values, batch.rewards, **common(batch))
    np.testing.assert_allclose(gae, mc, **CLOSE)


@pytest.mark.parametrize("k", [40, 41, math.inf])
def test_long_windows_are_vtrace_but_for_the_last_residual(k, rng, make_batch):
    batch = make_batch(LENGTHS, rng)
    caps = {"rho_bar": 1.2, "c_bar": 1.1, "gamma": 0.95, "lam": 0.9}
    arguments = batch.arguments("brace", batch.rewards)
    brace = brace_targets(*arguments, k=k, **caps, **common(batch))
    vtrace = vtrace_targets(*arguments, **caps, **common(batch))
    capped = capped_targets(*arguments, k=k, **caps, **common(batch))
    np.testing.assert_allclose(capped, vtrace, **CLOSE)
    last = batch.offsets[1:][np.diff(batch.offsets) > 0] - 1
    assert not np.allclose(brace, vtrace)
    batch.pi[last] = batch.mu[last]  # w = 1 there: the last residual's weight is 1 in both
    vtrace = vtrace_targets(*batch.arguments("vtrace", batch.rewards), **caps, **common(batch))
    np.testing.assert_allclose(brace, vtrace, **CLOSE)


def test_gae_is_vtrace_on_policy(rng, make_batch):
    batch = make_batch(LENGTHS, rng)
    both = {"gamma": 0.9, "lam": 0.8, **common(batch)}
    vtrace = vtrace_targets(batch.mu, batch.mu, batch.values, batch.rewards, **both)
    gae = gae_targets(batch.values, batch.rewards, **both)
    np.testing.assert_allclose(vtrace, gae, **CLOSE)


def test_brace_with_a_terminal_reward_is_the_window_and_the_anchored_return(rng, make_batch):
    """Eq 26: Σ window + Π_k(s) [γ^(T-1-s) R - γ^(j-s) V_j]."""
    batch = make_batch((12,), rng)
    k, gamma, T, R = 4, 0.9, 12, float(batch.terminal[0])
    w = np.exp(batch.pi - batch.mu)
    rho, c = np.minimum(1.2, w), np.minimum(1.1, w)
    wanted = np.empty(T)
    for s in range(T):
        j = min(s + k, T - 1)
        product = float(np.prod(c[s:j]))
        wanted[s] = batch.values[s] + product * (
            gamma ** (T - 1 - s) * R - gamma ** (j - s) * batch.values[j]
        )
        for step in range(s, j):  # before the last token: no reward
            delta = gamma * batch.values[step + 1] - batch.values[step]
            wanted[s] += gamma ** (step - s) * np.prod(c[s:step]) * rho[step] * delta
    got = brace_targets(batch.mu, batch.pi, batch.values, R, k=k, gamma=gamma)
    np.testing.assert_allclose(got, wanted, **CLOSE)


def test_two_rollouts_are_the_two_apart(target, rng, make_batch):
    batch = make_batch((7, 11), rng)
    function = globals()[f"{target}_targets"]
    arguments = batch.arguments(target, batch.rewards)
    together = function(*arguments, **common(batch))
    apart = [
        function(*(x[cells] for x in arguments), bootstrap=batch.bootstrap[i])
        for i, cells in batch.rollouts()
    ]
    np.testing.assert_array_equal(together, np.concatenate(apart))


def test_advantages_against_the_reference(rng, make_batch):
    from brace_diag.targets import reference

    batch = make_batch(LENGTHS, rng)
    targets = brace_targets(*batch.arguments("brace", batch.rewards), **common(batch))
    for rewards, dense in (
        (batch.rewards, batch.rewards),
        (batch.terminal, batch.terminal_per_token()),
    ):
        got = advantages(targets, batch.values, rewards, gamma=0.9, **common(batch))
        for i, cells in batch.rollouts():
            wanted = reference.advantages(
                targets[cells],
                batch.values[cells],
                dense[cells],
                bootstrap=float(batch.bootstrap[i]),
                gamma=0.9,
            )
            np.testing.assert_allclose(got[cells], wanted, **CLOSE)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_65536_tokens_do_not_underflow(dtype):
    T = 65_536
    mu = np.full(T, -1.0)
    pi = mu + math.log(0.999)
    values = np.full(T, 0.5)
    # Closed forms at s = 0: .5 + .999^100 * (1 - .5), and the product .999^65536 = 10^-28.476.
    brace = brace_targets(mu, pi, values, 1.0, k=100)
    assert brace[0] == pytest.approx(0.5 + 0.5 * 0.999**100, rel=1e-12)
    assert brace[0] == pytest.approx(0.952396, abs=5e-7)
    vtrace = vtrace_targets(mu, pi, values, 1.0)
    # The recursion remembers 1 / (1 - .999) = 1,000 roundings of 1e-16.
    assert vtrace[0] == pytest.approx(0.5, abs=1e-12)
    kappa = log10_kappa(mu, pi, target="vtrace")
    # 65,536 logarithms of rounded ratios: relative error 65,536 * 1e-16 and that of pi - mu, 1e-13.
    assert kappa[0] == pytest.approx(T * math.log10(0.999), rel=1e-10)
    assert kappa[0] == pytest.approx(-28.476, abs=5e-4)
    low = [np.asarray(x, dtype) for x in (mu, pi, values)]
    assert brace_targets(*low, 1.0, k=100).dtype == dtype
    # log .999 is stored next to -1: to 6e-8 in float32, so w to 6e-8 and .999^100 to 6e-6.
    assert brace_targets(*low, 1.0, k=100)[0] == pytest.approx(brace[0], abs=6e-6)


def test_long_window_of_vanishing_ratios(rng):
    """Products far below the smallest float are harmless: the target is the window's sum."""
    T = 4000
    mu = np.full(T, -1.0)
    pi = np.full(T, -4.0)  # w = e^-3: a window of 1000 has the product 1e-1303
    values = rng.standard_normal(T)
    got = brace_targets(mu, pi, values, 1.0, k=1000)
    wanted = vtrace_targets(mu, pi, values, 1.0, rho_bar=1.2, c_bar=1.1)
    np.testing.assert_allclose(got[:-1000], wanted[:-1000], rtol=1e-13, atol=1e-14)
    kappa = log10_kappa(mu, pi, k=1000)
    np.testing.assert_allclose(kappa[0], -3000 * math.log10(math.e), rtol=1e-12)
