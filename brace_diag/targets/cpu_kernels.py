"""The numba kernels behind `cpu`: one recursion with coefficients, slid over packed rollouts.

The window of affine maps (see `recursion`) slides over a rollout by the van Herk / Gil-Werman
scheme: cut the rollout into blocks of the window's length; the window at s is then a suffix of s's
block followed by a prefix of the next block. Suffix and prefix compositions take one pass each, so
the cost is O(n_tokens) whatever the window, nothing is divided, and a NaN reaches exactly the
windows that hold it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from brace_diag.exponential import exp
from brace_diag.targets.recursion import TAIL_RESIDUALS, TAIL_RETURN, TAIL_VALUE

Floats = npt.NDArray[np.floating[Any]]
Array = npt.NDArray[np.float64]
Offsets = npt.NDArray[np.int64]

# `contract` lets the compiler fuse a*b + c; nothing else is relaxed: NaN and inf keep IEEE rules.
_SERIAL: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract"},
}
_PARALLEL: dict[str, Any] = {**_SERIAL, "parallel": True}
_INLINE: dict[str, Any] = {"inline": "always", "error_model": "numpy"}

N_ROWS = 6
_A, _B, _E, _X, _AHEAD, _Y = range(N_ROWS)
"""Rows of a thread's scratch: maps a and b, tails, two blocks of prefixes, results."""

_FEW = 6
"""Up to this window, applying every map to the tails costs less than sliding."""


@njit(**_INLINE)
def _log_weight(mu: Any, pi: Any) -> Any:
    """Log w in float64; NaN where a log-prob is missing or mu cannot draw the sample."""
    log_w = np.float64(pi) - np.float64(mu)
    return np.nan if (log_w == np.inf or np.float64(mu) == np.inf) else log_w


@njit(**_PARALLEL)
def window_targets(
    arrays: Any, flags: Any, numbers: Any, shares: Offsets, scratch: Array, out: Floats
) -> None:
    mu, pi, values, rewards, bootstrap, offsets = arrays
    reads_weights, reads_values, dense, tail, window = flags
    gamma, log_cap = numbers[2], numbers[4]
    for share in prange(len(shares) - 1):
        a, b, e = scratch[share, _A], scratch[share, _B], scratch[share, _E]
        for i in range(shares[share], shares[share + 1]):
            lo, hi = offsets[i], offsets[i + 1]
            length = hi - lo
            if length == 0:
                continue
            y = out[lo:hi]
            v = values[lo:hi] if reads_values else values[:0]
            _token_rewards(rewards, dense, i, lo, e[:length])
            if reads_values:
                if reads_weights:
                    _weights(mu[lo:hi], pi[lo:hi], log_cap, a)
                else:
                    a[:length] = 1.0
                _maps(v, e, bootstrap[i], tail == TAIL_RETURN, numbers, a, b)
            if window >= length:
                _compose_all(a, b, y)
            else:
                _tails(tail, dense, v, gamma, bootstrap[i], a, b, e[: length + 1])
                _slide(a, b, e, window, scratch[share, _X], scratch[share, _AHEAD], y)


@njit(**_SERIAL)
def _token_rewards(rewards: Floats, dense: bool, i: int, lo: int, r: Array) -> None:
    if dense:
        for t in range(len(r)):
            r[t] = rewards[lo + t]
    else:
        r[:] = 0.0
        r[-1] = rewards[i]


@njit(**_SERIAL)
def _weights(mu: Floats, pi: Floats, log_cap: float, w: Array) -> None:
    """w_t, held at exp(log_cap), which lies above both caps."""
    for t in range(len(mu)):
        log_w = _log_weight(mu[t], pi[t])
        w[t] = exp(log_cap if log_w > log_cap else log_w)


@njit(**_SERIAL)
def _maps(
    values: Floats, r: Array, bootstrap: float, exact_last: bool, numbers: Any, a: Array, b: Array
) -> None:
    """From w_t in `a` to the maps a_t, b_t; the last token's map is constant."""
    rho_bar, c_bar, gamma, lam, _ = numbers
    last = len(values) - 1
    w_last = a[last]
    for t in range(last):
        rho = rho_bar if a[t] > rho_bar else a[t]
        c = lam * (c_bar if a[t] > c_bar else a[t])
        v, following = np.float64(values[t]), np.float64(values[t + 1])
        b[t] = (1.0 - rho) * v + rho * r[t] + gamma * (rho - c) * following
        a[t] = gamma * c
    rho = rho_bar if w_last > rho_bar else w_last
    end = r[last] + gamma * bootstrap
    a[last] = 0.0
    b[last] = end if exact_last else (1.0 - rho) * np.float64(values[last]) + rho * end


@njit(**_SERIAL)
def _compose_all(a: Array, b: Array, out: Floats) -> None:
    """Windows that reach the end of the rollout: one backward pass."""
    y = b[len(out) - 1]
    out[len(out) - 1] = y
    for s in range(len(out) - 2, -1, -1):
        y = b[s] + a[s] * y
        out[s] = y


@njit(**_SERIAL)
def _tails(
    tail: int,
    dense: bool,
    values: Floats,
    gamma: float,
    bootstrap: float,
    a: Array,
    b: Array,
    e: Array,
) -> None:
    """From r_t in `e` to the tails e_j, j = 0 .. T."""
    length = len(e) - 1
    e[length] = bootstrap
    if tail == TAIL_VALUE:
        for t in range(length):
            e[t] = values[t]
        return
    if tail == TAIL_RETURN and not dense and gamma == 1.0:
        e[:length] = e[length - 1] + bootstrap
        return
    if tail == TAIL_RESIDUALS:
        # V_j + ρ_j δ_j - γ V_{j+1}: the map b_j with its trace set to 1.
        for t in range(length - 1):
            e[t] = b[t] + (a[t] - gamma) * np.float64(values[t + 1])
        e[length - 1] = b[length - 1] - gamma * bootstrap
    y = bootstrap
    for t in range(length - 1, -1, -1):
        y = e[t] + gamma * y
        e[t] = y


@njit(**_SERIAL)
def _slide(a: Array, b: Array, e: Array, window: int, x: Array, ahead: Array, out: Floats) -> None:
    """Suffix of s's block, then a prefix of the next block, then the tail: window < length.

    `x` holds the next block's prefixes applied to their tails; `ahead` gathers this block's. The
    four running products and sums do not wait for each other, which hides their latency.
    """
    length = len(out)
    if window <= _FEW:
        for _ in range(window):
            for s in range(length):
                e[s] = b[s] + a[s] * e[s + 1]
        for s in range(length):
            out[s] = e[s]
        return
    x[:window] = e[length]
    for start in range((length - 1) // window * window, -1, -window):
        stop = min(start + window, length)
        suffix_a, suffix_b, prefix_a, prefix_b = 1.0, 0.0, 1.0, 0.0
        # Unsigned indices spare numba's wrap-around of negative ones: a third of the time here.
        first, last = np.uint64(start), np.uint64(stop - 1)
        for q in range(np.uint64(stop - start)):
            back, front = last - q, first + q
            suffix_b = b[back] + a[back] * suffix_b
            suffix_a = a[back] * suffix_a
            out[back] = suffix_b + suffix_a * x[back - first]
            # For the window that starts `window` before `front`: its tail is there.
            ahead[q] = prefix_b + prefix_a * e[front]
            prefix_b = prefix_b + prefix_a * b[front]
            prefix_a = prefix_a * a[front]
        if stop == length:
            # Windows that start `window` or less before here end with the rollout.
            ahead[stop - start : window] = prefix_b + prefix_a * e[length]
        x, ahead = ahead, x


@njit(**_PARALLEL)
def window_log10_kappa(
    arrays: Any, flags: Any, logs: Any, shares: Offsets, scratch: Array, out: Floats
) -> None:
    """Sliding sums of log c: the same scheme with the maps b_l = log c_l, a_l = 1."""
    mu, pi, offsets = arrays
    reads_weights, tail, window = flags
    log_rho_bar, log_c_bar, log_gamma, log_lam = logs
    for share in prange(len(shares) - 1):
        a, b, e = scratch[share, _A], scratch[share, _B], scratch[share, _E]
        y = scratch[share, _Y]
        a[:] = 1.0
        for i in range(shares[share], shares[share + 1]):
            lo, hi = offsets[i], offsets[i + 1]
            length = hi - lo
            if length == 0:
                continue
            at_end = 0.0
            e[: length + 1] = 0.0
            for t in range(length - 1):
                log_w = _log_weight(mu[lo + t], pi[lo + t]) if reads_weights else 0.0
                b[t] = log_lam + (log_c_bar if log_w > log_c_bar else log_w)
            b[length - 1] = 0.0
            if reads_weights and tail != TAIL_RETURN:
                log_w = _log_weight(mu[hi - 1], pi[hi - 1])
                at_end = log_rho_bar if log_w > log_rho_bar else log_w
            if window >= length or tail == TAIL_VALUE:
                _compose_all(a, b, y[:length])
            else:
                _slide(a, b, e, window, scratch[share, _X], scratch[share, _AHEAD], y[:length])
            for t in range(length):
                horizon = length - 1 - t
                total = (y[t] + horizon * log_gamma + at_end) / np.log(10.0)
                out[lo + t] = -np.inf if tail == TAIL_VALUE and horizon >= window else total


@njit(**_PARALLEL)
def token_advantages(
    target: Floats,
    values: Floats,
    rewards: Floats,
    dense: bool,
    bootstrap: Array,
    offsets: Offsets,
    gamma: float,
    out: Floats,
) -> None:
    for i in prange(len(offsets) - 1):
        lo, hi = offsets[i], offsets[i + 1]
        for t in range(lo, hi):
            r = np.float64(rewards[t]) if dense else 0.0
            following = np.float64(target[t + 1]) if t + 1 < hi else bootstrap[i]
            if not dense and t + 1 == hi:
                r = np.float64(rewards[i])
            out[t] = r + gamma * following - np.float64(values[t])
