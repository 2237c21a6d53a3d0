"""What advantage whitening cannot remove of the gap: shares of E[b²] beyond the batch mean."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from brace_diag.estimators import gap_estimates as ge
from brace_diag.estimators.gap_state import GapState
from brace_diag.estimators.intervals import GapContext
from brace_diag.results import Companion, Curve
from brace_diag.sums import Jackknife

Array = npt.NDArray[np.float64]


def whitening_shares(
    context: GapContext,
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
    context: GapContext, zero: ge.GapJackknife, second: Jackknife | None
) -> float | None:
    if second is None or context.gate == "refused":
        return None
    at = zero.column(0, "wdr", context.baseline)
    mean_square = float(zero.jack.value[at] ** 2 - zero.jack.se[at] ** 2)
    return _share(mean_square, float(second.value[0]), float(second.se[0]))


def _share_over_positions(
    context: GapContext, state: GapState, gap: Curve, jack: ge.GapJackknife
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
    # Without a gap Σ weight b² has variance 2 tr((WΣ)²), W = diag(weights).
    weighted = weights[:, None] * covariance
    noise = np.sqrt(2.0 * np.sum(weighted * weighted.T))
    return _share(mean_square, float(weights @ (value**2 - np.diag(covariance))), float(noise))


def _share(square_of_mean: float, mean_of_square: float, noise: float) -> float | None:
    """1 - (E b)²/E b² in [0, 1]; None where E b² cannot be told from 0 (one-sided, 5 %)."""
    if not mean_of_square > 1.645 * noise:
        return None
    return float(min(max(1.0 - max(square_of_mean, 0.0) / mean_of_square, 0.0), 1.0))
