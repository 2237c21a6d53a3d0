"""Per-rollout sums of the value gap, compiled: O(tokens) plus O(cells²) a rollout.

For a start s (the first token of a cell) and a later cell L the kernel sums over the tokens l of L

    h_l, γ^(l-s) h_l u_l, γ^(l-s) h_l u_l D_l,   u = w - 1,  D = G - V,

for h = min(C, tau) with two taus, h = C and h = 1, C = Π_{s<=i<l} w_i. Products inside a cell are
built once (E_l, from the cell's first token); C = exp(S_L - S_s) E_l. Where the cap binds nowhere
or everywhere in a cell, which one comparison tells, the sums are scalar multiples of sums that do
not depend on s; only cells that straddle the cap are walked again.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from brace_diag.estimators.gap_cells import (
    MAX_LOG_W,
    N_RELATIVE,
    POSITION,
    TAME,
    capped_sums,
    cell_bounds,
    cell_pass,
    log_prefix,
    log_weights,
    products,
    returns_to_go,
    rollout_row,
    weights,
    wild_sums,
)

# Features of one (start, cell) pair: four weights h, each with Σh, Σhu, ΣhuD, z Σhu. The wider cap
# is kept for the first start only, where it tells saturation.
WDR, WDR_WIDE, DOUBLY_ROBUST, FIRST_ORDER = 0, 4, 8, 12
# Then, on the pair of a start and the cell in which a rollout ends: Σh and Σ h · length of its
# products frozen at the end, for the two capped weights (position axis only).
FROZEN = 16
N_PAIR = 20
# Features of one cell: tokens, ΣD, z · tokens.
N_CELL = 3
# Features of one start: rollouts, V, G, S, D², S².
N_START = 6


@njit(cache=True, nogil=True)
def _put(pairs, g, row, at, h, hu, hud, z):  # type: ignore[no-untyped-def]
    pairs[g, row, at] += h
    pairs[g, row, at + 1] += hu
    pairs[g, row, at + 2] += hud
    pairs[g, row, at + 3] += z * hu


@njit(cache=True, nogil=True)
def _pair(pairs, g, row, sums, c, lows, scale, discount, z, n_taus, taus, product, gu, gud):  # type: ignore[no-untyped-def]
    """Add one (start, cell) pair of a tame rollout to its row; return its Σhu, ΣhuD at taus[0]."""
    first_hu = 0.0
    first_hud = 0.0
    for j in range(n_taus):
        tau = taus[j]
        if scale * sums[c, 7] <= tau:
            h, hu, hud = scale * sums[c, 6], scale * sums[c, 4], scale * sums[c, 5]
        elif scale * sums[c, 8] >= tau:
            h, hu, hud = tau * sums[c, 0], tau * sums[c, 2], tau * sums[c, 3]
        else:
            h, hu, hud = capped_sums(product, gu, gud, lows[c], lows[c + 1], scale, tau)
        _put(pairs, g, row, 4 * j, h, discount * hu, discount * hud, z)
        if j == 0:
            first_hu, first_hud = discount * hu, discount * hud
    full = scale * discount
    _put(pairs, g, row, 8, scale * sums[c, 6], full * sums[c, 4], full * sums[c, 5], z)
    _put(pairs, g, row, 12, sums[c, 0], discount * sums[c, 2], discount * sums[c, 3], z)
    return first_hu, first_hud


@njit(cache=True, nogil=True)
def _wild_pair(pairs, g, row, sums, c, lows, base, discount, z, n_taus, taus, log_product, gu, gud):  # type: ignore[no-untyped-def]
    """The same for a rollout with extreme products."""
    low, high = lows[c], lows[c + 1]
    first_hu = 0.0
    first_hud = 0.0
    for j in range(n_taus):
        h, hu, hud = wild_sums(log_product, gu, gud, low, high, base, taus[j])
        _put(pairs, g, row, 4 * j, h, discount * hu, discount * hud, z)
        if j == 0:
            first_hu, first_hud = discount * hu, discount * hud
    h, hu, hud = wild_sums(log_product, gu, gud, low, high, base, np.inf)
    _put(pairs, g, row, 8, h, discount * hu, discount * hud, z)
    _put(pairs, g, row, 12, sums[c, 0], discount * sums[c, 2], discount * sums[c, 3], z)
    return first_hu, first_hud


@njit(cache=True, nogil=True)
def pair_index(a, b):  # type: ignore[no-untyped-def]
    """Row of the unordered pair of cells; later cells only append rows."""
    hi = max(a, b)
    return hi * (hi + 1) // 2 + min(a, b)


@njit(cache=True, nogil=True)
def coarse_cell(cell):  # type: ignore[no-untyped-def]
    """Octave of a position cell: {0}, {1}, {2,3}, {4..7}, then four cells each."""
    if cell < 2:
        return cell
    if cell < 4:
        return 2
    if cell < 8:
        return 3
    return 4 + (cell - 8) // 4


@njit(cache=True, nogil=True)
def _start_row(row, returns, values, has_values, first, low, log_product):  # type: ignore[no-untyped-def]
    """Add one start: rollouts, V, G, S, D², S²."""
    v = np.float64(values[first + low]) if has_values else 0.0
    d = returns[low] - v
    row[0] += 1.0
    row[1] += v
    row[2] += returns[low]
    row[3] += log_product
    row[4] += d * d
    row[5] += log_product * log_product


@njit(cache=True, nogil=True)
def _add_pairs(  # type: ignore[no-untyped-def]
    pairs,
    g,
    octaves,
    lows,
    ids,
    n,
    n_starts,
    all_starts,
    sums,
    before,
    tame,
    scales,
    log_gamma,
    z,
    taus,
    product,
    gu,
    gud,
    log_product,
):
    """Add every (start, cell) pair of one rollout to its group."""
    for c in range(n):
        if sums[c, 0] == 0:
            continue
        for s in range(min(c + 1, n_starts)):
            if lows[s] >= lows[n]:
                continue
            discount = 1.0 if log_gamma == 0.0 else math.exp(log_gamma * (lows[c] - lows[s]))
            row = pair_index(ids[s], ids[c]) if all_starts else ids[c]
            n_taus = 2 if s == 0 else 1
            if tame:
                scale = scales[c, 0] * scales[s, 1]
                hu, hud = _pair(
                    pairs, g, row, sums, c, lows, scale, discount, z, n_taus, taus, product, gu, gud
                )
            else:
                hu, hud = _wild_pair(
                    pairs,
                    g,
                    row,
                    sums,
                    c,
                    lows,
                    before[s],
                    discount,
                    z,
                    n_taus,
                    taus,
                    log_product,
                    gu,
                    gud,
                )
            if s == 0 and len(octaves) > 0:
                k = 3 * coarse_cell(ids[c])
                octaves[k] += hud
                octaves[k + 1] += hu
                octaves[k + 2] += z * hu


@njit(cache=True, nogil=True)
def _add_ends(pairs, g, ids, n, n_starts, all_starts, before, length, taus):  # type: ignore[no-untyped-def]
    """Add the products with which a rollout ends, for the mean of h over all that started."""
    for s in range(n_starts):
        c = math.exp(min(before[n] - before[s], MAX_LOG_W))
        row = pair_index(ids[s], ids[n - 1]) if all_starts else ids[n - 1]
        for j in range(2 if s == 0 else 1):
            h = min(c, taus[j])
            pairs[g, row, FROZEN + 2 * j] += h
            pairs[g, row, FROZEN + 2 * j + 1] += h * length


@njit(cache=True, nogil=True)
def _one_rollout(  # type: ignore[no-untyped-def]
    first,
    length,
    returns,
    log_w,
    w,
    values,
    has_values,
    gamma,
    z,
    axis,
    edges,
    all_starts,
    taus,
    pairs,
    g,
    cells,
    starts,
    log_products,
    octaves,
    scratch,
    bounds,
    sums,
    scales,
):
    """Add one used rollout to the sums of its group."""
    product, gu, gud, log_product = scratch[3], scratch[4], scratch[5], scratch[6]
    lows, ids = bounds[0], bounds[1]
    before = scales[2]
    n = cell_bounds(axis, edges, length, lows, ids)
    tame = products(log_w, w, lows, n, product, before) < TAME
    cell_pass(w, returns, values, has_values, first, gamma, lows, n, product, gu, gud, sums)
    if tame:
        for c in range(n):
            scales[0, c] = math.exp(before[c])
            scales[1, c] = math.exp(-before[c])
    else:
        log_prefix(log_w, lows, n, log_product)
    n_starts = n if all_starts else min(n, 1)
    for c in range(n):
        cells[ids[c], 0] += sums[c, 0]
        cells[ids[c], 1] += sums[c, 1]
        cells[ids[c], 2] += z * sums[c, 0]
        if c < n_starts and lows[c] < length:
            s = before[n] - before[c]
            _start_row(starts[ids[c]], returns, values, has_values, first, lows[c], s)
            log_products[ids[c]] = s
    _add_pairs(
        pairs,
        g,
        octaves,
        lows,
        ids,
        n,
        n_starts,
        all_starts,
        sums,
        before,
        tame,
        scales.T,
        math.log(gamma),
        z,
        taus,
        product,
        gu,
        gud,
        log_product,
    )
    if axis == POSITION:
        _add_ends(pairs, g, ids, n, n_starts, all_starts, before, length, taus)


@njit(cache=True, nogil=True)
def accumulate(  # type: ignore[no-untyped-def]
    order,
    low,
    high,
    offsets,
    mu,
    pi,
    values,
    has_values,
    rewards,
    dense,
    bootstrap,
    gamma,
    z,
    group,
    use,
    known,
    critic,
    axis,
    edges,
    all_starts,
    taus,
    longest,
    pairs,
    cells,
    starts,
    rows,
    log_products,
    octaves,
):
    """Add rollouts order[low:high] to the sums of their groups, in that order.

    Calls may run side by side as long as no two of them have a rollout of the same group.

    Args:
        order: rollouts, stably sorted by group.
        use, known, critic: per rollout, in the gap; return known; every value known.
        pairs, cells, starts: (N_GROUPS, ., .) sums, added to in place.
        rows: (n_rollouts, N_ROLLOUT); log_products: (n_rollouts, n_cells) S at each start, NaN
            where there is none; octaves: (n_rollouts, 3 · n_octaves) or (n_rollouts, 0).
    """
    n_bounds = len(edges) + N_RELATIVE + 1
    scratch = np.empty((7, longest))
    bounds = np.empty((2, n_bounds), np.int64)
    sums = np.empty((n_bounds, 9))
    scales = np.empty((3, n_bounds))
    returns, log_w, w = scratch[0], scratch[1], scratch[2]
    for j in range(low, high):
        i = order[j]
        g = group[i]
        first = offsets[i]
        length = offsets[i + 1] - first
        if length == 0:
            continue
        returns_to_go(rewards, dense, i, first, length, bootstrap[i], gamma, returns)
        if use[i]:
            log_weights(mu, pi, first, length, log_w)
            weights(log_w, w, length)
        rollout_row(rows[i], length, known[i], critic[i], use[i], returns, values, first, w, log_w)
        if use[i]:
            _one_rollout(
                first,
                length,
                returns,
                log_w,
                w,
                values,
                has_values,
                gamma,
                z[i],
                axis,
                edges,
                all_starts,
                taus,
                pairs,
                g,
                cells[g],
                starts[g],
                log_products[i],
                octaves[i],
                scratch,
                bounds,
                sums,
                scales,
            )


@njit(cache=True, nogil=True)
def add_log_sums(logs, top, one, two):  # type: ignore[no-untyped-def]
    """Running Σ exp(S) and Σ exp(2S) by column, rescaled whenever a larger S comes; NaN skipped."""
    for i in range(logs.shape[0]):
        for c in range(logs.shape[1]):
            s = logs[i, c]
            if np.isnan(s):
                continue
            if s > top[c]:
                shrink = math.exp(top[c] - s)
                one[c] = one[c] * shrink + 1.0
                two[c] = two[c] * shrink * shrink + 1.0
                top[c] = s
            else:
                e = math.exp(s - top[c])
                one[c] += e
                two[c] += e * e
