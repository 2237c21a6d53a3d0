"""Mean return by bins of the critic's value: is a value of .7 followed by a return of .7?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from brace_diag.estimators.critic_fit import METHOD, with_error
from brace_diag.estimators.critic_frame import CALIBRATION_BINS
from brace_diag.estimators.critic_state import CriticState
from brace_diag.estimators.intervals import IntervalMaker
from brace_diag.results import Cell, Curve, Estimate
from brace_diag.sums import Jackknife, jackknife, sup_t_critical

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_BINS = 20
"""Bins of the curve, at most; each holds at least this part of the tokens."""

ROUNDING = 1e-10
"""Standard errors below this share of the range of returns are rounding of equal returns."""
ALL_EQUAL = "all returns of the bin are equal: its interval is a point"


def joined_bins(tokens: Array) -> Ints:
    """First fine bin of every bin of the curve: fine ones are joined until each has its share.

    Args: tokens: (n_fine,) tokens of every fine bin. Tokens left over at the top join the last.
    """
    occupied = np.flatnonzero(tokens > 0.5)
    if len(occupied) == 0:
        return np.zeros(0, np.int64)
    enough = tokens.sum() / MOST_BINS
    firsts: list[int] = []
    held = np.inf
    for b in occupied:
        if held >= enough:
            firsts.append(int(b))
            held = 0.0
        held += tokens[b]
    if held < enough and len(firsts) > 1:
        firsts.pop()
    return np.array(firsts, np.int64)


def calibration_curve(state: CriticState, level: float) -> Curve:
    """Mean return to go by the critic's value, each bin with `mean_critic` and `share`."""
    fine = state.bins.array  # (N_GROUPS, n_fine, N_BIN)
    firsts = joined_bins(fine[:, :, 0].sum(axis=0))
    if len(firsts) == 0:
        return Curve("critic", (), None)
    sums = np.add.reduceat(fine, firsts, axis=1)
    centre = state.frame.centre

    def mean_returns(s: Array) -> Array:
        return centre + s[:, :, 2] / s[:, :, 0]

    jack = jackknife(mean_returns, sums, present=sums[:, :, 0] > 0.5)
    total = sums.sum(axis=0)
    cells = _cells(state, firsts, total, jack, level)
    # A fixed seed: the band is part of the result and must not change from run to run.
    return Curve("critic", cells, sup_t_critical(jack, level, np.random.default_rng(0)))


def _cells(
    state: CriticState, firsts: Ints, total: Array, jack: Jackknife, level: float
) -> tuple[Cell, ...]:
    maker = IntervalMaker(level)
    edges = state.frame.edges(CALIBRATION_BINS)
    least, most = float(state.extents[:, 2].min()), float(state.extents[:, 3].max())
    # Bin b begins at edges[b - 1]; the ends of the curve are the ends of what the critic says.
    starts = [least, *(float(edges[b - 1]) for b in firsts[1:])]
    ends = [*starts[1:], most]
    n_tokens = total[:, 0].sum()
    span = state.frame.high - state.frame.low
    cells = []
    for j, (low, high) in enumerate(zip(starts, ends, strict=True)):
        n, v, _, rollouts = total[j]
        estimate = maker.estimate(
            jack, j, n_tokens=round(n), n_rollouts=round(rollouts), method=METHOD
        )
        beside = {
            "mean_critic": float(state.frame.centre + v / n),
            "share": float(n / n_tokens),
        }
        cells.append(Cell(low, high, _with_spread(with_error(estimate), span), beside))
    return tuple(cells)


def _with_spread(estimate: Estimate, span: float) -> Estimate:
    """The estimate; where its returns are all equal, with an error of exactly 0 and the reason."""
    if estimate.value is None or estimate.se is None or estimate.se > ROUNDING * span:
        return estimate
    value = estimate.value
    return replace(estimate, se=0.0, ci_low=value, ci_high=value, reliable=False, reason=ALL_EQUAL)
