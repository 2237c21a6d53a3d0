"""From the sums of a `GapState` to jackknifed gaps: pure functions of (replicate, cell, feature).

For start s and later cells L, with D̄_L = ΣD/n over the cell and a the shift of the baseline,

    b(s) = Σ_L 1/(n_s h̄_L) [ΣhuD - a Σzhu - (D̄_L - a z̄_L) Σhu],

h̄_L = mean of h over the cell's positions and all rollouts that reached s, products frozen where a
response has ended, for the self-normalised weights (wdr); 1 for `doubly_robust` (h = C) and
`first_order` (h = 1). The controls u have mean 0, so any constant baseline leaves the mean alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from brace_diag.estimators import gap_kernels as kernels
from brace_diag.estimators.gap_replicates import start_replicates
from brace_diag.estimators.gap_state import GapState
from brace_diag.settings import cell_edges
from brace_diag.sums import Jackknife, from_replicates, jackknife

Array = npt.NDArray[np.float64]
Groups = npt.NDArray[np.int64]

WEIGHTS = ("wdr", "wdr_wide", "doubly_robust", "first_order")
# Outputs at one start, in order: the four weights with the critic's baseline, the same with the
# group baseline, mean V, mean G. wdr_wide means something at the first start only.
N_OUT = 2 * len(WEIGHTS) + 2
V_OUT, G_OUT = N_OUT - 2, N_OUT - 1


@dataclass(frozen=True, slots=True)
class GapJackknife:
    """Joint jackknife of all outputs at all starts.

    Attributes:
        jack: outputs ordered start by start, N_OUT each.
        starts: cell id of each start.
        n_rollouts, n_tokens: (n_starts,) rollouts alive at the start, tokens from it on.
    """

    jack: Jackknife
    starts: Groups
    n_rollouts: Groups
    n_tokens: Groups

    def column(self, start: int, output: str, baseline: Literal["critic", "group"]) -> int:
        """Index of an output of `WEIGHTS` at the start-th start."""
        offset = len(WEIGHTS) if baseline == "group" else 0
        return start * N_OUT + offset + WEIGHTS.index(output)


def later_cells(state: GapState, start: int) -> tuple[Groups, Groups]:
    """Ids of the cells at or after a start in time, and their rows in `state.pairs`."""
    n_cells = state.cells.n_cells
    if state.axis == "horizon":
        later = np.arange(start + 1)
        return later, start * (start + 1) // 2 + later
    later = np.arange(start, n_cells)
    if not state.all_starts:
        return later, later
    return later, later * (later + 1) // 2 + start


def cell_spans(state: GapState, later: Groups) -> Array:
    """First token and end of cells, (n_later, 2), the last cut at the longest rollout.

    Empty off the position axis: by horizon and by relative position every rollout reaches the end.
    """
    if state.axis != "position":
        return np.zeros((0, 2))
    edges = np.minimum(cell_edges(state.longest), state.longest).astype(np.float64)
    return np.stack([edges[later], edges[later + 1]], axis=1)


def gap_jackknife(state: GapState, shift: float) -> GapJackknife:
    """Jackknife every output at every start of a state over one common list of groups."""
    counts = state.starts.array[:, :, 0]
    n_alive = np.rint(counts.sum(axis=0)).astype(np.int64)
    alive = np.flatnonzero(n_alive)
    groups = np.flatnonzero(state.rollouts.array[:, 0][:, [0, 2, 10]].any(axis=1))
    pairs, cells, starts = (s.array for s in (state.pairs, state.cells, state.starts))
    all_pairs, all_cells, all_starts = pairs.sum(axis=0), cells.sum(axis=0), starts.sum(axis=0)
    parts, tokens = [], []
    for start in alive:
        later, rows = later_cells(state, int(start))
        theta = np.empty((1 + len(groups), N_OUT))
        start_replicates(
            pairs, cells, starts, all_pairs, all_cells, all_starts, later, rows,
            cell_spans(state, later), start, groups, shift, theta,
        )  # fmt: skip
        tokens.append(round(float(all_pairs[rows, kernels.FIRST_ORDER].sum())))
        present = np.repeat(counts[groups, start][:, None] > 0.5, N_OUT, axis=1)
        parts.append(from_replicates(theta, present, groups))
    return GapJackknife(stack(parts), alive, n_alive[alive], np.array(tokens, np.int64))


def _joint(function, present, everyone, *sums) -> Jackknife:  # type: ignore[no-untyped-def]
    """Jackknife whose deviations have a row for every group of `everyone`."""
    inner = jackknife(function, *sums, present=present)
    groups = np.flatnonzero(everyone)
    own = np.flatnonzero(present.any(axis=1))
    deviations = np.zeros((len(groups), inner.deviations.shape[1]))
    deviations[np.searchsorted(groups, own)] = inner.deviations
    return Jackknife(inner.value, deviations, inner.n_groups, groups)


def stack(parts: list[Jackknife]) -> Jackknife:
    """Outputs of several jackknifes over the same groups, side by side."""
    if not parts:
        return Jackknife(np.zeros(0), np.zeros((0, 0)), np.zeros(0, np.int64))
    return Jackknife(
        np.concatenate([p.value for p in parts]),
        np.concatenate([p.deviations for p in parts], axis=1),
        np.concatenate([p.n_groups for p in parts]),
        parts[0].groups,
    )


# Outputs of `means_jackknife`, in order.
MEANS = ("reward_mu", "critic_mean", "critic_token_mean", "mean_u", "u_control", "mean_abs_log_w")
_RATIOS = {
    "reward_mu": (1, 0),
    "critic_mean": (3, 2),
    "critic_token_mean": (4, 5),
    "mean_u": (7, 6),
    "u_control": (7, 10),
    "mean_abs_log_w": (8, 6),
}


def means_jackknife(state: GapState) -> Jackknife:
    """Ratios of per-rollout sums (see `MEANS`) and the within-prompt sd of the return, last."""
    rollouts = state.rollouts.array[:, 0]
    spread = state.table.spread.array[:, 0]
    everyone = rollouts[:, [0, 2, 10]].any(axis=1)
    present = np.zeros((len(rollouts), len(MEANS) + 1), np.bool_)
    for j, name in enumerate(MEANS):
        present[:, j] = rollouts[:, _RATIOS[name][1]] > 0.5
    present[:, -1] = spread[:, 1] > 0.5

    def ratios(r: Array, s: Array) -> Array:
        with np.errstate(all="ignore"):
            columns = [r[:, _RATIOS[name][0]] / r[:, _RATIOS[name][1]] for name in MEANS]
            columns.append(np.sqrt(np.maximum(s[:, 0], 0.0) / s[:, 1]))
        return np.stack(columns, axis=1)

    return _joint(ratios, present, everyone, rollouts, spread)


def within_variance(state: GapState) -> tuple[Array, bool]:
    """Within-prompt variance of S_t by cell; the total variance (and True) without siblings."""
    n_cells = state.cells.n_cells
    within = np.zeros((n_cells, 2))
    sums = state.table.within.array.sum(axis=0)
    within[: len(sums)] = sums[:n_cells]
    starts = state.starts.array.sum(axis=0)
    n = starts[:, 0]
    with np.errstate(all="ignore"):
        if within[:, 1].sum() > 0:
            return np.where(within[:, 1] > 0.5, within[:, 0] / within[:, 1], np.nan), False
        total = (starts[:, 5] - starts[:, 3] ** 2 / n) / (n - 1.0)
        return np.where(n > 1.5, np.maximum(total, 0.0), np.nan), True


def difference_variance(state: GapState) -> float:
    """Total variance of G - V at the first token."""
    starts = state.starts.array[:, 0].sum(axis=0)
    n = starts[0]
    if n < 1.5:
        return float("nan")
    total = starts[2] - starts[1]
    return float(max(starts[4] - total**2 / n, 0.0) / (n - 1.0))


def prompt_second_moment(state: GapState, shift: float) -> Jackknife | None:
    """E_p[b_p²] at position 0 by the within-prompt U-statistic; None without siblings.

    With c_i the contribution of rollout i (b = mean c_i), the mean over prompts of
    ((Σc)² - Σc²)/(n(n-1)); unbiased, since two rollouts of a prompt are independent given it.
    The weights' normalisers and baselines are taken by octave of position.
    """
    u_sums = state.table.u_statistic.array[:, 0]
    present = u_sums[:, 0] > 0.5
    if not present.any() or state.starts.n_cells == 0 or state.table.n_octaves == 0:
        return None
    later, rows = later_cells(state, 0)
    octave = np.array([kernels.coarse_cell(int(c)) for c in later])
    width = 3 * (int(octave.max()) + 1)
    low = np.tril_indices(width)

    spans = cell_spans(state, later)

    def second_moment(u: Array, pairs: Array, cells: Array, starts: Array) -> Array:
        contrast = _octave_contrast(octave, spans, shift, pairs, cells, starts[:, 0])
        packed = u[:, 1 : 1 + len(low[0])] / u[:, :1]
        double = np.where(low[0] == low[1], 1.0, 2.0)
        products = contrast[:, low[0]] * contrast[:, low[1]] * double
        return np.asarray(np.sum(products * packed, axis=1, keepdims=True))

    everyone = state.rollouts.array[:, 0][:, [0, 2, 10]].any(axis=1)
    return _joint(
        second_moment,
        present[:, None],
        everyone,
        u_sums[:, : 1 + len(low[0])],
        state.pairs.array[:, rows],
        state.cells.array[:, later],
        state.starts.array[:, 0],
    )


def _octave_contrast(
    octave: Groups, spans: Array, shift: float, pairs: Array, cells: Array, n_start: Array
) -> Array:
    """Weights of (ΣhuD, Σhu, zΣhu) by octave in a contribution, (replicates, 3 · octaves)."""
    frozen, frozen_length = pairs[:, :, kernels.FROZEN], pairs[:, :, kernels.FROZEN + 1]
    width = spans[:, 1] - spans[:, 0]
    ended = np.cumsum(frozen, axis=1) - frozen
    weight = pairs[:, :, kernels.WDR] + spans[:, 1] * frozen - frozen_length + ended * width
    n_octaves = int(octave.max()) + 1
    contrast = np.zeros((len(pairs), 3 * n_octaves))
    with np.errstate(all="ignore"):
        for k in range(n_octaves):
            inside = octave == k
            n = n_start * width[inside].sum()
            h = weight[:, inside].sum(axis=1)
            count = cells[:, inside, 0].sum(axis=1)
            alpha = np.where(h > 0, n / h, 0.0)
            d_bar = np.where(count > 0, cells[:, inside, 1].sum(axis=1) / count, 0.0)
            z_bar = np.where(count > 0, cells[:, inside, 2].sum(axis=1) / count, 0.0)
            contrast[:, 3 * k] = alpha
            contrast[:, 3 * k + 1] = -alpha * (d_bar - shift * z_bar)
            contrast[:, 3 * k + 2] = -alpha * shift
    return contrast
