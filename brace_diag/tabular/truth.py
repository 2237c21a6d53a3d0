"""`Truth`: what a log sampled from a `TokenMDP` would tell with infinitely many rollouts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from brace_diag.tabular.exact import (
    log_product_moments,
    mean_abs_log_w,
    mean_alive,
    occupancy,
    policy_value,
    return_moments,
    start,
)
from brace_diag.tabular.mdp import Float, TokenMDP


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Exact figures of a `TokenMDP`: means over its prompts, each with the same number of rollouts.

    "By position" is the mean over the rollouts of mu that are still alive at that position; entries
    are NaN where none can be. Returns are discounted by `gamma` (with gamma = 1: the rewards).

    Attributes:
        n_prompts, horizon, gamma: of the MDP.
        gap_by_position: (horizon,), b(t) = E_mu[V^pi(s_t) - V^mu(s_t)]; positive: pi is better.
        alive_by_position: (horizon,), share of rollouts alive.
        reward_mu, reward_pi: E[G_0] under mu and under pi; their difference is the gap at 0.
        gap_by_prompt: (n_prompts,), b at position 0.
        s_within: s_A = sqrt(mean over prompts of Var_mu(G_0 | prompt)).
        within_var_log_product: (horizon,), Var_mu(S_t | prompt, alive at t), mean over rollouts
            alive at t, S_t the sum of log w from t on; inf where pi is 0 on a token of mu.
        mean_abs_log_w: E_mu|log w| per token.
        mean_length: mean tokens of a rollout of mu.
        critic_mean: mean of the critic at position 0; None, as the next two, without a critic.
        critic_bias_by_position: (horizon,), E_mu[V(s_t) - V^pi(s_t)], the signed g_pi.
        critic_lag_by_position: (horizon,), E_mu[V(s_t) - V^mu(s_t)], the signed g_mu.
    """

    n_prompts: int
    horizon: int
    gamma: float
    gap_by_position: Float
    alive_by_position: Float
    reward_mu: float
    reward_pi: float
    gap_by_prompt: Float
    s_within: float
    within_var_log_product: Float
    mean_abs_log_w: float
    mean_length: float
    critic_mean: float | None
    critic_bias_by_position: Float | None
    critic_lag_by_position: Float | None

    @property
    def gap(self) -> float:
        """b at position 0 = E_pi[R] - E_mu[R]."""
        return self.reward_pi - self.reward_mu

    @property
    def mean_square_gap(self) -> float:
        """E_p[b_p²] at position 0."""
        return float((self.gap_by_prompt**2).mean())

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists for strict JSON; None where there is no finite number."""
        out = {name: _plain(value) for name, value in asdict(self).items()}
        return out | {"gap": _plain(self.gap), "mean_square_gap": _plain(self.mean_square_gap)}


def exact_truth(mdp: TokenMDP) -> Truth:
    """The `Truth` of an MDP's prompts; use `mdp.take(prompts)` for some of them."""
    occupied = occupancy(mdp)
    v_mu, square = return_moments(mdp, "mu")
    v_pi = policy_value(mdp, "pi")
    at_mu, at_pi = start(mdp, v_mu), start(mdp, v_pi)
    critic = mdp.critic
    return Truth(
        n_prompts=mdp.n_prompts,
        horizon=mdp.horizon,
        gamma=mdp.gamma,
        gap_by_position=mean_alive(occupied, v_pi - v_mu),
        alive_by_position=occupied.sum((0, 2)) / mdp.n_prompts,
        reward_mu=float(at_mu.mean()),
        reward_pi=float(at_pi.mean()),
        gap_by_prompt=at_pi - at_mu,
        # Rounding may leave -1e-17 where a return is certain.
        s_within=float(np.sqrt(np.maximum(start(mdp, square) - at_mu**2, 0.0).mean())),
        within_var_log_product=_within_variance(mdp, occupied),
        mean_abs_log_w=mean_abs_log_w(mdp, occupied),
        mean_length=float(occupied.sum() / mdp.n_prompts),
        critic_mean=None if critic is None else float(start(mdp, critic).mean()),
        critic_bias_by_position=None if critic is None else mean_alive(occupied, critic - v_pi),
        critic_lag_by_position=None if critic is None else mean_alive(occupied, critic - v_mu),
    )


def _within_variance(mdp: TokenMDP, occupied: Float) -> Float:
    """Var_mu(S_t | prompt, alive at t), mean over rollouts alive at t, (horizon,)."""
    mean, square = log_product_moments(mdp)
    if np.isinf(square).any():
        return np.full(mdp.horizon, np.inf)
    alive = occupied.sum(2)  # (n_prompts, horizon)
    share = np.where(alive > 0, alive, 1.0)
    first = (occupied * mean).sum(2) / share
    second = (occupied * square).sum(2) / share
    total = (alive * np.maximum(second - first**2, 0.0)).sum(0)
    mass = alive.sum(0)
    return np.asarray(np.divide(total, mass, out=np.full_like(mass, np.nan), where=mass > 0))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(x) for x in value.tolist()]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value
