"""What `token_mdp` accepts, refuses and spreads."""

from __future__ import annotations

import numpy as np
import pytest

from brace_diag.errors import InputError
from brace_diag.tabular import exact_truth, token_mdp

VALID = {
    "nxt": [[0, 1], [1, 1]],
    "mu": [[[0.5, 0.5], [0.2, 0.8]]] * 3,
    "pi": [[[0.4, 0.6], [1.0, 0.0]]] * 3,
    "terminal_reward": [0.0, 1.0],
    "x0": 0,
    "horizon": 4,
}


def test_shared_parts_spread_over_prompts():
    mdp = token_mdp(**VALID, step_reward=[[0.1, 0.2], [0.3, 0.4]], critic=0.5)
    assert (mdp.n_prompts, mdp.n_states, mdp.n_actions) == (3, 2, 2)
    assert mdp.terminal_reward.shape == (3, 2)
    assert mdp.step_reward.shape == (3, 2, 2)
    assert mdp.critic.shape == (3, 4, 2)
    np.testing.assert_array_equal(mdp.x0, [0, 0, 0])
    np.testing.assert_array_equal(mdp.weights[0], [[0.8, 1.2], [5.0, 0.0]])


def test_the_last_token_earns_the_terminal_reward_on_top_of_its_own():
    mdp = token_mdp(**VALID, step_reward=[[0.1, 0.2], [0.3, 0.4]])
    np.testing.assert_allclose(mdp.reward(0)[0], [[0.1, 0.2], [0.3, 0.4]])
    np.testing.assert_allclose(mdp.reward(3)[0], [[0.1, 1.2], [1.3, 1.4]])


def test_take_repeats_and_reorders_prompts():
    mdp = token_mdp(**VALID | {"x0": [0, 1, 0]}, critic=np.arange(3.0)[:, None, None])
    some = mdp.take([2, 1, 1])
    np.testing.assert_array_equal(some.x0, [0, 1, 1])
    np.testing.assert_array_equal(some.critic[:, 0, 0], [2.0, 1.0, 1.0])
    whole = exact_truth(mdp).gap_by_prompt
    np.testing.assert_array_equal(exact_truth(some).gap_by_prompt, whole[[2, 1, 1]])


def test_with_critic_replaces_it():
    mdp = token_mdp(**VALID)
    assert mdp.critic is None
    assert (mdp.with_critic(0.25).critic == 0.25).all()
    with pytest.raises(InputError, match="critic"):
        mdp.with_critic(np.zeros(7))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"horizon": 0}, "horizon"),
        ({"nxt": [[0, 2], [1, 1]]}, "nxt"),
        ({"nxt": [0, 1]}, "nxt"),
        ({"mu": [[0.5, 0.5]]}, "mu has shape"),
        ({"pi": [[[0.5, 0.5], [0.2, 0.8]]]}, "pi has shape"),
        ({"mu": [[[0.5, 0.6], [0.2, 0.8]]] * 3}, "mu must hold"),
        ({"pi": [[[0.5, 0.5], [1.2, -0.2]]] * 3}, "pi must hold"),
        ({"pi": [[[0.5, 0.5], [np.nan, 0.2]]] * 3}, "pi must hold"),
        ({"mu": [[[1.0, 0.0], [0.2, 0.8]]] * 3}, "where mu is 0"),
        ({"x0": 2}, "x0"),
        ({"x0": 1, "done": [False, True]}, "x0"),
        ({"done": [False]}, "done"),
        ({"gamma": 0.0}, "gamma"),
        ({"terminal_reward": [0.0, 1.0, 2.0]}, "terminal_reward"),
        ({"step_reward": [0.0, 1.0, 2.0]}, "step_reward"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(wrong, message):
    with pytest.raises(InputError, match=message):
        token_mdp(**VALID | wrong)
