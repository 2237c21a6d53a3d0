"""The latent-state family has the drift, the direction and the lengths that were asked for."""

from __future__ import annotations

import numpy as np
import pytest

from brace_diag.errors import InputError
from brace_diag.tabular import LatentFamily, exact_truth, mean_abs_log_w, policy_value, start


def build(seed=0, **given):
    return LatentFamily(**{"n_prompts": 24, "horizon": 48} | given).build(
        np.random.default_rng(seed)
    )


@pytest.mark.parametrize("drift", [0.005, 0.02, 0.08])
@pytest.mark.parametrize("given", [{}, {"hazard": 0.05}, {"alignment": 0.0, "neutral": True}])
def test_drift_is_the_mean_of_abs_log_w(drift, given):
    # 50 halvings of an interval of at most 64 leave less than 1e-13.
    assert mean_abs_log_w(build(drift=drift, **given)) == pytest.approx(drift, abs=1e-12)


def test_no_drift_is_no_change():
    mdp = build(drift=0.0)
    np.testing.assert_array_equal(mdp.pi, mdp.mu)
    assert exact_truth(mdp).gap == 0.0


def test_value_grows_with_alignment():
    gaps = [exact_truth(build(alignment=a)).gap for a in (0.0, 0.3, 0.6, 1.0)]
    assert (np.diff(gaps) > 0).all()
    # Full alignment is worth ten times the sampling noise of an aimless drift over prompts.
    assert gaps[3] > 10 * abs(gaps[0])


def test_neutral_drift_changes_weights_and_no_value():
    mdp = build(alignment=0.0, neutral=True)
    truth = exact_truth(mdp)
    assert truth.within_var_log_product[0] > 0.01
    gap = policy_value(mdp, "pi") - policy_value(mdp, "mu")
    # 48 positions of float64 rounding on values of at most 1.
    np.testing.assert_allclose(gap, 0.0, rtol=0, atol=1e-13)


def test_sizes_are_those_of_the_published_study():
    """b / s_A of .017, .065, .23 for drift .005, .02, .08 at T = 512, alignment .3.

    Another draw of logits and prompts than theirs: within a third.
    """
    family = LatentFamily(n_prompts=48, horizon=512)
    mdps = family.build_at([0.005, 0.02, 0.08], np.random.default_rng(1))
    truths = [exact_truth(mdp) for mdp in mdps]
    share = [truth.gap / truth.s_within for truth in truths]
    np.testing.assert_allclose(share, [0.017, 0.065, 0.23], rtol=1 / 3)
    half = truths[1].gap_by_position[256] / truths[1].gap
    assert 0.3 < half < 0.65  # fades about linearly to the last token


def test_steps_share_everything_but_pi():
    one, two = LatentFamily(n_prompts=4, horizon=8).build_at([0.01, 0.02], np.random.default_rng(2))
    for name in ("mu", "critic", "x0", "terminal_reward", "nxt"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    # The same direction, further along it: D up to a constant per state.
    shift = [np.log(m.pi / m.mu) for m in (one, two)]
    shift = [s - s.mean(-1, keepdims=True) for s in shift]
    ratio = shift[1] / shift[0]
    np.testing.assert_allclose(ratio, ratio[0, 0, 0], rtol=1e-9)


def test_critic_is_v_mu_with_the_noise_asked_for():
    mdp = build(n_prompts=400, critic_offset=0.05, critic_noise=0.1, critic_prompt_noise=0.2)
    error = mdp.critic - policy_value(mdp, "mu")
    at_first = np.broadcast_to(error[:, :1], error.shape)
    np.testing.assert_allclose(error, at_first, rtol=0, atol=1e-12)
    error = error[:, 0]
    # 400 prompts: the mean of N(.05, .2^2) has se .01, its sd a relative se of .035; four of each.
    assert error.mean() == pytest.approx(0.05, abs=0.04)
    assert error.mean(1).std() == pytest.approx(0.2, rel=0.15)
    assert (error - error.mean(1, keepdims=True)).std() == pytest.approx(0.1, rel=0.15)


def test_hazard_is_the_probability_of_the_end():
    family = LatentFamily(n_prompts=3, horizon=64, n_levels=9, hazard=0.05, hazard_slope=2.0)
    mdp = family.build(np.random.default_rng(3))
    end = mdp.mu[:, ~mdp.done, 6].reshape(3, 2, 9)
    odds = np.log(end / (1 - end)) - np.log(0.05 / 0.95)
    expected = np.broadcast_to(2.0 * np.linspace(-0.5, 0.5, 9), odds.shape)
    np.testing.assert_allclose(odds, expected, rtol=0, atol=1e-12)
    assert mdp.done[mdp.nxt[:, 6]].all() and not mdp.done[mdp.nxt[:18, :6]].any()
    truth = exact_truth(mdp)
    assert truth.mean_length < 64
    assert (np.diff(truth.alive_by_position) < 0).all()
    np.testing.assert_array_equal(start(mdp, np.zeros_like(mdp.critic)), 0.0)


def test_same_seed_same_family():
    one, two, other = build(seed=7), build(seed=7), build(seed=8)
    np.testing.assert_array_equal(one.pi, two.pi)
    np.testing.assert_array_equal(one.critic, two.critic)
    assert (one.pi != other.pi).any()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_prompts": 0}, "n_prompts"),
        ({"n_levels": 1}, "n_levels"),
        ({"drift": -0.1}, "drift"),
        ({"alignment": 1.5}, "alignment"),
        ({"alignment": 0.3, "neutral": True}, "alignment"),
        ({"hazard": 1.0}, "hazard"),
    ],
)
def test_wrong_parameters_are_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        LatentFamily(**wrong)


def test_a_drift_that_cannot_be_reached_is_refused():
    with pytest.raises(InputError, match="so far"):
        build(drift=1e4)
