"""From a finished `CriticState` to estimates: pure functions of sums, then intervals and reasons.

    EV = 1 - Var(G - V) / Var(G),   slope = Cov(V, G) / Var(V),   intercept = mean G - slope mean V

over policy tokens, G the return to go. All are functions of sums over tokens, so that a log gives
the same number however it is cut into shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from brace_diag.estimators import critic_kernels as kernels
from brace_diag.estimators.critic_frame import DENSITY_BINS
from brace_diag.estimators.critic_state import CriticState
from brace_diag.estimators.intervals import IntervalMaker
from brace_diag.results import Cell, Curve, Estimate
from brace_diag.results_critic import (
    FIT_NAMES,
    Density,
    FitFigures,
    KeyedFit,
    TargetFit,
    ValueExtent,
    finite,
)
from brace_diag.settings import TargetSpec, cell_edges
from brace_diag.sums import Jackknife, jackknife, sup_t_critical

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

N_FIT = len(FIT_NAMES)
NO_VARIANCE = 1e-12
"""Below this share of the sum of squares about the frame's centre, a variance is rounding."""
METHOD = "over tokens"
EQUAL_RETURNS = {
    "explained_variance": "all returns are equal: there is no variance to explain",
    "slope": "all returns are equal: there is nothing to calibrate",
    "intercept": "all returns are equal: there is nothing to calibrate",
}
EQUAL_VALUES = "all critic values are equal: there is no slope"
NO_RANGE = "all returns are equal: their range is one point"
NO_ERROR = "no standard error: without one of the prompts nothing varies"


def fit_outputs(centre: float, cells: Array, apart: Array) -> Array:
    """Every figure of every cell.

    Args:
        cells: (..., N_CELL) and apart: (..., N_DISTANCE · n_targets), sums about `centre`.

    Returns: (..., N_FIT + 2 n_targets): `FIT_NAMES`, then mean |target - V| and mean target - V of
        each target; NaN where there is nothing to divide by.
    """
    n, v, g, vv, gg, vg, outside = (cells[..., f] for f in range(kernels.ROLLOUTS))
    with np.errstate(all="ignore"):
        var_v, var_g = _spread(n, v, vv), _spread(n, g, gg)
        covariance = vg - v * g / n
        slope = covariance / var_v
        figures = [
            1.0 - (var_g + _or_zero(var_v) - 2.0 * covariance) / var_g,
            slope,
            centre + g / n - slope * (centre + v / n),
            (v - g) / n,
            outside / n,
        ]
        for k in range(apart.shape[-1] // kernels.N_DISTANCE):
            at = kernels.N_DISTANCE * k
            figures += [apart[..., at + f] / apart[..., at] for f in (1, 2)]
    return np.stack(figures, axis=-1)


def _spread(n: Array, x: Array, xx: Array) -> Array:
    """Σ(x - mean)², NaN where it is no more than rounding."""
    total = xx - x * x / n
    return np.where(total > NO_VARIANCE * xx, total, np.nan)


def _or_zero(var_v: Array) -> Array:
    """A constant critic has no slope, but it has an explained variance: 0."""
    return np.where(np.isnan(var_v), 0.0, var_v)


@dataclass(frozen=True, slots=True)
class _Figures:
    """Jackknifed outputs of several cells, and what they are over.

    Attributes:
        jack: outputs cell by cell, `width` each.
        tokens, rollouts: (n_cells, 1 + n_targets) of the fit, then of each target.
        extents: (n_cells, 4) as in the state.
    """

    maker: IntervalMaker
    jack: Jackknife
    tokens: Ints
    rollouts: Ints
    extents: Array

    @property
    def width(self) -> int:
        return len(self.jack.value) // max(len(self.tokens), 1)

    def fit(self, cell: int, name: str) -> Estimate:
        """One of `FIT_NAMES` in a cell."""
        low_g, high_g, low_v, high_v = self.extents[cell]
        missing = None
        if low_g >= high_g and np.isfinite(low_g):
            missing = EQUAL_RETURNS.get(name)
        elif low_v >= high_v and np.isfinite(low_v) and name in ("slope", "intercept"):
            missing = EQUAL_VALUES
        return self._make(cell, FIT_NAMES.index(name), 0, missing)

    def target(self, cell: int, k: int, which: int) -> Estimate:
        """Mean |target - V| (which 0) or target - V (1) of the k-th target in a cell."""
        return self._make(cell, N_FIT + 2 * k + which, 1 + k, None)

    def curve_band(self, output: int) -> float | None:
        """Critical value of the sup-t band of one output over all cells."""
        at = np.arange(len(self.tokens)) * self.width + output
        part = Jackknife(self.jack.value[at], self.jack.deviations[:, at], self.jack.n_groups[at])
        # A fixed seed: the band is part of the result and must not change from run to run.
        return sup_t_critical(part, self.maker.level, np.random.default_rng(0))

    def _make(self, cell: int, output: int, counted: int, missing: str | None) -> Estimate:
        made = self.maker.estimate(
            self.jack,
            cell * self.width + output,
            n_tokens=int(self.tokens[cell, counted]),
            n_rollouts=int(self.rollouts[cell, counted]),
            method=METHOD,
            missing=missing,
        )
        return with_error(made)


def with_error(estimate: Estimate) -> Estimate:
    """The estimate, marked where it has a value and prompts enough but no standard error."""
    if estimate.value is None or estimate.se is not None or estimate.n_clusters < 2:
        return estimate
    return replace(estimate, reliable=False, reason=NO_ERROR)


def _figures(maker: IntervalMaker, state: CriticState, cells: Array, apart: Array, extents: Array,
             rollouts: Ints) -> _Figures:  # fmt: skip
    """Jackknife the figures of cells (N_GROUPS, n_cells, .)."""
    n_targets = state.n_targets
    tokens = np.concatenate(
        [cells[..., [kernels.N]], apart[..., :: kernels.N_DISTANCE]], axis=-1
    )  # (N_GROUPS, n_cells, 1 + n_targets)
    of = np.repeat(np.arange(1 + n_targets), [N_FIT] + [2] * n_targets)
    present = (tokens[..., of] > 0.5).reshape(len(cells), -1)

    def outputs(c: Array, a: Array) -> Array:
        return fit_outputs(state.frame.centre, c, a).reshape(len(c), -1)

    if present.any():
        jack = jackknife(outputs, cells, apart, present=present)
    else:
        n = present.shape[1]
        jack = Jackknife(np.full(n, np.nan), np.zeros((0, n)), np.zeros(n, np.int64))
    counts = np.rint(tokens.sum(axis=0)).astype(np.int64)
    return _Figures(maker, jack, counts, rollouts, extents)


def _rollouts(cells: Array, apart: Array) -> Ints:
    """Rollouts of the fit and of each target, (n_cells, 1 + n_targets)."""
    each = [cells[..., [kernels.ROLLOUTS]], apart[..., 3 :: kernels.N_DISTANCE]]
    return np.asarray(np.rint(np.concatenate(each, axis=-1).sum(axis=0)), np.int64)


def whole_figures(maker: IntervalMaker, state: CriticState) -> _Figures:
    """Figures over all tokens, as one cell."""
    cells = state.cells.array.sum(axis=1, keepdims=True)
    apart = state.apart.array.sum(axis=1, keepdims=True)
    # Every rollout has a token in the first cell.
    rollouts = _rollouts(state.cells.array[:, :1], state.apart.array[:, :1])
    ends = state.extents
    extent = np.array([[ends[:, 0].min(), ends[:, 1].max(), ends[:, 2].min(), ends[:, 3].max()]])
    return _figures(maker, state, cells, apart, extent, rollouts)


def fit_of(figures: _Figures, constant: bool) -> FitFigures:
    """The critic's fit; `constant`: all returns of the log are equal."""
    made = {name: figures.fit(0, name) for name in FIT_NAMES}
    if constant:
        made["share_outside"] = replace(
            made["share_outside"], value=None, se=None, ci_low=None, ci_high=None, reliable=False,
            reason=NO_RANGE,
        )  # fmt: skip
    return FitFigures(**made)


def keyed_fit(key: int, state: CriticState, specs: Sequence[TargetSpec], level: float) -> KeyedFit:
    """The fit of one step or staleness."""
    figures = whole_figures(IntervalMaker(level), state)
    targets = {
        spec.label: TargetFit(
            figures.target(0, k, 0), figures.target(0, k, 1), None, density(state, k)
        )
        for k, spec in enumerate(specs)
    }
    return KeyedFit(key, fit_of(figures, state.frame.constant), targets)


def position_curves(
    state: CriticState, specs: Sequence[TargetSpec], level: float
) -> tuple[Curve, dict[str, Curve]]:
    """Explained variance by position, and the distance to each target."""
    used = np.flatnonzero(state.cells.array[:, :, kernels.N].sum(axis=0) > 0.5)
    cells, apart = state.cells.array[:, used], state.apart.array[:, used]
    figures = _figures(
        IntervalMaker(level), state, cells, apart, state.extents[used], _rollouts(cells, apart)
    )
    edges = cell_edges(2**40)
    bounds = [(int(edges[c]), int(edges[c + 1]) - 1) for c in used]
    ev = [
        Cell(low, high, figures.fit(i, "explained_variance"))
        for i, (low, high) in enumerate(bounds)
    ]
    curves = {}
    for k, spec in enumerate(specs):
        rows = [
            Cell(low, high, figures.target(i, k, 0), {"difference": figures.target(i, k, 1)})
            for i, (low, high) in enumerate(bounds)
        ]
        curves[spec.label] = Curve("position", tuple(rows), figures.curve_band(N_FIT + 2 * k))
    return Curve("position", tuple(ev), figures.curve_band(0)), curves


def density(state: CriticState, k: int) -> Density | None:
    """Tokens by critic value and the k-th target, without the pairs that never occur."""
    if not state.dense:
        return None
    counts = state.counts[k]
    critic, target = np.nonzero(counts)
    return Density(
        state.frame.edges(DENSITY_BINS),
        critic.astype(np.int64),
        target.astype(np.int64),
        counts[critic, target],
    )


def value_extent(state: CriticState, known: bool) -> ValueExtent:
    """Range of returns (where any is `known`) and of critic values."""
    frame, ends = state.frame, state.extents
    return ValueExtent(
        frame.low if known else None,
        frame.high if known else None,
        finite(float(ends[:, 2].min())),
        finite(float(ends[:, 3].max())),
    )
