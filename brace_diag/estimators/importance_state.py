"""Additive state of the importance products: what one pass over a log leaves behind."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError
from brace_diag.estimators import importance_kernels as k
from brace_diag.estimators.gap_state import TAIL, partition
from brace_diag.estimators.importance_bins import N_BINS
from brace_diag.estimators.importance_sets import SetTable
from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.estimators.siblings import add_to_groups
from brace_diag.rollouts import UNKNOWN, Rollouts
from brace_diag.settings import N_GROUPS, cell_edges
from brace_diag.sums import GroupSums
from brace_diag.topk import TopK

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

W, W_SQUARED, CAPPED, CAPPED_SQUARED, EXCESS_SQUARED = range(5)
"""Columns of `GroupLogs`: the rollout's W, W², Π min(c_bar, w), its square, (W - 1)²."""
N_LOGS = 5


@dataclass(slots=True)
class GroupLogs:
    """Σ exp(value) by group and column, scaled so that nothing overflows.

    Attributes:
        top: (N_GROUPS, N_LOGS) largest value; total: Σ exp(value - top).
    """

    top: Array = field(default_factory=lambda: np.full((N_GROUPS, N_LOGS), -np.inf))
    total: Array = field(default_factory=lambda: np.zeros((N_GROUPS, N_LOGS)))

    def merge(self, other: GroupLogs) -> None:
        top = np.maximum(self.top, other.top)
        with np.errstate(invalid="ignore"):
            mine = np.where(np.isneginf(self.top), 0.0, np.exp(self.top - top))
            theirs = np.where(np.isneginf(other.top), 0.0, np.exp(other.top - top))
        self.total = self.total * mine + other.total * theirs
        self.top = top

    def scaled(self) -> tuple[Array, Array]:
        """Sums (N_GROUPS, N_LOGS) on one scale for each column, and the logs of the scales."""
        peak = self.top.max(axis=0)
        peak = np.where(np.isfinite(peak), peak, 0.0)
        return self.total * np.exp(self.top - peak), peak


@dataclass(slots=True)
class ImportanceState:
    """Sums for the importance products; every attribute adds up over shards.

    Attributes:
        c_bar, rho_bar: the caps; lag: of the long-run variance, None for the rule of Newey & West.
        full: also windows, tails, places and token ids; False keeps what a key shows.
        sums: (group, 1, kernels.N_SUMS); sets: siblings; logs: weights of whole rollouts.
        tails: largest log-weights of rollouts.
        windows: (group, level, kernels.N_WINDOW), windows of 2^level tokens.
        window_counts: (2, levels, N_BINS) log-products capped and not; token_counts: (N_BINS,).
        positions, horizons: (group, cell, kernels.N_PLACE) by position and by distance to the end.
        lowest, highest: extremes of log w; ids: token ids of |log w| > 5, or None without ids.
        shortest, longest: tokens of the shortest and the longest rollout.
    """

    c_bar: float
    rho_bar: float
    lag: int | None = None
    full: bool = True
    sums: GroupSums = field(default_factory=lambda: GroupSums(k.N_SUMS))
    sets: SetTable = field(default_factory=SetTable)
    logs: GroupLogs = field(default_factory=GroupLogs)
    tails: TopK = field(default_factory=lambda: TopK(TAIL))
    windows: GroupSums = field(default_factory=lambda: GroupSums(k.N_WINDOW))
    window_counts: Counts = field(default_factory=lambda: np.zeros((2, 0, N_BINS), np.int64))
    token_counts: Counts = field(default_factory=lambda: np.zeros(N_BINS, np.int64))
    positions: GroupSums = field(default_factory=lambda: GroupSums(k.N_PLACE))
    horizons: GroupSums = field(default_factory=lambda: GroupSums(k.N_PLACE))
    lowest: float = math.inf
    highest: float = -math.inf
    ids: Counter[int] | None = None
    shortest: int = 2**62
    longest: int = 0

    def __post_init__(self) -> None:
        self.sums.grow(1)

    def update(
        self,
        batch: Rollouts,
        info: RolloutInfo,
        *,
        subset: npt.NDArray[np.int64] | None = None,
        threads: int = 1,
    ) -> None:
        """Add a batch, or the rollouts `subset` (ascending) of it."""
        chosen = np.arange(batch.n_rollouts) if subset is None else subset
        use = batch.has_w & info.counted & (batch.lengths > 0)
        rows = np.zeros((batch.n_rollouts, k.N_ROW))
        if use[chosen].any():
            self._accumulate(batch, chosen, use, rows, threads)
        group = batch.group
        self.sets.add(
            info.siblings[chosen], info.expected[chosen], group[chosen], use[chosen], rows[chosen]
        )
        self._rollouts(rows, group, chosen[use[chosen]])

    def merge(self, other: ImportanceState) -> None:
        """Add another shard's state in place."""
        same = (self.c_bar, self.rho_bar, self.lag, self.full)
        if same != (other.c_bar, other.rho_bar, other.lag, other.full):
            raise InputError("states of different caps, lag or scope cannot be added")
        for name in ("sums", "sets", "logs", "tails", "windows", "positions", "horizons"):
            getattr(self, name).merge(getattr(other, name))
        self._grow_counts(other.window_counts.shape[1])
        self.window_counts[:, : other.window_counts.shape[1]] += other.window_counts
        self.token_counts += other.token_counts
        self.lowest = min(self.lowest, other.lowest)
        self.highest = max(self.highest, other.highest)
        if other.ids is not None:
            self.ids = (self.ids or Counter()) + other.ids
        self.shortest = min(self.shortest, other.shortest)
        self.longest = max(self.longest, other.longest)

    def _accumulate(
        self,
        batch: Rollouts,
        chosen: npt.NDArray[np.int64],
        use: npt.NDArray[np.bool_],
        rows: Array,
        threads: int,
    ) -> None:
        assert batch.mu_logprobs is not None and batch.pi_logprobs is not None
        used = chosen[use[chosen]]
        lengths = batch.lengths[used]
        longest = int(lengths.max())
        self.shortest = min(self.shortest, int(lengths.min()))
        self.longest = max(self.longest, longest)
        edges = cell_edges(longest)
        levels = longest.bit_length() if self.full else 0
        if self.full:
            self.windows.grow(levels)
            self.positions.grow(len(edges) - 1)
            self.horizons.grow(len(edges) - 1)
            self._grow_counts(levels)
        order, parts = partition(batch.group, batch.lengths, used, threads)
        n = len(parts) - 1
        window_counts = np.zeros((n, 2, levels, N_BINS), np.int64)
        token_counts = np.zeros((n, N_BINS), np.int64)
        extremes = np.tile([np.inf, -np.inf], (n, 1))
        k.accumulate(
            order,
            parts,
            batch.offsets,
            batch.mu_logprobs,
            batch.pi_logprobs,
            batch.group,
            _age(batch),
            use,
            self.rho_bar,
            np.array([math.log(self.c_bar), 0.0, np.inf]),
            -1 if self.lag is None else self.lag,
            edges,
            longest,
            self.full,
            rows,
            self.windows.array,
            window_counts,
            token_counts,
            self.positions.array,
            self.horizons.array,
            extremes,
        )
        self.window_counts[:, :levels] += window_counts.sum(axis=0)
        self.token_counts += token_counts.sum(axis=0)
        self.lowest = min(self.lowest, float(extremes[:, 0].min()))
        self.highest = max(self.highest, float(extremes[:, 1].max()))
        if self.full and batch.token_ids is not None:
            found = k.extreme_ids(
                batch.offsets, used, use, batch.mu_logprobs, batch.pi_logprobs, batch.token_ids
            )
            values, counts = np.unique(found, return_counts=True)
            self.ids = self.ids or Counter()
            self.ids.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def _rollouts(self, rows: Array, group: npt.NDArray[np.int64], used: Counts) -> None:
        """Sums, and the weights of whole rollouts in log space."""
        kept = rows[used]
        add_to_groups(kept[:, : k.N_SUMS], group[used], self.sums.array[:, 0])
        s, c = kept[:, k.Y + k.NONE], kept[:, k.Y + k.CHOSEN]
        with np.errstate(divide="ignore", over="ignore"):
            # log (e^s - 1)², without e^s where that would overflow.
            large = s > 30.0
            excess = np.where(large, s, np.log(np.abs(np.expm1(np.where(large, 0.0, s)))))
        logs = np.stack([s, 2.0 * s, c, 2.0 * c, 2.0 * excess], axis=1)
        k.add_group_logs(logs, group[used], self.logs.top, self.logs.total)
        self.tails.add(s[:, None])

    def _grow_counts(self, levels: int) -> None:
        missing = levels - self.window_counts.shape[1]
        if missing > 0:
            fresh = np.zeros((2, missing, N_BINS), np.int64)
            self.window_counts = np.concatenate([self.window_counts, fresh], axis=1)


def _age(batch: Rollouts) -> npt.NDArray[np.int64]:
    """Staleness by rollout, -1 where it is not known."""
    staleness = batch.staleness
    if staleness is None:
        return np.full(batch.n_rollouts, -1, np.int64)
    return np.where((staleness == UNKNOWN) | (staleness < 0), -1, staleness)
