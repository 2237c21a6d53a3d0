"""Why a target is null: which missing number its window touches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from brace_diag.rollouts import Floats, Rollouts
from brace_diag.targets.device import Device, packed
from brace_diag.targets.recursion import Recursion

REASONS = ("log_prob", "value", "reward", "overflow")


def null_reasons(
    rec: Recursion, rollouts: Rollouts, missing: npt.NDArray[np.bool_], device: Device
) -> dict[str, int]:
    """Policy tokens whose target is null, by reason.

    `log_prob`, `value`, `reward`: the window touches one that is missing; a token with several
    counts under the last of them in this order. `overflow`: nothing is missing, but uncapped
    ratios leave the range of the numbers.

    Args: missing: bool (n_tokens,), where the target is null.
    """
    rows = np.flatnonzero(np.add.reduceat(np.append(missing, False), rollouts.offsets[:-1]) > 0)
    rows = rows[rollouts.lengths[rows] > 0]
    some, tokens = _rows_of(rollouts, rows)
    left = missing[tokens]
    counts = {}
    for reason, fill in zip(REASONS, (_with_ratios, _with_values, _with_rewards), strict=False):
        some = fill(some)
        out = np.empty(some.n_tokens, np.float64)
        device.load(some).targets(rec, out)
        still = left & ~np.isfinite(out)
        counts[reason] = int(left.sum() - still.sum())
        left = still
    return counts | {"overflow": int(left.sum())}


def _rows_of(
    rollouts: Rollouts, rows: npt.NDArray[np.int64]
) -> tuple[Rollouts, npt.NDArray[np.int64]]:
    """What targets read of some rollouts, and which tokens of the batch these are."""
    lengths = rollouts.lengths[rows]
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    tokens = np.arange(offsets[-1]) + np.repeat(rollouts.offsets[:-1][rows] - offsets[:-1], lengths)
    mu, pi, values, rewards = packed(rollouts)
    taken = replace(
        rollouts,
        offsets=offsets,
        mu_logprobs=mu[tokens],
        pi_logprobs=pi[tokens],
        values=values[tokens],
        rewards=rewards[tokens] if rollouts.dense else rollouts.rewards[rows],
        bootstrap=rollouts.bootstrap[rows],
    )
    return taken, tokens


def _with_ratios(rollouts: Rollouts) -> Rollouts:
    """The same with ratio 1 where a ratio is missing."""
    mu, pi, _, _ = packed(rollouts)
    with np.errstate(invalid="ignore"):
        log_w = pi - mu
    bad = np.isnan(log_w) | (log_w == np.inf)
    return replace(rollouts, mu_logprobs=np.where(bad, 0, mu), pi_logprobs=np.where(bad, 0, pi))


def _with_values(rollouts: Rollouts) -> Rollouts:
    return replace(rollouts, values=_known(packed(rollouts)[2]))


def _with_rewards(rollouts: Rollouts) -> Rollouts:
    return replace(rollouts, rewards=_known(rollouts.rewards).astype(np.float64))


def _known(x: Floats) -> Floats:
    """The same with 0 where a number is missing, of the same width."""
    return np.where(np.isfinite(x), x, x.dtype.type(0))
