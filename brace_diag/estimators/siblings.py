"""Within-prompt figures: sums over the rollouts of one prompt in one step, closed when complete.

Variances within prompts and the U-statistic of E_p[b_p²] need the sums of each set of siblings, not
of a hash group of prompts. A set is kept open until all its rows have been seen, then folded into
additive group sums and forgotten, so memory holds the open sets only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from numba import njit

from brace_diag.sums import GroupSums

Array = npt.NDArray[np.float64]


@njit(cache=True, nogil=True)
def _add_rows(  # type: ignore[no-untyped-def]
    slots, use, log_products, returns, octaves, n, sums, squares, moments, linear, square
):
    """Add rows to the slots of their sets, in order."""
    n_cells = log_products.shape[1]
    width = octaves.shape[1]
    for i in range(len(slots)):
        if not use[i]:
            continue
        s = slots[i]
        n[s] += 1
        moments[s, 0] += returns[i]
        moments[s, 1] += returns[i] * returns[i]
        for c in range(n_cells):
            value = log_products[i, c]
            if not np.isnan(value):
                sums[s, c, 0] += 1.0
                sums[s, c, 1] += value
                squares[s, c] += value * value
        at = 0
        for a in range(width):
            linear[s, a] += octaves[i, a]
            for b in range(a + 1):
                square[s, at] += octaves[i, a] * octaves[i, b]
                at += 1


@njit(cache=True, nogil=True)
def _fold(slots, groups, n, sums, squares, moments, linear, square, within, spread, u_statistic):  # type: ignore[no-untyped-def]
    """Close sets of siblings, in the order given, into the sums of their groups; zero the slots."""
    for j in range(len(slots)):
        s = slots[j]
        g = groups[j]
        for c in range(sums.shape[1]):
            m = sums[s, c, 0]
            if m >= 2:
                within[g, c, 0] += max(squares[s, c] - sums[s, c, 1] * sums[s, c, 1] / m, 0.0)
                within[g, c, 1] += m - 1.0
        m = n[s]
        if m >= 2:
            spread[g, 0, 0] += max(moments[s, 1] - moments[s, 0] * moments[s, 0] / m, 0.0)
            spread[g, 0, 1] += m - 1.0
            pairs = m * (m - 1.0)
            at = 0
            for a in range(linear.shape[1]):
                for b in range(a + 1):
                    cross = linear[s, a] * linear[s, b] - square[s, at]
                    u_statistic[g, 0, 1 + at] += cross / pairs
                    at += 1
            u_statistic[g, 0, 0] += 1.0
        n[s] = 0
        moments[s] = 0.0
        sums[s] = 0.0
        squares[s] = 0.0
        linear[s] = 0.0
        square[s] = 0.0


@dataclass(slots=True)
class SiblingTable:
    """Open sets of siblings and the group sums of the closed ones.

    Attributes:
        n_octaves: octaves of position for the U-statistic, 0 for none.
        within: (N_GROUPS, n_cells, 2): within-set sum of squares of S_t and its degrees of freedom.
        spread: (N_GROUPS, 1, 2): the same of the return G_0.
        u_statistic: (N_GROUPS, 1, 1 + m(m+1)/2), m = 3 n_octaves: sets with two rollouts or more,
            and the lower triangle of Σ_sets (Σx Σxᵀ - Σxxᵀ)/(n(n-1)) over x = the rollout's
            (ΣhuD, Σhu, zΣhu) by octave, from position 0.
    """

    n_octaves: int
    within: GroupSums = field(default_factory=lambda: GroupSums(2))
    spread: GroupSums = field(default_factory=lambda: GroupSums(2))
    u_statistic: GroupSums = field(default_factory=lambda: GroupSums(1))
    slot_of: dict[int, int] = field(default_factory=dict)
    group_of: dict[int, int] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)
    open: tuple[Array, ...] = ()

    def __post_init__(self) -> None:
        width = 3 * self.n_octaves
        if self.u_statistic.n_cells == 0:
            self.u_statistic = GroupSums(1 + width * (width + 1) // 2)
            self.u_statistic.grow(1)
            self.spread.grow(1)

    def add(
        self,
        keys: list[int],
        expected: npt.NDArray[np.int64],
        groups: npt.NDArray[np.int64],
        use: npt.NDArray[np.bool_],
        log_products: Array,
        returns: Array,
        octaves: Array,
    ) -> None:
        """Add rollouts in order; sets whose rows have all been seen are closed.

        Args:
            keys: sibling set of each rollout; expected: rows of its set in the run, 0 if unknown.
            use: rollouts that enter the sums; the others only count as seen.
        """
        slots = np.empty(len(keys), np.int64)
        complete: list[int] = []
        for i, key in enumerate(keys):
            slot = self.slot_of.get(key, -1)
            if slot < 0:
                slot = self.free.pop() if self.free else len(self.slot_of)
                self.slot_of[key] = slot
                self.group_of[key] = int(groups[i])
                self.seen[key] = 0
            slots[i] = slot
            self.seen[key] += 1
            if self.seen[key] == expected[i]:
                complete.append(key)
        self._reserve(max(self.slot_of.values(), default=-1) + 1, log_products.shape[1])
        self.within.grow(log_products.shape[1])
        _add_rows(slots, use, log_products, returns, octaves, *self.open)
        self._close(complete)

    def finish(self) -> None:
        """Close every set that is still open, in the order in which they were opened."""
        self._close(list(self.slot_of))

    def merge(self, other: SiblingTable) -> None:
        """Add another shard's table; sets split between the two are joined."""
        self.within.merge(other.within)
        self.spread.merge(other.spread)
        self.u_statistic.merge(other.u_statistic)
        for key, slot in other.slot_of.items():
            mine = self.slot_of.get(key, -1)
            if mine < 0:
                mine = self.free.pop() if self.free else len(self.slot_of)
                self.slot_of[key] = mine
                self.group_of[key] = other.group_of[key]
                self.seen[key] = 0
            self.seen[key] += other.seen[key]
            n_cells = other.open[1].shape[1]
            self._reserve(mine + 1, n_cells)
            for ours, theirs in zip(self.open, other.open, strict=True):
                if ours.ndim >= 2 and ours.shape[1] != theirs.shape[1]:
                    ours[mine, : theirs.shape[1]] += theirs[slot]
                else:
                    ours[mine] += theirs[slot]

    def _close(self, keys: list[int]) -> None:
        if not keys:
            return
        slots = np.array([self.slot_of[k] for k in keys], np.int64)
        groups = np.array([self.group_of[k] for k in keys], np.int64)
        self.within.grow(self.open[1].shape[1])
        n, sums, squares, moments, linear, square = self.open
        _fold(
            slots, groups, n, sums, squares, moments, linear, square,
            self.within.array, self.spread.array, self.u_statistic.array,
        )  # fmt: skip
        for key in keys:
            self.free.append(self.slot_of.pop(key))
            del self.group_of[key], self.seen[key]

    def _reserve(self, n_slots: int, n_cells: int) -> None:
        width = 3 * self.n_octaves
        have = len(self.open[0]) if self.open else 0
        have_cells = self.open[1].shape[1] if self.open else 0
        if n_slots <= have and n_cells <= have_cells:
            return
        slots, cells = (
            max(n_slots, have, 2 * have if n_slots > have else 0),
            max(n_cells, have_cells),
        )
        fresh = (
            np.zeros(slots),
            np.zeros((slots, cells, 2)),
            np.zeros((slots, cells)),
            np.zeros((slots, 2)),
            np.zeros((slots, width)),
            np.zeros((slots, width * (width + 1) // 2)),
        )
        for new, old in zip(fresh, self.open, strict=False):
            new[tuple(slice(0, size) for size in old.shape)] = old
        self.open = fresh


@njit(cache=True, nogil=True)
def add_to_groups(values, groups, out):  # type: ignore[no-untyped-def]
    """out[group] += row for every row (n, f), in row order, so batching cannot change the sum."""
    for i in range(len(groups)):
        for f in range(values.shape[1]):
            out[groups[i], f] += values[i, f]
