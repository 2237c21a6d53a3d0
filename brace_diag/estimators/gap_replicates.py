"""The gap at one start on the total and without each group, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

from brace_diag.estimators.gap_kernels import FIRST_ORDER, FROZEN


@njit(cache=True, nogil=True, error_model="numpy")
def start_replicates(  # type: ignore[no-untyped-def]
    pairs,
    cells,
    starts,
    all_pairs,
    all_cells,
    all_starts,
    later,
    rows,
    bounds,
    start,
    groups,
    shift,
    out,
):
    """Fill out (1 + n_groups, 10): four weights with either baseline, then mean V and mean G.

    Weights are in the order of the pair features: two that are divided by their mean (wdr), then
    h = C and h = 1; see `gap_estimates` for the formula. A cell in which every h is 0 adds nothing.

    On the position axis the mean of h at l is over all rollouts that reached the start, products
    frozen where a response ends: E_mu[C] = 1 holds for those. Over the rollouts alive at l it would
    be P_pi(alive)/P_mu(alive), and dividing by it would hide a change of length.

    Args:
        pairs, cells, starts: sums by group; all_pairs, all_cells, all_starts: over groups.
        later, rows: cells at or after the start in time, and their pairs with it.
        bounds: (n_later, 2) first token and end of each cell; empty where none can have ended.
        groups: which to leave out in turn; shift: weight a of the group baseline.
    """
    plain, extra, norm, ended = np.empty(4), np.empty(4), np.ones(4), np.empty(2)
    for r in range(len(groups) + 1):
        own = groups[max(r - 1, 0)]
        kept = 0.0 if r == 0 else 1.0
        plain[:] = 0.0
        extra[:] = 0.0
        ended[:] = 0.0
        n_start = all_starts[start, 0] - kept * starts[own, start, 0]
        for k in range(len(later)):
            row, cell = rows[k], later[k]
            n = all_pairs[row, FIRST_ORDER] - kept * pairs[own, row, FIRST_ORDER]
            for j in range(2):
                h = all_pairs[row, 4 * j] - kept * pairs[own, row, 4 * j]
                mean = h / n
                if len(bounds) > 0:
                    at = FROZEN + 2 * j
                    f = all_pairs[row, at] - kept * pairs[own, row, at]
                    f_length = all_pairs[row, at + 1] - kept * pairs[own, row, at + 1]
                    width = bounds[k, 1] - bounds[k, 0]
                    rest = bounds[k, 1] * f - f_length
                    mean = (h + rest + width * ended[j]) / (n_start * width)
                    ended[j] += f
                norm[j] = 1.0 / mean if mean > 0.0 else 0.0
            if n < 0.5:
                continue
            in_cell = all_cells[cell, 0] - kept * cells[own, cell, 0]
            d_bar = (all_cells[cell, 1] - kept * cells[own, cell, 1]) / in_cell
            z_bar = (all_cells[cell, 2] - kept * cells[own, cell, 2]) / in_cell
            for j in range(4):
                at = 4 * j
                hu = all_pairs[row, at + 1] - kept * pairs[own, row, at + 1]
                hud = all_pairs[row, at + 2] - kept * pairs[own, row, at + 2]
                zhu = all_pairs[row, at + 3] - kept * pairs[own, row, at + 3]
                plain[j] += norm[j] * (hud - d_bar * hu)
                extra[j] += norm[j] * (zhu - z_bar * hu)
        for j in range(4):
            out[r, j] = plain[j] / n_start
            out[r, 4 + j] = (plain[j] - shift * extra[j]) / n_start
        out[r, 8] = (all_starts[start, 1] - kept * starts[own, start, 1]) / n_start
        out[r, 9] = (all_starts[start, 2] - kept * starts[own, start, 2]) / n_start
