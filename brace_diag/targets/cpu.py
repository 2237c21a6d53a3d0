"""Targets on the CPU: numba kernels, float64 inside, parallel over rollouts.

The window of affine maps (see `recursion`) slides over a rollout by the van Herk / Gil-Werman
scheme: cut the rollout into blocks of the window's length; the window at s is then a suffix of s's
block followed by a prefix of the next block. Suffix and prefix compositions take one pass each, so
the cost is O(n_tokens) whatever the window, nothing is divided, and a NaN reaches exactly the
windows that hold it.

Kernels read float32 or float64 in place and write into arrays that the caller provides.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import njit, prange

from brace_diag.targets.exponential import exp
from brace_diag.targets.recursion import TAIL_RESIDUALS, TAIL_RETURN, TAIL_VALUE, Recursion

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

_LAUNCH = threading.Lock()
"""One parallel kernel at a time: each uses every core, and not all thread pools are re-entrant."""

_A, _B, _E, _X, _Y = range(5)
"""Rows of a thread's scratch: maps a and b, tails, prefixes applied to tails, results."""


def targets(
    rec: Recursion,
    mu_logprobs: Floats,
    pi_logprobs: Floats,
    values: Floats,
    rewards: Floats,
    bootstrap: Array,
    offsets: Offsets,
    out: Floats,
) -> None:
    """Write the target of every packed token to `out`.

    Tokens are (n_tokens,), `bootstrap` (n_rollouts,), `offsets` (n_rollouts + 1,); `rewards` is per
    token, or terminal as (n_rollouts, 1). What `rec` does not read may be an empty array.
    """
    scratch = _scratch(offsets)
    with _LAUNCH:
        _targets(
            (mu_logprobs, pi_logprobs, values, rewards.reshape(-1), bootstrap, offsets),
            (rec.reads_weights, rec.reads_values, rewards.ndim == 1, rec.tail, rec.window),
            (rec.rho_bar, rec.c_bar, rec.gamma, rec.lam, rec.log_cap),
            _shares(offsets, len(scratch)),
            scratch,
            out,
        )


def log10_kappa(
    rec: Recursion, mu_logprobs: Floats, pi_logprobs: Floats, offsets: Offsets, out: Floats
) -> None:
    """Write log10 of each target's derivative in the last token's reward to `out`."""
    scratch = _scratch(offsets)
    with _LAUNCH:
        _log10_kappa(
            (mu_logprobs, pi_logprobs, offsets),
            (rec.reads_weights, rec.tail, rec.window),
            (math.log(rec.rho_bar), math.log(rec.c_bar), math.log(rec.gamma), rec.log_lam),
            _shares(offsets, len(scratch)),
            scratch,
            out,
        )


def advantages(
    target: Floats,
    values: Floats,
    rewards: Floats,
    bootstrap: Array,
    offsets: Offsets,
    gamma: float,
    out: Floats,
) -> None:
    """Write r_s + γ target_{s+1} - V_s to `out`; after each last token the bootstrap."""
    dense = rewards.ndim == 1
    with _LAUNCH:
        _advantages(target, values, rewards.reshape(-1), dense, bootstrap, offsets, gamma, out)


def _scratch(offsets: Offsets) -> Array:
    """Room for the longest rollout, once per thread: (n_shares, 5, longest + 1)."""
    longest = int(np.diff(offsets).max(initial=0))
    n_shares = max(1, min(numba.get_num_threads(), len(offsets) - 1))
    return np.empty((n_shares, 5, longest + 1))


def _shares(offsets: Offsets, n_shares: int) -> Offsets:
    """First rollout of each thread's share, cut so that the shares hold about equal tokens."""
    cuts = np.linspace(0, offsets[-1], n_shares + 1)[1:-1]
    inner = np.minimum(np.searchsorted(offsets, cuts), len(offsets) - 1)
    return np.concatenate(([0], inner, [len(offsets) - 1])).astype(np.int64)


@njit(**_INLINE)
def _log_weight(mu: Any, pi: Any) -> Any:
    """Log w in float64; NaN where a log-prob is missing or mu cannot draw the sample."""
    log_w = np.float64(pi) - np.float64(mu)
    return np.nan if (log_w == np.inf or np.float64(mu) == np.inf) else log_w


@njit(**_PARALLEL)
def _targets(
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
                _tails(tail, v, gamma, bootstrap[i], a, b, e[: length + 1])
                _slide(a, b, e, window, scratch[share, _X], y)


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
    tail: int, values: Floats, gamma: float, bootstrap: float, a: Array, b: Array, e: Array
) -> None:
    """From r_t in `e` to the tails e_j, j = 0 .. T."""
    length = len(e) - 1
    e[length] = bootstrap
    if tail == TAIL_VALUE:
        for t in range(length):
            e[t] = values[t]
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
def _slide(a: Array, b: Array, e: Array, window: int, x: Array, out: Floats) -> None:
    """Suffix of s's block, then a prefix of the next block, then the tail: window < length."""
    length = len(out)
    if window == 0:
        for s in range(length):
            out[s] = e[s]
        return
    x[:window] = e[length]
    for start in range((length - 1) // window * window, -1, -window):
        stop = min(start + window, length)
        big_a, big_b = 1.0, 0.0
        for s in range(stop - 1, start - 1, -1):
            big_b = b[s] + a[s] * big_b
            big_a = a[s] * big_a
            out[s] = big_b + big_a * x[s - start]
        big_a, big_b = 1.0, 0.0
        for s in range(start, stop):
            # For the window that starts at s - window and ends before s: its tail is e_s.
            x[s - start] = big_b + big_a * e[s]
            big_b = big_b + big_a * b[s]
            big_a = big_a * a[s]
        if stop == length:
            # Windows that start `window` or less before here end with the rollout.
            x[stop - start : window] = big_b + big_a * e[length]


@njit(**_PARALLEL)
def _log10_kappa(
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
        e[:] = 0.0
        for i in range(shares[share], shares[share + 1]):
            lo, hi = offsets[i], offsets[i + 1]
            length = hi - lo
            if length == 0:
                continue
            at_end = 0.0
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
                _slide(a, b, e, window, scratch[share, _X], y[:length])
            for t in range(length):
                horizon = length - 1 - t
                total = (y[t] + horizon * log_gamma + at_end) / np.log(10.0)
                out[lo + t] = -np.inf if tail == TAIL_VALUE and horizon >= window else total


@njit(**_PARALLEL)
def _advantages(
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
