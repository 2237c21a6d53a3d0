"""Situations that real logs hold, each with the answer that a user should get."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from brace_diag.targets import (
    advantages,
    brace_targets,
    capped_targets,
    gae_targets,
    log10_kappa,
    mc_targets,
    vtrace_targets,
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_ratio_beyond_float32_stays_finite_under_the_caps(dtype):
    """log w = 89 overflows float32; capped it is 1.2 and 1.1, and log10 kappa sees 1.1."""
    mu = np.array([-91.0, -1.0], dtype)
    pi = np.array([-2.0, -1.0], dtype)
    values = np.array([0.25, 0.5], dtype)
    got = brace_targets(mu, pi, values, 1.0, k=1)
    # V_0 + 1.2 (V_1 - V_0) + 1.1 (R - V_1)
    assert got[0] == pytest.approx(0.25 + 1.2 * 0.25 + 1.1 * 0.5, rel=1e-6)
    assert log10_kappa(mu, pi, k=1)[0] == pytest.approx(np.log10(1.1), rel=1e-6)
    assert np.log(1.1) == pytest.approx(0.09531, abs=5e-6)
    # Without caps the ratio itself, in float64 whatever the input: 4.4896e38.
    uncapped = brace_targets(mu, pi, values, 1.0, k=1, rho_bar=np.inf, c_bar=np.inf)
    wide = brace_targets(mu.astype(np.float64), pi, values, 1.0, k=1, rho_bar=np.inf, c_bar=np.inf)
    assert wide[0] == pytest.approx(4.4896e38 * (0.25 + 0.5), rel=1e-4)
    assert uncapped.dtype == dtype


def test_the_same_ratio_under_the_mask_contributes_nothing():
    mu, pi = np.array([[-1.0, -91.0, -1.0]]), np.array([[-1.0, -2.0, -1.0]])
    values = np.array([[0.25, 9.0, 0.5]])
    mask = np.array([[True, False, True]])
    got = brace_targets(mu, pi, values, [1.0], mask=mask, rho_bar=np.inf, c_bar=np.inf)
    np.testing.assert_array_equal(got, [[1, 0, 1]])


def test_an_empty_response_leaks_nothing_into_its_neighbours():
    """Row A has no policy token and a reward of 10 on its last cell; row B is untouched."""
    mask = np.array([[0, 0, 0], [1, 1, 0]], dtype=bool)
    rewards = np.array([[0, 0, 10.0], [0, 0, 0]])
    values = np.array([[5.0, 5.0, 5.0], [0.25, 0.75, 5.0]])
    mu = np.full((2, 3), -1.0)
    for got in (
        brace_targets(mu, mu, values, rewards, mask=mask),
        mc_targets(rewards, mask=mask),
        gae_targets(values, rewards, mask=mask),
    ):
        np.testing.assert_array_equal(got, np.zeros((2, 3)))
    # The same with terminal rewards, and with the empty row last.
    got = brace_targets(mu[::-1], mu, values[::-1], [0.5, 10.0], mask=mask[::-1])
    np.testing.assert_array_equal(got, [[0.5, 0.5, 0], [0, 0, 0]])


@pytest.mark.parametrize("under", [100.0, np.nan, 1e30])
def test_values_under_the_mask_change_nothing(under):
    """GAE with lambda .95: [.95, 1.0]; reading the cell at 100 would give [5.7, 6.0]."""
    for kind in (np.asarray, torch.as_tensor):
        got = gae_targets(
            kind(np.array([[0, 0, under]])),
            kind(np.array([[0, 1.0, 0]])),
            mask=kind(np.array([[1, 1, 0]])),
            lam=0.95,
        )
        np.testing.assert_allclose(np.asarray(got), [[0.95, 1.0, 0.0]], rtol=1e-15)


def test_packed_trajectories_are_cut_at_their_boundaries():
    """A (V = 1, truncated, next value 1), then B (V = 100): A's last advantage is 0, not 99."""
    values, mu = np.array([1.0, 100.0]), np.array([-1.0, -1.0])
    both = {"offsets": [0, 1, 2], "bootstrap": [1.0, 0.0]}
    targets = brace_targets(mu, mu, values, [[0.0], [0.0]], **both)
    got = advantages(targets, values, [[0.0], [0.0]], **both)
    np.testing.assert_array_equal(got, [0, -100])


@pytest.mark.parametrize(
    "function", [brace_targets, capped_targets, vtrace_targets], ids=lambda f: f.__name__
)
def test_the_last_step_is_not_dropped(function):
    values, rewards, mu = np.zeros(2), np.array([0.0, 1.0]), np.full(2, -1.0)
    np.testing.assert_array_equal(function(mu, mu, values, rewards), [1, 1])
    np.testing.assert_array_equal(function(mu, mu, values, 1.0), [1, 1])


def test_a_reward_on_the_pad_after_the_end_moves_back():
    mask = np.array([[1, 1, 1, 0, 0]], dtype=bool)
    rewards = np.array([[0, 0, 0, 1.0, 0]])
    got = mc_targets(rewards, mask=mask, gamma=0.5)
    np.testing.assert_array_equal(got, [[0.25, 0.5, 1, 0, 0]])
    mu = np.full((1, 5), -1.0)
    got = brace_targets(mu, mu, np.zeros((1, 5)), rewards, mask=mask)
    np.testing.assert_array_equal(got, [[1, 1, 1, 0, 0]])


def test_step_rewards_are_earned_where_they_fall():
    """[1.055, .8, .8]; collapsed to the end it would be [1.045, 1, 1]."""
    values, rewards = [0.5, 0.4, 0.6], [0.2, 0, 0.8]
    mu = np.full(3, -1.0)
    pi = mu + np.log([1.15, 1, 1])
    got = brace_targets(mu, pi, values, rewards, k=1)
    np.testing.assert_allclose(got, [1.055, 0.8, 0.8], rtol=1e-14)
    collapsed = brace_targets(mu, pi, values, sum(rewards), k=1)
    np.testing.assert_allclose(collapsed, [1.045, 1, 1], rtol=1e-14)
