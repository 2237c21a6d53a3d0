"""From a finished `ImportanceState` to results: estimates, curves, tails."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from brace_diag.estimators import importance_estimates as ie
from brace_diag.estimators import importance_kernels as k
from brace_diag.estimators.importance_context import Context, context_of
from brace_diag.estimators.importance_curves import place_curve, product_curve
from brace_diag.estimators.importance_state import ImportanceState
from brace_diag.estimators.importance_tails import tails_of
from brace_diag.estimators.pareto import pareto_k, pareto_k_limit
from brace_diag.results import Curve, Estimate
from brace_diag.results_importance import (
    ImportanceSettings,
    KeyedWeights,
    Tails,
    WeightFigures,
)
from brace_diag.sums import Jackknife

Array = npt.NDArray[np.float64]

FIGURES = tuple(f.name for f in fields(WeightFigures))
PRODUCTS = frozenset(
    {
        "m", "sigma", "sigma_hac", "tau_prompt", "usable_horizon", "ess_rollout",
        "ess_rollout_capped", "log_chi2_rollout", *(f"{n}_uncapped" for n in ("m", "sigma",
        "sigma_hac", "tau_prompt", "usable_horizon")),
    }
)  # fmt: skip
"""Figures of products: they are not believed where E_mu[Σ(w - 1)] is not 0."""


@dataclass(frozen=True, slots=True)
class ImportanceEstimates:
    """Everything one state tells, as results; see `ImportanceProducts` for the names."""

    figures: WeightFigures
    log_products: Curve
    log_products_uncapped: Curve
    half_life: Estimate
    half_life_one: Estimate
    half_life_rule: Estimate
    pareto_k: float | None
    pareto_k_limit: float
    peaked: Estimate
    other: Estimate
    share_below_one: Estimate
    tails: Tails
    noise_floor: Estimate
    stale_abs_log_w: Estimate
    excess_abs_log_w: Estimate
    abs_by_position: Curve
    abs_by_horizon: Curve
    n_zero: int
    varying_lengths: bool


def estimate_figures(state: ImportanceState, settings: ImportanceSettings) -> WeightFigures:
    """Figures of one finished state."""
    state.sets.finish()
    return _weight_figures(context_of(state, settings))


def estimate_key(key: int, state: ImportanceState, settings: ImportanceSettings) -> KeyedWeights:
    """Figures of one step or staleness."""
    return KeyedWeights(key, estimate_figures(state, settings))


def estimate_products(state: ImportanceState, settings: ImportanceSettings) -> ImportanceEstimates:
    """All estimates of one state with windows, tails and places; its sets are closed here."""
    state.sets.finish()
    context = context_of(state, settings)
    windows = ie.window_figures(state, settings.log_discount)
    n = context.own.n_rollouts
    rule = context.at("mean_abs_log_w", "1.39/E|log w|")
    return ImportanceEstimates(
        figures=_weight_figures(context),
        log_products=product_curve(context, state, windows, k.CHOSEN),
        log_products_uncapped=product_curve(context, state, windows, k.NONE),
        half_life=_half_life(context, windows, k.CHOSEN),
        half_life_one=_half_life(context, windows, k.ONE),
        half_life_rule=_reciprocal(rule, 2.0 * math.log(2.0), "pi equals mu on every token"),
        pareto_k=pareto_k(state.tails.largest(0), n) if n else None,
        pareto_k_limit=pareto_k_limit(n),
        peaked=context.at("mean_weight_peaked", "tokens with mu >= 1/2"),
        other=context.at("mean_weight_other", "tokens with mu < 1/2"),
        share_below_one=context.at("share_below_one"),
        tails=tails_of(state),
        noise_floor=_of_age(context, "noise_floor", "staleness 0"),
        stale_abs_log_w=_of_age(context, "stale_abs_log_w", "staleness above 0"),
        excess_abs_log_w=_of_age(context, "excess_abs_log_w", "stale less fresh"),
        abs_by_position=place_curve(context, state.positions.array, "position"),
        abs_by_horizon=place_curve(context, state.horizons.array, "horizon"),
        n_zero=context.n_zero,
        varying_lengths=state.longest > state.shortest,
    )


def _weight_figures(context: Context) -> WeightFigures:
    made: dict[str, Estimate] = {}
    lag = context.settings.lag
    long_run = "Bartlett, lag " + ("4 (T/100)^(2/9) of each rollout" if lag is None else str(lag))
    ways = {"sigma_hac": long_run, "sigma_hac_uncapped": f"{long_run}, no cap"}
    caps = {"ess_token_capped": f"rho_bar={context.settings.rho_bar:g}"}
    for name in FIGURES:
        if name.startswith("usable_horizon"):
            m = made[name.replace("usable_horizon", "m")]
            made[name] = _usable_horizon(m, context.settings.eps)
        elif name.startswith("tau_prompt"):
            squared = context.at(name.replace("tau_prompt", "tau_squared"))
            made[name] = _root(replace(squared, method=f"between prompts, {_cap(context, name)}"))
        else:
            how = ways.get(name) or caps.get(name) or _cap(context, name)
            made[name] = context.at(name, how)
    for name in made:
        why = context.missing(name)
        if why is not None:
            made[name] = replace(
                made[name], value=None, se=None, ci_low=None, ci_high=None, reliable=False,
                reason=why,
            )  # fmt: skip
    return WeightFigures(**made)


def _cap(context: Context, name: str) -> str:
    if name.startswith(("m", "sigma", "tau")) and not name.startswith("mean"):
        return "no cap" if name.endswith("uncapped") else context.method
    if name in ("ess_rollout_capped", "clip_c_bar"):
        return context.method
    return f"rho_bar={context.settings.rho_bar:g}" if name == "clip_rho_bar" else "raw weights"


def _usable_horizon(m: Estimate, eps: float) -> Estimate:
    """log(1/eps)/|m|, eq 45; only a product that shrinks has a horizon."""
    method = f"log(1/eps)/|m|, eps={eps:g}"
    if m.value is not None and m.value >= 0.0:
        why = "m is not below 0: the mean log-product does not shrink"
        return replace(m, value=None, se=None, ci_low=None, ci_high=None, method=method,
                       reliable=False, reason=why)  # fmt: skip
    flipped = replace(
        m,
        value=None if m.value is None else -m.value,
        ci_low=None if m.ci_high is None else -m.ci_high,
        ci_high=None if m.ci_low is None else -m.ci_low,
        method=method,
    )
    return _reciprocal(flipped, math.log(1.0 / eps), "m is 0")


def _reciprocal(rate: Estimate, numerator: float, zero: str) -> Estimate:
    """numerator / rate; an interval of the rate that reaches 0 leaves the upper end open."""
    if rate.value is None:
        return rate
    if rate.value <= 0.0:
        return replace(rate, value=None, se=None, ci_low=None, ci_high=None, reliable=False,
                       reason=zero)  # fmt: skip
    open_ended = rate.ci_low is None or rate.ci_low <= 0.0
    reason = rate.reason
    if open_ended and rate.ci_high is not None:
        reason = reason or "no upper end: the interval of the rate reaches 0"
    return replace(
        rate,
        value=numerator / rate.value,
        se=None if rate.se is None else numerator * rate.se / rate.value**2,
        ci_low=None if rate.ci_high is None else numerator / rate.ci_high,
        ci_high=None if open_ended or rate.ci_low is None else numerator / rate.ci_low,
        reliable=rate.reliable and not open_ended,
        reason=reason,
    )


def _root(squared: Estimate) -> Estimate:
    """The root of a variance estimate, 0 where that is negative; its interval is mapped."""
    if squared.value is None:
        why = "one prompt only: nothing to compare"
        return replace(squared, reason=why if squared.n_clusters == 1 else squared.reason)
    value = math.sqrt(max(squared.value, 0.0))
    return replace(
        squared,
        value=value,
        se=None if squared.se is None or value == 0.0 else squared.se / (2.0 * value),
        ci_low=None if squared.ci_low is None else math.sqrt(max(squared.ci_low, 0.0)),
        ci_high=None if squared.ci_high is None else math.sqrt(max(squared.ci_high, 0.0)),
    )


def _of_age(context: Context, name: str, method: str) -> Estimate:
    own = context.own
    over = {"noise_floor": own.fresh, "stale_abs_log_w": own.stale}.get(
        name, (own.fresh[0] + own.stale[0], own.fresh[1] + own.stale[1])
    )
    made = replace(
        context.at(name, f"mean |log w|, {method}"), n_tokens=over[0], n_rollouts=over[1]
    )
    if made.value is None and context.n_zero == 0:
        return replace(made, reason="the log holds no rollouts of that staleness, or does not say")
    return made


def _half_life(context: Context, windows: ie.Windows, cap: int) -> Estimate:
    made = ie.half_life(windows, cap)
    reach = 2 ** max(int(np.sum(windows.counts >= ie.MIN_WINDOWS)) - 1, 0)
    missing = None
    if made is None and len(windows.counts):
        missing = f"E[C] stays above 1/2 up to {reach} tokens"
    jack = made or Jackknife(np.array([np.nan]), np.zeros((0, 1)), np.zeros(1, np.int64))
    shown = context.settings.c_bar if cap == k.CHOSEN else 1.0
    return context.maker.estimate(
        jack,
        0,
        n_tokens=context.own.n_tokens,
        n_rollouts=context.own.n_rollouts,
        method=f"E[C] averaged by window length, c_bar={shown:g}",
        missing=missing,
    )
