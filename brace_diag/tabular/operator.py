"""Exact expected targets E_mu[v | s_t = x] on tables V[p, t, x], and their fixed points.

One token of a response, seen from its expected target Y_n(t, x) with n window tokens left:

    Y_n(t) = E_mu[(1-ρ) V_t + ρ r + γ (ρ-c) V_{t+1} + γ c Y_{n-1}(t+1)],

where V_{t+1} = Y(t+1) = 0 after a last token. The targets differ in Y_0 and in the last token:

| target   | Y_0(t)                              | ρ of the last token | window |
|----------|-------------------------------------|---------------------|--------|
| `brace`  | V^mu(t), the mean of G_t            | 1                   | k      |
| `capped` | V_t + E_mu[Σ_{l>=t} γ^(l-t) ρ_l δ_l] | min(ρ̄, w)           | k      |
| `vtrace` | V_t                                 | min(ρ̄, w)           | n      |

A last token is the one that ends the response: at position horizon - 1, or into a done state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError
from brace_diag.tabular.exact import policy_value, start
from brace_diag.tabular.mdp import Float, TokenMDP

Target = Literal["brace", "capped", "vtrace"]


def expected_target(
    mdp: TokenMDP,
    values: npt.ArrayLike,
    *,
    target: Target = "brace",
    k: float = 100,
    rho_bar: float = 1.2,
    c_bar: float = 1.1,
    lam: float = 1.0,
) -> Float:
    """Exact E_mu[target | s_t = x] for the critic `values` (eq 8, 17, 25).

    For `brace` this is A_k V + B_k V^mu: linear in V.

    Args:
        values: V(t, x), (n_prompts, horizon, n_states) or any shape that spreads to it.
        k: window, at least 0, may be math.inf. For `vtrace` it is n.
        rho_bar, c_bar: caps of the residual weight and of the trace; may be math.inf.
        lam: trace decay λ in [0, 1].

    Returns: (n_prompts, horizon, n_states); 0 in done states.
    """
    tokens = _tokens(mdp, target, k, rho_bar, c_bar, lam)
    shape = (mdp.n_prompts, mdp.horizon, mdp.n_states)
    v = np.where(mdp.done, 0.0, np.broadcast_to(np.asarray(values, dtype=np.float64), shape))
    base = tokens.reward + tokens.stay * v
    base[:, :-1] += mdp.gamma * _ahead(tokens.cross, v[:, 1:])
    tail = _tail(mdp, target, tokens, v)
    return _window(mdp, tokens.trace, base, tail, k)


def expected_return_weight(
    mdp: TokenMDP, *, k: float = 100, c_bar: float = 1.1, lam: float = 1.0
) -> Float:
    """Exact E_mu[Π_{i=s}^{j-1} γ c_i | s], j = min(s+k, last): the pull of the reward on `brace`.

    Returns: (n_prompts, horizon, n_states); 1 for an empty window, 0 in done states.
    """
    tokens = _tokens(mdp, "brace", k, math.inf, c_bar, lam)
    tail = np.where(mdp.done, 0.0, np.ones((mdp.n_prompts, mdp.horizon, mdp.n_states)))
    return _window(mdp, tokens.trace, tail * tokens.ending, tail, k)


def fixed_point(
    mdp: TokenMDP,
    *,
    target: Target = "brace",
    k: float = 100,
    rho_bar: float = 1.2,
    c_bar: float = 1.1,
    lam: float = 1.0,
) -> Float:
    """The critic V with E_mu[target(V)] = V: where exact fits of the target end.

    The map looks ahead only, so it is solved from the last position to the first; unique for
    every k. `vtrace` and `capped` have V^{pi_rho_bar}, pi_rho_bar ~ min(rho_bar mu, pi), whatever
    the window. `brace` has V^mu at k = 0 and, with k at least horizon - 1, the value of
    pi_rho_bar at every token but the last, which mu samples.

    Returns: (n_prompts, horizon, n_states); 0 in done states.
    """
    tokens = _tokens(mdp, target, k, rho_bar, c_bar, lam)
    if target != "brace":
        return policy_value(mdp, _capped_policy(mdp, rho_bar))
    v_mu = policy_value(mdp, "mu")
    return v_mu if k == 0 else _solve(mdp, tokens, v_mu, int(min(k, max(mdp.horizon - 1, 1))))


@dataclass(frozen=True, slots=True)
class GapShare:
    """How much of the gap a target recovers at its fixed point, at position 0, mean over prompts.

    Attributes:
        gap: b = mean of V^pi - V^mu.
        recovered: mean of (fixed point) - V^mu.
    """

    gap: float
    recovered: float

    @property
    def share(self) -> float:
        """recovered / gap; NaN where the gap is exactly 0."""
        return self.recovered / self.gap if self.gap else math.nan


def exact_gap_fixed_point(
    mdp: TokenMDP,
    *,
    target: Target = "brace",
    k: float = 100,
    rho_bar: float = 1.2,
    c_bar: float = 1.1,
    lam: float = 1.0,
) -> GapShare:
    """Share of the value gap that the target's fixed point recovers; arguments as `fixed_point`."""
    v_mu = start(mdp, policy_value(mdp, "mu"))
    gap = start(mdp, policy_value(mdp, "pi")) - v_mu
    fixed = fixed_point(mdp, target=target, k=k, rho_bar=rho_bar, c_bar=c_bar, lam=lam)
    return GapShare(gap=float(gap.mean()), recovered=float((start(mdp, fixed) - v_mu).mean()))


@dataclass(frozen=True, slots=True)
class _Tokens:
    """Expectations over one token of mu, for every prompt, position and state.

    stay: E[1-ρ], the coefficient of V_t; reward: E[ρ r]; ending: P(last token); all (P, T, X).
    cross, trace: E[(ρ-c) 1{x'}] and E[c 1{x'}] over tokens that are not the last, (P, X, X'), or
    (P, T-1, X, X') where the policies change with position.
    """

    stay: Float
    reward: Float
    ending: Float
    cross: Float
    trace: Float


def _tokens(
    mdp: TokenMDP, target: Target, k: float, rho_bar: float, c_bar: float, lam: float
) -> _Tokens:
    _check(target, k, rho_bar, c_bar, lam)
    shape = (mdp.n_prompts, mdp.horizon, mdp.n_states)
    stay, reward, ending = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    w = mdp.weights
    c, rho = mdp.mu * lam * np.minimum(c_bar, w), np.minimum(rho_bar, w)
    live = ~mdp.done[:, None]
    for t in range(mdp.horizon):
        mu, last = mdp.at(mdp.mu, t) * live, mdp.last(t)
        weight = np.where(last, 1.0, mdp.at(rho, t)) if target == "brace" else mdp.at(rho, t)
        stay[:, t] = (mu * (1.0 - weight)).sum(-1)
        reward[:, t] = (mu * weight * mdp.reward(t)).sum(-1)
        ending[:, t] = (mu * last).sum(-1)
    goes_on = ~mdp.done[mdp.nxt] & live
    cross, trace = (mdp.mu * rho - c) * goes_on, c * goes_on
    return _Tokens(stay, reward, ending, _kernel(mdp, cross), _kernel(mdp, trace))


def _kernel(mdp: TokenMDP, coefficient: Float) -> Float:
    """Sum a coefficient per token by next state: (..., X, A) -> (..., X, X')."""
    if not mdp.stationary:
        coefficient = coefficient[:, :-1]
    out = np.zeros((*coefficient.shape[:-1], mdp.n_states))
    states = np.arange(mdp.n_states)
    for a in range(mdp.n_actions):
        out[..., states, mdp.nxt[:, a]] += coefficient[..., a]
    return out


def _ahead(kernel: Float, table: Float) -> Float:
    """Σ_x' kernel[x, x'] table[t, x'] at every t, (P, T-1, X); table holds positions 1 .. T-1."""
    if kernel.ndim == 3:
        return np.asarray(table @ kernel.swapaxes(-1, -2))
    return np.asarray((kernel @ table[..., None])[..., 0])


def _tail(mdp: TokenMDP, target: Target, tokens: _Tokens, v: Float) -> Float:
    """Y_0, the target with an empty window, (P, T, X)."""
    if target == "brace":
        return policy_value(mdp, "mu")
    if target == "vtrace":
        return v
    # E_mu[Σ γ^(l-t) ρ_l δ_l]: residuals summed along mu without any trace.
    rho_delta = tokens.reward + (tokens.stay - 1.0) * v
    both = tokens.cross + tokens.trace
    rho_delta[:, :-1] += mdp.gamma * _ahead(both, v[:, 1:])
    plain = _kernel(mdp, mdp.mu * ~mdp.done[mdp.nxt] * ~mdp.done[:, None])
    return v + _window(mdp, plain, rho_delta, np.zeros_like(v), math.inf)


def _window(mdp: TokenMDP, kernel: Float, base: Float, tail: Float, k: float) -> Float:
    """Y_k of Y_n(t) = base(t) + γ kernel Y_{n-1}(t+1), Y_0 = tail, and Y = 0 after the end."""
    if k >= mdp.horizon:
        y = base.copy()
        for t in reversed(range(mdp.horizon - 1)):
            at = kernel if kernel.ndim == 3 else kernel[:, t]
            y[:, t] += mdp.gamma * (at @ y[:, t + 1, :, None])[..., 0]
        return y
    y = tail.copy()
    for _ in range(int(k)):
        longer = base.copy()
        longer[:, :-1] += mdp.gamma * _ahead(kernel, y[:, 1:])
        y = longer
    return y


def _solve(mdp: TokenMDP, tokens: _Tokens, v_mu: Float, k: int) -> Float:
    """Fixed point of `brace` for k >= 1, backwards over positions.

    `longer[n]` is Y_n(t+1) of the solution already found; n = 0 .. k.
    """
    out = np.zeros_like(v_mu)
    own = np.where(mdp.done, 1.0, 1.0 - tokens.stay)
    longer = np.zeros((mdp.n_prompts, k + 1, mdp.n_states))
    for t in reversed(range(mdp.horizon)):
        base = tokens.reward[:, t].copy()
        window = np.zeros_like(longer[:, :-1])
        if t + 1 < mdp.horizon:
            cross = tokens.cross if mdp.stationary else tokens.cross[:, t]
            trace = tokens.trace if mdp.stationary else tokens.trace[:, t]
            base += mdp.gamma * (cross @ out[:, t + 1, :, None])[..., 0]
            window = mdp.gamma * (longer[:, :-1] @ trace.swapaxes(-1, -2))  # Y_{n-1}(t+1)
        out[:, t] = (base + window[:, k - 1]) / own[:, t]
        shared = base + tokens.stay[:, t] * out[:, t]
        longer = np.concatenate([v_mu[:, t, None], shared[:, None] + window], axis=1)
    return out


def _capped_policy(mdp: TokenMDP, rho_bar: float) -> Float:
    """pi_rho_bar ~ min(rho_bar mu, pi) (eq 18); mu itself in done states, where none acts."""
    weight = mdp.mu * np.minimum(rho_bar, mdp.weights)
    weight = np.where(mdp.done[:, None], mdp.mu, weight)
    return np.asarray(weight / weight.sum(-1, keepdims=True))


def _check(target: str, k: float, rho_bar: float, c_bar: float, lam: float) -> None:
    if target not in ("brace", "capped", "vtrace"):
        raise InputError(f"target is {target!r}; it must be 'brace', 'capped' or 'vtrace'")
    if not k >= 0 or (math.isfinite(k) and k != int(k)):
        raise InputError(f"k is {k}; it must be a whole number of tokens, or math.inf")
    if not (rho_bar > 0 and c_bar > 0):
        raise InputError(f"rho_bar is {rho_bar} and c_bar {c_bar}; both must be above 0")
    if not 0 <= lam <= 1:
        raise InputError(f"lam is {lam}; it must lie between 0 and 1")
