"""Per-rollout sums of the critic's fit, compiled: one pass over the tokens of each rollout."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from brace_diag.estimators.gap_cells import FAST, POSITION, cell_bounds, returns_to_go

# Features of one cell; V' and G' are V and G less the frame's centre.
N, V, G, VV, GG, VG, OUTSIDE, ROLLOUTS = range(8)
N_CELL = 8
# Features of one target in one cell: tokens, Σ|target - V|, Σ(target - V), rollouts.
N_DISTANCE = 4
# Features of one bin of critic values: tokens, ΣV', ΣG', rollouts.
N_BIN = 4


# Loops that sum hold no stores, and their indices are unsigned: see `gap_cells`.
@njit(cache=True, nogil=True, fastmath=FAST)
def moments(returns, values, first, low, high, centre, bottom, top):  # type: ignore[no-untyped-def]
    """ΣV', ΣG', ΣV'², ΣG'², ΣV'G' and the values outside [bottom, top] of one cell."""
    s_v = 0.0
    s_g = 0.0
    s_vv = 0.0
    s_gg = 0.0
    s_vg = 0.0
    outside = 0
    shift = np.uint64(first)
    for t in range(np.uint64(low), np.uint64(high)):
        raw = np.float64(values[shift + t])
        v = raw - centre
        g = returns[t] - centre
        s_v += v
        s_g += g
        s_vv += v * v
        s_gg += g * g
        s_vg += v * g
        outside += (raw < bottom) | (raw > top)
    return s_v, s_g, s_vv, s_gg, s_vg, outside


@njit(cache=True, nogil=True, fastmath=FAST)
def distances(target, values, low, high):  # type: ignore[no-untyped-def]
    """Σ|target - V| and Σ(target - V) over packed tokens low .. high-1."""
    size = 0.0
    signed = 0.0
    for t in range(np.uint64(low), np.uint64(high)):
        d = target[t] - np.float64(values[t])
        size += abs(d)
        signed += d
    return size, signed


@njit(cache=True, nogil=True)
def widen(extent, returns, values, first, low, high):  # type: ignore[no-untyped-def]
    """Smallest and largest G and V of a cell into extent (4,)."""
    for t in range(low, high):
        g = returns[t]
        v = np.float64(values[first + t])
        extent[0] = min(extent[0], g)
        extent[1] = max(extent[1], g)
        extent[2] = min(extent[2], v)
        extent[3] = max(extent[3], v)


@njit(cache=True, nogil=True)
def bin_of(x, edges, first, n_bins):  # type: ignore[no-untyped-def]
    """np.searchsorted(edges, x, side="right"), faster among the equal bins that start at first."""
    low = edges[first]
    high = edges[first + n_bins]
    if x < low or x >= high:
        return np.searchsorted(edges, x, side="right")
    b = first + int((x - low) / (high - low) * n_bins)
    while x < edges[b]:
        b -= 1
    while x >= edges[b + 1]:
        b += 1
    return b + 1


@njit(cache=True, nogil=True)
def _bin_rollout(returns, values, first, length, centre, edges, inner, n_bins, bins, seen, i):  # type: ignore[no-untyped-def]
    """Add the tokens of one rollout to the bins of their critic values."""
    for t in range(length):
        v = np.float64(values[first + t])
        b = bin_of(v, edges, inner, n_bins)
        bins[b, 0] += 1.0
        bins[b, 1] += v - centre
        bins[b, 2] += returns[t] - centre
        if seen[b] != i:
            seen[b] = i
            bins[b, 3] += 1.0


@njit(cache=True, nogil=True)
def _count_pairs(target, values, first, last, edges, inner, n_bins, counts):  # type: ignore[no-untyped-def]
    """Count (critic, target) of packed tokens first .. last-1 in counts (n, n)."""
    for t in range(first, last):
        a = bin_of(np.float64(values[t]), edges, inner, n_bins)
        counts[a, bin_of(target[t], edges, inner, n_bins)] += 1


@njit(cache=True, nogil=True, parallel=True)
def accumulate(  # type: ignore[no-untyped-def]
    order,
    parts,
    offsets,
    values,
    rewards,
    dense,
    bootstrap,
    judged,
    targets,
    reached,
    numbers,
    cell_edges,
    bin_edges,
    density_edges,
    inner,
    n_bins,
    longest,
    cells,
    apart,
    bins,
    extents,
    counts,
):
    """Add rollouts to the sums; every part owns its groups, so the order of addition is fixed.

    Args:
        order: (n, 2) rollout and its group, stably sorted by group; parts: bounds in `order`.
        judged: (n_rollouts,) return and every value are known.
        targets: (n_targets, n_tokens); reached: (n_targets, n_rollouts) every target is a number.
        numbers: gamma, centre, lowest and highest reachable return.
        inner, n_bins: first equal bin and number of equal bins, of the calibration and the density.
        cells, apart, bins: (N_GROUPS, ., .) sums, added to in place; extents: (n_parts, n_cells, 4)
            and counts: (n_parts, n_targets, n, n) are of each part. What is not wanted has length 0
            on the axis of its bins.
    """
    gamma, centre, bottom, top = numbers
    for p in prange(len(parts) - 1):
        returns = np.empty(longest)
        lows = np.empty(len(cell_edges) + 1, np.int64)
        ids = np.empty(len(cell_edges) + 1, np.int64)
        seen = np.full(bins.shape[1], -1, np.int64)
        for j in range(parts[p], parts[p + 1]):
            i, g = order[j]
            first = offsets[i]
            length = offsets[i + 1] - first
            if not judged[i]:
                continue
            returns_to_go(rewards, dense, i, first, length, bootstrap[i], gamma, returns)
            n = cell_bounds(POSITION, cell_edges, length, lows, ids)
            for c in range(n):
                low, high = lows[c], lows[c + 1]
                row = cells[g, c]
                sums = moments(returns, values, first, low, high, centre, bottom, top)
                row[N] += high - low
                row[V] += sums[0]
                row[G] += sums[1]
                row[VV] += sums[2]
                row[GG] += sums[3]
                row[VG] += sums[4]
                row[OUTSIDE] += sums[5]
                row[ROLLOUTS] += 1.0
                widen(extents[p, c], returns, values, first, low, high)
                for k in range(len(targets)):
                    if reached[k, i]:
                        size, signed = distances(targets[k], values, first + low, first + high)
                        at = N_DISTANCE * k
                        apart[g, c, at] += high - low
                        apart[g, c, at + 1] += size
                        apart[g, c, at + 2] += signed
                        apart[g, c, at + 3] += 1.0
            if bins.shape[1] > 0:
                _bin_rollout(
                    returns, values, first, length, centre, bin_edges, inner, n_bins[0], bins[g],
                    seen, i,
                )  # fmt: skip
            if counts.shape[3] > 0:
                for k in range(len(targets)):
                    if reached[k, i]:
                        _count_pairs(
                            targets[k], values, first, first + length, density_edges, inner,
                            n_bins[1], counts[p, k],
                        )  # fmt: skip


@njit(cache=True, nogil=True)
def whole_rollouts(target, offsets, out):  # type: ignore[no-untyped-def]
    """Which rollouts have a number at every token, and at least one, into out (n_rollouts,)."""
    for i in range(len(out)):
        good = offsets[i + 1] > offsets[i]
        for t in range(offsets[i], offsets[i + 1]):
            good &= np.isfinite(target[t])
        out[i] = good
