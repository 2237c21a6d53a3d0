"""Value targets for a critic trained on stale rollouts: BRACE, V-trace, GAE, Monte-Carlo.

All functions take the same shapes and give their result in the same shape, kind and device:

- packed: per-token arrays (n_tokens,) with `offsets` (n_rollouts + 1,) as Arrow lists and
  `cu_seqlens` have them; without offsets the array is one rollout;
- padded: per-token arrays (n_rollouts, width).

`mask` has the shape of the per-token arrays and is true where the policy sampled the token; missing
means everywhere. Cells off the mask are no steps: k, horizons and ratios do not see them, and
nothing they hold matters, except that a finite reward there belongs to the policy token before it
(or to the first). Rollouts may be empty. In results, cells off the mask hold 0, so that a loss
multiplied by the mask stays finite (`log10_kappa`: NaN, since 0 would say that the whole reward
arrives).

`rewards` is one per token, or one per rollout (n_rollouts,) or (n_rollouts, 1), earned at the last
policy token. `bootstrap` is V after the last policy token, one per rollout or one for all: 0 where
the rollout terminated, the critic's value where it was truncated.

numpy arrays, sequences and torch tensors are taken. Arithmetic is float64 throughout. The result is
float64 if any log-prob or value array is float64 (Python numbers are), else float32, also for
float16 and bfloat16: half precision would round away the correction. A float32 result is the
float64 one rounded once. Results carry no gradient.

NaN means missing. A token whose log-prob is missing, or that mu cannot draw (-inf), makes NaN of
exactly the targets whose window reads its ratio; log pi = -inf is a ratio of 0.

Errors: InputError (a ValueError) for wrong shapes, types, ranges and ambiguous rewards.
"""

from __future__ import annotations

import math
from typing import Any

from brace_diag.errors import InputError
from brace_diag.targets.inputs import Batch, prepare, prepare_rewards
from brace_diag.targets.recursion import Recursion, recursion

__all__ = [
    "advantages",
    "brace_targets",
    "capped_targets",
    "gae_targets",
    "log10_kappa",
    "mc_targets",
    "vtrace_targets",
]


def brace_targets(
    mu_logprobs: Any,
    pi_logprobs: Any,
    values: Any,
    rewards: Any,
    *,
    offsets: Any = None,
    mask: Any = None,
    bootstrap: Any = None,
    k: float = 100,
    rho_bar: float = 1.2,
    c_bar: float = 1.1,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> Any:
    """BRACE targets: k corrected steps, then the whole Monte-Carlo return (eq 25).

    v_s = V_s + Σ_{l=s}^{j-1} γ^(l-s) (Π_{i=s}^{l-1} c_i) ρ_l δ_l
              + γ^(j-s) (Π_{i=s}^{j-1} c_i) [G_j - V_j],
    j = min(s + k, T - 1), ρ_l = min(ρ̄, w_l), c_l = λ min(c̄, w_l), w_l = π/μ,
    δ_l = r_l + γ V_{l+1} - V_l.

    k = 0 gives the return G_s; k = ∞ gives V-trace with weight 1 on the last residual.

    Args: mu_logprobs, pi_logprobs, values: per token; log μ and log π of the sampled token, and the
        critic V(s_t) before it. rewards, offsets, mask, bootstrap: see the module.
        k: corrected steps, an integer >= 0 or `math.inf`. rho_bar, c_bar: caps, above 0, or
        `math.inf`. gamma: discount in (0, 1]. lam: trace decay in [0, 1].

    Returns: targets, in units of reward, shaped like `values`.
    """
    rec = recursion("brace", k=k, rho_bar=rho_bar, c_bar=c_bar, gamma=gamma, lam=lam)
    tokens = {"mu_logprobs": mu_logprobs, "pi_logprobs": pi_logprobs, "values": values}
    return _targets(rec, prepare(tokens, **_rest(rewards, offsets, mask, bootstrap)))


def capped_targets(
    mu_logprobs: Any,
    pi_logprobs: Any,
    values: Any,
    rewards: Any,
    *,
    offsets: Any = None,
    mask: Any = None,
    bootstrap: Any = None,
    k: float = 100,
    rho_bar: float = 1.2,
    c_bar: float = 1.1,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> Any:
    """BRACE without its Monte-Carlo tail: the trace stops shrinking after k steps (eq 17).

    v_s = V_s + Σ_{l=s}^{T-1} γ^(l-s) (Π_{i=s}^{min(l,s+k)-1} c_i) ρ_l δ_l, with ρ, c, δ and
    arguments as in `brace_targets`; every residual keeps its weight ρ_l.

    Returns: targets, in units of reward, shaped like `values`.
    """
    rec = recursion("capped", k=k, rho_bar=rho_bar, c_bar=c_bar, gamma=gamma, lam=lam)
    tokens = {"mu_logprobs": mu_logprobs, "pi_logprobs": pi_logprobs, "values": values}
    return _targets(rec, prepare(tokens, **_rest(rewards, offsets, mask, bootstrap)))


def vtrace_targets(
    mu_logprobs: Any,
    pi_logprobs: Any,
    values: Any,
    rewards: Any,
    *,
    offsets: Any = None,
    mask: Any = None,
    bootstrap: Any = None,
    n: float | None = None,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> Any:
    """V-trace targets with a window of n steps, all the rest by default (eq 8).

    v_s = V_s + Σ_{l=s}^{min(s+n,T)-1} γ^(l-s) (Π_{i=s}^{l-1} c_i) ρ_l δ_l, with ρ, c, δ and
    arguments as in `brace_targets`. n: an integer >= 1, `math.inf` or None.

    Returns: targets, in units of reward, shaped like `values`.

    Source: Espeholt et al. 2018 (IMPALA), with the trace decay λ of its appendix.
    """
    rec = recursion("vtrace", n=n, rho_bar=rho_bar, c_bar=c_bar, gamma=gamma, lam=lam)
    tokens = {"mu_logprobs": mu_logprobs, "pi_logprobs": pi_logprobs, "values": values}
    return _targets(rec, prepare(tokens, **_rest(rewards, offsets, mask, bootstrap)))


def gae_targets(
    values: Any,
    rewards: Any,
    *,
    offsets: Any = None,
    mask: Any = None,
    bootstrap: Any = None,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> Any:
    """The λ-return under the behaviour policy, GAE's value target: no correction for staleness.

    v_s = V_s + Σ_{l>=s} (γλ)^(l-s) δ_l, δ_l = r_l + γ V_{l+1} - V_l; arguments as in
    `brace_targets`.

    Returns: targets, in units of reward, shaped like `values`.

    Source: Schulman et al. 2016.
    """
    rec = recursion("gae", gamma=gamma, lam=lam)
    return _targets(rec, prepare({"values": values}, **_rest(rewards, offsets, mask, bootstrap)))


def mc_targets(
    rewards: Any,
    *,
    offsets: Any = None,
    mask: Any = None,
    bootstrap: Any = None,
    gamma: float = 1.0,
) -> Any:
    """Monte-Carlo returns to go: G_s = Σ_{l>=s} γ^(l-s) r_l + γ^(T-s) bootstrap.

    One reward per rollout needs `offsets` or `mask`, which then tell the shape. The result follows
    the rewards' type.

    Returns: targets, in units of reward, shaped like the mask, or like the per-token rewards.
    """
    rec = recursion("mc", gamma=gamma)
    return _targets(rec, prepare_rewards(rewards, offsets=offsets, mask=mask, bootstrap=bootstrap))


def advantages(
    targets: Any,
    values: Any,
    rewards: Any,
    *,
    offsets: Any = None,
    mask: Any = None,
    bootstrap: Any = None,
    gamma: float = 1.0,
) -> Any:
    """One-step advantages against a value target (eq 27).

    A_s = r_s + γ target_{s+1} - V_s; after the last step the bootstrap takes the target's place.
    A_s holds ratios of the steps after s only: the actor's own weight w_s is not in it.

    Args: targets, values: per token. The rest as in `brace_targets`.

    Returns: advantages, in units of reward, positive where the action did better than V_s.
    """
    rec = recursion("mc", gamma=gamma)  # checks gamma
    tokens = {"targets": targets, "values": values}
    batch = prepare(tokens, **_rest(rewards, offsets, mask, bootstrap))
    out = batch.empty()
    batch.backend.kernels.advantages(
        batch.tokens["targets"],
        batch.tokens["values"],
        batch.rewards,
        batch.bootstrap,
        batch.layout.offsets,
        rec.gamma,
        out,
    )
    return batch.restore(out)


def log10_kappa(
    mu_logprobs: Any,
    pi_logprobs: Any = None,
    *,
    target: str = "brace",
    offsets: Any = None,
    mask: Any = None,
    k: float = 100,
    n: float | None = None,
    rho_bar: float | None = None,
    c_bar: float | None = None,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> Any:
    """How much of the final reward reaches each target: log10 κ_s, κ_s = ∂ target_s / ∂ R, V fixed.

    R is the reward at the last policy token, T - 1. With j = min(s + k, T - 1):

    mc: γ^(T-1-s); gae: (γλ)^(T-1-s); brace: γ^(T-1-s) Π_{i=s}^{j-1} c_i;
    capped: the same times ρ_{T-1};
    vtrace: γ^(T-1-s) (Π_{i=s}^{T-2} c_i) ρ_{T-1}, and 0 where the window ends before the reward.

    Summed as logarithms, so it never underflows; -inf is an exact 0.

    Args: mu_logprobs, pi_logprobs: per token; for mc and gae, which read no ratio, pi_logprobs may
        be left out and any per-token array may stand for mu_logprobs: it tells the shape.
        target: mc, gae, vtrace, capped or brace. rho_bar, c_bar: None takes the target's own
        default. The rest as in `brace_targets` and `vtrace_targets`.

    Returns: log10 κ shaped like `mu_logprobs`; NaN off the mask.
    """
    rec = recursion(target, k=k, n=n, rho_bar=rho_bar, c_bar=c_bar, gamma=gamma, lam=lam)
    tokens = {"mu_logprobs": mu_logprobs}
    if rec.weighted:
        tokens["pi_logprobs"] = pi_logprobs
    batch = prepare(tokens, offsets=offsets, mask=mask)
    mu, out = batch.tokens["mu_logprobs"], batch.empty()
    pi = batch.tokens.get("pi_logprobs", mu)
    batch.backend.kernels.log10_kappa(rec, mu, pi, batch.layout.offsets, out)
    return batch.restore(out, fill=math.nan)


def _rest(rewards: Any, offsets: Any, mask: Any, bootstrap: Any) -> dict[str, Any]:
    if rewards is None:
        raise InputError("rewards is None; pass one per token or one per rollout")
    return {"rewards": rewards, "offsets": offsets, "mask": mask, "bootstrap": bootstrap}


def _targets(rec: Recursion, batch: Batch) -> Any:
    out = batch.empty()
    spare = batch.empty()[:0]  # stands for what the target does not read
    batch.backend.kernels.targets(
        rec,
        batch.tokens.get("mu_logprobs", spare),
        batch.tokens.get("pi_logprobs", spare),
        batch.tokens.get("values", spare),
        batch.rewards,
        batch.bootstrap,
        batch.layout.offsets,
        out,
    )
    return batch.restore(out)
