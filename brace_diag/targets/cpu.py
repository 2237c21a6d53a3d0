"""Targets on the CPU: numba kernels, float64 inside, parallel over rollouts.

They read float32 or float64 in place and write into arrays that the caller provides.
"""

from __future__ import annotations

import math
import threading

import numba
import numpy as np

from brace_diag.targets.cpu_kernels import (
    N_ROWS,
    Array,
    Floats,
    Offsets,
    token_advantages,
    window_log10_kappa,
    window_targets,
)
from brace_diag.targets.recursion import Recursion

_LAUNCH = threading.Lock()
"""One parallel kernel at a time: each uses every core, and not all thread pools are re-entrant."""


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
        window_targets(
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
        window_log10_kappa(
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
        token_advantages(target, values, rewards.reshape(-1), dense, bootstrap, offsets, gamma, out)


def _scratch(offsets: Offsets) -> Array:
    """Room for the longest rollout, once per thread: (n_shares, N_ROWS, longest + 1)."""
    longest = int(np.diff(offsets).max(initial=0))
    n_shares = max(1, min(numba.get_num_threads(), len(offsets) - 1))
    return np.empty((n_shares, N_ROWS, longest + 1))


def _shares(offsets: Offsets, n_shares: int) -> Offsets:
    """First rollout of each thread's share, cut so that the shares hold about equal tokens."""
    cuts = np.linspace(0, offsets[-1], n_shares + 1)[1:-1]
    inner = np.minimum(np.searchsorted(offsets, cuts), len(offsets) - 1)
    return np.concatenate(([0], inner, [len(offsets) - 1])).astype(np.int64)
