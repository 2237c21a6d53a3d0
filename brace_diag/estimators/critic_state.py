"""Additive state of the critic's fit: what one pass over a log leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError
from brace_diag.estimators import critic_kernels as kernels
from brace_diag.estimators.critic_frame import (
    CALIBRATION_BINS,
    DENSITY_BINS,
    OCTAVES,
    PER_OCTAVE,
    Frame,
    equal_bins,
)
from brace_diag.estimators.gap_state import partition
from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.rollouts import Rollouts
from brace_diag.settings import TargetSpec, cell_edges
from brace_diag.sums import GroupSums
from brace_diag.targets import cpu
from brace_diag.targets.recursion import recursion

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
WHOLE = np.array([0, 2**62], np.int64)
"""Edges of one cell that holds every position."""


@dataclass(frozen=True, slots=True)
class CriticInfo(RolloutInfo):
    """`RolloutInfo` with the targets of the batch, computed once for every state.

    Attributes:
        judged: (n_rollouts,) return and every value are known, no copy.
        targets: (n_targets, n_tokens) float64.
        reached: (n_targets, n_rollouts) judged, and every target is a number.
    """

    judged: npt.NDArray[np.bool_]
    targets: Array
    reached: npt.NDArray[np.bool_]


def critic_info(batch: Rollouts, info: RolloutInfo, specs: tuple[TargetSpec, ...]) -> CriticInfo:
    """Targets of a batch, and which rollouts have them."""
    judged = info.counted & batch.has_reward & batch.has_values & (batch.lengths > 0)
    targets = np.empty((len(specs), batch.n_tokens))
    reached = np.zeros((len(specs), batch.n_rollouts), np.bool_)
    for out, whole, spec in zip(targets, reached, specs, strict=True):
        _targets(batch, spec, out)
        kernels.whole_rollouts(out, batch.offsets, whole)
    return CriticInfo(
        info.use, info.counted, info.z, info.siblings, info.expected, judged, targets,
        reached & judged,
    )  # fmt: skip


def _targets(batch: Rollouts, spec: TargetSpec, out: Array) -> None:
    nothing: Any = np.zeros(0, np.float32)
    rewards = batch.rewards if batch.dense else batch.rewards[:, None]
    columns = (batch.mu_logprobs, batch.pi_logprobs, batch.values)
    mu, pi, values = (nothing if column is None else column for column in columns)
    rec = recursion(spec.name, **spec.parameters)
    cpu.targets(rec, mu, pi, values, rewards, batch.bootstrap, batch.offsets, out)


@dataclass(slots=True)
class CriticState:
    """Sums for the critic's fit; every attribute adds up over shards.

    Attributes:
        frame, n_targets: what the sums are of.
        positions: whether cells are positions; else one cell holds all tokens.
        binned, dense: whether values are binned for the calibration, and counted with each target.
        cells: (group, cell, kernels.N_CELL); apart: (group, cell, N_DISTANCE · n_targets);
            bins: (group, bin, kernels.N_BIN).
        extents: (n_cells, 4) smallest and largest G, smallest and largest V.
        counts: int64 (n_targets, n, n) tokens by (critic, target).
    """

    frame: Frame
    n_targets: int
    positions: bool = True
    binned: bool = True
    dense: bool = True
    cells: GroupSums = field(default_factory=lambda: GroupSums(kernels.N_CELL))
    apart: GroupSums = field(default_factory=lambda: GroupSums(0))
    bins: GroupSums = field(default_factory=lambda: GroupSums(kernels.N_BIN))
    extents: Array = field(default_factory=lambda: np.zeros((0, 4)))
    counts: Ints = field(default_factory=lambda: np.zeros((0, 0, 0), np.int64))

    def __post_init__(self) -> None:
        if self.apart.n_features == 0:
            self.apart = GroupSums(kernels.N_DISTANCE * self.n_targets)
        self._grow(1)
        if self.binned:
            self.bins.grow(len(self.frame.edges(CALIBRATION_BINS)) + 1)
        if self.counts.size == 0:
            width = len(self.frame.edges(DENSITY_BINS)) + 1 if self.dense else 0
            self.counts = np.zeros((self.n_targets, width, width), np.int64)

    def update(
        self,
        batch: Rollouts,
        info: CriticInfo,
        *,
        subset: Ints | None = None,
        threads: int = 1,
    ) -> None:
        """Add a batch, or the rollouts `subset` (ascending) of it."""
        if batch.values is None:
            return
        chosen = np.arange(batch.n_rollouts) if subset is None else subset
        longest = int(batch.lengths[chosen].max(initial=0))
        if longest == 0:
            return
        edges = cell_edges(longest) if self.positions else WHOLE
        self._grow(len(edges) - 1)
        group = batch.group
        order, parts = partition(group, batch.lengths, chosen, threads)
        n_parts = len(parts) - 1
        extents = np.tile(_NOWHERE, (n_parts, self.cells.n_cells, 1))
        counts = np.zeros((n_parts, *self.counts.shape), np.int64)
        kernels.accumulate(
            np.stack([order, group[order]], axis=1),
            parts,
            batch.offsets,
            batch.values,
            batch.rewards,
            batch.dense,
            batch.bootstrap,
            info.judged,
            info.targets,
            info.reached,
            (self.frame.gamma, self.frame.centre, *self.frame.limits),
            edges,
            self.frame.edges(CALIBRATION_BINS),
            self.frame.edges(DENSITY_BINS),
            PER_OCTAVE * OCTAVES,
            (equal_bins(CALIBRATION_BINS), equal_bins(DENSITY_BINS)),
            longest,
            self.cells.array,
            self.apart.array,
            self.bins.array,
            extents,
            counts,
        )
        self.counts += counts.sum(axis=0)
        for part in extents:
            self._widen(part)

    def merge(self, other: CriticState) -> None:
        """Add another shard's state in place."""
        for name in ("frame", "n_targets", "positions", "binned", "dense"):
            if getattr(self, name) != getattr(other, name):
                raise InputError(f"critic states of different {name} cannot be added")
        self._grow(other.cells.n_cells)
        for name in ("cells", "apart", "bins"):
            getattr(self, name).merge(getattr(other, name))
        self.counts += other.counts
        self._widen(other.extents)

    def _grow(self, n_cells: int) -> None:
        self.cells.grow(n_cells)
        self.apart.grow(n_cells)
        missing = n_cells - len(self.extents)
        if missing > 0:
            self.extents = np.concatenate([self.extents, np.tile(_NOWHERE, (missing, 1))])

    def _widen(self, other: Array) -> None:
        mine = self.extents[: len(other)]
        np.minimum(mine[:, ::2], other[:, ::2], out=mine[:, ::2])
        np.maximum(mine[:, 1::2], other[:, 1::2], out=mine[:, 1::2])


_NOWHERE = np.array([np.inf, -np.inf, np.inf, -np.inf])
