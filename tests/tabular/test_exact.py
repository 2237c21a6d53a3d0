"""Dynamic programming against stored solutions and against the list of all responses."""

from __future__ import annotations

import numpy as np
import pytest

from brace_diag.errors import InputError
from brace_diag.tabular import (
    EosMDP,
    enumerate_paths,
    exact_truth,
    log_product_moments,
    mean_abs_log_w,
    mean_alive,
    occupancy,
    policy_value,
    return_moments,
    start,
    token_mdp,
)

# Sums of at most a few thousand terms of size about 1 in float64 round by less than 1e-13.
ROUNDING = 1e-12


def returns(mdp, paths):
    """G_t of every token of every response, (n_paths, horizon)."""
    out = np.zeros_like(paths.reward)
    following = np.zeros(len(out))
    for t in reversed(range(mdp.horizon)):
        following = out[:, t] = paths.reward[:, t] + mdp.gamma * following
    return out


def suffix_log_w(paths):
    log_w = np.log(np.where(paths.states >= 0, paths.weight, 1.0))
    return np.cumsum(log_w[:, ::-1], axis=1)[:, ::-1]


def assert_equal_where_met(table, expected):
    met = np.isfinite(expected)
    assert met.any()
    np.testing.assert_allclose(table[met], expected[met], rtol=0, atol=ROUNDING)


def test_stored_values_occupancy_and_means(golden):
    mdp = golden.mdp
    truth = exact_truth(mdp)
    for ours, name in (
        (policy_value(mdp, "mu"), "Vmu_states"),
        (policy_value(mdp, "pi"), "Vpi_states"),
        (occupancy(mdp), "occ_mu"),
        (truth.gap_by_position, "b_by_pos"),
        (truth.critic_bias_by_position, "g_pi_by_pos"),
    ):
        np.testing.assert_allclose(ours, golden[name], rtol=0, atol=ROUNDING, err_msg=name)


def test_responses_are_all_there(mdp):
    for p in range(mdp.n_prompts):
        paths = enumerate_paths(mdp, p)
        assert paths.probability.sum() == pytest.approx(1.0, abs=ROUNDING)
        assert len(np.unique(paths.actions, axis=0)) == len(paths.length)
        assert paths.length.max() <= mdp.horizon
        # Every weight has mean 1 under mu, and so has every product of weights.
        product = np.where(paths.states >= 0, paths.weight, 1.0).prod(1)
        assert paths.probability @ product == pytest.approx(1.0, abs=ROUNDING)


def test_values_and_second_moments_equal_enumeration(mdp, mean_given_state):
    mean, square = return_moments(mdp, "mu")
    v_pi = policy_value(mdp, "pi")
    for p in range(mdp.n_prompts):
        paths = enumerate_paths(mdp, p)
        g = returns(mdp, paths)
        assert_equal_where_met(mean[p], mean_given_state(mdp, paths, g))
        assert_equal_where_met(square[p], mean_given_state(mdp, paths, g**2))
        # V^pi by importance sampling over all responses: E_mu[Π_{l>=t} w_l G_t | s_t].
        weighted = np.exp(suffix_log_w(paths)) * g
        assert_equal_where_met(v_pi[p], mean_given_state(mdp, paths, weighted))


def test_log_product_moments_equal_enumeration(mdp, mean_given_state):
    mean, square = log_product_moments(mdp)
    for p in range(mdp.n_prompts):
        paths = enumerate_paths(mdp, p)
        s = suffix_log_w(paths)
        assert_equal_where_met(mean[p], mean_given_state(mdp, paths, s))
        assert_equal_where_met(square[p], mean_given_state(mdp, paths, s**2))


def test_truth_equals_enumeration(mdp):
    """Means over living rollouts, pooled over prompts, and variances within prompts."""
    truth, b = exact_truth(mdp), policy_value(mdp, "pi") - policy_value(mdp, "mu")
    alive, gap, variance = (np.zeros(mdp.horizon) for _ in range(3))
    abs_log_w = return_variance = 0.0
    for p in range(mdp.n_prompts):
        paths = enumerate_paths(mdp, p)
        lives = paths.states >= 0
        mass = paths.probability[:, None] * lives
        alive += mass.sum(0)
        gap += (mass * b[p, np.arange(mdp.horizon), paths.states]).sum(0)
        s = suffix_log_w(paths)
        here = np.maximum(mass.sum(0), 1e-300)
        first, second = (mass * s).sum(0) / here, (mass * s**2).sum(0) / here
        variance += mass.sum(0) * (second - first**2)
        abs_log_w += (mass * np.abs(np.log(np.where(lives, paths.weight, 1.0)))).sum()
        g = returns(mdp, paths)[:, 0]
        return_variance += paths.probability @ (g - paths.probability @ g) ** 2
    reached = alive > 0
    for ours, theirs in (
        (truth.alive_by_position, alive / mdp.n_prompts),
        (truth.gap_by_position[reached], (gap / np.where(reached, alive, 1))[reached]),
        (truth.within_var_log_product[reached], (variance / np.where(reached, alive, 1))[reached]),
        (truth.mean_abs_log_w, abs_log_w / alive.sum()),
        (truth.mean_length, alive.sum() / mdp.n_prompts),
        (truth.s_within**2, return_variance / mdp.n_prompts),
    ):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=ROUNDING)
    assert np.isnan(truth.gap_by_position[~reached]).all()
    assert truth.gap == pytest.approx(truth.gap_by_position[0], abs=ROUNDING)


def test_tree_equals_the_shared_states_that_it_unfolds(random_mdp):
    """An MDP written out as a tree has the values of the MDP."""
    mdp = random_mdp(8, ends=False, n_prompts=1, horizon=4)
    n = mdp.n_actions
    place = np.array([mdp.x0[0]])  # the shared state of every node, level by level
    nodes = [place]
    for _ in range(mdp.horizon):
        place = mdp.nxt[place].ravel()
        nodes.append(place)
    state = np.concatenate(nodes)
    child = n * np.arange(len(state))[:, None] + np.arange(n) + 1
    tree = token_mdp(
        nxt=np.where(child < len(state), child, 0),
        mu=mdp.mu[:, state],
        pi=mdp.pi[:, state],
        terminal_reward=mdp.terminal_reward[:, state],
        step_reward=mdp.step_reward[:, state],
        x0=0,
        horizon=mdp.horizon,
        gamma=mdp.gamma,
    )
    a, b = exact_truth(mdp), exact_truth(tree)
    for name in ("gap_by_position", "within_var_log_product", "reward_pi", "s_within"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=0, atol=ROUNDING)


def test_a_policy_that_never_takes_a_token_has_infinite_log_products():
    mdp = token_mdp(
        nxt=[[0, 0]],
        mu=[[[0.5, 0.5]]],
        pi=[[[1.0, 0.0]]],
        terminal_reward=[1.0],
        x0=0,
        horizon=3,
    )
    truth = exact_truth(mdp)
    assert np.isinf(truth.within_var_log_product).all()
    assert truth.to_dict()["within_var_log_product"] == [None] * 3
    assert truth.gap == 0.0
    assert mean_abs_log_w(mdp) == np.inf


def test_mean_alive_ignores_infinite_entries_that_are_never_met():
    mdp = EosMDP().build(horizon=2)
    met = occupancy(mdp)
    table = np.where(met > 0, 3.0, np.inf)
    np.testing.assert_allclose(mean_alive(met, table), [3.0, 3.0], rtol=0, atol=ROUNDING)


def test_start_reads_the_first_state(random_mdp):
    mdp = random_mdp(9)
    table = np.arange(mdp.n_prompts * mdp.horizon * mdp.n_states, dtype=float)
    table = table.reshape(mdp.n_prompts, mdp.horizon, mdp.n_states)
    expected = [table[p, 0, mdp.x0[p]] for p in range(mdp.n_prompts)]
    np.testing.assert_array_equal(start(mdp, table), expected)


@pytest.mark.parametrize("policy", ["nu", np.ones((2, 2))], ids=["name", "shape"])
def test_unknown_policy_is_refused(policy, random_mdp):
    with pytest.raises(InputError, match="policy"):
        policy_value(random_mdp(1), policy)
