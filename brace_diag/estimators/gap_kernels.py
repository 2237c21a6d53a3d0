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
from numba import njit, prange

from brace_diag.vectorexp import exp_into

POSITION, HORIZON, RELATIVE = 0, 1, 2
N_RELATIVE = 20

# Features of one (start, cell) pair: four weights h, each with Σh, Σhu, ΣhuD, z Σhu.
WDR, WDR_WIDE, DOUBLY_ROBUST, FIRST_ORDER = 0, 4, 8, 12
N_PAIR = 16
# Features of one cell: tokens, ΣD, z · tokens.
N_CELL = 3
# Features of one start: rollouts, V, G, S, D², S².
N_START = 6
# Features of one rollout: return known, G_0, critic known, V_0, ΣV, tokens with V, tokens with w,
# Σu, Σ|log w|, tokens with w != 1, used in the gap, S_0, D_0.
N_ROLLOUT = 13

MIN_LOG_W = -800.0  # exp gives exactly 0 there; keeps sums of logs finite when pi is 0
TAME = 300.0  # products of two such exponentials stay far inside float64


@njit(cache=True, nogil=True)
def cell_bounds(axis, edges, length, lows, ids):  # type: ignore[no-untyped-def]
    """Fill first token and cell id of every cell of a rollout in time order; return their number.

    Horizon cells that the rollout does not fill are left out: their first token is not at the
    cell's representative horizon.
    """
    n = 0
    if axis == POSITION:
        while edges[n] < length:
            lows[n] = edges[n]
            ids[n] = n
            n += 1
    elif axis == HORIZON:
        cell = 0
        while cell + 1 < len(edges) and edges[cell + 1] <= length:
            cell += 1
        for c in range(cell - 1, -1, -1):
            lows[n] = length - edges[c + 1]
            ids[n] = c
            n += 1
    else:
        for q in range(N_RELATIVE):
            lows[n] = (length * q + N_RELATIVE - 1) // N_RELATIVE
            ids[n] = q
            n += 1
    lows[n] = length
    return n


@njit(cache=True, nogil=True)
def _returns(rewards, dense, i, first, length, bootstrap, gamma, out):  # type: ignore[no-untyped-def]
    """G_t = r_t + γ G_{t+1}, G_T = bootstrap."""
    g = bootstrap
    for t in range(length - 1, -1, -1):
        r = 0.0
        if dense:
            r = rewards[first + t]
        elif t == length - 1:
            r = rewards[i]
        g = r + gamma * g
        out[t] = g


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _capped_sums(product, gu, gud, low, high, scale, tau):  # type: ignore[no-untyped-def]
    """Σh, Σhu, ΣhuD over low .. high-1 with h = min(scale · product, tau)."""
    h_sum = 0.0
    hu = 0.0
    hud = 0.0
    for t in range(low, high):
        h = min(scale * product[t], tau)
        h_sum += h
        hu += h * gu[t]
        hud += h * gud[t]
    return h_sum, hu, hud


@njit(cache=True, nogil=True)
def _wild_sums(log_product, gu, gud, low, high, base, tau):  # type: ignore[no-untyped-def]
    """The same from log-products, for rollouts whose products leave the range of float64."""
    h_sum = 0.0
    hu = 0.0
    hud = 0.0
    for t in range(low, high):
        h = min(math.exp(min(log_product[t] - base, 709.0)), tau)
        h_sum += h
        hu += h * gu[t]
        hud += h * gud[t]
    return h_sum, hu, hud


@njit(cache=True, nogil=True)
def _put(row, at, h, hu, hud, z):  # type: ignore[no-untyped-def]
    row[at] += h
    row[at + 1] += hu
    row[at + 2] += hud
    row[at + 3] += z * hu


@njit(cache=True, nogil=True)
def _cell_pass(log_w, w, d, gamma, lows, n_cells, product, gu, gud, log_product, sums):  # type: ignore[no-untyped-def]
    """Within-cell products and their sums; returns the largest |running log-product|.

    sums (n_cells + 1, 9): n, ΣD, Σu, ΣuD, ΣEu, ΣEuD, ΣE, max E, min E in columns 0-8 and the
    log-product before the cell in column 9.
    """
    prefix = 0.0
    extent = 0.0
    for c in range(n_cells):
        e = 1.0
        g = 1.0
        s_d = 0.0
        s_u = 0.0
        s_ud = 0.0
        s_eu = 0.0
        s_eud = 0.0
        s_e = 0.0
        largest = 0.0
        smallest = np.inf
        sums[c, 9] = prefix
        for t in range(lows[c], lows[c + 1]):
            u = g * (w[t] - 1.0)
            ud = u * d[t]
            product[t] = e
            gu[t] = u
            gud[t] = ud
            log_product[t] = prefix
            s_d += d[t]
            s_u += u
            s_ud += ud
            s_e += e
            s_eu += e * u
            s_eud += e * ud
            largest = max(largest, e)
            smallest = min(smallest, e)
            e *= w[t]
            g *= gamma
            prefix += log_w[t]
            extent = max(extent, abs(prefix))
        sums[c, 0] = lows[c + 1] - lows[c]
        sums[c, 1] = s_d
        sums[c, 2] = s_u
        sums[c, 3] = s_ud
        sums[c, 4] = s_eu
        sums[c, 5] = s_eud
        sums[c, 6] = s_e
        sums[c, 7] = largest
        sums[c, 8] = smallest
    sums[n_cells, 9] = prefix
    return extent


@njit(cache=True, nogil=True)
def _pair(row, sums, c, lows, scale, discount, z, taus, product, gu, gud):  # type: ignore[no-untyped-def]
    """Add one (start, cell) pair of a tame rollout to its row; return its Σhu, ΣhuD at taus[0]."""
    first_hu = 0.0
    first_hud = 0.0
    for j in range(2):
        tau = taus[j]
        if scale * sums[c, 7] <= tau:
            h, hu, hud = scale * sums[c, 6], scale * sums[c, 4], scale * sums[c, 5]
        elif scale * sums[c, 8] >= tau:
            h, hu, hud = tau * sums[c, 0], tau * sums[c, 2], tau * sums[c, 3]
        else:
            h, hu, hud = _capped_sums(product, gu, gud, lows[c], lows[c + 1], scale, tau)
        _put(row, 4 * j, h, discount * hu, discount * hud, z)
        if j == 0:
            first_hu, first_hud = discount * hu, discount * hud
    full = scale * discount
    _put(row, 8, scale * sums[c, 6], full * sums[c, 4], full * sums[c, 5], z)
    _put(row, 12, sums[c, 0], discount * sums[c, 2], discount * sums[c, 3], z)
    return first_hu, first_hud


@njit(cache=True, nogil=True)
def _wild_pair(row, sums, c, s, lows, discount, z, taus, log_product, gu, gud):  # type: ignore[no-untyped-def]
    """The same for a rollout with extreme products."""
    low, high, base = lows[c], lows[c + 1], sums[s, 9]
    first_hu = 0.0
    first_hud = 0.0
    for j in range(2):
        h, hu, hud = _wild_sums(log_product, gu, gud, low, high, base, taus[j])
        _put(row, 4 * j, h, discount * hu, discount * hud, z)
        if j == 0:
            first_hu, first_hud = discount * hu, discount * hud
    h, hu, hud = _wild_sums(log_product, gu, gud, low, high, base, np.inf)
    _put(row, 8, h, discount * hu, discount * hud, z)
    _put(row, 12, sums[c, 0], discount * sums[c, 2], discount * sums[c, 3], z)
    return first_hu, first_hud


@njit(cache=True, nogil=True)
def pair_index(a, b):  # type: ignore[no-untyped-def]
    """Row of the unordered pair of cells; later cells only append rows."""
    hi = max(a, b)
    return hi * (hi + 1) // 2 + min(a, b)


@njit(cache=True, nogil=True)
def _log_weights(mu, pi, first, length, log_w):  # type: ignore[no-untyped-def]
    for t in range(length):
        x = np.float64(pi[first + t]) - np.float64(mu[first + t])
        log_w[t] = max(x, MIN_LOG_W)


@njit(cache=True, nogil=True)
def _differences(values, has_values, first, length, returns, d):  # type: ignore[no-untyped-def]
    """D = G - V; V = 0 without a critic."""
    for t in range(length):
        v = np.float64(values[first + t]) if has_values else 0.0
        d[t] = returns[t] - v


@njit(cache=True, nogil=True)
def _rollout_row(row, length, known, critic, use, returns, values, first, w, log_w):  # type: ignore[no-untyped-def]
    """Features of one rollout that need no cells; counted wherever each one exists."""
    if known:
        row[0] = 1.0
        row[1] = returns[0]
    if critic:
        total = 0.0
        for t in range(length):
            total += np.float64(values[first + t])
        row[2] = 1.0
        row[3] = np.float64(values[first])
        row[4] = total
        row[5] = length
    if use:
        s_u = 0.0
        s_abs = 0.0
        moved = 0
        total_log = 0.0
        for t in range(length):
            s_u += w[t] - 1.0
            s_abs += abs(log_w[t])
            total_log += log_w[t]
            moved += log_w[t] != 0.0
        row[6] = length
        row[7] = s_u
        row[8] = s_abs
        row[9] = moved
        row[10] = 1.0
        row[11] = total_log
        row[12] = returns[0] - (np.float64(values[first]) if critic else 0.0)


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
def _cells_and_pairs(  # type: ignore[no-untyped-def]
    pairs, cells, starts, log_products, octaves, lows, ids, n, n_starts, sums, extent,
    gamma, z, taus, product, gu, gud, log_product, returns, d, log_from,
):
    """Add one used rollout to the sums of its group."""
    log_gamma = math.log(gamma)
    for c in range(n):
        low = lows[c]
        cell = ids[c]
        cells[cell, 0] += sums[c, 0]
        cells[cell, 1] += sums[c, 1]
        cells[cell, 2] += z * sums[c, 0]
        if c < n_starts and low < lows[n]:
            s = sums[n, 9] - sums[c, 9]
            starts[cell, 0] += 1.0
            starts[cell, 1] += returns[low] - d[low]
            starts[cell, 2] += returns[low]
            starts[cell, 3] += s
            starts[cell, 4] += d[low] * d[low]
            starts[cell, 5] += s * s
            log_products[cell] = s
        for s0 in range(min(c + 1, n_starts)):
            if sums[c, 0] == 0 or lows[s0] >= lows[n]:
                continue
            discount = 1.0 if gamma == 1.0 else math.exp(log_gamma * (low - lows[s0]))
            row = pairs[pair_index(ids[s0], cell)]
            if extent < TAME:
                scale = log_from[c, 0] * log_from[s0, 1]
                hu, hud = _pair(row, sums, c, lows, scale, discount, z, taus, product, gu, gud)
            else:
                hu, hud = _wild_pair(row, sums, c, s0, lows, discount, z, taus, log_product, gu, gud)
            if s0 == 0 and len(octaves) > 0:
                k = 3 * coarse_cell(cell)
                octaves[k] += hud
                octaves[k + 1] += hu
                octaves[k + 2] += z * hu


@njit(cache=True, nogil=True, parallel=True)
def accumulate(  # type: ignore[no-untyped-def]
    order, parts, offsets, mu, pi, values, has_values, rewards, dense, bootstrap, gamma, z, group,
    use, known, critic, axis, edges, all_starts, taus, longest, pairs, cells, starts, rows,
    log_products, octaves,
):
    """Add rollouts to the sums; every part owns its groups, so the order of addition is fixed.

    Args:
        order: rollouts, stably sorted by group; parts: bounds in `order`, cut between groups.
        use, known, critic: per rollout, in the gap; return known; every value known.
        pairs, cells, starts: (N_GROUPS, ., .) sums, added to in place.
        rows: (n_rollouts, N_ROLLOUT); log_products: (n_rollouts, n_cells) S at each start, NaN
            where there is none; octaves: (n_rollouts, 3 · n_octaves) or (n_rollouts, 0).
    """
    for p in prange(len(parts) - 1):
        scratch = np.empty((8, longest))
        log_w, w, d, returns = scratch[0], scratch[1], scratch[2], scratch[3]
        product, gu, gud, log_product = scratch[4], scratch[5], scratch[6], scratch[7]
        lows = np.empty(len(edges) + N_RELATIVE + 1, np.int64)
        ids = np.empty(len(edges) + N_RELATIVE + 1, np.int64)
        sums = np.empty((len(edges) + N_RELATIVE + 1, 10))
        log_from = np.empty((len(edges) + N_RELATIVE + 1, 2))
        for j in range(parts[p], parts[p + 1]):
            i = order[j]
            first = offsets[i]
            length = offsets[i + 1] - first
            if length == 0:
                continue
            _returns(rewards, dense, i, first, length, bootstrap[i], gamma, returns)
            if use[i]:
                _log_weights(mu, pi, first, length, log_w)
                exp_into(log_w, w, length)
            _rollout_row(rows[i], length, known[i], critic[i], use[i], returns, values, first, w, log_w)
            if not use[i]:
                continue
            _differences(values, has_values, first, length, returns, d)
            n = cell_bounds(axis, edges, length, lows, ids)
            extent = _cell_pass(log_w, w, d, gamma, lows, n, product, gu, gud, log_product, sums)
            if extent < TAME:
                for c in range(n):
                    log_from[c, 0] = math.exp(sums[c, 9])
                    log_from[c, 1] = math.exp(-sums[c, 9])
            g = group[i]
            _cells_and_pairs(
                pairs[g], cells[g], starts[g], log_products[i], octaves[i], lows, ids, n,
                n if all_starts else min(n, 1), sums, extent, gamma, z[i], taus, product, gu, gud,
                log_product, returns, d, log_from,
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
