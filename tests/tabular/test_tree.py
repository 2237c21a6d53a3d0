"""Prefix trees and the list of all responses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brace_diag.errors import InputError
from brace_diag.tabular import EosMDP, enumerate_paths, prefix_tree


def test_a_tree_holds_every_history_once():
    mdp = prefix_tree(n_actions=3, horizon=5, rng=np.random.default_rng(0))
    assert mdp.n_states == 364  # 1 + 3 + 9 + 27 + 81 + 243
    paths = enumerate_paths(mdp)
    assert len(paths.length) == 243
    assert len(np.unique(paths.states[:, -1])) == 81
    assert (paths.length == 5).all()


def test_responses_that_end_early_are_listed_with_their_length():
    paths = enumerate_paths(EosMDP(hazard_mu=0.25, right_mu=0.4).build(horizon=3))
    # Right or wrong after 1 token or 2, and three kinds of third token.
    np.testing.assert_array_equal(np.sort(paths.length), [1, 1, 2, 2, 3, 3, 3])
    ended = {
        (int(n), float(r.sum())): float(p)
        for n, r, p in zip(paths.length, paths.reward, paths.probability, strict=True)
        if n < 3
    }
    assert ended[1, 1.0] == pytest.approx(0.25 * 0.4)
    assert ended[2, 0.0] == pytest.approx(0.75 * 0.25 * 0.6)
    assert (paths.states[paths.length == 1, 1:] == -1).all()


def test_seed_decides_the_tree():
    one, two = (prefix_tree(n_actions=2, horizon=3, rng=np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(one.mu, two.mu)
    np.testing.assert_array_equal(one.pi, two.pi)


def test_what_cannot_be_listed_is_refused(monkeypatch):
    with pytest.raises(InputError, match="leaves"):
        prefix_tree(n_actions=6, horizon=20, rng=np.random.default_rng(0))
    # Two states that any token leads to: 2^12 responses, though a small MDP.
    two = prefix_tree(n_actions=2, horizon=1, rng=np.random.default_rng(0))
    mdp = replace(two, nxt=np.array([[1, 2]] * 3), horizon=12)
    assert len(enumerate_paths(mdp).length) == 4096
    monkeypatch.setattr("brace_diag.tabular.tree.MAX_PATHS", 4095)
    with pytest.raises(InputError, match="shorter horizon"):
        enumerate_paths(mdp)
