"""From a finished `SweepState` to the points of a grid."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from brace_diag.estimators.intervals import IntervalMaker
from brace_diag.estimators.sweep_share import recovered
from brace_diag.estimators.sweep_state import (
    N_COMMON,
    N_POINT,
    N_TOKENS,
    SUM_X,
    SUM_XX,
    SweepState,
    nodes,
)
from brace_diag.estimators.value_gap import GapEstimates
from brace_diag.results import Estimate
from brace_diag.results_sweep import SweepSetting
from brace_diag.sums import Jackknife, jackknife

Array = npt.NDArray[np.float64]
FAR_ALONG = 0.5
SHARE = "share of the gap at the mean-field fixed point"


def sweep_points(state: SweepState, gap: GapEstimates) -> tuple[SweepSetting, ...]:
    """Every point that was asked for, by rho_bar, c_bar and k.

    Args:
        gap: of the same rollouts, at every position.
    """
    outputs = _Outputs.of(state, gap)
    settings = state.settings
    return tuple(
        outputs.point(q, j)
        for q, (rho_bar, c_bar) in enumerate(settings.caps)
        for j, k in enumerate(settings.windows)
        if settings.asked(k, rho_bar, c_bar)
    )


@dataclass(frozen=True, slots=True)
class _Outputs:
    """One joint jackknife of everything, and where each figure stands in it."""

    state: SweepState
    gap: GapEstimates
    jack: Jackknife
    n_tokens: int

    @classmethod
    def of(cls, state: SweepState, gap: GapEstimates) -> _Outputs:
        """The jackknife of a finished state."""
        tokens = state.tokens.array[:, 0]
        jack = jackknife(
            partial(_figures, state),
            state.starts.array,
            state.cells.array,
            state.windows.array,
            state.shares.array,
            state.pulls.array[:, 0],
            tokens,
            present=tokens[:, N_TOKENS] > 0.5,
        )
        return cls(state, gap, jack, round(float(tokens[:, N_TOKENS].sum())))

    @property
    def n_points(self) -> int:
        return len(self.state.settings.caps) * len(self.state.settings.windows)

    def point(self, q: int, j: int) -> SweepSetting:
        """The point of the q-th pair of caps and the j-th window."""
        settings, limits = self.state.settings, self.state.limits
        (rho_bar, c_bar), k = settings.caps[q], settings.windows[j]
        n_k = len(self.state.finite_k) + 1
        i = q * len(settings.windows) + j
        pulls = self.n_points
        clips = pulls + len(settings.caps) * n_k
        ratios = clips + len(limits)
        above = "share of tokens with w above the cap"
        return SweepSetting(
            k=k,
            rho_bar=rho_bar,
            c_bar=c_bar,
            share=self._share(i),
            residual_bound=residual_bound(self.gap, k, settings.gamma, self.state.longest),
            pull=self._plain(pulls + q * n_k + j, "mean weight of the return in a first target"),
            variance_ratio=self._plain(ratios + i, "Var(target - V) / Var(G - V) over tokens"),
            clip_share_rho=self._plain(clips + int(np.searchsorted(limits, rho_bar)), above),
            clip_share_c=self._plain(clips + int(np.searchsorted(limits, c_bar)), above),
            distance=self._plain(ratios + self.n_points + i, "mean |target - V| over tokens"),
        )

    def _share(self, i: int) -> Estimate:
        own = self._plain(i, SHARE, gated=True)
        if own.value is None or not own.reliable:
            return own
        if not self.gap.batch.b_hat.reliable:
            reason = self.gap.batch.b_hat.reason
        elif not told_apart(self.gap.batch.b_hat):
            reason = "the gap is not told apart from 0, so a share of it means nothing"
        elif far_along(self.gap):
            reason = "pi has moved far along the value: shares below 1 may be too low by .15"
        else:
            return own
        return replace(own, reliable=False, reason=reason)

    def _plain(self, i: int, method: str, *, gated: bool = False) -> Estimate:
        return IntervalMaker(self.state.settings.level).estimate(
            self.jack,
            i,
            n_tokens=self.n_tokens,
            n_rollouts=self.state.n_rollouts,
            method=method,
            gate=self.gap.gate if gated else None,
            v=self.gap.within_variance if self.gap.within_variance is not None else float("nan"),
        )


def told_apart(b: Estimate) -> bool:
    """Whether a gap's interval leaves 0 out."""
    if b.ci_low is None or b.ci_high is None:
        return False
    return b.ci_low > 0.0 or b.ci_high < 0.0


def _figures(
    state: SweepState,
    starts: Array,
    cells: Array,
    windows: Array,
    shares: Array,
    pulls: Array,
    tokens: Array,
) -> Array:
    """Shares, pulls, clipped shares, then variance ratio and distance of every point."""
    found = recovered(state.settings, nodes(state.longest), starts, cells, windows, shares)
    n = tokens[:, N_TOKENS, None]
    var_x = tokens[:, SUM_XX, None] / n - (tokens[:, SUM_X, None] / n) ** 2
    at = N_COMMON + len(state.limits)
    y, yy, size = (tokens[:, at + i :: N_POINT] / n for i in range(N_POINT))
    pull = pulls / starts[:, 0]
    clipped = tokens[:, N_COMMON:at] / n
    return np.concatenate([found, pull, clipped, (yy - y**2) / var_x, size], axis=1)


def far_along(gap: GapEstimates) -> bool:
    """Whether b is above half an s_A and its estimators, capped and not, part (saturation)."""
    b, s_a, z = gap.batch.b_hat.value, gap.batch.return_sd.value, gap.saturation_z.value
    if b is None or s_a is None or z is None:
        return False
    return abs(b) > FAR_ALONG * s_a and abs(z) > 1.96


def residual_bound(gap: GapEstimates, k: float, gamma: float, longest: int) -> float | None:
    """γ^k times the largest |b| at positions from k on; 0 where no response is so long.

    None where no such position has a gap that can be relied on.
    """
    if k >= longest:
        return 0.0
    own = [
        abs(cell.estimate.value)
        for cell in gap.gap.cells
        if cell.high >= k and cell.estimate.reliable and cell.estimate.value is not None
    ]
    return float(gamma**k * max(own)) if own else None
