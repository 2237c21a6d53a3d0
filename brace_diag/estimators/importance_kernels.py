"""Passes over the log-weights of one rollout: sums, long-run sums, windows; compiled."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from brace_diag.estimators.gap_cells import FAST, MAX_LOG_W, log_weights, weights
from brace_diag.estimators.importance_bins import add_counts
from brace_diag.exponential import exp

# Caps under which log min(cap, w) is summed: the chosen c_bar, 1, none.
N_CAPS = 3
CHOSEN, ONE, NONE = 0, 1, 2

# Features of one rollout that only add up.
(
    ROLLOUTS, TOKENS, U, U2, ABS, RHO, RHO2, N_RHO, N_C, N_ZERO, N_DOWN, N_MOVED, PEAKED, PEAKED_U,
    FRESH, FRESH_ABS, FRESH_N, STALE, STALE_ABS, STALE_N,
) = range(20)  # fmt: skip
Y = 20  # Σy of each cap
Y2 = Y + N_CAPS  # Σy² of each cap
N_SUMS = Y2 + N_CAPS
# Behind them, for the long-run variance: weighted Σyy, Σ(y + y) and count of each cap.
LONG = N_SUMS
N_ROW = LONG + 3 * N_CAPS

# Features of the windows of one length: how many; Σ, Σ² of the log-product and Σ of the product of
# each cap.
N_WINDOW = 1 + 3 * N_CAPS
# Features of one cell of positions: tokens, Σ|log w|, tokens with |log w| > EXTREME.
N_PLACE = 3

EXTREME = 5.0
MAX_SQUARED = 350.0  # e^(2x) stays inside float64 up to here
PEAKED_LOG = math.log(0.5)


@njit(cache=True, nogil=True, fastmath=FAST)
def token_sums(log_w, w, length, log_rho, log_c, rho_bar, row):  # type: ignore[no-untyped-def]
    """Sums over a rollout's tokens into its row."""
    u = 0.0
    u2 = 0.0
    a = 0.0
    rho = 0.0
    rho2 = 0.0
    n_rho = 0
    n_c = 0
    n_down = 0
    n_moved = 0
    for t in range(np.uint64(length)):
        x = log_w[t]
        d = w[t] - 1.0
        u += d
        u2 += d * d
        a += abs(x)
        r = w[t] if w[t] < rho_bar else rho_bar
        rho += r
        rho2 += r * r
        n_rho += x > log_rho
        n_c += x > log_c
        n_down += x < 0.0
        n_moved += x != 0.0
    row[ROLLOUTS] = 1.0
    row[TOKENS] = length
    row[U] = u
    row[U2] = u2
    row[ABS] = a
    row[RHO] = rho
    row[RHO2] = rho2
    row[N_RHO] = n_rho
    row[N_C] = n_c
    row[N_DOWN] = n_down
    row[N_MOVED] = n_moved


@njit(cache=True, nogil=True, fastmath=FAST)
def peaked_sums(mu, first, w, length):  # type: ignore[no-untyped-def]
    """Number and Σ(w - 1) of the tokens that mu samples with probability 1/2 or more."""
    n = 0
    total = 0.0
    mu = mu[first : first + length]
    for t in range(np.uint64(length)):
        high = np.float64(mu[t]) >= PEAKED_LOG
        n += 1 if high else 0
        total += w[t] - 1.0 if high else 0.0
    return n, total


@njit(cache=True, nogil=True)
def zero_weights(pi, first, length):  # type: ignore[no-untyped-def]
    """Tokens that pi cannot draw: their log-weight is -inf."""
    n = 0
    for t in range(first, first + length):
        n += np.float64(pi[t]) == -np.inf
    return n


@njit(cache=True, nogil=True)
def capped(log_w, length, log_cap, y):  # type: ignore[no-untyped-def]
    """y = min(log cap, log w)."""
    for t in range(length):
        y[t] = log_w[t] if log_w[t] < log_cap else log_cap


@njit(cache=True, nogil=True, fastmath=FAST)
def dot(a, b, length):  # type: ignore[no-untyped-def]
    total = 0.0
    for t in range(np.uint64(length)):
        total += a[t] * b[t]
    return total


@njit(cache=True, nogil=True, fastmath=FAST)
def total_of(a, length):  # type: ignore[no-untyped-def]
    total = 0.0
    for t in range(np.uint64(length)):
        total += a[t]
    return total


@njit(cache=True, nogil=True)
def rule_lag(length):  # type: ignore[no-untyped-def]
    """⌊4 (T/100)^(2/9)⌋, the lag of Newey & West (1994)."""
    return int(4.0 * (length / 100.0) ** (2.0 / 9.0))


@njit(cache=True, nogil=True)
def long_run(y, length, lag):  # type: ignore[no-untyped-def]
    """Bartlett-weighted Σ y_t y_(t+h), Σ (y_t + y_(t+h)) and number of pairs.

    Weight 1 at h = 0 and 2 (1 - h/(lag + 1)) at h = 1 .. lag, both signs of h in one. For any
    centre c the long-run sum of squares about c is the first, less c times the second, plus c²
    times the third.
    """
    plain = total_of(y, length)
    q = dot(y, y, length)
    a = 2.0 * plain
    n = float(length)
    head = plain
    tail = plain
    for h in range(1, min(lag, length - 1) + 1):
        k = 2.0 * (1.0 - h / (lag + 1.0))
        head -= y[length - h]
        tail -= y[h - 1]
        q += k * dot(y, y[h:], length - h)
        a += k * (head + tail)
        n += k * (length - h)
    return q, a, n


@njit(cache=True, nogil=True, error_model="numpy")
def exponentials(y, n, out):  # type: ignore[no-untyped-def]
    """e^y, at most the largest that float64 holds."""
    for t in range(n):
        out[t] = exp(y[t] if y[t] < MAX_LOG_W else MAX_LOG_W)


@njit(cache=True, nogil=True)
def halve(y, n):  # type: ignore[no-untyped-def]
    """Sums of neighbouring pairs, in place: windows twice as long; an odd last one is dropped."""
    for i in range(n // 2):
        y[i] = y[2 * i] + y[2 * i + 1]
    return n // 2


@njit(cache=True, nogil=True)
def all_windows(y, product, length, cap, out, counts):  # type: ignore[no-untyped-def]
    """Add windows of 1, 2, 4, .. tokens that tile the rollout from its first token.

    y and product are spent. The exponential stands in a loop of its own, since it does not bear
    the reordering that the sums allow.
    """
    n = length
    level = 0
    while n > 0:
        exponentials(y, n, product)
        if cap == CHOSEN:
            out[level, 0] += n
        at = 1 + 3 * cap
        out[level, at] += total_of(y, n)
        out[level, at + 1] += dot(y, y, n)
        out[level, at + 2] += total_of(product, n)
        if cap != ONE:
            add_counts(y, n, counts[0 if cap == CHOSEN else 1, level])
        n = halve(y, n)
        level += 1


@njit(cache=True, nogil=True, fastmath=FAST)
def place_sums(log_w, low, high):  # type: ignore[no-untyped-def]
    """Σ|log w| and number of extremes of tokens low .. high-1."""
    a = 0.0
    n = 0
    for t in range(np.uint64(low), np.uint64(high)):
        x = abs(log_w[t])
        a += x
        n += x > EXTREME
    return a, n


@njit(cache=True, nogil=True)
def by_place(log_w, length, edges, positions, horizons):  # type: ignore[no-untyped-def]
    """Add a rollout's tokens to the cells of their position, and of their distance to the end."""
    cell = 0
    while edges[cell] < length:
        low = edges[cell]
        high = min(edges[cell + 1], length)
        a, n = place_sums(log_w, low, high)
        positions[cell, 0] += high - low
        positions[cell, 1] += a
        positions[cell, 2] += n
        a, n = place_sums(log_w, length - high, length - low)
        horizons[cell, 0] += high - low
        horizons[cell, 1] += a
        horizons[cell, 2] += n
        cell += 1


@njit(cache=True, nogil=True)
def _one_rollout(  # type: ignore[no-untyped-def]
    row, mu, pi, first, length, age, rho_bar, log_caps, lag, log_w, w, y
):
    """All per-rollout sums of one used rollout."""
    log_weights(mu, pi, first, length, log_w)
    weights(log_w, w, length)
    for t in range(length):
        if log_w[t] > MAX_SQUARED:
            w[t] = math.exp(MAX_SQUARED)
    token_sums(log_w, w, length, math.log(rho_bar), log_caps[CHOSEN], rho_bar, row)
    row[N_ZERO] = zero_weights(pi, first, length)
    row[PEAKED], row[PEAKED_U] = peaked_sums(mu, first, w, length)
    if age == 0:
        row[FRESH], row[FRESH_ABS], row[FRESH_N] = length, row[ABS], 1.0
    elif age > 0:
        row[STALE], row[STALE_ABS], row[STALE_N] = length, row[ABS], 1.0
    own_lag = rule_lag(length) if lag < 0 else lag
    for cap in range(N_CAPS):
        capped(log_w, length, log_caps[cap], y)
        row[Y + cap] = total_of(y, length)
        row[Y2 + cap] = dot(y, y, length)
        at = LONG + 3 * cap
        row[at], row[at + 1], row[at + 2] = long_run(y, length, own_lag)


@njit(cache=True, nogil=True, parallel=True)
def accumulate(  # type: ignore[no-untyped-def]
    order,
    parts,
    offsets,
    mu,
    pi,
    group,
    age,
    use,
    rho_bar,
    log_caps,
    lag,
    edges,
    longest,
    full,
    rows,
    windows,
    window_counts,
    token_counts,
    positions,
    horizons,
    extremes,
):
    """Fill the rows of the used rollouts; with `full` also add windows, tails and places.

    Args:
        order: rollouts, stably sorted by group; parts: bounds in `order`, cut between groups.
        age: staleness by rollout, negative where it is not known.
        lag: of the long-run variance; negative for the rule by each rollout's length.
        rows: (n_rollouts, N_ROW); windows: (N_GROUPS, levels, N_WINDOW); positions, horizons:
            (N_GROUPS, cells, N_PLACE).
        window_counts: (parts, 2, levels, N_BINS); token_counts: (parts, N_BINS); extremes:
            (parts, 2) smallest and largest log w.
    """
    for p in prange(len(parts) - 1):
        scratch = np.empty((3, longest))
        log_w, w, y = scratch[0], scratch[1], scratch[2]
        for j in range(parts[p], parts[p + 1]):
            i = order[j]
            first = offsets[i]
            length = offsets[i + 1] - first
            if length == 0 or not use[i]:
                continue
            _one_rollout(
                rows[i], mu, pi, first, length, age[i], rho_bar, log_caps, lag, log_w, w, y
            )
            for t in range(length):
                extremes[p, 0] = min(extremes[p, 0], log_w[t])
                extremes[p, 1] = max(extremes[p, 1], log_w[t])
            if full:
                g = group[i]
                add_counts(log_w, length, token_counts[p])
                by_place(log_w, length, edges, positions[g], horizons[g])
                for cap in range(N_CAPS):
                    capped(log_w, length, log_caps[cap], y)
                    all_windows(y, w, length, cap, windows[g], window_counts[p])


@njit(cache=True, nogil=True)
def extreme_ids(offsets, chosen, use, mu, pi, ids):  # type: ignore[no-untyped-def]
    """Token ids of all |log w| > EXTREME of the used rollouts."""
    n = 0
    for fill in range(2):
        found = np.empty(n if fill else 0, np.int64)
        n = 0
        for i in chosen:
            if not use[i]:
                continue
            for t in range(offsets[i], offsets[i + 1]):
                if abs(np.float64(pi[t]) - np.float64(mu[t])) > EXTREME:
                    if fill:
                        found[n] = ids[t]
                    n += 1
    return found


@njit(cache=True, nogil=True)
def add_group_logs(values, group, top, total):  # type: ignore[no-untyped-def]
    """Running Σ exp(value) by group and column, scaled by the largest so far; -inf adds nothing."""
    for i in range(len(group)):
        g = group[i]
        for c in range(values.shape[1]):
            x = values[i, c]
            if x == -np.inf:
                continue
            if x > top[g, c]:
                total[g, c] = total[g, c] * math.exp(top[g, c] - x) + 1.0
                top[g, c] = x
            else:
                total[g, c] += math.exp(x - top[g, c])
