"""From a finished `GapState` to a `ValueGap`: estimates, gates and what a reader must be told."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from brace_diag.estimators import gap_estimates as ge
from brace_diag.estimators.gap_state import GapState
from brace_diag.estimators.pareto import pareto_k, pareto_k_limit
from brace_diag.results import (
    BatchFigures,
    Cell,
    Companion,
    Curve,
    Estimate,
    Gate,
    KeyedGap,
)
from brace_diag.settings import GapSettings, GateThresholds, cell_edges
from brace_diag.sums import Jackknife, sup_t_critical, t_quantile

Array = npt.NDArray[np.float64]
Baseline = Literal["critic", "group"]
GATES = GateThresholds()
MARGIN = 0.1
"""Margin of equivalence in units of s_A, the within-prompt sd of the return."""


@dataclass(frozen=True, slots=True)
class GapEstimates:
    """Everything one state tells, as results."""

    batch: BatchFigures
    gap: Curve
    critic_bias: Curve
    saturation_z: Estimate
    whitening: dict[str, Companion]
    gate: Gate
    within_variance: float | None
    baseline: Baseline
    mean_weight: Estimate
    u_control: Estimate
    mean_abs_log_w: float | None
    lone_rollouts: bool


def gate_of(v: float) -> Gate:
    """Trust level of a within-prompt variance of the log product."""
    if not math.isfinite(v):
        return "unknown"
    if v <= GATES.good:
        return "good"
    if v <= GATES.limit:
        return "fair"
    return "direction" if v <= GATES.refuse else "refused"


def probe_size(n_clusters: int) -> int:
    """Fresh rollouts whose direct estimate resolves the margin: 2 (t_.95 / margin)².

    A probe's standard error is √2 s_A/√n; n makes t_.95 of them equal .1 s_A.
    """
    quantile = float(t_quantile(0.95, max(n_clusters, 2)))
    return math.ceil(2.0 * (quantile / MARGIN) ** 2)


@dataclass(slots=True)
class _Maker:
    """Turns jackknife outputs into `Estimate`s at one level."""

    level: float

    def estimate(
        self,
        jack: Jackknife,
        j: int,
        *,
        n_tokens: int,
        n_rollouts: int,
        method: str,
        gate: Gate | None = None,
        v: float = float("nan"),
        missing: str | None = None,
    ) -> Estimate:
        value, se, n = float(jack.value[j]), float(jack.se[j]), int(jack.n_groups[j])
        quantile = float(t_quantile(0.5 + self.level / 2, n))
        reason = missing or _why_null(value, n)
        if gate == "refused" and reason is None:
            reason = (
                f"within-prompt variance of the log product is {v:.3g}, above {GATES.refuse:g}: "
                f"fresh rollouts from pi are needed (about {probe_size(n)})"
            )
        if reason is not None and (n >= 2 or missing or not math.isfinite(value)):
            value = se = quantile = float("nan")
        reliable = reason is None and n >= GATES.min_clusters and gate != "direction"
        if reason is None and not reliable:
            reason = _why_unreliable(n, gate, v)
        low, high = value - quantile * se, value + quantile * se
        return Estimate(
            _or_none(value),
            _or_none(se),
            _or_none(low),
            _or_none(high),
            self.level,
            n_tokens,
            n_rollouts,
            n,
            method,
            reliable,
            reason,
        )


def _why_null(value: float, n: int) -> str | None:
    if n == 0 or math.isnan(value):
        return "no rollout with all that this needs"
    if math.isinf(value):
        return "the products overflow float64"
    return None if n >= 2 else "one prompt only: no standard error"


def _why_unreliable(n: int, gate: Gate | None, v: float) -> str:
    if gate == "direction":
        return (
            f"within-prompt variance of the log product is {v:.3g}, above {GATES.limit:g}: "
            "only the direction can be trusted"
        )
    return f"{n} clusters of prompts, fewer than {GATES.min_clusters}: the interval is rough"


def _or_none(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None


def absolute(estimate: Estimate) -> Estimate:
    """|x| with the interval that x's interval maps to; never below 0."""
    if estimate.value is None:
        return estimate
    low, high = estimate.ci_low, estimate.ci_high
    if low is None or high is None:
        return replace(estimate, value=abs(estimate.value))
    straddles = low <= 0.0 <= high
    ends = (abs(low), abs(high))
    return replace(
        estimate,
        value=abs(estimate.value),
        ci_low=0.0 if straddles else min(ends),
        ci_high=max(ends),
    )


def estimate_gap(
    state: GapState,
    settings: GapSettings,
    *,
    position_state: GapState | None = None,
    has_values: bool = True,
    allow_group: bool = True,
) -> GapEstimates:
    """All estimates of one finished state.

    Args:
        state: sums on the asked axis; its sibling table is closed here.
        position_state: sums on the position axis where `state` is on another.
        has_values: whether the log has a critic; without one V is 0 and the critic's figures null.
        allow_group: whether the group baseline may be used (it must not where rows repeat).
    """
    at_zero = position_state or state
    at_zero.table.finish()
    state.table.finish()
    zero = ge.gap_jackknife(at_zero, settings.group_shift)
    curve_jack = zero if state is at_zero else ge.gap_jackknife(state, settings.group_shift)
    baseline = _baseline(zero, settings, allow_group)
    shift = settings.group_shift if baseline == "group" else 0.0
    means = ge.means_jackknife(at_zero)
    v, lone = ge.within_variance(at_zero)
    maker = _Maker(settings.level)
    v0 = float(v[0]) if len(v) else float("nan")
    context = _Context(maker, baseline, has_values, lone, gate_of(v0), v0)
    batch = _batch(context, at_zero, zero, means)
    gap, bias = _curves(context, state, curve_jack)
    return GapEstimates(
        batch=batch,
        gap=gap,
        critic_bias=bias,
        saturation_z=_saturation(context, at_zero, zero),
        whitening=_whitening(context, at_zero, zero, shift, gap, curve_jack),
        gate=context.gate,
        within_variance=_or_none(v0),
        baseline=baseline,
        mean_weight=_mean_weight(context, at_zero, means),
        u_control=_mean(context, at_zero, means, "u_control", 10),
        mean_abs_log_w=_or_none(float(means.value[ge.MEANS.index("mean_abs_log_w")])),
        lone_rollouts=lone,
    )


def estimate_key(
    key: int, state: GapState, settings: GapSettings, has_values: bool, allow_group: bool
) -> KeyedGap:
    """Estimates of one step or staleness."""
    own = estimate_gap(state, settings, has_values=has_values, allow_group=allow_group)
    gap = own.gap if state.all_starts else Curve("position", own.gap.cells[:1])
    return KeyedGap(key, own.batch, gap, own.gate, own.within_variance)


@dataclass(frozen=True, slots=True)
class _Context:
    maker: _Maker
    baseline: Baseline
    has_values: bool
    lone: bool
    gate: Gate
    v: float

    @property
    def method(self) -> str:
        base = {
            "critic": "critic baseline",
            "group": "critic and group baseline" if self.has_values else "group baseline",
        }[self.baseline]
        alone = ", total variance in the gate (one rollout a prompt)" if self.lone else ""
        return f"wdr(tau={GATES.tau:g}), {base}{alone}"


def _baseline(jack: ge.GapJackknife, settings: GapSettings, allow_group: bool) -> Baseline:
    if not allow_group or settings.baseline == "critic" or len(jack.starts) == 0:
        return "critic"
    if settings.baseline == "group":
        return "group"
    se = jack.jack.se
    critic, group = se[jack.column(0, "wdr", "critic")], se[jack.column(0, "wdr", "group")]
    return "group" if group < critic else "critic"


def _mean(
    context: _Context, state: GapState, means: Jackknife, name: str, count: int, method: str = "mean"
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


def _mean_weight(context: _Context, state: GapState, means: Jackknife) -> Estimate:
    """E_mu[w] per token: 1 where w is an importance ratio."""
    u = _mean(context, state, means, "mean_u", 10, "mean of pi/mu over tokens")
    shift = {n: None if getattr(u, n) is None else 1.0 + getattr(u, n) for n in ("value", "ci_low", "ci_high")}
    return replace(u, **shift)


def _batch(
    context: _Context, state: GapState, zero: ge.GapJackknife, means: Jackknife
) -> BatchFigures:
    maker, missing_v = context.maker, None if context.has_values else "the log has no critic values"
    counts = state.rollouts.array[:, 0].sum(axis=0)
    n_known = round(float(counts[0]))
    if len(zero.starts) == 0:
        gap = Jackknife(np.array([np.nan]), np.zeros((len(means.deviations), 1)), np.zeros(1, np.int64))
        n_tokens = n_rollouts = 0
    else:
        gap = zero.jack.contrast(_unit(len(zero.jack.value), zero.column(0, "wdr", context.baseline)))
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

    g_pi = combine({critic: 1.0, reward: -1.0, 0: -1.0}, f"V - E_pi[R], {context.method}", True, missing_v)
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
        reward_mu=_mean(context, state, means, "reward_mu", 0, "mean return"),
        reward_pi=combine({reward: 1.0, 0: 1.0}, f"E_mu[R] + b, {context.method}", True, None),
        critic_mean=_mean(context, state, means, "critic_mean", 2, "mean V at the first policy token"),
        critic_token_mean=_mean(context, state, means, "critic_token_mean", 2, "mean V over tokens"),
        g_pi_hat=absolute(g_pi),
        g_mu_hat=absolute(g_mu),
        g_pi_signed=g_pi,
        g_mu_signed=g_mu,
        return_sd=_return_sd(context, state, spread),
    )


def _return_sd(context: _Context, state: GapState, spread: Estimate) -> Estimate:
    """s_A; with one rollout a prompt the sd of G - V stands in and says so."""
    if spread.value is not None or not context.lone:
        return spread
    stand_in = math.sqrt(ge.difference_variance(state)) if state.starts.n_cells else float("nan")
    return replace(
        spread,
        value=_or_none(stand_in),
        method="standard deviation of G - V (one rollout a prompt)",
        reliable=False,
        reason="one rollout a prompt: the within-prompt spread does not exist",
    )


def _unit(size: int, *at: int) -> Array:
    vector = np.zeros(size)
    vector[list(at)] = 1.0
    return vector


def _curves(
    context: _Context, state: GapState, jack: ge.GapJackknife
) -> tuple[Curve, Curve]:
    v, _ = ge.within_variance(state)
    cells, biases, shown = [], [], []
    size = len(jack.jack.value)
    for i, cell in enumerate(jack.starts):
        at = jack.column(i, "wdr", context.baseline)
        gate = gate_of(float(v[cell]))
        low, high = _bounds(state.axis, int(cell))
        counts = {"n_tokens": int(jack.n_tokens[i]), "n_rollouts": int(jack.n_rollouts[i])}
        make = _cell_maker(context, jack, gate, float(v[cell]), counts)
        cells.append(Cell(low, high, make(_unit(size, at), context.method, None), _companions(
            context, state, jack, i, int(cell), float(v[cell]), gate, make
        )))
        weights = _unit(size, i * ge.N_OUT + ge.V_OUT)
        weights[i * ge.N_OUT + ge.G_OUT] = -1.0
        weights[at] = -1.0
        missing = None if context.has_values else "the log has no critic values"
        biases.append(Cell(low, high, make(weights, f"V - V^pi, {context.method}", missing)))
        if gate != "refused":
            shown.append(at)
    axis = state.axis
    band = _band(jack.jack, shown, context.maker.level)
    return Curve(axis, tuple(cells), band), Curve(axis, tuple(biases), None)


def _cell_maker(
    context: _Context, jack: ge.GapJackknife, gate: Gate, v: float, counts: dict[str, int]
) -> Callable[[Array, str, str | None], Estimate]:
    def make(weights: Array, method: str, missing: str | None) -> Estimate:
        return context.maker.estimate(
            jack.jack.contrast(weights), 0, method=method, gate=gate, v=v, missing=missing, **counts
        )

    return make


def _companions(
    context: _Context,
    state: GapState,
    jack: ge.GapJackknife,
    i: int,
    cell: int,
    v: float,
    gate: Gate,
    make: Callable[[Array, str, str | None], Estimate],
) -> dict[str, Companion]:
    size = len(jack.jack.value)
    n = int(jack.n_rollouts[i])
    starts = state.starts.array[:, cell].sum(axis=0)
    ess = float(state.weights.ess()[cell]) / n
    return {
        "first_order": make(_unit(size, jack.column(i, "first_order", context.baseline)), "first_order", None),
        "doubly_robust": make(_unit(size, jack.column(i, "doubly_robust", context.baseline)), "doubly_robust", None),
        "within_var_log_product": _or_none(v),
        "gate": gate,
        "ess_fraction": _or_none(ess),
        "pareto_k": pareto_k(state.tails.largest(cell), n),
        "pareto_k_limit": pareto_k_limit(n),
        "mean_log_product": _or_none(float(starts[3] / n)),
    }


def _band(jack: Jackknife, columns: list[int], level: float) -> float | None:
    if not columns:
        return None
    part = Jackknife(jack.value[columns], jack.deviations[:, columns], jack.n_groups[columns])
    # A fixed seed: the band is part of the result and must not change from run to run.
    return sup_t_critical(part, level, np.random.default_rng(0))


def _bounds(axis: str, cell: int) -> tuple[float, float]:
    """First and last index of a cell, both inclusive; relative cells in shares of the length."""
    if axis == "relative":
        return cell / 20, (cell + 1) / 20
    edges = cell_edges(2**40)
    return int(edges[cell]), int(edges[cell + 1]) - 1


def _saturation(context: _Context, state: GapState, zero: ge.GapJackknife) -> Estimate:
    """z of wdr(tau=5) - first_order, paired: far from 0 where pi moved far along the value."""
    method = f"z of wdr(tau={GATES.tau_bracket:g}) - first_order, paired"
    if len(zero.starts) == 0:
        return Estimate(None, None, None, None, context.maker.level, 0, 0, 0, method, False, "no rollout")
    weights = np.zeros(len(zero.jack.value))
    weights[zero.column(0, "wdr_wide", context.baseline)] = 1.0
    weights[zero.column(0, "first_order", context.baseline)] = -1.0
    difference = zero.jack.contrast(weights)
    se, n = float(difference.se[0]), int(difference.n_groups[0])
    value = float(difference.value[0]) / se if se > 0 else float("nan")
    return Estimate(
        _or_none(value),
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


def _whitening(
    context: _Context,
    state: GapState,
    zero: ge.GapJackknife,
    shift: float,
    gap: Curve,
    jack: ge.GapJackknife,
) -> dict[str, Companion]:
    """Shares of E[b²] that subtracting the batch mean leaves, over positions and over prompts."""
    second = None if len(zero.starts) == 0 else ge.prompt_second_moment(state, shift)
    prompts = _share_over_prompts(context, zero, second)
    rms: Companion = None
    if second is not None:
        rms = context.maker.estimate(
            second,
            0,
            n_tokens=int(zero.n_tokens[0]),
            n_rollouts=int(zero.n_rollouts[0]),
            method="within-prompt U-statistic at position 0",
            gate=context.gate,
            v=context.v,
        )
    return {
        "prompt_second_moment": rms,
        "share_over_prompts": prompts,
        "share_over_positions": _share_over_positions(context, state, gap, jack),
    }


def _share_over_prompts(
    context: _Context, zero: ge.GapJackknife, second: Jackknife | None
) -> float | None:
    if second is None or context.gate == "refused":
        return None
    at = zero.column(0, "wdr", context.baseline)
    mean_square = float(zero.jack.value[at] ** 2 - zero.jack.se[at] ** 2)
    return _share(mean_square, float(second.value[0]))


def _share_over_positions(
    context: _Context, state: GapState, gap: Curve, jack: ge.GapJackknife
) -> float | None:
    """1 - (E b)²/E b² over tokens, each square less its sampling variance."""
    if state.axis != "position" or not state.all_starts or context.gate == "refused":
        return None
    totals = state.cells.array[:, :, 0].sum(axis=0)[jack.starts]
    at = [jack.column(i, "wdr", context.baseline) for i in range(len(jack.starts))]
    part = Jackknife(jack.jack.value[at], jack.jack.deviations[:, at], jack.jack.n_groups[at])
    kept = np.isfinite(part.value) & (part.n_groups >= 2)
    if not kept.any():
        return None
    weights = np.where(kept, totals, 0.0) / totals[kept].sum()
    covariance = part.covariance
    value = np.where(kept, part.value, 0.0)
    mean_square = float((weights @ value) ** 2 - weights @ covariance @ weights)
    return _share(mean_square, float(weights @ (value**2 - np.diag(covariance))))


def _share(square_of_mean: float, mean_of_square: float) -> float | None:
    """1 - (E b)²/E b² in [0, 1]; None where E b² cannot be told from 0."""
    if not mean_of_square > 0.0:
        return None
    return float(min(max(1.0 - max(square_of_mean, 0.0) / mean_of_square, 0.0), 1.0))
