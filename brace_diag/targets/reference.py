"""The oracle: every target as its formula is printed, in plain float64 loops, one rollout a call.

Nothing here is fast (O(T²) and worse) and nothing is shared with the fast paths, on purpose: the
fast paths are tested against these sums. Arrays are (T,) over the policy tokens of one rollout,
`rewards` is per token, `bootstrap` is V after the last token.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def weight(mu_logprob: float, pi_logprob: float) -> float:
    """w = exp(log π - log μ); NaN where either is missing or μ cannot draw the sample.

    π = 0 (log-prob -inf) is a legitimate weight of 0.
    """
    if math.isnan(mu_logprob) or math.isnan(pi_logprob) or math.isinf(mu_logprob):
        return math.nan
    if pi_logprob == math.inf:
        return math.nan
    try:
        return math.exp(pi_logprob - mu_logprob)
    except OverflowError:
        return math.inf


def _capped(cap: float, w: float) -> float:
    return w if math.isnan(w) else min(cap, w)


def _residuals(values: Array, rewards: Array, bootstrap: float, gamma: float) -> list[float]:
    """δ_t = r_t + γ V(s_{t+1}) - V(s_t)."""
    following = [*values.tolist(), bootstrap][1:]
    return [
        float(r) + gamma * float(nxt) - float(v)
        for r, nxt, v in zip(rewards, following, values, strict=True)
    ]


def mc(rewards: Array, *, bootstrap: float = 0.0, gamma: float = 1.0) -> Array:
    """Monte-Carlo: G_s = Σ_{l>=s} γ^(l-s) r_l + γ^(T-s) bootstrap."""
    T = len(rewards)
    out = np.empty(T)
    for s in range(T):
        total = gamma ** (T - s) * bootstrap
        for step in range(s, T):
            total += gamma ** (step - s) * float(rewards[step])
        out[s] = total
    return out


def gae(
    values: Array, rewards: Array, *, bootstrap: float = 0.0, gamma: float = 1.0, lam: float = 1.0
) -> Array:
    """GAE's λ-return: V_s + Σ_{l>=s} (γλ)^(l-s) δ_l."""
    T = len(values)
    delta = _residuals(values, rewards, bootstrap, gamma)
    out = np.empty(T)
    for s in range(T):
        total = float(values[s])
        for step in range(s, T):
            total += (gamma * lam) ** (step - s) * delta[step]
        out[s] = total
    return out


def vtrace(
    mu_logprobs: Array,
    pi_logprobs: Array,
    values: Array,
    rewards: Array,
    *,
    bootstrap: float = 0.0,
    n: float = math.inf,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> Array:
    """V-trace (eq 8): V_s + Σ_{l=s}^{min(s+n,T)-1} γ^(l-s) (Π_{i=s}^{l-1} c_i) ρ_l δ_l."""
    T = len(values)
    w = [weight(float(m), float(p)) for m, p in zip(mu_logprobs, pi_logprobs, strict=True)]
    delta = _residuals(values, rewards, bootstrap, gamma)
    out = np.empty(T)
    for s in range(T):
        total = float(values[s])
        trace = 1.0
        for step in range(s, int(min(s + n, T))):
            total += gamma ** (step - s) * trace * _capped(rho_bar, w[step]) * delta[step]
            trace *= lam * _capped(c_bar, w[step])
        out[s] = total
    return out


def capped(
    mu_logprobs: Array,
    pi_logprobs: Array,
    values: Array,
    rewards: Array,
    *,
    bootstrap: float = 0.0,
    k: float = 100,
    rho_bar: float = 1.2,
    c_bar: float = 1.1,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> Array:
    """BRACE without its tail (eq 17).

    V_s + Σ_{l=s}^{T-1} γ^(l-s) (Π_{i=s}^{min(l,s+k)-1} c_i) ρ_l δ_l.
    """
    T = len(values)
    w = [weight(float(m), float(p)) for m, p in zip(mu_logprobs, pi_logprobs, strict=True)]
    delta = _residuals(values, rewards, bootstrap, gamma)
    out = np.empty(T)
    for s in range(T):
        total = float(values[s])
        trace = 1.0
        for step in range(s, T):
            total += gamma ** (step - s) * trace * _capped(rho_bar, w[step]) * delta[step]
            if step < s + k:
                trace *= lam * _capped(c_bar, w[step])
        out[s] = total
    return out


def brace(
    mu_logprobs: Array,
    pi_logprobs: Array,
    values: Array,
    rewards: Array,
    *,
    bootstrap: float = 0.0,
    k: float = 100,
    rho_bar: float = 1.2,
    c_bar: float = 1.1,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> Array:
    """BRACE (eq 25): as `capped`, with residual weight ρ_l for l < j and 1 for l >= j.

    j = min(s + k, T - 1).
    """
    T = len(values)
    w = [weight(float(m), float(p)) for m, p in zip(mu_logprobs, pi_logprobs, strict=True)]
    delta = _residuals(values, rewards, bootstrap, gamma)
    out = np.empty(T)
    for s in range(T):
        j = min(s + k, T - 1)
        total = float(values[s])
        trace = 1.0
        for step in range(s, T):
            rho = _capped(rho_bar, w[step]) if step < j else 1.0
            total += gamma ** (step - s) * trace * rho * delta[step]
            if step < j:
                trace *= lam * _capped(c_bar, w[step])
        out[s] = total
    return out


def advantages(
    targets: Array, values: Array, rewards: Array, *, bootstrap: float = 0.0, gamma: float = 1.0
) -> Array:
    """A_s = r_s + γ target_{s+1} - V_s (eq 27); after the last step the bootstrap."""
    T = len(values)
    out = np.empty(T)
    for s in range(T):
        following = float(targets[s + 1]) if s + 1 < T else bootstrap
        out[s] = float(rewards[s]) + gamma * following - float(values[s])
    return out


def log10_kappa(
    target: str,
    mu_logprobs: Array,
    pi_logprobs: Array,
    *,
    k: float = 100,
    n: float = math.inf,
    rho_bar: float = 1.2,
    c_bar: float = 1.1,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> Array:
    """log10 of κ_s = ∂ target_s / ∂ R, R the reward at the last token, V held fixed.

    The sum of the logs of the factors that multiply r_{T-1} in each formula above; -inf where the
    reward is outside the window or a factor is 0.
    """
    T = len(mu_logprobs)
    w = [weight(float(m), float(p)) for m, p in zip(mu_logprobs, pi_logprobs, strict=True)]
    out = np.empty(T)
    for s in range(T):
        last = T - 1
        traces = {
            "mc": 0,
            "gae": last - s,
            "vtrace": last - s,
            "capped": min(last - s, k),
            "brace": min(last - s, k),
        }[target]
        factors = [gamma] * (last - s)
        if target == "vtrace" and last >= s + n:
            factors = [0.0]
        elif target == "gae":
            factors += [lam] * int(traces)
        elif target != "mc":
            factors += [lam * _capped(c_bar, x) for x in w[s : s + int(traces)]]
            if target != "brace":
                factors.append(_capped(rho_bar, w[last]))
        out[s] = sum(-math.inf if f == 0 else math.log10(f) for f in factors)
    return out
