"""Exact values, occupancies and moments of a `TokenMDP`, by dynamic programming over positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from brace_diag.errors import InputError
from brace_diag.tabular.mdp import Float, TokenMDP

Policy = Literal["mu", "pi"]


def policy_value(mdp: TokenMDP, policy: Policy | Float = "pi") -> Float:
    """Exact V(t, x) = E[Σ_{l>=t} γ^(l-t) r_l | s_t = x] of a policy that samples every token.

    Args:
        policy: `mu`, `pi`, or probabilities in the shape of `mdp.mu`.

    Returns: (n_prompts, horizon, n_states); 0 in done states.
    """
    return return_moments(mdp, policy)[0]


def return_moments(mdp: TokenMDP, policy: Policy | Float = "mu") -> tuple[Float, Float]:
    """Exact first and second moment of the return to go G_t given s_t = x.

    E[G_t²] = E[r_t² + 2 γ r_t V(t+1, x') + γ² E[G_{t+1}²|x']].

    Returns: two tables (n_prompts, horizon, n_states); 0 in done states.
    """
    probabilities = _probabilities(mdp, policy)
    return _moments(mdp, probabilities, mdp.gamma, mdp.reward)


def log_product_moments(mdp: TokenMDP) -> tuple[Float, Float]:
    """Exact first and second moment, under mu, of S_t = Σ_{l>=t} log w_l given s_t = x.

    Where pi is 0 on a token that mu samples, log w = -inf and the moments are infinite.

    Returns: two tables (n_prompts, horizon, n_states), natural logarithms; 0 in done states.
    """
    with np.errstate(divide="ignore"):
        log_w = np.where(mdp.mu > 0, np.log(mdp.weights), 0.0)
    if np.isneginf(log_w).any():
        shape = (mdp.n_prompts, mdp.horizon, mdp.n_states)
        return np.full(shape, -np.inf), np.full(shape, np.inf)
    return _moments(mdp, mdp.mu, 1.0, lambda t: mdp.at(log_w, t))


def _moments(
    mdp: TokenMDP, probabilities: Float, discount: float, amount: Callable[[int], Float]
) -> tuple[Float, Float]:
    """First and second moment of Σ_{l>=t} discount^(l-t) amount(l)[x_l, a_l] given s_t = x."""
    first = np.zeros((mdp.n_prompts, mdp.horizon, mdp.n_states))
    second = np.zeros_like(first)
    mean = np.zeros((mdp.n_prompts, mdp.n_states))
    square = np.zeros_like(mean)
    for t in reversed(range(mdp.horizon)):
        # Of stationary policies, only the last position differs from the one before.
        if t >= mdp.horizon - 2 or not mdp.stationary:
            p, x = mdp.at(probabilities, t) * ~mdp.done[:, None], amount(t)
            px, on = p * x, discount * p * ~mdp.last(t)  # (n_prompts, n_states, n_actions)
            here, here_square, cross = px.sum(-1), (px * x).sum(-1), 2.0 * on * x
        on_mean, on_square = mean[:, mdp.nxt], square[:, mdp.nxt]
        square = here_square + _mean(cross, on_mean) + discount * _mean(on, on_square)
        mean = here + _mean(on, on_mean)
        first[:, t], second[:, t] = mean, square
    return first, second


def _mean(weight: Float, table: Float) -> Float:
    return np.asarray(np.einsum("pxa,pxa->px", weight, table))


def occupancy(mdp: TokenMDP, policy: Policy | Float = "mu") -> Float:
    """Exact probability that the response is alive at position t and in state x.

    Returns: (n_prompts, horizon, n_states); sums over x to P(alive at t), 1 at t = 0.
    """
    probabilities = _probabilities(mdp, policy)
    out = np.zeros((mdp.n_prompts, mdp.horizon, mdp.n_states))
    out[np.arange(mdp.n_prompts), 0, mdp.x0] = 1.0
    for t in range(mdp.horizon - 1):
        flow = out[:, t, :, None] * mdp.at(probabilities, t) * ~mdp.last(t)
        for a in range(mdp.n_actions):
            # add.at, not +=: several states may lead into one.
            np.add.at(out[:, t + 1].T, mdp.nxt[:, a], flow[..., a].T)
    return out


def mean_alive(occupied: Float, table: Float) -> Float:
    """Mean of a table by position over the rollouts of all prompts that are alive there.

    Σ_p Σ_x occ[p,t,x] table[p,t,x] / Σ_p Σ_x occ[p,t,x]: what a mean over logged rollouts with the
    same number of rollouts per prompt converges to.

    Returns: (horizon,); NaN where no response is alive.
    """
    mass = occupied.sum((0, 2))
    # A table may be infinite in states that are never met.
    total = np.where(occupied > 0, occupied * np.where(occupied > 0, table, 0.0), 0.0).sum((0, 2))
    return np.asarray(np.divide(total, mass, out=np.full_like(mass, np.nan), where=mass > 0))


def mean_abs_log_w(mdp: TokenMDP, occupied: Float | None = None) -> float:
    """E_mu|log w| per token: mean over all tokens of all prompts' rollouts under mu."""
    occupied = occupancy(mdp) if occupied is None else occupied
    with np.errstate(divide="ignore"):
        size = np.abs(np.where(mdp.mu > 0, np.log(mdp.weights), 0.0))
    size = np.where(mdp.mu > 0, mdp.mu * size, 0.0).sum(-1)  # (n_prompts, [horizon,] n_states)
    if mdp.stationary:
        return float((occupied.sum(1) * size).sum() / occupied.sum())
    return float((occupied * size).sum() / occupied.sum())


def start(mdp: TokenMDP, table: Float) -> Float:
    """The entries of a table at position 0 in each prompt's first state, (n_prompts,)."""
    return np.asarray(table[np.arange(mdp.n_prompts), 0, mdp.x0])


def _probabilities(mdp: TokenMDP, policy: Policy | Float) -> Float:
    if isinstance(policy, str):
        if policy not in ("mu", "pi"):
            raise InputError(f"policy is {policy!r}; it must be 'mu', 'pi' or probabilities")
        return mdp.mu if policy == "mu" else mdp.pi
    if policy.shape != mdp.mu.shape:
        raise InputError(f"policy has shape {policy.shape}; it must be {mdp.mu.shape}")
    return policy
