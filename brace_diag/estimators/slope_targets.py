"""Value targets of a batch, each with the weight that the return has in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import numba
import numpy as np
import numpy.typing as npt

from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.rollouts import Rollouts
from brace_diag.settings import TargetSpec
from brace_diag.targets import cpu
from brace_diag.targets.recursion import UNBOUNDED, Recursion, recursion

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """One target at every token of a batch.

    Attributes:
        returns: (n_tokens,) G_t at the target's discount.
        target: (n_tokens,).
        log_weight: (n_tokens,) log10 of γ^h C_t, C_t the product of the trace's c over the
            target's window from t, at most up to the token before the last.
        log_rho: (n_rollouts,) log10 of the weight of the last residual, 0 where it is 1.
        reach: the return is in no target with h >= reach.
    """

    returns: Array
    target: Array
    log_weight: Array
    log_rho: Array
    reach: int


@dataclass(frozen=True, slots=True)
class TargetInfo(RolloutInfo):
    """What is known of each rollout of a batch, and its targets.

    Attributes:
        targets: one column for each target asked for.
    """

    targets: tuple[TargetColumn, ...]


def with_targets(
    batch: Rollouts, info: RolloutInfo, specs: tuple[TargetSpec, ...], threads: int
) -> TargetInfo:
    """Compute every target of a batch.

    The same rollouts serve all targets: those with a critic and a return, and a ratio at every
    token if any of the targets reads ratios.
    """
    known = {f.name: getattr(info, f.name) for f in fields(RolloutInfo)}
    if not any(spec.reads_weights for spec in specs):
        complete = batch.has_values & batch.has_reward & (batch.lengths > 0)
        known["use"] = info.counted & complete
    returns: dict[float, Array] = {}
    with _threads(threads):
        for gamma in {spec.gamma for spec in specs}:
            returns[gamma] = _target(batch, recursion("mc", gamma=gamma))
        columns = tuple(_column(batch, spec, returns[spec.gamma]) for spec in specs)
    return TargetInfo(**known, targets=columns)


def _column(batch: Rollouts, spec: TargetSpec, returns: Array) -> TargetColumn:
    rec = recursion(spec.name, **spec.parameters)
    log_rho = np.zeros(batch.n_rollouts)
    if spec.name in ("vtrace", "capped"):
        log_rho = _last_residual(batch, rec.rho_bar)
    return TargetColumn(
        returns=returns,
        target=returns if spec.name == "mc" else _target(batch, rec),
        log_weight=_log_weight(batch, spec),
        log_rho=log_rho,
        reach=rec.window if spec.name == "vtrace" else UNBOUNDED,
    )


def target_of(batch: Rollouts, rec: Recursion, threads: int) -> Array:
    """A target at every token of a batch, (n_tokens,)."""
    with _threads(threads):
        return _target(batch, rec)


def _target(batch: Rollouts, rec: Recursion) -> Array:
    out = np.empty(batch.n_tokens)
    mu, pi = _log_probs(batch)
    values = out[:0] if batch.values is None else batch.values
    rewards = batch.rewards if batch.dense else batch.rewards[:, None]
    cpu.targets(rec, mu, pi, values, rewards, batch.bootstrap, batch.offsets, out)
    return out


def _log_weight(batch: Rollouts, spec: TargetSpec) -> Array:
    """The return's weight is κ of the target whose tail is the return, over the same window."""
    if spec.name == "gae":
        rec = recursion("gae", gamma=spec.gamma, lam=spec.lam)
    elif spec.name == "mc":
        rec = recursion("mc", gamma=spec.gamma)
    else:
        rec = recursion("brace", k=spec.k, c_bar=spec.c_bar, gamma=spec.gamma, lam=spec.lam)
    out = np.empty(batch.n_tokens)
    cpu.log10_kappa(rec, *_log_probs(batch), batch.offsets, out)
    return out


def _last_residual(batch: Rollouts, rho_bar: float) -> Array:
    """log10 min(ρ̄, w) at each rollout's last token; 0 without tokens."""
    mu, pi = _log_probs(batch)
    out = np.zeros(batch.n_rollouts)
    alive = np.flatnonzero(batch.lengths > 0)
    last = batch.offsets[1:][alive] - 1
    with np.errstate(invalid="ignore"):  # inf - inf where a log-prob cannot be: not in use
        log_w = pi[last].astype(np.float64) - mu[last].astype(np.float64)
    out[alive] = np.minimum(log_w, np.log(rho_bar)) / np.log(10.0)
    return out


def _log_probs(batch: Rollouts) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]:
    """Both columns; where one is not there, no target that is asked for reads it."""
    nothing = np.zeros(0, np.float32)
    mu = nothing if batch.mu_logprobs is None else batch.mu_logprobs
    return mu, nothing if batch.pi_logprobs is None else batch.pi_logprobs


@contextmanager
def _threads(n: int) -> Iterator[None]:
    before = numba.get_num_threads()
    numba.set_num_threads(max(1, min(n, before)))
    try:
        yield
    finally:
        numba.set_num_threads(before)
