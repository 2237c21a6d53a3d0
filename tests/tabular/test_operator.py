"""Expected targets and fixed points: stored ones, all responses, and what theory says of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from brace_diag import brace_targets, capped_targets, vtrace_targets
from brace_diag.errors import InputError
from brace_diag.tabular import (
    LatentFamily,
    enumerate_paths,
    exact_gap_fixed_point,
    exact_truth,
    expected_return_weight,
    expected_target,
    fixed_point,
    occupancy,
    policy_value,
    token_mdp,
)

# A few thousand float64 operations on numbers of size 1.
ROUNDING = 1e-12

WINDOWS = [0, 1, 2, 4, 5, 100, math.inf]
CAPS = [
    {"rho_bar": 1.2, "c_bar": 1.1, "lam": 1.0},
    {"rho_bar": 1.0, "c_bar": 1.0, "lam": 0.9},
    {"rho_bar": math.inf, "c_bar": math.inf, "lam": 1.0},
    {"rho_bar": 0.8, "c_bar": 1.5, "lam": 1.0},
]


def test_stored_operators(golden):
    mdp = golden.mdp
    # The stored rollouts say in which states the stored means were taken.
    met = (golden["prompt_id"][:, None], np.arange(mdp.horizon), golden["x"])
    n = 0
    for tag, given in golden.operators():
        without_rho = {name: given[name] for name in ("k", "c_bar", "lam")}
        for ours, name in (
            (fixed_point(mdp, **given), "fpstates_"),
            (expected_target(mdp, mdp.critic, **given)[met], "Ev_"),
            (expected_return_weight(mdp, **without_rho)[met], "EC_"),
        ):
            np.testing.assert_allclose(
                ours, golden[name + tag], rtol=0, atol=ROUNDING, err_msg=name + tag
            )
        n += 1
    assert n == 5 * len(golden["ks"])


def literal_means(mdp, p, target, k, caps, literal_target, mean_given_state):
    """E_mu[target | s_t = x] from all responses of prompt p."""
    paths = enumerate_paths(mdp, p)
    per_token = np.zeros_like(paths.reward)
    for i, n in enumerate(paths.length):
        v = mdp.critic[p, np.arange(n), paths.states[i, :n]]
        per_token[i, :n] = literal_target(
            target, paths.weight[i, :n], paths.reward[i, :n], v, k=k, gamma=mdp.gamma, **caps
        )
    return mean_given_state(mdp, paths, per_token)


@pytest.mark.parametrize("caps", CAPS)
@pytest.mark.parametrize("target", ["brace", "capped", "vtrace"])
def test_expected_targets_equal_enumeration(mdp, target, caps, literal_target, mean_given_state):
    for k in (0, 1, 3, 5, 100):
        ours = expected_target(mdp, mdp.critic, target=target, k=k, **caps)
        for p in range(mdp.n_prompts):
            expected = literal_means(mdp, p, target, k, caps, literal_target, mean_given_state)
            met = np.isfinite(expected)
            np.testing.assert_allclose(ours[p][met], expected[met], rtol=0, atol=ROUNDING)


def test_expected_return_weight_equals_enumeration(mdp, mean_given_state):
    for k in (0, 1, 3, 5, 100):
        ours = expected_return_weight(mdp, k=k, c_bar=1.1, lam=0.9)
        for p in range(mdp.n_prompts):
            paths = enumerate_paths(mdp, p)
            product = np.zeros_like(paths.reward)
            for i, n in enumerate(paths.length):
                c = mdp.gamma * 0.9 * np.minimum(1.1, paths.weight[i])
                product[i, :n] = [np.prod(c[s : min(s + k, n - 1)]) for s in range(n)]
            expected = mean_given_state(mdp, paths, product)
            met = np.isfinite(expected)
            np.testing.assert_allclose(ours[p][met], expected[met], rtol=0, atol=ROUNDING)


def test_the_targets_of_the_library_have_the_expected_means(mdp, mean_given_state):
    """The public target functions, averaged over all responses."""
    caps = {"rho_bar": 1.2, "c_bar": 1.1, "gamma": mdp.gamma, "lam": 0.95}
    for p in range(mdp.n_prompts):
        paths = enumerate_paths(mdp, p)
        lives = paths.states >= 0
        log_w = np.log(np.where(lives, paths.weight, 1.0))
        v = mdp.critic[p, np.arange(mdp.horizon), paths.states]
        args = (np.zeros_like(log_w), log_w, v, paths.reward)
        for target, got in (
            ("brace", brace_targets(*args, mask=lives, k=2, **caps)),
            ("capped", capped_targets(*args, mask=lives, k=2, **caps)),
            ("vtrace", vtrace_targets(*args, mask=lives, n=2, **caps)),
        ):
            given = {name: caps[name] for name in ("rho_bar", "c_bar", "lam")}
            ours = expected_target(mdp, mdp.critic, target=target, k=2, **given)[p]
            theirs = mean_given_state(mdp, paths, got)
            met = np.isfinite(theirs)
            np.testing.assert_allclose(ours[met], theirs[met], rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("caps", CAPS)
@pytest.mark.parametrize("target", ["brace", "capped", "vtrace"])
def test_a_fixed_point_is_its_own_target(mdp, target, caps):
    for k in WINDOWS:
        if target != "brace" and k == 0:
            continue  # an empty window of V-trace leaves every V as it is
        fixed = fixed_point(mdp, target=target, k=k, **caps)
        again = expected_target(mdp, fixed, target=target, k=k, **caps)
        np.testing.assert_allclose(again, fixed, rtol=0, atol=1e-9 * np.abs(fixed).max())


def test_expected_target_is_affine_in_the_critic(mdp):
    rng = np.random.default_rng(0)
    shape = (mdp.n_prompts, mdp.horizon, mdp.n_states)
    one, two = rng.normal(size=shape), rng.normal(size=shape)
    f = lambda v: expected_target(mdp, v, k=2)  # noqa: E731
    np.testing.assert_allclose(
        f(0.3 * one + 0.7 * two), 0.3 * f(one) + 0.7 * f(two), rtol=0, atol=ROUNDING
    )


def capped_policy_then_mu(mdp, rho_bar):
    """min(rho_bar mu, pi), normalised, at every position but the last, where mu acts."""
    tilted = mdp.mu * np.minimum(rho_bar, mdp.weights)
    tilted /= tilted.sum(-1, keepdims=True)
    policy = np.repeat(tilted[:, None], mdp.horizon, axis=1)
    policy[:, -1] = mdp.mu
    changing = token_mdp(
        nxt=mdp.nxt,
        mu=np.repeat(mdp.mu[:, None], mdp.horizon, axis=1),
        pi=policy,
        terminal_reward=mdp.terminal_reward,
        step_reward=mdp.step_reward,
        x0=mdp.x0,
        horizon=mdp.horizon,
        gamma=mdp.gamma,
    )
    return policy_value(changing, "pi")


def test_no_window_gives_v_mu(mdp):
    np.testing.assert_array_equal(fixed_point(mdp, k=0), policy_value(mdp, "mu"))


@pytest.mark.parametrize("rho_bar", [0.7, 1.0, 1.2, math.inf])
def test_a_window_of_all_gives_the_capped_policy(rho_bar, random_mdp):
    mdp = random_mdp(1, ends=False, horizon=7)
    expected = capped_policy_then_mu(mdp, rho_bar)
    for k in (6, 7, math.inf):
        for c_bar in (1.0, 1.1):
            got = fixed_point(mdp, k=k, rho_bar=rho_bar, c_bar=c_bar)
            np.testing.assert_allclose(got, expected, rtol=0, atol=ROUNDING)


def test_without_caps_the_window_is_pi_then_mu(random_mdp):
    """c_bar = rho_bar = inf: V_k is the value of pi for k steps and mu after them."""
    mdp, k = random_mdp(1, ends=False, horizon=6), 2
    got = fixed_point(mdp, k=k, rho_bar=math.inf, c_bar=math.inf)
    np.testing.assert_allclose(
        expected_target(mdp, mdp.critic, k=k, rho_bar=math.inf, c_bar=math.inf),
        got,
        rtol=0,
        atol=ROUNDING,
        err_msg="one fit reaches the fixed point, whatever the critic",
    )
    policy = np.repeat(mdp.mu[:, None], mdp.horizon, axis=1)
    policy[:, :k] = mdp.pi[:, None]
    changing = token_mdp(
        nxt=mdp.nxt,
        mu=np.repeat(mdp.mu[:, None], mdp.horizon, axis=1),
        pi=policy,
        terminal_reward=mdp.terminal_reward,
        step_reward=mdp.step_reward,
        x0=mdp.x0,
        horizon=mdp.horizon,
        gamma=mdp.gamma,
    )
    np.testing.assert_allclose(got[:, 0], policy_value(changing, "pi")[:, 0], rtol=0, atol=ROUNDING)


def late_decision():
    """Eight tokens, all neutral with E[min(1, w)] = .8, but the seventh decides the reward."""
    nxt = [[1, 1], [2, 2], [3, 3], [4, 4], [5, 5], [6, 6], [7, 8], [7, 7], [8, 8]]
    pi = np.full((1, 9, 2), [0.7, 0.3])
    pi[0, 6] = [0.8, 0.2]
    return token_mdp(
        nxt=nxt,
        mu=np.full((1, 9, 2), 0.5),
        pi=pi,
        terminal_reward=np.arange(9) == 7,
        x0=0,
        horizon=8,
    )


def test_the_pull_of_the_reward_does_not_bound_the_offset_of_the_fixed_point():
    """The offset from the window's own limit stays near max |g| while sup E[Π c] falls as .8^k."""
    mdp = late_decision()
    met = occupancy(mdp) > 0
    one = {"rho_bar": 1.0, "c_bar": 1.0}
    limit = fixed_point(mdp, k=math.inf, **one)
    g = np.abs(limit - policy_value(mdp, "mu"))[met].max()
    assert g == pytest.approx(5 / 7 - 1 / 2, abs=ROUNDING)  # .5 against .5 / (.5 + .2)
    offset, bound = [], []
    for k in (1, 2, 3, 4):
        offset.append(np.abs(fixed_point(mdp, k=k, **one) - limit)[met].max())
        # Over the states with a full window; the others have an emptier one.
        full = met[:, : mdp.horizon - k]
        weight = expected_return_weight(mdp, k=k, c_bar=1.0)[:, : mdp.horizon - k]
        bound.append(weight[full].max() * g)
    # Four digits, as published.
    np.testing.assert_allclose(offset, [0.2143, 0.2142, 0.2019, 0.1536], rtol=0, atol=5e-5)
    np.testing.assert_allclose(bound, [0.1714, 0.1371, 0.1097, 0.0878], rtol=0, atol=5e-5)
    # What does bound it: g further on than the window. With gamma = 1 it need not shrink.
    assert (np.array(offset) <= g + ROUNDING).all()


@pytest.mark.parametrize("drift", [0.005, 0.02])
def test_rho_bar_decides_how_much_of_the_gap_is_recovered(drift):
    """rho_bar = 1 recovers about half of it however small the drift; 2 nearly all, even at c_bar 1.

    min(1, 1 + e) = 1 + min(0, e) and half of a small symmetric e is below 0. "About" is a tenth:
    the correlation of |e| with the advantage does not vanish for a finite number of states.
    """
    mdp = LatentFamily(n_prompts=32, horizon=64, drift=drift, alignment=0.5).build(
        np.random.default_rng(3)
    )
    half = exact_gap_fixed_point(mdp, k=math.inf, rho_bar=1.0, c_bar=1.0)
    most = exact_gap_fixed_point(mdp, k=math.inf, rho_bar=2.0, c_bar=1.0)
    assert half.gap == pytest.approx(exact_truth(mdp).gap, abs=ROUNDING)
    assert half.share == pytest.approx(0.5, abs=0.1)
    # The last token is left to mu: its part of the gap is missing, and clipping takes under 1 %.
    last = exact_gap_fixed_point(mdp, k=math.inf, rho_bar=math.inf, c_bar=1.0).share
    assert 0.9 < last < 1.0
    assert most.share == pytest.approx(last, abs=0.01)


def test_share_grows_with_the_window_and_is_nothing_without_one():
    mdp = LatentFamily(n_prompts=16, horizon=32).build(np.random.default_rng(4))
    shares = [exact_gap_fixed_point(mdp, k=k, rho_bar=2.0, c_bar=1.0).share for k in (0, 8, 16, 32)]
    assert shares[0] == 0.0
    assert (np.diff(shares) > 0).all()


def test_share_of_no_gap_is_not_a_number():
    mdp = LatentFamily(n_prompts=2, horizon=8, drift=0.0).build(np.random.default_rng(5))
    assert math.isnan(exact_gap_fixed_point(mdp).share)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"k": -1}, "k is"),
        ({"k": 1.5}, "k is"),
        ({"k": math.nan}, "k is"),
        ({"rho_bar": 0.0}, "rho_bar"),
        ({"c_bar": -1.0}, "c_bar"),
        ({"lam": 1.1}, "lam"),
        ({"target": "gae"}, "target"),
    ],
)
def test_wrong_parameters_are_refused(wrong, message, random_mdp):
    with pytest.raises(InputError, match=message):
        fixed_point(random_mdp(1), **wrong)
