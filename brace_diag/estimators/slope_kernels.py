"""Per-rollout sums of the reward slope by cell of remaining horizon, compiled: O(tokens).

A rollout's row holds, for each cell, the sums over its tokens there; rows are added to groups and
to sets of siblings in log order, by one thread, so that no sum hangs on batches or threads.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from brace_diag.exponential import exp

# Common features of one (rollout, cell): tokens, rollouts (1 where there are tokens), Σh.
TOKENS, ROLLOUTS, HORIZON = 0, 1, 2
N_COMMON = 3
# Features of one target: with X = G - V, Y = target - V: ΣX, ΣX², ΣG, ΣG², ΣGX, ΣY, ΣXY, ΣGY,
# Σ return weight, Σκ, tokens with κ = 0.
X, XX, G, GG, GX, Y, XY, GY, WEIGHT, KAPPA, ZERO = range(11)
N_TARGET = 11

# Bins of log10 κ, both signs alike: 64 of width .01 up to .64, then 64 to each doubling, so that
# no bin is wider than 1.6 % of the value in it. Beyond the last edge one open bin on each side.
STEP, PER_DOUBLING, N_DOUBLINGS = 0.64, 64, 14
HALF = PER_DOUBLING * (N_DOUBLINGS + 1)
N_BINS = 2 * HALF + 2
_LN_10 = math.log(10.0)


@njit(cache=True, nogil=True)
def bin_of(x):  # type: ignore[no-untyped-def]
    """Bin of a finite log10 κ; bins 0 and N_BINS - 1 are the open ones."""
    size = abs(x) / STEP
    if size < 1.0:
        at = int(size * PER_DOUBLING)
    else:
        mantissa, exponent = math.frexp(size)
        at = PER_DOUBLING * exponent + int((2.0 * mantissa - 1.0) * PER_DOUBLING)
    at = min(at, HALF)
    return HALF + 1 + at if x >= 0.0 else HALF - at


@njit(cache=True, nogil=True)
def count_rows(chosen, use, offsets, edges, rows):  # type: ignore[no-untyped-def]
    """Fill the common features of each chosen rollout in use."""
    for q in range(len(chosen)):
        i = chosen[q]
        if not use[i]:
            continue
        length = offsets[i + 1] - offsets[i]
        for c in range(len(edges) - 1):
            first, stop = edges[c], min(edges[c + 1], length)
            if stop <= first:
                break
            rows[q, c, TOKENS] = stop - first
            rows[q, c, ROLLOUTS] = 1.0
            rows[q, c, HORIZON] = 0.5 * (first + stop - 1) * (stop - first)


@njit(cache=True, nogil=True, error_model="numpy")
def _cell(  # type: ignore[no-untyped-def]
    first, last, end, values, returns, target, log_weight, log_rho, reach, row, bins, range_
):
    """Sums over the tokens first .. last-1 of one cell; `end` is the rollout's last token."""
    x_, xx, g_, gg, gx, y_, xy, gy = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    weight, kappa, zero = 0.0, 0.0, 0
    low, high = range_[0], range_[1]
    rho = exp(log_rho * _LN_10)
    for t in range(first, last):
        v, g = np.float64(values[t]), returns[t]
        x, y = g - v, target[t] - v
        x_ += x
        xx += x * x
        g_ += g
        gg += g * g
        gx += g * x
        y_ += y
        xy += x * y
        gy += g * y
        reaches = end - t < reach
        log_kappa = log_weight[t] + log_rho
        if reaches:
            w = exp(log_weight[t] * _LN_10)
            weight += w
            kappa += w * rho
        if not reaches or log_kappa == -np.inf:
            zero += 1
        else:
            bins[bin_of(log_kappa)] += 1
            low = min(low, log_kappa)
            high = max(high, log_kappa)
    row[X], row[XX], row[G], row[GG], row[GX] = x_, xx, g_, gg, gx
    row[Y], row[XY], row[GY] = y_, xy, gy
    row[WEIGHT], row[KAPPA], row[ZERO] = weight, kappa, zero
    range_[0], range_[1] = low, high


@njit(cache=True, nogil=True, parallel=True)
def target_rows(  # type: ignore[no-untyped-def]
    chosen,
    shares,
    use,
    offsets,
    edges,
    values,
    returns,
    target,
    log_weight,
    log_rho,
    reach,
    rows,
    bins,
    ranges,
):
    """Fill one target's features of each chosen rollout in use.

    shares: first of `chosen` of each thread's part. rows: (len(chosen), n_cells, N_TARGET).
    bins: int64 (parts, n_cells, N_BINS); ranges: (parts, n_cells, 2), least and largest log10 κ.
    """
    for p in prange(len(shares) - 1):
        for q in range(shares[p], shares[p + 1]):
            i = chosen[q]
            if not use[i]:
                continue
            lo, hi = offsets[i], offsets[i + 1]
            for c in range(len(edges) - 1):
                last = hi - edges[c]
                if last <= lo:
                    break
                first = max(hi - edges[c + 1], lo)
                _cell(
                    first,
                    last,
                    hi - 1,
                    values,
                    returns,
                    target,
                    log_weight,
                    log_rho[i],
                    reach,
                    rows[q, c],
                    bins[p, c],
                    ranges[p, c],
                )


@njit(cache=True, nogil=True)
def add_rows(rows, use, where, out):  # type: ignore[no-untyped-def]
    """out[where[q]] += rows[q] for every rollout in use, in order."""
    for q in range(len(rows)):
        if not use[q]:
            continue
        for c in range(rows.shape[1]):
            if rows[q, c, TOKENS] == 0.0:
                break
            for f in range(rows.shape[2]):
                out[where[q], c, f] += rows[q, c, f]


@njit(cache=True, nogil=True)
def fold_sets(slots, groups, opened, within):  # type: ignore[no-untyped-def]
    """Close sets of siblings into the sums of their groups, in the order given; zero the slots.

    opened: (slots, n_cells, N_COMMON + N_TARGET · n_targets). within: (N_GROUPS, n_cells,
    2 + 2 n_targets): tokens and rollouts of sets with two rollouts or more in the cell, then for
    each target Σ(X - X̄)² and Σ(X - X̄)(Y - Ȳ) about the set's means in the cell.
    """
    n_targets = (within.shape[2] - 2) // 2
    for j in range(len(slots)):
        s, g = slots[j], groups[j]
        for c in range(opened.shape[1]):
            n = opened[s, c, TOKENS]
            if opened[s, c, ROLLOUTS] < 2.0:
                continue
            within[g, c, 0] += n
            within[g, c, 1] += opened[s, c, ROLLOUTS]
            for k in range(n_targets):
                at = N_COMMON + k * N_TARGET
                x = opened[s, c, at + X]
                within[g, c, 2 + 2 * k] += max(opened[s, c, at + XX] - x * x / n, 0.0)
                within[g, c, 3 + 2 * k] += opened[s, c, at + XY] - x * opened[s, c, at + Y] / n
        opened[s] = 0.0


@njit(cache=True, nogil=True)
def moved_tokens(chosen, use, offsets, mu, pi):  # type: ignore[no-untyped-def]
    """Tokens of the rollouts in use on which pi and mu differ."""
    moved = 0
    for q in range(len(chosen)):
        i = chosen[q]
        if use[i]:
            for t in range(offsets[i], offsets[i + 1]):
                moved += pi[t] != mu[t]
    return moved
