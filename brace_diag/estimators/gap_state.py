"""Additive state of the value gap: what one pass over a log leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError
from brace_diag.estimators import gap_kernels as kernels
from brace_diag.estimators.gap_cells import N_RELATIVE, N_ROLLOUT
from brace_diag.estimators.parts import PARTS_PER_THREAD, in_parts
from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.estimators.siblings import SiblingTable, add_to_groups
from brace_diag.rollouts import Rollouts
from brace_diag.settings import Axis, GateThresholds, cell_edges
from brace_diag.sums import GroupSums
from brace_diag.topk import TopK

Array = npt.NDArray[np.float64]
AXES: dict[str, int] = {"position": 0, "horizon": 1, "relative": 2}
N_OCTAVES = 21  # position 0 up to 2^20 tokens
TAIL = 1024


@dataclass(slots=True)
class LogSumExp:
    """ΣW and ΣW² of W = exp(S) by cell, scaled by the largest W so that neither overflows.

    Attributes:
        top: (n_cells,) largest S; one, two: Σ exp(S - top), Σ exp(2 (S - top)).
    """

    top: Array = field(default_factory=lambda: np.zeros(0))
    one: Array = field(default_factory=lambda: np.zeros(0))
    two: Array = field(default_factory=lambda: np.zeros(0))

    def grow(self, n_cells: int) -> None:
        extra = n_cells - len(self.top)
        if extra > 0:
            self.top = np.concatenate([self.top, np.full(extra, -np.inf)])
            self.one = np.concatenate([self.one, np.zeros(extra)])
            self.two = np.concatenate([self.two, np.zeros(extra)])

    def add(self, logs: Array) -> None:
        """Add S (n, n_cells), NaN where a rollout has none, row by row."""
        self.grow(logs.shape[1])
        kernels.add_log_sums(logs, self.top, self.one, self.two)

    def merge(self, other: LogSumExp) -> None:
        n = len(other.top)
        self.grow(n)
        top = np.maximum(self.top[:n], other.top)
        with np.errstate(invalid="ignore"):
            mine = np.where(np.isneginf(top), 0.0, np.exp(self.top[:n] - top))
            theirs = np.where(np.isneginf(top), 0.0, np.exp(other.top - top))
        self.one[:n] = self.one[:n] * mine + other.one * theirs
        self.two[:n] = self.two[:n] * mine**2 + other.two * theirs**2
        self.top[:n] = top

    def ess(self) -> Array:
        """Kish effective sample size (ΣW)²/ΣW² by cell, NaN where empty."""
        return np.where(self.two > 0, self.one**2 / np.where(self.two > 0, self.two, 1.0), np.nan)


@dataclass(slots=True)
class GapState:
    """Sums for the gap on one axis; every attribute adds up over shards.

    Attributes:
        axis, gamma, all_starts: what the sums are of; all_starts False keeps position 0 only.
        spread: whether the U-statistic of the spread over prompts is kept.
        pairs: (group, pair of cells, kernels.N_PAIR), or (group, cell, .) for position 0;
            cells: (group, cell, kernels.N_CELL); starts: (group, cell, kernels.N_START);
            rollouts: (group, 1, N_ROLLOUT).
        longest: policy tokens of the longest rollout.
        table: within-prompt sums; weights, tails: Σ, Σ² and largest values of exp(S_t) by start.
    """

    axis: Axis
    gamma: float
    all_starts: bool
    spread: bool = True
    longest: int = 0
    pairs: GroupSums = field(default_factory=lambda: GroupSums(kernels.N_PAIR))
    cells: GroupSums = field(default_factory=lambda: GroupSums(kernels.N_CELL))
    starts: GroupSums = field(default_factory=lambda: GroupSums(kernels.N_START))
    rollouts: GroupSums = field(default_factory=lambda: GroupSums(N_ROLLOUT))
    table: SiblingTable = field(default_factory=lambda: SiblingTable(0))
    weights: LogSumExp = field(default_factory=LogSumExp)
    tails: TopK = field(default_factory=lambda: TopK(TAIL))

    def __post_init__(self) -> None:
        self.rollouts.grow(1)
        if self.spread and self.axis == "position" and self.table.n_octaves == 0:
            self.table = SiblingTable(N_OCTAVES)

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
        longest = int(batch.lengths[chosen].max(initial=0))
        if longest == 0:
            return
        self.longest = max(self.longest, longest)
        edges = cell_edges(longest)
        n_cells = self._grow(len(edges) - 1)
        rows = np.zeros((batch.n_rollouts, N_ROLLOUT))
        logs = np.full((batch.n_rollouts, n_cells if self.all_starts else 1), np.nan)
        n_octaves = kernels.coarse_cell(len(edges) - 2) + 1 if self.table.n_octaves else 0
        octaves = np.zeros((batch.n_rollouts, 3 * n_octaves))
        order, parts = partition(
            batch.group, batch.lengths, chosen, threads * PARTS_PER_THREAD if threads > 1 else 1
        )
        add = self._adder(batch, info, edges, longest, rows, logs, octaves)
        in_parts(lambda p: add(order, parts[p], parts[p + 1]), len(parts) - 1, threads)
        self._tabulate(batch, info, chosen, rows, logs, octaves)

    def merge(self, other: GapState) -> None:
        """Add another shard's state in place."""
        same = (self.axis, self.gamma, self.all_starts, self.spread)
        if same != (other.axis, other.gamma, other.all_starts, other.spread):
            raise InputError("states of different axis, gamma, starts or spread cannot be added")
        self.longest = max(self.longest, other.longest)
        for name in ("pairs", "cells", "starts", "rollouts", "table", "weights", "tails"):
            getattr(self, name).merge(getattr(other, name))

    def _grow(self, n_cells: int) -> int:
        if self.axis == "relative":
            n_cells = N_RELATIVE
        self.cells.grow(n_cells)
        self.starts.grow(n_cells)
        self.pairs.grow(n_cells * (n_cells + 1) // 2 if self.all_starts else n_cells)
        return n_cells

    def _adder(
        self,
        batch: Rollouts,
        info: RolloutInfo,
        edges: npt.NDArray[np.int64],
        longest: int,
        rows: Array,
        logs: Array,
        octaves: Array,
    ) -> Callable[[npt.NDArray[np.int64], int, int], None]:
        """What adds rollouts order[low:high] of a batch to this state."""
        nothing = np.zeros(1, np.float32)
        arguments = (
            batch.offsets,
            nothing if batch.mu_logprobs is None else batch.mu_logprobs,
            nothing if batch.pi_logprobs is None else batch.pi_logprobs,
            nothing if batch.values is None else batch.values,
            batch.values is not None,
            batch.rewards,
            batch.dense,
            batch.bootstrap,
            self.gamma,
            info.z,
            batch.group,
            info.use,
            batch.has_reward & info.counted,
            batch.has_values & info.counted & (batch.values is not None),
            AXES[self.axis],
            edges,
            self.all_starts,
            np.array([GateThresholds().tau, GateThresholds().tau_bracket]),
            longest,
            self.pairs.array,
            self.cells.array,
            self.starts.array,
            rows,
            logs,
            octaves,
        )

        def add(order: npt.NDArray[np.int64], low: int, high: int) -> None:
            kernels.accumulate(order, low, high, *arguments)

        return add

    def _tabulate(
        self,
        batch: Rollouts,
        info: RolloutInfo,
        chosen: npt.NDArray[np.int64],
        rows: Array,
        logs: Array,
        octaves: Array,
    ) -> None:
        group = batch.group[chosen]
        add_to_groups(rows[chosen], group, self.rollouts.array[:, 0])
        kept = logs[chosen]
        self.weights.add(kept)
        self.tails.add(kept)
        self.table.add(
            info.siblings[chosen].tolist(),
            info.expected[chosen],
            group,
            info.use[chosen],
            kept,
            rows[chosen, 1],
            octaves[chosen],
        )


def partition(
    group: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    chosen: npt.NDArray[np.int64],
    threads: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Order rollouts by group and cut the order between groups into `threads` parts of like size.

    A group is worked by one thread, in log order: sums come out the same bit by bit whatever the
    number of threads and however the log is cut into batches.
    """
    order = chosen[np.argsort(group[chosen], kind="stable")]
    if threads <= 1 or len(order) == 0:
        return order, np.array([0, len(order)], np.int64)
    sorted_groups = group[order]
    tokens = np.cumsum(lengths[order])
    cuts = [0]
    for part in range(1, threads):
        at = int(np.searchsorted(tokens, tokens[-1] * part / threads))
        at = int(np.searchsorted(sorted_groups, sorted_groups[min(at, len(order) - 1)], "left"))
        cuts.append(max(at, cuts[-1]))
    return order, np.array([*cuts, len(order)], np.int64)
