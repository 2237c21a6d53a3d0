"""Sampled logs agree with the exact solution, and are what was asked for.

Statistical checks allow 4 standard errors: a right program fails one with chance 6e-5.
"""

from __future__ import annotations

import numpy as np
import pytest

from brace_diag import brace_targets
from brace_diag.errors import InputError
from brace_diag.tabular import (
    EosMDP,
    LatentFamily,
    RatioNoise,
    ToolHoles,
    exact_truth,
    expected_target,
    occupancy,
    policy_value,
    sample_log,
    start,
    token_mdp,
)


@pytest.fixture(scope="module")
def family():
    return LatentFamily(n_prompts=12, horizon=24, hazard=0.03, drift=0.05, gamma=0.99).build(
        np.random.default_rng(0)
    )


@pytest.fixture(scope="module")
def log(family):
    return sample_log(family, 12, 1500, np.random.default_rng(1), dtype=np.float64)


def assert_mean(x, expected):
    """The mean of independent x is within 4 standard errors."""
    error = x.std(ddof=1) / np.sqrt(len(x))
    assert abs(x.mean() - expected) <= 4 * error, (x.mean(), expected, error)
    assert error < 0.05 * max(x.std(), 1e-9)  # the check has power


def per_rollout(log, x):
    return np.add.reduceat(x, log.offsets[:-1])


def first(log, x):
    return x[log.offsets[:-1]]


def test_means_equal_the_truth(family, log):
    """Residuals from each prompt's own expectation, so that prompts do not add variance."""
    truth = exact_truth(family)
    discounted = log.reward * family.gamma ** (log.lengths - 1)
    log_w = log.pi_logprobs - log.mu_logprobs
    v_mu, v_pi = policy_value(family, "mu"), policy_value(family, "pi")
    assert_mean(discounted - start(family, v_mu)[log.prompt_index], 0.0)
    weighted = np.exp(per_rollout(log, log_w)) * discounted
    assert_mean(weighted - start(family, v_pi)[log.prompt_index], 0.0)
    assert_mean(np.exp(log_w), 1.0)
    expected_length = occupancy(family).sum((1, 2))
    assert_mean(log.lengths - expected_length[log.prompt_index], 0.0)
    within = [
        per_rollout(log, log_w)[log.prompt_index == p].var(ddof=1) for p in range(family.n_prompts)
    ]
    # 1,500 rollouts a prompt: the variance's own relative error is under .1 with these tails.
    assert np.mean(within) == pytest.approx(truth.within_var_log_product[0], rel=0.1)


def test_gap_by_position_is_over_rollouts_that_are_alive(family, log):
    truth = exact_truth(family)
    b = log.along(policy_value(family, "pi") - policy_value(family, "mu"))
    for t in (0, 5, 15, 23):
        here = log.positions == t
        assert here.mean() > 0.001
        error = b[here].std(ddof=1) / np.sqrt(here.sum())
        assert abs(b[here].mean() - truth.gap_by_position[t]) <= 4 * error
        share = here.sum() / log.n_rollouts
        binomial = np.sqrt(max(share * (1 - share), 1e-12) / log.n_rollouts)
        assert abs(share - truth.alive_by_position[t]) <= 4 * binomial


def test_targets_have_the_expected_mean(family, log):
    given = {"k": 6, "rho_bar": 1.2, "c_bar": 1.1}
    got = brace_targets(
        log.mu_logprobs,
        log.pi_logprobs,
        log.values,
        log.reward,
        offsets=log.offsets,
        gamma=family.gamma,
        **given,
    )
    exact = start(family, expected_target(family, family.critic, **given))
    assert_mean(first(log, got) - exact[log.prompt_index], 0.0)


def test_log_probs_and_values_are_those_of_the_tokens(family, log):
    prompt = np.repeat(log.prompt_index, log.lengths)
    mu = family.mu[prompt, log.states, log.token_ids]
    np.testing.assert_array_equal(log.mu_logprobs, np.log(mu))
    np.testing.assert_array_equal(
        log.pi_logprobs, np.log(family.pi[prompt, log.states, log.token_ids])
    )
    np.testing.assert_array_equal(log.values, family.critic[prompt, log.positions, log.states])
    # States follow each other, and only the last token of a rollout may end it.
    after = family.nxt[log.states, log.token_ids]
    last = np.zeros(log.n_tokens, dtype=bool)
    last[log.offsets[1:] - 1] = True
    np.testing.assert_array_equal(after[:-1][~last[:-1]], log.states[1:][~last[:-1]])
    assert not family.done[after[~last]].any()
    assert (family.done[after[last]] | (log.lengths == family.horizon)).all()
    np.testing.assert_array_equal(log.reward, family.terminal_reward[log.prompt_index, after[last]])


def test_step_rewards_and_changing_policies(random_mdp):
    mdp = random_mdp(4, changing=True)
    log = sample_log(mdp, 2, 4000, np.random.default_rng(2), dtype=np.float64)
    g = per_rollout(log, log.rewards * mdp.gamma**log.positions)
    assert_mean(g - start(mdp, policy_value(mdp, "mu"))[log.prompt_index], 0.0)
    w = np.exp(per_rollout(log, log.pi_logprobs - log.mu_logprobs))
    assert_mean(w * g - start(mdp, policy_value(mdp, "pi"))[log.prompt_index], 0.0)
    np.testing.assert_allclose(log.reward, per_rollout(log, log.rewards))


def test_a_token_of_probability_0_is_never_drawn():
    """Rows that sum to 1 only up to rounding: .1 + .2 + .7 ends below 1."""
    mu = np.array([[[0.0, 0.1, 0.2, 0.7, 0.0]]])
    mdp = token_mdp(nxt=[[0] * 5], mu=mu, pi=mu, terminal_reward=[0.0], x0=0, horizon=50)

    class Extremes(np.random.Generator):
        def random(self, size=None):
            out = super().random(size)
            out[: len(out) // 2], out[len(out) // 2 :] = 0.0, np.nextafter(1.0, 0.0)
            return out

    log = sample_log(mdp, 1, 10, Extremes(np.random.PCG64(0)))
    assert set(np.unique(log.token_ids)) == {1, 3}


def test_same_seed_same_log(family):
    logs = [sample_log(family, 4, 3, np.random.default_rng(seed)) for seed in (5, 5, 6)]
    for name, column in logs[0].to_columns().items():
        np.testing.assert_array_equal(column, logs[1].to_columns()[name])
    assert not np.array_equal(logs[0].token_ids, logs[2].token_ids)


def test_logs_are_float32_unless_asked(family):
    log = sample_log(family, 2, 2, np.random.default_rng(0))
    wide = sample_log(family, 2, 2, np.random.default_rng(0), dtype=np.float64)
    for name in ("mu_logprobs", "pi_logprobs", "values"):
        assert getattr(log, name).dtype == np.float32
        np.testing.assert_array_equal(getattr(log, name), getattr(wide, name).astype(np.float32))


def test_fixed_prompts_and_pool(family):
    fixed = sample_log(family, 5, 3, np.random.default_rng(0), step=4)
    np.testing.assert_array_equal(fixed.prompt_index, np.repeat(np.arange(5), 3))
    np.testing.assert_array_equal(fixed.prompt_id, fixed.prompt_index)
    drawn = sample_log(family, 500, 3, np.random.default_rng(0), pool=True, step=2)
    np.testing.assert_array_equal(drawn.prompt_id, 1000 + np.repeat(np.arange(500), 3))
    index = drawn.prompt_index.reshape(500, 3)
    assert (index == index[:, :1]).all()
    # Uniform over 12 prompts: 500 draws give each 42 +- 6.2.
    counts = np.bincount(index[:, 0], minlength=12)
    assert np.abs(counts - 500 / 12).max() <= 4 * 6.2


def test_versions_and_steps_are_written():
    log = sample_log(
        EosMDP(0.3).build(5), 1, 4, np.random.default_rng(0),
        step=7, trainer_version=9, behavior_version=3,
    )  # fmt: skip
    columns = log.to_columns()
    assert "values" not in columns
    for name, value in (("step", 7), ("trainer_version", 9), ("behavior_version", 3)):
        assert (columns[name] == value).all()
    np.testing.assert_array_equal(columns["rollout_id"], [28, 29, 30, 31])


@pytest.mark.parametrize("on", ["pi", "mu"])
@pytest.mark.parametrize(
    ("kind", "mean", "sd"),
    [
        ("normal", 0.0, 0.05),
        ("centred", -(0.05**2) / 2, 0.05),
        ("student_t", 0.0, 0.05),
        ("constant", 0.05, 0.0),
    ],
)
def test_noise_has_its_size_and_falls_on_one_column(family, on, kind, mean, sd):
    rng = np.random.default_rng
    clean = sample_log(family, 12, 200, rng(3), dtype=np.float64)
    noisy = sample_log(
        family, 12, 200, rng(3), dtype=np.float64, noise=RatioNoise(0.05, kind=kind, on=on)
    )
    touched, kept = ("pi_logprobs", "mu_logprobs")[:: 1 if on == "pi" else -1]
    np.testing.assert_array_equal(getattr(noisy, kept), getattr(clean, kept))
    np.testing.assert_array_equal(noisy.token_ids, clean.token_ids)
    sign = 1.0 if on == "pi" else -1.0
    error = sign * (getattr(noisy, touched) - getattr(clean, touched))
    # Differences of log-probs of size up to 10 round by 2e-15.
    assert abs(error.mean() - mean) <= 4 * sd / np.sqrt(len(error)) + 1e-14
    # With 3 degrees of freedom the fourth moment is infinite: the sample sd converges slowly.
    assert error.std() == pytest.approx(sd, rel=0.25 if kind == "student_t" else 0.02, abs=1e-14)
    if kind == "student_t":
        assert np.abs(error).max() > 6 * sd  # chance of none in 30,000 tokens: e^-30
    if kind == "centred":
        assert_mean(np.exp(error), 1.0)


def test_noise_in_some_states_only(family):
    fork = np.arange(family.n_states) // (family.n_states // 3) == 1
    rng = np.random.default_rng
    clean = sample_log(family, 4, 20, rng(3), dtype=np.float64)
    noisy = sample_log(
        family, 4, 20, rng(3), dtype=np.float64,
        noise=RatioNoise(0.01, kind="constant", states=fork),
    )  # fmt: skip
    error = noisy.pi_logprobs - clean.pi_logprobs
    np.testing.assert_allclose(error, np.where(fork[clean.states], 0.01, 0.0), atol=1e-14)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RatioNoise(0.1, kind="cauchy"), "kind"),
        (lambda: RatioNoise(0.1, on="values"), "pi"),
        (lambda: RatioNoise(-0.1), "size"),
        (lambda: RatioNoise(np.nan, kind="constant"), "size"),
        (lambda: ToolHoles(rate=1.5), "rate"),
        (lambda: ToolHoles(mean_length=0.5), "mean_length"),
        (lambda: ToolHoles(poison=()), "poison"),
    ],
)
def test_wrong_disturbances_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("args", "message"), [((13, 1), "pool=True"), ((0, 1), "at least 1"), ((1, 0), "at least 1")]
)
def test_wrong_sizes_are_refused(family, args, message):
    with pytest.raises(InputError, match=message):
        sample_log(family, *args, np.random.default_rng(0))
