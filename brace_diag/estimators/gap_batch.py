"""Batch figures of the gap: everything that is said of the first policy token."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from brace_diag.estimators import gap_estimates as ge
from brace_diag.estimators.gap_state import GapState
from brace_diag.estimators.intervals import GATES, GapContext, absolute, or_none, unit
from brace_diag.results import BatchFigures, Estimate
from brace_diag.sums import Jackknife

Array = npt.NDArray[np.float64]


def batch_figures(
    context: GapContext, state: GapState, zero: ge.GapJackknife, means: Jackknife
) -> BatchFigures:
    maker, missing_v = context.maker, None if context.has_values else "the log has no critic values"
    counts = state.rollouts.array[:, 0].sum(axis=0)
    n_known = round(float(counts[0]))
    if len(zero.starts) == 0:
        gap = Jackknife(
            np.array([np.nan]), np.zeros((len(means.deviations), 1)), np.zeros(1, np.int64)
        )
        n_tokens = n_rollouts = 0
    else:
        gap = zero.jack.contrast(
            unit(len(zero.jack.value), zero.column(0, "wdr", context.baseline))
        )
        n_tokens, n_rollouts = int(zero.n_tokens[0]), int(zero.n_rollouts[0])
    joint = ge.stack([gap, means])
    reward, critic = 1 + ge.MEANS.index("reward_mu"), 1 + ge.MEANS.index("critic_mean")

    def combine(weights: dict[int, float], method: str, gated: bool, v: str | None) -> Estimate:
        vector = np.zeros(len(joint.value))
        for j, w in weights.items():
            vector[j] = w
        return maker.estimate(
            joint.contrast(vector),
            0,
            n_tokens=n_tokens if gated else n_known,
            n_rollouts=n_rollouts if gated else n_known,
            method=method,
            gate=context.gate if gated else None,
            v=context.v,
            missing=v,
        )

    g_pi = combine(
        {critic: 1.0, reward: -1.0, 0: -1.0}, f"V - E_pi[R], {context.method}", True, missing_v
    )
    g_mu = combine({critic: 1.0, reward: -1.0}, "V - E_mu[R]", False, missing_v)
    spread = maker.estimate(
        means,
        len(ge.MEANS),
        n_tokens=n_known,
        n_rollouts=n_known,
        method="within-prompt standard deviation of the return",
    )
    return BatchFigures(
        b_hat=combine({0: 1.0}, context.method, True, None),
        reward_mu=mean_of(context, state, means, "reward_mu", 0, "mean return"),
        reward_pi=combine({reward: 1.0, 0: 1.0}, f"E_mu[R] + b, {context.method}", True, None),
        critic_mean=mean_of(
            context, state, means, "critic_mean", 2, "mean V at the first policy token"
        ),
        critic_token_mean=mean_of(
            context, state, means, "critic_token_mean", 2, "mean V over tokens"
        ),
        g_pi_hat=absolute(g_pi),
        g_mu_hat=absolute(g_mu),
        g_pi_signed=g_pi,
        g_mu_signed=g_mu,
        return_sd=_return_sd(context, state, spread),
    )


def mean_of(
    context: GapContext,
    state: GapState,
    means: Jackknife,
    name: str,
    count: int,
    method: str = "mean",
) -> Estimate:
    totals = state.rollouts.array[:, 0].sum(axis=0)
    tokens = {"reward_mu": 0, "critic_mean": 2, "critic_token_mean": 5, "mean_u": 6, "u_control": 6}
    n_tokens = round(float(totals[tokens[name]]))
    missing = None
    if name.startswith("critic") and not context.has_values:
        missing = "the log has no critic values"
    return context.maker.estimate(
        means,
        ge.MEANS.index(name),
        n_tokens=n_tokens,
        n_rollouts=round(float(totals[count])),
        method=method,
        missing=missing,
    )


def mean_weight(context: GapContext, state: GapState, means: Jackknife) -> Estimate:
    """E_mu[w] per token: 1 where w is an importance ratio."""
    u = mean_of(context, state, means, "mean_u", 10, "mean of pi/mu over tokens")
    return replace(
        u,
        value=_above_one(u.value),
        ci_low=_above_one(u.ci_low),
        ci_high=_above_one(u.ci_high),
    )


def _above_one(x: float | None) -> float | None:
    return None if x is None else 1.0 + x


def _return_sd(context: GapContext, state: GapState, spread: Estimate) -> Estimate:
    """s_A; with one rollout a prompt the sd of G - V stands in and says so."""
    if spread.value is not None or not context.lone:
        return spread
    stand_in = math.sqrt(ge.difference_variance(state)) if state.starts.n_cells else float("nan")
    return replace(
        spread,
        value=or_none(stand_in),
        method="standard deviation of G - V (one rollout a prompt)",
        reliable=False,
        reason="one rollout a prompt: the within-prompt spread does not exist",
    )


def saturation(context: GapContext, state: GapState, zero: ge.GapJackknife) -> Estimate:
    """z of wdr(tau=5) - first_order, paired: far from 0 where pi moved far along the value."""
    method = f"z of wdr(tau={GATES.tau_bracket:g}) - first_order, paired"
    if len(zero.starts) == 0:
        return Estimate(
            None, None, None, None, context.maker.level, 0, 0, 0, method, False, "no rollout"
        )
    weights = np.zeros(len(zero.jack.value))
    weights[zero.column(0, "wdr_wide", context.baseline)] = 1.0
    weights[zero.column(0, "first_order", context.baseline)] = -1.0
    difference = zero.jack.contrast(weights)
    se, n = float(difference.se[0]), int(difference.n_groups[0])
    value = float(difference.value[0]) / se if se > 0 else float("nan")
    return Estimate(
        or_none(value),
        None,
        None,
        None,
        context.maker.level,
        int(zero.n_tokens[0]),
        int(zero.n_rollouts[0]),
        n,
        method,
        math.isfinite(value) and n >= GATES.min_clusters,
        None if math.isfinite(value) else "the two do not differ, or have no standard error",
    )
