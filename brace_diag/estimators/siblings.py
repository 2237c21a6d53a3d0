"""Within-prompt figures: sums over the rollouts of one prompt in one step, closed when complete.

Variances within prompts and the U-statistic of E_p[b_p²] need the sums of each set of siblings, not
of a hash group of prompts. See `open_sets` for how a set is kept until all its rows have been seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from numba import njit

from brace_diag.estimators.open_sets import OpenSets, widened
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
    sets: OpenSets = field(default_factory=OpenSets)
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
        slots, complete = self.sets.take(keys, expected, groups)
        self._reserve(self.sets.n_slots, log_products.shape[1])
        self.within.grow(log_products.shape[1])
        _add_rows(slots, use, log_products, returns, octaves, *self.open)
        self._close(complete)

    def finish(self) -> None:
        """Close every set that is still open, in the order in which they were opened."""
        self._close(list(self.sets.slot_of))

    def merge(self, other: SiblingTable) -> None:
        """Add another shard's table; sets split between the two are joined."""
        self.within.merge(other.within)
        self.spread.merge(other.spread)
        self.u_statistic.merge(other.u_statistic)
        mine, theirs = self.sets.join(other.sets)
        if len(mine) == 0:
            return
        self._reserve(self.sets.n_slots, other.open[1].shape[1])
        for ours, added in zip(self.open, other.open, strict=True):
            inner = tuple(slice(0, size) for size in added.shape[1:])
            for at, row in zip(mine, theirs, strict=True):
                ours[(at, *inner)] += added[row]

    def _close(self, keys: list[int]) -> None:
        if not keys:
            return
        slots, groups = self.sets.release(keys)
        self.within.grow(self.open[1].shape[1])
        n, sums, squares, moments, linear, square = self.open
        _fold(
            slots, groups, n, sums, squares, moments, linear, square,
            self.within.array, self.spread.array, self.u_statistic.array,
        )  # fmt: skip

    def _reserve(self, n_slots: int, n_cells: int) -> None:
        width = 3 * self.n_octaves
        shapes: tuple[tuple[int, ...], ...] = (
            (n_slots,),
            (n_slots, n_cells, 2),
            (n_slots, n_cells),
            (n_slots, 2),
            (n_slots, width),
            (n_slots, width * (width + 1) // 2),
        )
        have = self.open or tuple(np.zeros((0,) * len(shape)) for shape in shapes)
        self.open = tuple(widened(x, shape) for x, shape in zip(have, shapes, strict=True))


@njit(cache=True, nogil=True)
def add_to_groups(values, groups, out):  # type: ignore[no-untyped-def]
    """out[group] += row for every row (n, f), in row order, so batching cannot change the sum."""
    for i in range(len(groups)):
        for f in range(values.shape[1]):
            out[groups[i], f] += values[i, f]
