"""From the sums of an `ImportanceState` to jackknifed numbers: pure functions of sums.

y = min(log c_bar, log w) for the chosen cap, y = log w without one. With Y_p, N_p the sum of y and
the tokens of prompt p, and v_p the sampling variance of its mean from its rollouts,

    s_HAC² = (1/N) Σ_rollouts Σ_|h|<=L (1 - |h|/(L+1)) Σ_t (y_t - Y_p/N_p)(y_(t+h) - Y_p/N_p),
    tau²   = [Σ Y_p²/N_p - Y²/N - Σ N_p v_p + Σ N_p² v_p / N] / [N - Σ N_p²/N].

tau² is the one-way random-effects variance of unequal groups (Searle, Casella & McCulloch 1992).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from brace_diag.estimators import importance_kernels as k
from brace_diag.estimators import importance_sets as sets
from brace_diag.estimators.importance_state import (
    CAPPED,
    CAPPED_SQUARED,
    EXCESS_SQUARED,
    W_SQUARED,
    ImportanceState,
    W,
)
from brace_diag.sums import Jackknife, jackknife

Array = npt.NDArray[np.float64]

PER_CAP = ("m", "sigma", "sigma_hac", "tau_squared")
NAMES = (
    *PER_CAP,
    *(f"{name}_uncapped" for name in PER_CAP),
    "mean_weight", "u_control", "mean_abs_log_w", "kl_k1", "kl_k3", "chi2_token",
    "ess_token", "ess_token_capped", "ess_rollout", "ess_rollout_capped", "log_chi2_rollout",
    "clip_rho_bar", "clip_c_bar", "share_below_one", "mean_weight_peaked", "mean_weight_other",
    "noise_floor", "stale_abs_log_w", "excess_abs_log_w",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figures:
    """Joint jackknife of `NAMES`, and what they are over.

    Attributes:
        jack: outputs in the order of `NAMES`.
        n_tokens, n_rollouts: of the whole; fresh, stale: (tokens, rollouts) by staleness.
    """

    jack: Jackknife
    n_tokens: int
    n_rollouts: int
    fresh: tuple[int, int]
    stale: tuple[int, int]

    def value(self, name: str) -> float:
        return float(self.jack.value[NAMES.index(name)])


def figures(state: ImportanceState, log_discount: float) -> Figures:
    """All figures of a finished state; log_discount is log(γλ), added to every m."""
    sums = state.sums.array[:, 0]
    closed = state.sets.closed.array[:, 0]
    logs, scale = state.logs.scaled()
    present = np.repeat((sums[:, k.ROLLOUTS] > 0.5)[:, None], len(NAMES), axis=1)
    for name, column in (("noise_floor", k.FRESH), ("stale_abs_log_w", k.STALE)):
        present[:, NAMES.index(name)] = sums[:, column] > 0.5
    either = (sums[:, k.FRESH] > 0.5) | (sums[:, k.STALE] > 0.5)
    present[:, NAMES.index("excess_abs_log_w")] = either
    jack = _joint(
        lambda s, c, x: _outputs(s, c, x, scale, log_discount),
        sums,
        closed,
        logs,
        present=present,
    )
    total = sums.sum(axis=0)
    whole, fresh, stale = (
        (round(total[tokens]), round(total[rollouts]))
        for tokens, rollouts in (
            (k.TOKENS, k.ROLLOUTS), (k.FRESH, k.FRESH_N), (k.STALE, k.STALE_N)
        )
    )  # fmt: skip
    return Figures(jack, *whole, fresh, stale)


def _joint(
    function: Callable[..., Array], *sums: Array, present: npt.NDArray[np.bool_]
) -> Jackknife:
    """`jackknife`, and numbers that do not exist where no group has anything."""
    if present.any():
        return jackknife(function, *sums, present=present)
    n = present.shape[1]
    return Jackknife(np.full(n, np.nan), np.zeros((0, n)), np.zeros(n, np.int64))


def _outputs(s: Array, closed: Array, logs: Array, scale: Array, log_discount: float) -> Array:
    """(replicates, len(NAMES)) from (replicates, features)."""
    out: dict[str, Array] = {}
    for suffix, j in (("", 0), ("_uncapped", 1)):
        out |= {f"{name}{suffix}": x for name, x in _spreads(s, closed, j, log_discount).items()}
    n, u, u2 = s[:, k.TOKENS], s[:, k.U], s[:, k.U2]
    x = s[:, k.Y + k.NONE]
    peaked = s[:, k.PEAKED]
    out |= {
        "mean_weight": 1.0 + u / n,
        "u_control": u / s[:, k.ROLLOUTS],
        "mean_abs_log_w": s[:, k.ABS] / n,
        "kl_k1": -x / n,
        "kl_k3": (u - x) / n,
        "chi2_token": u2 / n,
        "ess_token": (n + u) / n * ((n + u) / (u2 + 2.0 * u + n)),
        "ess_token_capped": s[:, k.RHO] ** 2 / (n * s[:, k.RHO2]),
        "clip_rho_bar": s[:, k.N_RHO] / n,
        "clip_c_bar": s[:, k.N_C] / n,
        "share_below_one": s[:, k.N_DOWN] / n,
        "mean_weight_peaked": 1.0 + s[:, k.PEAKED_U] / peaked,
        "mean_weight_other": 1.0 + (u - s[:, k.PEAKED_U]) / (n - peaked),
        "noise_floor": s[:, k.FRESH_ABS] / s[:, k.FRESH],
        "stale_abs_log_w": s[:, k.STALE_ABS] / s[:, k.STALE],
    }
    out["excess_abs_log_w"] = out["stale_abs_log_w"] - out["noise_floor"]
    out |= _of_rollouts(logs, scale, s[:, k.ROLLOUTS])
    return np.stack([out[name] for name in NAMES], axis=1)


def _spreads(s: Array, closed: Array, j: int, log_discount: float) -> dict[str, Array]:
    """m, sigma, long-run sigma and tau² of the j-th cap of `SET_CAPS`."""
    cap = sets.SET_CAPS[j]
    n, y, y2 = s[:, k.TOKENS], s[:, k.Y + cap], s[:, k.Y2 + cap]
    mean = y / n
    variance = y2 / n - mean**2
    # What rounding leaves of a constant's variance is 0.
    variance = np.where(variance > 1e-14 * y2 / n, variance, 0.0)
    own = closed[:, sets.FOLDED + 4 * j : sets.FOLDED + 4 * (j + 1)]
    long_run = np.maximum(own[:, sets.H] / n, 0.0)
    long_run = np.where(variance > 0.0, long_run, 0.0)
    nv = own[:, sets.NV] + long_run * closed[:, sets.LONE]
    n2v = own[:, sets.N2V] + long_run * closed[:, sets.LONE_N]
    room = n - closed[:, sets.N2] / n
    between = np.where(variance > 0.0, own[:, sets.B] - y * mean - nv + n2v / n, 0.0)
    return {
        "m": mean + log_discount,
        "sigma": np.sqrt(variance),
        "sigma_hac": np.sqrt(long_run),
        # One set alone shows nothing between sets.
        "tau_squared": np.where(closed[:, sets.SETS] > 1.5, between / room, np.nan),
    }


def _of_rollouts(logs: Array, scale: Array, n: Array) -> dict[str, Array]:
    """Effective sample sizes and log χ² of whole rollouts, from sums on the scale of exp(scale)."""
    log = np.log(np.maximum(logs, 0.0)) + scale
    # Where every product is 1 there is no logarithm of their variance.
    log = np.where(np.isfinite(log), log, np.nan)
    return {
        "ess_rollout": np.exp(2.0 * log[:, W] - log[:, W_SQUARED]) / n,
        "ess_rollout_capped": np.exp(2.0 * log[:, CAPPED] - log[:, CAPPED_SQUARED]) / n,
        "log_chi2_rollout": log[:, EXCESS_SQUARED] - np.log(n),
    }


@dataclass(frozen=True, slots=True)
class Windows:
    """Joint jackknife over the windows of 1, 2, 4, .. tokens.

    Attributes:
        jack: for each level and cap in turn: mean, sd of the log-product, mean of the product.
        counts: (n_levels,) windows.
    """

    jack: Jackknife
    counts: npt.NDArray[np.int64]

    def column(self, level: int, cap: int, figure: int) -> int:
        return (level * k.N_CAPS + cap) * 3 + figure


def window_figures(state: ImportanceState, log_discount: float) -> Windows:
    """Observed moments of the log-products, and of the products, by window length."""
    array = state.windows.array
    n_levels = array.shape[1]
    counts = array[:, :, 0]
    present = np.repeat(counts > 0.5, 3 * k.N_CAPS, axis=1)
    # A group without the shortest window has no window at all, so `present` has every group.
    jack = _joint(lambda a: _window_outputs(a, log_discount), array, present=present)
    return Windows(jack, np.rint(counts.sum(axis=0)).astype(np.int64)[:n_levels])


def _window_outputs(a: Array, log_discount: float) -> Array:
    n = a[:, :, 0]
    shift = log_discount * 2.0 ** np.arange(a.shape[1])
    out = np.empty((*n.shape, k.N_CAPS, 3))
    for cap in range(k.N_CAPS):
        at = 1 + 3 * cap
        mean = a[:, :, at] / n
        out[:, :, cap, 0] = mean + shift
        # ddof = 1: long windows are few.
        square = np.maximum(a[:, :, at + 1] - n * mean**2, 0.0)
        out[:, :, cap, 1] = np.sqrt(square / np.maximum(n - 1.0, 1.0))
        out[:, :, cap, 1] = np.where(n > 1.5, out[:, :, cap, 1], np.nan)
        out[:, :, cap, 2] = a[:, :, at + 2] / n * np.exp(shift)
    return out.reshape(len(a), -1)


def half_life(windows: Windows, cap: int) -> Jackknife | None:
    """Tokens after which E[C] falls below 1/2; None where it does not within the log.

    log E[C] is taken as linear between the window lengths 1, 2, 4, .., from 0 at no token. Only
    lengths with at least `MIN_WINDOWS` windows count.
    """
    n_levels = int(np.sum(windows.counts >= MIN_WINDOWS))
    columns = [windows.column(level, cap, 2) for level in range(n_levels)]
    jack = windows.jack
    crossing = _crossing(jack.value[None, columns])
    if n_levels == 0 or not np.isfinite(crossing[0]):
        return None
    # Each replicate is the value plus its deviation, but for the jackknife's bias.
    replicates = _crossing(jack.value[columns] + jack.deviations[:, columns])
    if not np.isfinite(replicates).all():
        replicates = np.full_like(replicates, np.nan)
    deviations = replicates - replicates.mean()
    return Jackknife(crossing, deviations[:, None], jack.n_groups[columns[:1]])


MIN_WINDOWS = 20
"""Windows of one length that a mean product or a coverage needs."""


def _crossing(products: Array) -> Array:
    """Where E[C] at 1, 2, 4, .. tokens crosses 1/2, (replicates,) from (replicates, levels)."""
    lengths = np.concatenate([[0.0], 2.0 ** np.arange(products.shape[1])])
    with np.errstate(all="ignore"):
        logs = np.log(np.maximum(products, 0.0))
    logs = np.concatenate([np.zeros((len(logs), 1)), logs], axis=1)
    below = logs < np.log(0.5)
    at = np.argmax(below, axis=1)
    rows = np.arange(len(logs))
    before = np.maximum(at - 1, 0)
    high, low = logs[rows, before], logs[rows, at]
    with np.errstate(all="ignore"):
        share = (np.log(0.5) - high) / (low - high)
        n = lengths[before] + share * (lengths[at] - lengths[before])
    return np.where(below.any(axis=1), n, np.nan)


def places(sums: Array) -> Jackknife:
    """Mean |log w| and share of extremes of each cell, all cells in turn, from (group, cell, 3)."""
    n = sums[:, :, 0]
    present = np.repeat(n > 0.5, 2, axis=1)

    def ratios(a: Array) -> Array:
        return np.stack([a[:, :, 1] / a[:, :, 0], a[:, :, 2] / a[:, :, 0]], axis=2).reshape(
            len(a), -1
        )

    return _joint(ratios, sums, present=present)
