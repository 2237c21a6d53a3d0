"""One row of numbers per rollout, for who wants to slice a log by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from brace_diag.estimators.gap_cells import log_weights, returns_to_go, weights
from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.rollouts import UNKNOWN, Rollouts

Array = npt.NDArray[np.float64]

RETURN, V_0, LOG_PRODUCT, U_SUM, FIRST_ORDER, DOUBLY_ROBUST = range(6)


@njit(cache=True, nogil=True, parallel=True)
def _fill(  # type: ignore[no-untyped-def]
    offsets, mu, pi, values, has_values, rewards, dense, bootstrap, gamma, known, weighed, use, rows
):
    for i in prange(len(offsets) - 1):
        first = offsets[i]
        length = offsets[i + 1] - first
        if length == 0:
            continue
        scratch = np.empty((3, length))
        returns, log_w, w = scratch[0], scratch[1], scratch[2]
        returns_to_go(rewards, dense, i, first, length, bootstrap[i], gamma, returns)
        if known[i]:
            rows[i, 0] = returns[0]
        if has_values:
            rows[i, 1] = np.float64(values[first])
        if not weighed[i]:
            continue
        log_weights(mu, pi, first, length, log_w)
        weights(log_w, w, length)
        s = 0.0
        u_sum = 0.0
        for t in range(length):
            s += log_w[t]
            u_sum += w[t] - 1.0
        rows[i, 2] = s
        rows[i, 3] = u_sum
        if not use[i]:
            continue
        one = 0.0
        both = 0.0
        for t in range(length - 1, -1, -1):
            d = returns[t]
            if has_values:
                d -= np.float64(values[first + t])
            one = (w[t] - 1.0) * d + gamma * one
            both = (w[t] - 1.0) * d + gamma * w[t] * both
        rows[i, 4] = one
        rows[i, 5] = both


def rollout_rows(batch: Rollouts, info: RolloutInfo, gamma: float) -> Any:
    """A batch as an Arrow table, one row per row of the log.

    With u = w - 1, D = G - V (V = 0 without a critic) and C_{0:l} = Π_{i<l} w_i:

    row: number of the row among all that are read, from 0; prompt_hash: stable hash of the prompt;
    step, staleness; length: policy tokens; return: G_0, discounted, with the bootstrap; v_0: critic
    at the first token; log_product: S_0 = Σ log w; u_sum: Σ u; used: whether the gap uses the
    rollout, and why_not; first_order: Σ_l γ^l u_l D_l; doubly_robust: Σ_l γ^l C_{0:l} u_l D_l.

    The last two are the rollout's own part of the gap at its first token, centred by the critic
    alone: the mean of `doubly_robust` over rollouts estimates b(0) without bias; the gap's table
    also centres D by its mean over other prompts, which lowers the variance.
    """
    import pyarrow as pa

    rows = np.full((batch.n_rollouts, 6), np.nan)
    nothing = np.zeros(1, np.float32)
    weighed = batch.has_w & (batch.lengths > 0)
    _fill(
        batch.offsets,
        nothing if batch.mu_logprobs is None else batch.mu_logprobs,
        nothing if batch.pi_logprobs is None else batch.pi_logprobs,
        nothing if batch.values is None else batch.values,
        batch.values is not None,
        batch.rewards,
        batch.dense,
        batch.bootstrap,
        gamma,
        batch.has_reward,
        weighed,
        info.use,
        rows,
    )
    return pa.table(
        {
            "row": batch.row,
            "prompt_hash": batch.prompt,
            "step": _known(batch.step, batch.n_rollouts),
            "staleness": _known(batch.staleness, batch.n_rollouts),
            "length": batch.lengths,
            "return": _numbers(rows[:, RETURN]),
            "v_0": _numbers(rows[:, V_0]),
            "log_product": _numbers(rows[:, LOG_PRODUCT]),
            "u_sum": _numbers(rows[:, U_SUM]),
            "used": info.use,
            "why_not": _why_not(batch, info),
            "first_order": _numbers(rows[:, FIRST_ORDER]),
            "doubly_robust": _numbers(rows[:, DOUBLY_ROBUST]),
        }
    )


def _known(column: npt.NDArray[np.int64] | None, n: int) -> Any:
    import pyarrow as pa

    if column is None:
        return pa.nulls(n, pa.int64())
    return pa.array(column, mask=column == UNKNOWN)


def _numbers(column: Array) -> Any:
    import pyarrow as pa

    return pa.array(column, mask=np.isnan(column))


def _why_not(batch: Rollouts, info: RolloutInfo) -> Any:
    """Why the gap leaves a rollout out, null where it does not; the first reason that holds."""
    import pyarrow as pa

    reasons = {
        "no policy token": batch.lengths == 0,
        "repeats an earlier row": ~info.counted,
        "a log-prob is missing": ~batch.has_w,
        "the reward is missing": ~batch.has_reward,
        "a critic value is missing": ~info.use,
    }
    words = np.full(batch.n_rollouts, None, dtype=object)
    for reason, holds in reversed(reasons.items()):
        words[holds & ~info.use] = reason
    return pa.array(words, pa.string())
