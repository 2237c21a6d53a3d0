"""Additive state of the reward slope: what one pass over a log leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError
from brace_diag.estimators import slope_kernels as kernels
from brace_diag.estimators.open_sets import OpenSets, widened
from brace_diag.estimators.slope_targets import TargetInfo
from brace_diag.rollouts import Rollouts
from brace_diag.settings import TargetSpec, cell_edges
from brace_diag.sums import GroupSums

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(slots=True)
class SlopeState:
    """Sums for the slopes of several targets; every attribute adds up over shards.

    Attributes:
        specs: the targets.
        cells: (group, cell of horizon, N_COMMON + N_TARGET · n_targets), see `slope_kernels`.
        within: (group, cell, 2 + 2 n_targets) of closed sets of siblings, see `fold_sets`.
        sets, opened: sets still open, and their sums by slot.
        bins: int64 (n_targets, n_cells, N_BINS) of log10 κ; ranges: (n_targets, n_cells, 2), least
            and largest finite log10 κ.
        reward, length: least and largest total reward and length of a rollout in use.
        n_moved: tokens in use on which pi and mu differ.
    """

    specs: tuple[TargetSpec, ...]
    cells: GroupSums = field(init=False)
    within: GroupSums = field(init=False)
    sets: OpenSets = field(default_factory=OpenSets)
    opened: Array = field(init=False)
    bins: Counts = field(init=False)
    ranges: Array = field(init=False)
    reward: Array = field(default_factory=lambda: np.array([np.inf, -np.inf]))
    length: Array = field(default_factory=lambda: np.array([np.inf, -np.inf]))
    n_moved: int = 0

    def __post_init__(self) -> None:
        n = len(self.specs)
        self.cells = GroupSums(kernels.N_COMMON + kernels.N_TARGET * n)
        self.within = GroupSums(2 + 2 * n)
        self.opened = np.zeros((0, 0, self.cells.n_features))
        self.bins = np.zeros((n, 0, kernels.N_BINS), np.int64)
        self.ranges = np.zeros((n, 0, 2))

    def update(
        self,
        batch: Rollouts,
        info: TargetInfo,
        *,
        subset: npt.NDArray[np.int64] | None = None,
        threads: int = 1,
    ) -> None:
        """Add a batch, or the rollouts `subset` (ascending) of it."""
        chosen = np.arange(batch.n_rollouts) if subset is None else subset
        if len(chosen) == 0:
            return
        use = info.use[chosen]
        edges = cell_edges(max(int(batch.lengths[chosen][use].max(initial=0)), 1))
        self._grow(len(edges) - 1)
        rows = self._rows(batch, info, chosen, edges, threads)
        kernels.add_rows(rows, use, batch.group[chosen], self.cells.array)
        self._tabulate(rows, use, info, chosen, batch.group[chosen])
        _widen_range(self.reward, batch.total_reward[chosen][use])
        _widen_range(self.length, batch.lengths[chosen][use])
        if batch.mu_logprobs is not None and batch.pi_logprobs is not None:
            self.n_moved += kernels.moved_tokens(
                chosen, info.use, batch.offsets, batch.mu_logprobs, batch.pi_logprobs
            )

    def finish(self) -> None:
        """Close every set of siblings that is still open, in the order they were opened."""
        self._close(list(self.sets.slot_of))

    def merge(self, other: SlopeState) -> None:
        """Add another shard's state in place."""
        if self.specs != other.specs:
            raise InputError("states of different targets cannot be added")
        n = other.cells.n_cells
        self._grow(n)
        self.cells.merge(other.cells)
        self.within.merge(other.within)
        self.bins[:, :n] += other.bins
        self.ranges[:, :n, 0] = np.minimum(self.ranges[:, :n, 0], other.ranges[:, :, 0])
        self.ranges[:, :n, 1] = np.maximum(self.ranges[:, :n, 1], other.ranges[:, :, 1])
        for ends, others in ((self.reward, other.reward), (self.length, other.length)):
            ends[:] = min(ends[0], others[0]), max(ends[1], others[1])
        self.n_moved += other.n_moved
        mine, theirs = self.sets.join(other.sets)
        self._reserve()
        np.add.at(self.opened[:, : other.opened.shape[1]], mine, other.opened[theirs])

    def _rows(
        self,
        batch: Rollouts,
        info: TargetInfo,
        chosen: npt.NDArray[np.int64],
        edges: npt.NDArray[np.int64],
        threads: int,
    ) -> Array:
        """Sums of each chosen rollout by cell, (len(chosen), n_cells, n_features)."""
        assert batch.values is not None
        n_cells = len(edges) - 1
        rows = np.zeros((len(chosen), n_cells, self.cells.n_features))
        kernels.count_rows(chosen, info.use, batch.offsets, edges, rows)
        shares = _shares(batch.lengths[chosen], threads)
        for k, column in enumerate(info.targets):
            at = kernels.N_COMMON + k * kernels.N_TARGET
            bins = np.zeros((len(shares) - 1, n_cells, kernels.N_BINS), np.int64)
            ranges = np.tile([np.inf, -np.inf], (len(shares) - 1, n_cells, 1))
            kernels.target_rows(
                chosen,
                shares,
                info.use,
                batch.offsets,
                edges,
                batch.values,
                column.returns,
                column.target,
                column.log_weight,
                column.log_rho,
                column.reach,
                rows[:, :, at : at + kernels.N_TARGET],
                bins,
                ranges,
            )
            self.bins[k, :n_cells] += bins.sum(axis=0)
            mine = self.ranges[k, :n_cells]
            mine[:, 0] = np.minimum(mine[:, 0], ranges[:, :, 0].min(axis=0))
            mine[:, 1] = np.maximum(mine[:, 1], ranges[:, :, 1].max(axis=0))
        return rows

    def _tabulate(
        self,
        rows: Array,
        use: npt.NDArray[np.bool_],
        info: TargetInfo,
        chosen: npt.NDArray[np.int64],
        group: npt.NDArray[np.int64],
    ) -> None:
        keys = info.siblings[chosen].tolist()
        slots, complete = self.sets.take(keys, info.expected[chosen], group)
        self._reserve()
        kernels.add_rows(rows, use, slots, self.opened)
        self._close(complete)

    def _close(self, keys: list[int]) -> None:
        if keys:
            slots, groups = self.sets.release(keys)
            kernels.fold_sets(slots, groups, self.opened, self.within.array)

    def _reserve(self) -> None:
        shape = (self.sets.n_slots, self.cells.n_cells, self.cells.n_features)
        self.opened = widened(self.opened, shape)

    def _grow(self, n_cells: int) -> None:
        extra = n_cells - self.cells.n_cells
        if extra <= 0:
            return
        n = len(self.specs)
        self.cells.grow(n_cells)
        self.within.grow(n_cells)
        more = np.zeros((n, extra, kernels.N_BINS), np.int64)
        self.bins = np.concatenate([self.bins, more], axis=1)
        nothing = np.tile([np.inf, -np.inf], (n, extra, 1))
        self.ranges = np.concatenate([self.ranges, nothing], axis=1)
        self._reserve()


def _shares(lengths: npt.NDArray[np.int64], threads: int) -> npt.NDArray[np.int64]:
    """First rollout of each thread's part, cut so that the parts hold about equal tokens."""
    tokens = np.cumsum(lengths)
    cuts = np.searchsorted(tokens, tokens[-1] * np.arange(1, threads) / threads)
    return np.concatenate([[0], np.minimum(cuts, len(lengths)), [len(lengths)]]).astype(np.int64)


def _widen_range(ends: Array, values: npt.NDArray[np.generic]) -> None:
    """Stretch least and largest over further values."""
    if len(values):
        ends[0] = min(ends[0], float(values.min()))
        ends[1] = max(ends[1], float(values.max()))
