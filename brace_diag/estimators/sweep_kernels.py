# mypy: disable-error-code="no-untyped-def"
"""Compiled sums of the settings sweep, one rollout after the other in log order."""

from __future__ import annotations

import numpy as np
from numba import njit

LEFT, RIGHT, RHO_D, TRACE_D, RHO, TRACE = range(6)
N_CELL = 6
"""Of a cell of positions seen from a start: coefficients of e at both ends of the cell, then
Σ C ρ D, Σ C D, Σ C ρ, Σ C over its tokens but a response's last."""

N_SHARE = 6
"""Of a cell of positions, before the sums of each path: see `add_shares`."""

PATHS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Parts of the way from mu to pi at which states are weighted."""

N_WINDOW = N_CELL + 2
"""The same of the part of a cell that lies in the window, and Σ C at the window's end, shared out
between both ends of the cell."""


@njit(cache=True, nogil=True, error_model="numpy")
def add_windows(
    order,
    low,
    high,
    offsets,
    weights,
    differences,
    group,
    nodes,
    rho_bars,
    c_bars,
    gamma,
    lam,
    ks,
    starts,
    cells,
    windows,
    pulls,
):
    """Add rollouts order[low:high] to the sums of their groups.

    weights, differences: (n_tokens,) w and D = G - V. nodes: ascending positions, 0 first, the
    last beyond every response. rho_bars, c_bars: (Q,) one pair for each setting. ks: ascending.
    starts: (N_GROUPS, S, 1); cells: (N_GROUPS, S(S+1)/2, Q N_CELL), start a and cell c at
    c(c+1)/2 + a; windows: (N_GROUPS, S K, Q N_WINDOW); pulls: (N_GROUPS, 1, Q (K+1)).
    """
    n_k = len(ks)
    for at in range(low, high):
        i = order[at]
        lo, length, g = offsets[i], offsets[i + 1] - offsets[i], group[i]
        for a in range(len(nodes) - 1):
            if nodes[a] >= length:
                break
            starts[g, a, 0] += 1.0
            for q in range(len(rho_bars)):
                _one_start(
                    lo, length, a, weights, differences, nodes, rho_bars[q], c_bars[q], gamma, lam,
                    ks, cells[g, :, q * N_CELL : (q + 1) * N_CELL],
                    windows[g, a * n_k : (a + 1) * n_k, q * N_WINDOW : (q + 1) * N_WINDOW],
                )  # fmt: skip
        for q in range(len(rho_bars)):
            _pull(
                lo, length, weights, c_bars[q], gamma, lam, ks,
                pulls[g, 0, q * (n_k + 1) : (q + 1) * (n_k + 1)],
            )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def _one_start(
    lo, length, a, weights, differences, nodes, rho_bar, c_bar, gamma, lam, ks, cells, windows
):
    """Walk from nodes[a] to the end of the response, cell by cell."""
    start, cell, k = nodes[a], a, 0
    left = right = rho_d = trace_d = rho = trace = 0.0
    c = 1.0
    width = nodes[cell + 1] - nodes[cell]
    for t in range(start, length):
        if t == nodes[cell + 1]:
            _add(cells[cell * (cell + 1) // 2 + a], left, right, rho_d, trace_d, rho, trace)
            left = right = rho_d = trace_d = rho = trace = 0.0
            cell += 1
            width = nodes[cell + 1] - nodes[cell]
        along = (t - nodes[cell]) / width
        while k < len(ks) and t == start + ks[k]:
            _add(windows[k], left, right, rho_d, trace_d, rho, trace)
            windows[k, N_CELL] += c * (1.0 - along)
            windows[k, N_CELL + 1] += c * along
            k += 1
        w = weights[lo + t]
        if t == length - 1:  # the last residual has weight 1, and no value follows
            left -= c * (1.0 - along)
            right -= c * along
        else:
            r = min(w, rho_bar)
            after = (t + 1 - nodes[cell]) / width
            left += c * r * (gamma * (1.0 - after) - (1.0 - along))
            right += c * r * (gamma * after - along)
            d = differences[lo + t]
            rho_d += c * r * d
            trace_d += c * d
            rho += c * r
            trace += c
        c *= gamma * lam * min(w, c_bar)
    _add(cells[cell * (cell + 1) // 2 + a], left, right, rho_d, trace_d, rho, trace)
    # A response that ends before the window does is in the window whole, up to the window's cell.
    while k < len(ks) and start + ks[k] < nodes[cell + 1]:
        _add(windows[k], left, right, rho_d, trace_d, rho, trace)
        k += 1


@njit(cache=True, nogil=True)
def _add(out, left, right, rho_d, trace_d, rho, trace):
    out[LEFT] += left
    out[RIGHT] += right
    out[RHO_D] += rho_d
    out[TRACE_D] += trace_d
    out[RHO] += rho
    out[TRACE] += trace


@njit(cache=True, nogil=True)
def _pull(lo, length, weights, c_bar, gamma, lam, ks, out):
    """Weight of the realised return in the target of the first token, for every k and for inf."""
    c, k = 1.0, 0
    for t in range(length - 1):
        while k < len(ks) and t == ks[k]:
            out[k] += c
            k += 1
        c *= gamma * lam * min(weights[lo + t], c_bar)
    for rest in range(k, len(ks) + 1):
        out[rest] += c


@njit(cache=True, nogil=True, error_model="numpy")
def add_shares(
    order, low, high, offsets, weights, differences, group, nodes, rho_bars, gamma, tau, out
):
    """Add rollouts order[low:high] to the sums behind the share at k = inf.

    out: (N_GROUPS, S, N_SHARE + M (2 + 2 R)) by cell, M = len(PATHS), R = len(rho_bars), all sums
    times γ^t: tokens; tokens but a response's last; Σ h w D, Σ h w, Σ h D, Σ h over every token
    with h = min(Π w, tau); then for each part λ of the way from mu to pi, with
    h = min(Π (1 + λ (w - 1)), tau), over all tokens but the last: Σ h D, Σ h, and Σ h r D and Σ h r
    for each cap, r = min(w, rho_bar).
    """
    width = 2 + 2 * len(rho_bars)
    products = np.empty(len(PATHS))
    for at in range(low, high):
        i = order[at]
        lo, length, g = offsets[i], offsets[i + 1] - offsets[i], group[i]
        products[:] = 1.0
        discount, cell = 1.0, 0
        for t in range(length):
            if t == nodes[cell + 1]:
                cell += 1
            w, d = weights[lo + t], differences[lo + t]
            row = out[g, cell]
            h = min(products[-1], tau) * discount
            row[0] += discount
            row[2] += h * w * d
            row[3] += h * w
            row[4] += h * d
            row[5] += h
            if t < length - 1:
                row[1] += discount
                for m in range(len(PATHS)):
                    h = min(products[m], tau) * discount
                    own = row[N_SHARE + m * width : N_SHARE + (m + 1) * width]
                    own[0] += h * d
                    own[1] += h
                    for q in range(len(rho_bars)):
                        r = min(w, rho_bars[q])
                        own[2 + 2 * q] += h * r * d
                        own[3 + 2 * q] += h * r
                    products[m] *= 1.0 + PATHS[m] * (w - 1.0)
            discount *= gamma


@njit(cache=True, nogil=True)
def token_rows(chosen, offsets, weights, differences, limits, rows):
    """Sums of each chosen rollout's tokens: count, Σx, Σx², and how many w lie above each cap."""
    for row in range(len(chosen)):
        i = chosen[row]
        for t in range(offsets[i], offsets[i + 1]):
            x, w = differences[t], weights[t]
            rows[row, 0] += 1.0
            rows[row, 1] += x
            rows[row, 2] += x * x
            for j in range(len(limits)):
                if w > limits[j]:
                    rows[row, 3 + j] += 1.0


@njit(cache=True, nogil=True)
def point_rows(chosen, offsets, target, values, rows):
    """Σy, Σy² and Σ|y| of each chosen rollout, y = target - V."""
    for row in range(len(chosen)):
        i = chosen[row]
        for t in range(offsets[i], offsets[i + 1]):
            y = target[t] - values[t]
            rows[row, 0] += y
            rows[row, 1] += y * y
            rows[row, 2] += abs(y)
