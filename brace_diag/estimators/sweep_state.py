"""Additive state of the settings sweep: what one pass over a log leaves behind."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from brace_diag.estimators import sweep_kernels as kernels
from brace_diag.estimators.gap_state import partition
from brace_diag.estimators.parts import PARTS_PER_THREAD, in_parts
from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.estimators.siblings import add_to_groups
from brace_diag.estimators.slope_targets import target_of
from brace_diag.results_sweep import SweepSettings
from brace_diag.rollouts import Rollouts
from brace_diag.settings import GateThresholds
from brace_diag.sums import GroupSums
from brace_diag.targets.recursion import recursion

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

N_TOKENS, SUM_X, SUM_XX = range(3)
N_COMMON = 3
"""Of the tokens: how many, Σx and Σx², x = G - V."""
N_POINT = 3
"""Of each point of the grid: Σy, Σy² and Σ|y|, y = target - V."""


def nodes(longest: int) -> Ints:
    """Positions at which the mean field is solved: 0, 4, 8, 12, 16, 24, 32, 48, ...

    Two to the octave from 8 on; the last lies at or beyond `longest`. A longer log has the same
    nodes and some more.
    """
    out, octave = [0, 4, 8], 8
    while out[-1] < longest:
        out += [octave + octave // 2, 2 * octave]
        octave *= 2
    last = next(i for i, node in enumerate(out) if node >= longest and i > 0)
    return np.asarray(out[: last + 1], np.int64)


@dataclass(slots=True)
class SweepState:
    """Sums for every point of a grid; all attributes add up over shards.

    Attributes:
        settings: the grid.
        starts: (group, S, 1) rollouts that reach the first position of each cell of `nodes`.
        cells, windows, pulls, shares: see `sweep_kernels`.
        tokens: (group, 1, N_COMMON + caps + N_POINT · points): the tokens' sums, how often w lies
            above each cap, and the targets' own sums.
        longest: policy tokens of the longest rollout in use; n_rollouts: rollouts in use.
    """

    settings: SweepSettings
    starts: GroupSums = field(init=False)
    cells: GroupSums = field(init=False)
    windows: GroupSums = field(init=False)
    pulls: GroupSums = field(init=False)
    shares: GroupSums = field(init=False)
    tokens: GroupSums = field(init=False)
    longest: int = 0
    n_rollouts: int = 0

    def __post_init__(self) -> None:
        n_caps, n_k = len(self.settings.caps), len(self.finite_k)
        self.starts = GroupSums(1)
        self.cells = GroupSums(n_caps * kernels.N_CELL)
        self.windows = GroupSums(n_caps * kernels.N_WINDOW)
        self.pulls = GroupSums(n_caps * (n_k + 1))
        n_path = 2 + 2 * len(self.rho_bars)
        self.shares = GroupSums(kernels.N_SHARE + len(kernels.PATHS) * n_path)
        n_points = n_caps * len(self.settings.windows)
        self.tokens = GroupSums(N_COMMON + len(self.limits) + N_POINT * n_points)
        self.pulls.grow(1)
        self.tokens.grow(1)

    @property
    def finite_k(self) -> Ints:
        """Windows that end, ascending."""
        return np.array([int(k) for k in self.settings.windows if math.isfinite(k)], np.int64)

    @property
    def rho_bars(self) -> Array:
        """Caps of the residual's weight, ascending."""
        return np.array(sorted({rho for rho, _ in self.settings.caps}))

    @property
    def limits(self) -> Array:
        """Every cap of either kind, ascending: what w is held against."""
        return np.array(sorted({cap for pair in self.settings.caps for cap in pair}))

    def update(
        self,
        batch: Rollouts,
        info: RolloutInfo,
        *,
        subset: Ints | None = None,
        threads: int = 1,
    ) -> None:
        """Add a batch, or the rollouts `subset` (ascending) of it."""
        chosen = np.arange(batch.n_rollouts) if subset is None else subset
        chosen = chosen[info.use[chosen]]
        if len(chosen) == 0:
            return
        assert batch.values is not None
        self.n_rollouts += len(chosen)
        self.longest = max(self.longest, int(batch.lengths[chosen].max()))
        self._grow()
        returns = target_of(batch, recursion("mc", gamma=self.settings.gamma), threads)
        differences = returns - batch.values
        weights = _ratios(batch)
        order, parts = partition(
            batch.group, batch.lengths, chosen, threads * PARTS_PER_THREAD if threads > 1 else 1
        )
        add = self._adder(batch, weights, differences)
        in_parts(lambda p: add(order, parts[p], parts[p + 1]), len(parts) - 1, threads)
        self._add_tokens(batch, chosen, weights, differences, threads)

    def merge(self, other: SweepState) -> None:
        """Add another shard's state in place."""
        for name in ("starts", "cells", "windows", "pulls", "shares", "tokens"):
            getattr(self, name).merge(getattr(other, name))
        self.longest = max(self.longest, other.longest)
        self.n_rollouts += other.n_rollouts

    def _grow(self) -> None:
        n = len(nodes(self.longest)) - 1
        self.starts.grow(n)
        self.cells.grow(n * (n + 1) // 2)
        self.windows.grow(n * len(self.finite_k))
        self.shares.grow(n)

    def _adder(
        self, batch: Rollouts, weights: Array, differences: Array
    ) -> Callable[[Ints, int, int], None]:
        """What adds rollouts order[low:high] of a batch to the sums by position."""
        rho_bars, c_bars = (np.array(caps) for caps in zip(*self.settings.caps, strict=True))
        at, gamma = nodes(self.longest), self.settings.gamma
        log = (batch.offsets, weights, differences, batch.group, at)

        def add(order: Ints, low: int, high: int) -> None:
            kernels.add_windows(
                order, low, high, *log, rho_bars, c_bars, gamma, self.settings.lam, self.finite_k,
                self.starts.array, self.cells.array, self.windows.array, self.pulls.array,
            )  # fmt: skip
            kernels.add_shares(
                order, low, high, *log, self.rho_bars, gamma, GateThresholds().tau,
                self.shares.array,
            )  # fmt: skip

        return add

    def _add_tokens(
        self, batch: Rollouts, chosen: Ints, weights: Array, differences: Array, threads: int
    ) -> None:
        rows = np.zeros((len(chosen), self.tokens.n_features))
        kernels.token_rows(chosen, batch.offsets, weights, differences, self.limits, rows)
        at = N_COMMON + len(self.limits)
        for rho_bar, c_bar in self.settings.caps:
            for k in self.settings.windows:
                rec = recursion(
                    "brace", k=k, rho_bar=rho_bar, c_bar=c_bar, gamma=self.settings.gamma,
                    lam=self.settings.lam,
                )  # fmt: skip
                target = target_of(batch, rec, threads)
                kernels.point_rows(
                    chosen, batch.offsets, target, batch.values, rows[:, at : at + N_POINT]
                )
                at += N_POINT
        add_to_groups(rows, batch.group[chosen], self.tokens.array[:, 0])


def _ratios(batch: Rollouts) -> Array:
    """w = π/μ of every token, (n_tokens,)."""
    assert batch.mu_logprobs is not None and batch.pi_logprobs is not None
    with np.errstate(invalid="ignore", over="ignore"):  # rollouts that are not in use
        log_w = batch.pi_logprobs.astype(np.float64) - batch.mu_logprobs.astype(np.float64)
        return np.asarray(np.exp(log_w))
