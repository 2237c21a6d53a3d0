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

# Sums may be reordered and fused (never dropped): this is what lets them become vector code. Only
# finite numbers or +inf products reach these loops. Their indices are unsigned
# or start at 0: one that might be negative keeps the compiler from vector code (measured: 5 times).
FAST = {"reassoc", "contract", "nsz", "nnan"}
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
    if not dense and gamma == 1.0:
        out[:length] = bootstrap + rewards[i]
        return
    g = bootstrap
    for t in range(length - 1, -1, -1):
        r = 0.0
        if dense:
            r = rewards[first + t]
        elif t == length - 1:
            r = rewards[i]
        g = r + gamma * g
        out[t] = g


@njit(cache=True, nogil=True, fastmath=FAST)
def _capped_sums(product, gu, gud, low, high, scale, tau):  # type: ignore[no-untyped-def]
    """Σh, Σhu, ΣhuD over low .. high-1 with h = min(scale · product, tau)."""
    h_sum = 0.0
    hu = 0.0
    hud = 0.0
    for t in range(np.uint64(low), np.uint64(high)):
        h = scale * product[t]
        h = h if h < tau else tau
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
def _put(pairs, g, row, at, h, hu, hud, z):  # type: ignore[no-untyped-def]
    pairs[g, row, at] += h
    pairs[g, row, at + 1] += hu
    pairs[g, row, at + 2] += hud
    pairs[g, row, at + 3] += z * hu


@njit(cache=True, nogil=True)
def _products(log_w, w, lows, n_cells, product, before):  # type: ignore[no-untyped-def]
    """E_t = Π of w from the first token of t's cell up to t, and the log-product before each cell.

    Returns: the largest |running log-product| of the rollout.
    """
    prefix = 0.0
    highest = 0.0
    lowest = 0.0
    for c in range(n_cells):
        e = 1.0
        before[c] = prefix
        p, ws, logs = (
            product[lows[c] : lows[c + 1]],
            w[lows[c] : lows[c + 1]],
            log_w[lows[c] : lows[c + 1]],
        )
        for t in range(len(p)):
            p[t] = e
            e *= ws[t]
            prefix += logs[t]
            highest = prefix if prefix > highest else highest
            lowest = prefix if prefix < lowest else lowest
    before[n_cells] = prefix
    return max(highest, -lowest)


@njit(cache=True, nogil=True)
def _log_prefix(log_w, lows, n_cells, out):  # type: ignore[no-untyped-def]
    """Log-product from the first cell up to each token."""
    prefix = 0.0
    for t in range(lows[0], lows[n_cells]):
        out[t] = prefix
        prefix += log_w[t]


@njit(cache=True, nogil=True, fastmath=FAST)
def _terms(  # type: ignore[no-untyped-def]
    w, returns, values, has_values, first, low, high, gamma, gu, gud
):
    """γ^(t-low) u and γ^(t-low) u D of one cell into gu, gud."""
    w, returns, gu, gud = w[low:high], returns[low:high], gu[low:high], gud[low:high]
    if has_values:
        values = values[first + low : first + high]
        for t in range(len(w)):
            gu[t] = w[t] - 1.0
            gud[t] = (w[t] - 1.0) * (returns[t] - np.float64(values[t]))
    else:
        for t in range(len(w)):
            gu[t] = w[t] - 1.0
            gud[t] = (w[t] - 1.0) * returns[t]
    if gamma != 1.0:
        g = 1.0
        for t in range(len(w)):
            gu[t] *= g
            gud[t] *= g
            g *= gamma


# Loops that sum hold no stores: with a store the compiler guards its vector code by a test of
# addresses, and the order of a sum, hence its last bit, would hang on where arrays lie in memory.
@njit(cache=True, nogil=True, fastmath=FAST)
def _sum_differences(returns, values, has_values, first, low, high):  # type: ignore[no-untyped-def]
    """ΣD of one cell, D = G - V; V = 0 without a critic."""
    total = 0.0
    for t in range(np.uint64(low), np.uint64(high)):
        total += returns[t]
    if has_values:
        for t in range(np.uint64(first + low), np.uint64(first + high)):
            total -= np.float64(values[t])
    return total


@njit(cache=True, nogil=True, fastmath=FAST)
def _cell_sums(product, gu, gud, low, high):  # type: ignore[no-untyped-def]
    """Σu, ΣuD, ΣEu, ΣEuD, ΣE, max E, min E of one cell."""
    s_u = 0.0
    s_ud = 0.0
    s_eu = 0.0
    s_eud = 0.0
    s_e = 0.0
    largest = 0.0
    smallest = np.inf
    for t in range(np.uint64(low), np.uint64(high)):
        e = product[t]
        s_u += gu[t]
        s_ud += gud[t]
        s_e += e
        s_eu += e * gu[t]
        s_eud += e * gud[t]
        largest = e if e > largest else largest
        smallest = e if e < smallest else smallest
    return s_u, s_ud, s_eu, s_eud, s_e, largest, smallest


@njit(cache=True, nogil=True)
def _cell_pass(w, returns, values, has_values, first, gamma, lows, n_cells, product, gu, gud, sums):  # type: ignore[no-untyped-def]
    """All sums of all cells of a rollout that need no start: sums (n_cells + 1, 9)."""
    for c in range(n_cells):
        low, high = lows[c], lows[c + 1]
        _terms(w, returns, values, has_values, first, low, high, gamma, gu, gud)
        sums[c, 0] = high - low
        sums[c, 1] = _sum_differences(returns, values, has_values, first, low, high)
        (
            sums[c, 2],
            sums[c, 3],
            sums[c, 4],
            sums[c, 5],
            sums[c, 6],
            sums[c, 7],
            sums[c, 8],
        ) = _cell_sums(product, gu, gud, low, high)


@njit(cache=True, nogil=True)
def _pair(pairs, g, row, sums, c, lows, scale, discount, z, taus, product, gu, gud):  # type: ignore[no-untyped-def]
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
        _put(pairs, g, row, 4 * j, h, discount * hu, discount * hud, z)
        if j == 0:
            first_hu, first_hud = discount * hu, discount * hud
    full = scale * discount
    _put(pairs, g, row, 8, scale * sums[c, 6], full * sums[c, 4], full * sums[c, 5], z)
    _put(pairs, g, row, 12, sums[c, 0], discount * sums[c, 2], discount * sums[c, 3], z)
    return first_hu, first_hud


@njit(cache=True, nogil=True)
def _wild_pair(pairs, g, row, sums, c, lows, base, discount, z, taus, log_product, gu, gud):  # type: ignore[no-untyped-def]
    """The same for a rollout with extreme products."""
    low, high = lows[c], lows[c + 1]
    first_hu = 0.0
    first_hud = 0.0
    for j in range(2):
        h, hu, hud = _wild_sums(log_product, gu, gud, low, high, base, taus[j])
        _put(pairs, g, row, 4 * j, h, discount * hu, discount * hud, z)
        if j == 0:
            first_hu, first_hud = discount * hu, discount * hud
    h, hu, hud = _wild_sums(log_product, gu, gud, low, high, base, np.inf)
    _put(pairs, g, row, 8, h, discount * hu, discount * hud, z)
    _put(pairs, g, row, 12, sums[c, 0], discount * sums[c, 2], discount * sums[c, 3], z)
    return first_hu, first_hud


@njit(cache=True, nogil=True)
def pair_index(a, b):  # type: ignore[no-untyped-def]
    """Row of the unordered pair of cells; later cells only append rows."""
    hi = max(a, b)
    return hi * (hi + 1) // 2 + min(a, b)


@njit(cache=True, nogil=True)
def _log_weights(mu, pi, first, length, log_w):  # type: ignore[no-untyped-def]
    pi, mu = pi[first : first + length], mu[first : first + length]
    for t in range(length):
        x = np.float64(pi[t]) - np.float64(mu[t])
        log_w[t] = x if x > MIN_LOG_W else MIN_LOG_W


@njit(cache=True, nogil=True, fastmath=FAST)
def _sum_values(values, first, length):  # type: ignore[no-untyped-def]
    total = 0.0
    values = values[first : first + length]
    for t in range(length):
        total += np.float64(values[t])
    return total


@njit(cache=True, nogil=True, fastmath=FAST)
def _weight_row(row, log_w, w, length):  # type: ignore[no-untyped-def]
    """Tokens, Σu, Σ|log w|, tokens with w != 1, one rollout, S_0 into row[6:12]."""
    s_u = 0.0
    s_abs = 0.0
    moved = 0
    total = 0.0
    for t in range(length):
        s_u += w[t] - 1.0
        s_abs += abs(log_w[t])
        total += log_w[t]
        moved += log_w[t] != 0.0
    row[6] = length
    row[7] = s_u
    row[8] = s_abs
    row[9] = moved
    row[10] = 1.0
    row[11] = total


@njit(cache=True, nogil=True)
def _rollout_row(row, length, known, critic, use, returns, values, first, w, log_w):  # type: ignore[no-untyped-def]
    """Features of one rollout that need no cells; counted wherever each one exists."""
    if known:
        row[0] = 1.0
        row[1] = returns[0]
    if critic:
        row[2] = 1.0
        row[3] = np.float64(values[first])
        row[4] = _sum_values(values, first, length)
        row[5] = length
    if use:
        _weight_row(row, log_w, w, length)
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
            row = pair_index(ids[s], ids[c])
            if tame:
                scale = scales[c, 0] * scales[s, 1]
                hu, hud = _pair(
                    pairs, g, row, sums, c, lows, scale, discount, z, taus, product, gu, gud
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
    tame = _products(log_w, w, lows, n, product, before) < TAME
    _cell_pass(w, returns, values, has_values, first, gamma, lows, n, product, gu, gud, sums)
    if tame:
        for c in range(n):
            scales[0, c] = math.exp(before[c])
            scales[1, c] = math.exp(-before[c])
    else:
        _log_prefix(log_w, lows, n, log_product)
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


@njit(cache=True, nogil=True, parallel=True)
def accumulate(  # type: ignore[no-untyped-def]
    order,
    parts,
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
    """Add rollouts to the sums; every part owns its groups, so the order of addition is fixed.

    Args:
        order: rollouts, stably sorted by group; parts: bounds in `order`, cut between groups.
        use, known, critic: per rollout, in the gap; return known; every value known.
        pairs, cells, starts: (N_GROUPS, ., .) sums, added to in place.
        rows: (n_rollouts, N_ROLLOUT); log_products: (n_rollouts, n_cells) S at each start, NaN
            where there is none; octaves: (n_rollouts, 3 · n_octaves) or (n_rollouts, 0).
    """
    n_bounds = len(edges) + N_RELATIVE + 1
    for p in prange(len(parts) - 1):
        scratch = np.empty((7, longest))
        bounds = np.empty((2, n_bounds), np.int64)
        sums = np.empty((n_bounds, 9))
        scales = np.empty((3, n_bounds))
        returns, log_w, w = scratch[0], scratch[1], scratch[2]
        for j in range(parts[p], parts[p + 1]):
            i = order[j]
            g = group[i]
            first = offsets[i]
            length = offsets[i + 1] - first
            if length == 0:
                continue
            _returns(rewards, dense, i, first, length, bootstrap[i], gamma, returns)
            if use[i]:
                _log_weights(mu, pi, first, length, log_w)
                exp_into(log_w, w, length)
            _rollout_row(
                rows[i], length, known[i], critic[i], use[i], returns, values, first, w, log_w
            )
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
