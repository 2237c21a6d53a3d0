"""Explicit prefix trees, where a state is the whole response so far, and their full enumeration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from brace_diag.errors import InputError
from brace_diag.tabular.mdp import Float, Int, TokenMDP, token_mdp

MAX_PATHS = 2_000_000
"""Most token sequences that `enumerate_paths` lists."""


def prefix_tree(
    *,
    n_actions: int,
    horizon: int,
    rng: np.random.Generator,
    drift: float = 0.5,
    n_prompts: int = 1,
    gamma: float = 1.0,
    step_rewards: bool = False,
) -> TokenMDP:
    """A tree with random policies and rewards: nothing is shared between histories.

    State 0 is the empty response; token a in state i leads to state n_actions i + a + 1. Logits of
    mu are N(0, 1), pi adds N(0, drift²), leaves earn U(0, 1), tokens N(0, .3²) with `step_rewards`.

    Raises: InputError for a tree of more than `MAX_PATHS` leaves.
    """
    if n_actions**horizon > MAX_PATHS:
        raise InputError(f"{n_actions}^{horizon} leaves; at most {MAX_PATHS} can be held")
    n_states = sum(n_actions**depth for depth in range(horizon + 1))
    child = n_actions * np.arange(n_states)[:, None] + np.arange(n_actions) + 1
    shape = (n_prompts, n_states, n_actions)
    logits = rng.normal(size=shape)
    moved = logits + rng.normal(0.0, drift, shape)
    return token_mdp(
        # A leaf's own tokens are never sampled.
        nxt=np.where(child < n_states, child, 0),
        mu=np.exp(logits) / np.exp(logits).sum(-1, keepdims=True),
        pi=np.exp(moved) / np.exp(moved).sum(-1, keepdims=True),
        terminal_reward=rng.random((n_prompts, n_states)),
        x0=0,
        horizon=horizon,
        step_reward=rng.normal(0.0, 0.3, shape) if step_rewards else None,
        gamma=gamma,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """Every response of one prompt that mu can produce from its first state.

    Attributes:
        probability: (n_paths,), under mu; sums to 1.
        length: int64 (n_paths,), tokens.
        states, actions: int64 (n_paths, horizon); -1 from the end on.
        weight, reward: (n_paths, horizon), w_t and r_t of each token; 0 from the end on.
    """

    probability: Float
    length: Int
    states: Int
    actions: Int
    weight: Float
    reward: Float


def enumerate_paths(mdp: TokenMDP, prompt: int = 0) -> Paths:
    """List all responses of a prompt: the check of everything that dynamic programming finds.

    Raises: InputError when there are more than `MAX_PATHS`.
    """
    shape = (1, mdp.horizon)
    states = np.full(shape, -1, dtype=np.int64)
    paths = Paths(np.ones(1), np.zeros(1, np.int64), states, states.copy(), np.zeros(shape),
                  np.zeros(shape))  # fmt: skip
    here = mdp.x0[prompt : prompt + 1]
    alive = np.ones(1, dtype=bool)
    for t in range(mdp.horizon):
        paths, here, alive = _extend(mdp, prompt, t, paths, here, alive)
    return paths


def _extend(
    mdp: TokenMDP, prompt: int, t: int, old: Paths, here: Int, alive: np.ndarray
) -> tuple[Paths, Int, np.ndarray]:
    """Every living path continued by each token that mu can sample at position t."""
    mu, w = mdp.at(mdp.mu, t)[prompt], mdp.at(mdp.weights, t)[prompt]
    grown, token = np.nonzero(alive[:, None] & (mu[here] > 0))
    rows = np.concatenate([np.flatnonzero(~alive), grown])
    if len(rows) > MAX_PATHS:
        raise InputError(f"more than {MAX_PATHS} responses; use a shorter horizon")
    x, new = here[grown], slice(len(rows) - len(grown), None)
    out = Paths(*(getattr(old, name)[rows] for name in Paths.__slots__))
    out.probability[new] *= mu[x, token]
    out.length[new] += 1
    out.states[new, t], out.actions[new, t] = x, token
    out.weight[new, t], out.reward[new, t] = w[x, token], mdp.reward(t)[prompt, x, token]
    ended, here = ~alive[rows], here[rows]
    here[new] = mdp.nxt[x, token]
    ended[new] = mdp.done[here[new]]
    return out, here, ~ended
