"""From a finished `GapState` to estimates: which baseline, what trust, what is withheld."""

from __future__ import annotations

from dataclasses import dataclass, replace

from brace_diag.estimators import gap_estimates as ge
from brace_diag.estimators.gap_batch import batch_figures, mean_of, mean_weight, saturation
from brace_diag.estimators.gap_curves import gap_curves
from brace_diag.estimators.gap_state import GapState
from brace_diag.estimators.intervals import Baseline, GapContext, IntervalMaker, gate_of, or_none
from brace_diag.estimators.whitening import whitening_shares
from brace_diag.results import (
    BATCH_NAMES,
    BatchFigures,
    Cell,
    Companion,
    Curve,
    Estimate,
    Gate,
    KeyedGap,
)
from brace_diag.settings import GapSettings


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
    maker = IntervalMaker(settings.level)
    v0 = float(v[0]) if len(v) else float("nan")
    context = GapContext(maker, baseline, has_values, lone, gate_of(v0), v0)
    batch = batch_figures(context, at_zero, zero, means)
    gap, bias = gap_curves(context, state, curve_jack)
    return GapEstimates(
        batch=batch,
        gap=gap,
        critic_bias=bias,
        saturation_z=saturation(context, at_zero, zero),
        whitening=whitening_shares(context, at_zero, zero, shift, gap, curve_jack),
        gate=context.gate,
        within_variance=or_none(v0),
        baseline=baseline,
        mean_weight=mean_weight(context, at_zero, means),
        u_control=mean_of(context, at_zero, means, "u_control", 10),
        mean_abs_log_w=or_none(float(means.value[ge.MEANS.index("mean_abs_log_w")])),
    )


def estimate_key(
    key: int, state: GapState, settings: GapSettings, has_values: bool, allow_group: bool
) -> KeyedGap:
    """Estimates of one step or staleness."""
    own = estimate_gap(state, settings, has_values=has_values, allow_group=allow_group)
    gap = own.gap if state.all_starts else Curve("position", own.gap.cells[:1])
    return KeyedGap(key, own.batch, gap, own.gate, own.within_variance)


def _baseline(jack: ge.GapJackknife, settings: GapSettings, allow_group: bool) -> Baseline:
    if not allow_group or settings.baseline == "critic" or len(jack.starts) == 0:
        return "critic"
    if settings.baseline == "group":
        return "group"
    se = jack.jack.se
    critic, group = se[jack.column(0, "wdr", "critic")], se[jack.column(0, "wdr", "group")]
    return "group" if group < critic else "critic"


def distrusted(estimates: GapEstimates, reason: str) -> GapEstimates:
    """The same numbers, all that rest on w marked unreliable with the reason."""

    def mark(estimate: Estimate) -> Estimate:
        return (
            estimate if estimate.value is None else replace(estimate, reliable=False, reason=reason)
        )

    def mark_cell(cell: Cell) -> Cell:
        beside = {k: mark(v) if isinstance(v, Estimate) else v for k, v in cell.companions.items()}
        return replace(cell, estimate=mark(cell.estimate), companions=beside)

    def mark_curve(curve: Curve) -> Curve:
        return replace(curve, cells=tuple(mark_cell(cell) for cell in curve.cells))

    resting = ("b_hat", "reward_pi", "g_pi_hat", "g_pi_signed")
    batch = replace(
        estimates.batch,
        **{n: mark(getattr(estimates.batch, n)) for n in BATCH_NAMES if n in resting},
    )
    return replace(
        estimates,
        batch=batch,
        gap=mark_curve(estimates.gap),
        critic_bias=mark_curve(estimates.critic_bias),
        saturation_z=mark(estimates.saturation_z),
    )
