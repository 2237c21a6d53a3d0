"""Passes over the tokens of one rollout: returns, weights, products and sums inside cells."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from brace_diag.exponential import exp

POSITION, HORIZON, RELATIVE = 0, 1, 2
N_RELATIVE = 20

# Features of one rollout: return known, G_0, critic known, V_0, ΣV, tokens with V, tokens with w,
# Σu, Σ|log w|, tokens with w != 1, used in the gap, S_0, D_0.
N_ROLLOUT = 13

# Sums may be reordered and fused (never dropped): this is what lets them become vector code. Only
# finite numbers or +inf products reach these loops. Their indices are unsigned
# or start at 0: one that might be negative keeps the compiler from vector code (measured: 5 times).
FAST = {"reassoc", "contract", "nsz", "nnan"}
MAX_LOG_W = 709.0  # exp beyond it leaves float64
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
def returns_to_go(rewards, dense, i, first, length, bootstrap, gamma, out):  # type: ignore[no-untyped-def]
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


@njit(cache=True, nogil=True)
def log_weights(mu, pi, first, length, log_w):  # type: ignore[no-untyped-def]
    pi, mu = pi[first : first + length], mu[first : first + length]
    for t in range(length):
        x = np.float64(pi[t]) - np.float64(mu[t])
        above = x if x > MIN_LOG_W else MIN_LOG_W
        log_w[t] = above if above < MAX_LOG_W else MAX_LOG_W


@njit(cache=True, nogil=True, error_model="numpy")
def weights(log_w, w, length):  # type: ignore[no-untyped-def]
    """w = exp(log w)."""
    for t in range(length):
        w[t] = exp(log_w[t])


@njit(cache=True, nogil=True)
def products(log_w, w, lows, n_cells, product, before):  # type: ignore[no-untyped-def]
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
def log_prefix(log_w, lows, n_cells, out):  # type: ignore[no-untyped-def]
    """Log-product from the first cell up to each token."""
    prefix = 0.0
    for t in range(lows[0], lows[n_cells]):
        out[t] = prefix
        prefix += log_w[t]


@njit(cache=True, nogil=True, fastmath=FAST)
def terms(  # type: ignore[no-untyped-def]
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
def sum_differences(returns, values, has_values, first, low, high):  # type: ignore[no-untyped-def]
    """ΣD of one cell, D = G - V; V = 0 without a critic."""
    total = 0.0
    for t in range(np.uint64(low), np.uint64(high)):
        total += returns[t]
    if has_values:
        for t in range(np.uint64(first + low), np.uint64(first + high)):
            total -= np.float64(values[t])
    return total


@njit(cache=True, nogil=True, fastmath=FAST)
def cell_sums(product, gu, gud, low, high):  # type: ignore[no-untyped-def]
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
def cell_pass(w, returns, values, has_values, first, gamma, lows, n_cells, product, gu, gud, sums):  # type: ignore[no-untyped-def]
    """All sums of all cells of a rollout that need no start: sums (n_cells + 1, 9)."""
    for c in range(n_cells):
        low, high = lows[c], lows[c + 1]
        terms(w, returns, values, has_values, first, low, high, gamma, gu, gud)
        sums[c, 0] = high - low
        sums[c, 1] = sum_differences(returns, values, has_values, first, low, high)
        (
            sums[c, 2],
            sums[c, 3],
            sums[c, 4],
            sums[c, 5],
            sums[c, 6],
            sums[c, 7],
            sums[c, 8],
        ) = cell_sums(product, gu, gud, low, high)


@njit(cache=True, nogil=True, fastmath=FAST)
def capped_sums(product, gu, gud, low, high, scale, tau):  # type: ignore[no-untyped-def]
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
def wild_sums(log_product, gu, gud, low, high, base, tau):  # type: ignore[no-untyped-def]
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


@njit(cache=True, nogil=True, fastmath=FAST)
def sum_values(values, first, length):  # type: ignore[no-untyped-def]
    total = 0.0
    values = values[first : first + length]
    for t in range(length):
        total += np.float64(values[t])
    return total


@njit(cache=True, nogil=True, fastmath=FAST)
def weight_row(row, log_w, w, length):  # type: ignore[no-untyped-def]
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
def rollout_row(row, length, known, critic, use, returns, values, first, w, log_w):  # type: ignore[no-untyped-def]
    """Features of one rollout that need no cells; counted wherever each one exists."""
    if known:
        row[0] = 1.0
        row[1] = returns[0]
    if critic:
        row[2] = 1.0
        row[3] = np.float64(values[first])
        row[4] = sum_values(values, first, length)
        row[5] = length
    if use:
        weight_row(row, log_w, w, length)
        row[12] = returns[0] - (np.float64(values[first]) if critic else 0.0)
