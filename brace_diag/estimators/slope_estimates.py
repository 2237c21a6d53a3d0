"""From the sums of a `SlopeState` to jackknifed slopes: pure functions of (replicate, cell, sum).

In a cell of remaining horizon, with X = G - V and Y = target - V over its tokens,

    β = Σ(X - X̄)(Y - Ȳ) / Σ(X - X̄)²,

means over all tokens (`pooled`) or over those of one prompt in one step (`within`). Over several
cells the sums of squares about each cell's own means are added before the division.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from brace_diag.estimators import slope_kernels as kernels
from brace_diag.estimators.slope_state import SlopeState
from brace_diag.sums import Jackknife, jackknife

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

TINY = 1e-12
"""Σ(X - X̄)² below this share of ΣX² is rounding: X does not vary."""

HUGE = 1e100
"""Beyond this a figure's variance would leave float64."""

BY_CELL = ("within", "pooled", "return_weight", "kappa", "target_on_return", "critic_on_return")
OVERALL = ("within", "pooled", "return_weight")


@dataclass(frozen=True, slots=True)
class SlopeJackknife:
    """Joint jackknife of one target's figures.

    Attributes:
        jack: `BY_CELL` figure by figure, n_cells outputs each, then `OVERALL`.
        n_cells: cells.
    """

    jack: Jackknife
    n_cells: int

    def cell(self, name: str, cell: int) -> int:
        """Output of a figure in a cell."""
        return BY_CELL.index(name) * self.n_cells + cell

    def overall(self, name: str) -> int:
        """Output of a figure over all horizons."""
        return len(BY_CELL) * self.n_cells + OVERALL.index(name)


def slope_jackknife(state: SlopeState, target: int) -> SlopeJackknife:
    """All figures of one target, jackknifed together over the groups that hold tokens."""
    cells, within = _of_target(state, target)
    has = cells[:, :, kernels.TOKENS] > 0.5
    has_within = within[:, :, 0] > 0.5
    per_cell = [has_within if name == "within" else has for name in BY_CELL]
    ends = [has_within if name == "within" else has for name in OVERALL]
    present = np.concatenate([*per_cell, *(e.any(axis=1, keepdims=True) for e in ends)], axis=1)
    jack = _jackknife(figures, cells, within, present=present)
    return SlopeJackknife(jack, state.cells.n_cells)


def octave_jackknife(state: SlopeState, target: int, low: Counts) -> tuple[Jackknife, Jackknife]:
    """Slopes within and pooled by octave of h + 1: {0}, {1}, {2, 3}, {4 .. 7}, ...

    Args: low: first horizon of each cell.
    """
    cells, within = _of_target(state, target)
    octave = octaves(low)
    has = (cells[:, :, kernels.TOKENS] > 0.5, within[:, :, 0] > 0.5)
    n = int(octave.max(initial=-1)) + 1
    by_octave = [np.stack([h[:, octave == o].any(axis=1) for o in range(n)], axis=1) for h in has]

    def over(moments: tuple[Array, Array, Array]) -> Array:
        return np.stack([_slope(*(m[:, octave == o] for m in moments)) for o in range(n)], axis=1)

    pooled = _jackknife(lambda c: over(_pooled(c)), cells, present=by_octave[0])
    inside = _jackknife(lambda c, w: over(_within(c, w)), cells, within, present=by_octave[1])
    return inside, pooled


def _jackknife(function: Callable[..., Array], *sums: Array, present: Mask) -> Jackknife:
    """`jackknife` with NaN for what is not there: no group with data, or numbers beyond `HUGE`."""

    def tamed(*replicates: Array) -> Array:
        theta = function(*replicates)
        return np.where(np.abs(theta) < HUGE, theta, np.nan)

    if present.any():
        return jackknife(tamed, *sums, present=present)
    n = present.shape[1]
    return Jackknife(np.full(n, np.nan), np.zeros((0, n)), np.zeros(n, np.int64))


def octaves(low: Counts) -> Counts:
    """Octave of h + 1 of each cell, by its first horizon."""
    return np.asarray(np.floor(np.log2(low + 1.0)), np.int64)


def mean_horizons(state: SlopeState, low: Counts) -> Array:
    """Mean h of the tokens in each octave."""
    octave = octaves(low)
    total = state.cells.array[:, :, : kernels.N_COMMON].sum(axis=0)
    tokens = np.bincount(octave, weights=total[:, kernels.TOKENS])
    return np.asarray(np.bincount(octave, weights=total[:, kernels.HORIZON]) / tokens)


def figures(cells: Array, within: Array) -> Array:
    """`BY_CELL` by cell, then `OVERALL`.

    Args:
        cells: (replicates, n_cells, N_COMMON + N_TARGET) of one target.
        within: (replicates, n_cells, 4) likewise.

    Returns: (replicates, 6 n_cells + 3), NaN where there are no tokens or the regressor is
    constant.
    """
    n, t = cells[:, :, kernels.TOKENS], cells[:, :, kernels.N_COMMON :]
    inside, pooled = _within(cells, within), _pooled(cells)
    # Regressions on G: the target is Y + V, V is G - X.
    gg, total_g = t[:, :, kernels.GG], t[:, :, kernels.G]
    sum_v, sum_gv = total_g - t[:, :, kernels.X], gg - t[:, :, kernels.GX]
    s_gg = gg - total_g**2 / n
    s_gv = sum_gv - total_g * sum_v / n
    s_gt = s_gv + t[:, :, kernels.GY] - total_g * t[:, :, kernels.Y] / n
    by_cell = [
        _ratio(inside[1], inside[0], inside[2]),
        _ratio(pooled[1], pooled[0], pooled[2]),
        t[:, :, kernels.WEIGHT] / n,
        t[:, :, kernels.KAPPA] / n,
        _ratio(s_gt, s_gg, gg),
        _ratio(s_gv, s_gg, gg),
    ]
    overall = [
        _slope(*inside),
        _slope(*pooled),
        t[:, :, kernels.WEIGHT].sum(axis=1) / n.sum(axis=1),
    ]
    return np.concatenate([*by_cell, np.stack(overall, axis=1)], axis=1)


def within_counts(state: SlopeState) -> tuple[Counts, Counts]:
    """Tokens and rollouts that enter `within`, by cell."""
    total = np.rint(state.within.array.sum(axis=0)).astype(np.int64)
    return total[:, 0], total[:, 1]


def counts(state: SlopeState) -> tuple[Counts, Counts]:
    """Tokens and rollouts by cell."""
    total = np.rint(state.cells.array[:, :, : kernels.N_COMMON].sum(axis=0)).astype(np.int64)
    return total[:, kernels.TOKENS], total[:, kernels.ROLLOUTS]


def _of_target(state: SlopeState, target: int) -> tuple[Array, Array]:
    """The sums of one target behind the common ones: (groups, n_cells, 3 + 11) and (.., 4)."""
    at = kernels.N_COMMON + target * kernels.N_TARGET
    common = np.arange(kernels.N_COMMON)
    own = np.arange(at, at + kernels.N_TARGET)
    cells = state.cells.array[:, :, np.concatenate([common, own])]
    within = state.within.array[:, :, [0, 1, 2 + 2 * target, 3 + 2 * target]]
    return cells, within


def _pooled(cells: Array) -> tuple[Array, Array, Array]:
    """Σ(X - X̄)², Σ(X - X̄)(Y - Ȳ) about the cell's means, and ΣX²."""
    n, t = cells[:, :, kernels.TOKENS], cells[:, :, kernels.N_COMMON :]
    with np.errstate(invalid="ignore", divide="ignore"):
        x, y, xx = t[:, :, kernels.X], t[:, :, kernels.Y], t[:, :, kernels.XX]
        return xx - x * x / n, t[:, :, kernels.XY] - x * y / n, xx


def _within(cells: Array, within: Array) -> tuple[Array, Array, Array]:
    """The same about the means of each set of siblings in the cell."""
    return within[:, :, 2], within[:, :, 3], cells[:, :, kernels.N_COMMON + kernels.XX]


def _ratio(above: Array, below: Array, scale: Array) -> Array:
    """above / below, NaN where below is rounding against scale."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(below > TINY * scale, above / below, np.nan)


def _slope(xx: Array, xy: Array, scale: Array) -> Array:
    """Slope over several cells, (replicates,); a cell without tokens takes no part."""
    return _ratio(np.nansum(xy, axis=1), np.nansum(xx, axis=1), np.nansum(scale, axis=1))


def bin_edges() -> Array:
    """Edges between the bins of log10 κ, ascending, (N_BINS - 1,)."""
    per = kernels.PER_DOUBLING
    linear = kernels.STEP * np.arange(per) / per
    octave = kernels.STEP * 2.0 ** np.arange(kernels.N_DOUBLINGS)[:, None]
    geometric = (octave * (1.0 + np.arange(per) / per)).ravel()
    positive = np.concatenate([linear, geometric, [kernels.STEP * 2.0**kernels.N_DOUBLINGS]])
    return np.concatenate([-positive[:0:-1], positive])


def log_kappa_quantile(
    bins: Counts, least: float, largest: float, n_zero: int, probability: float
) -> float:
    """Quantile of log10 κ from its histogram, exact zeros lowest; -inf where it falls on them.

    Linear inside a bin, and never outside the least and largest value met; a value exactly between
    two bins is the upper end of the lower.

    Args: bins: int64 (N_BINS,).
    """
    total = n_zero + int(bins.sum())
    if total == 0:
        return float("nan")
    wanted = probability * total
    if wanted <= n_zero and n_zero > 0:
        return float("-inf")
    cumulative = n_zero + np.cumsum(bins)
    b = int(np.searchsorted(cumulative, wanted))
    edges = bin_edges()
    low = edges[b - 1] if b > 0 else least
    high = edges[b] if b < len(edges) else largest
    share = (wanted - (cumulative[b] - bins[b])) / bins[b] if bins[b] else 0.0
    return float(min(max(low + share * (high - low), least), largest))
