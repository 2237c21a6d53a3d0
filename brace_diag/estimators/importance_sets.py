"""Sums over the rollouts of one prompt in one step: what tells spread between prompts from within.

A set of siblings is kept open until all its rows have been seen, then folded into sums by group
and forgotten, so memory holds the open sets only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from numba import njit

from brace_diag.estimators import importance_kernels as k
from brace_diag.estimators.open_sets import OpenSets, widened
from brace_diag.sums import GroupSums

Array = npt.NDArray[np.float64]

SET_CAPS = (k.CHOSEN, k.NONE)
"""Caps whose spread between prompts is measured."""
# Sums of one open set: rollouts, ΣT, ΣT²; then for each cap ΣS, ΣS², ΣST and the three long-run
# sums, with T the tokens of a rollout and S its Σy.
PER_CAP = 6
N_OPEN = 3 + PER_CAP * len(SET_CAPS)
# Sums of closed sets: sets, ΣN², sets of one rollout, ΣN over those; then for each cap Σ Y²/N,
# Σ N v and Σ N² v (sets of two or more), and the long-run sum of squares about the set's mean.
SETS, N2, LONE, LONE_N = range(4)
FOLDED = 4
B, NV, N2V, H = range(4)
N_CLOSED = FOLDED + 4 * len(SET_CAPS)


@njit(cache=True, nogil=True)
def _add_rows(slots, use, rows, sums):  # type: ignore[no-untyped-def]
    """Add the used rows to the slots of their sets, in order."""
    for i in range(len(slots)):
        if not use[i]:
            continue
        s = sums[slots[i]]
        row = rows[i]
        tokens = row[k.TOKENS]
        s[0] += 1.0
        s[1] += tokens
        s[2] += tokens * tokens
        for j in range(len(SET_CAPS)):
            cap = SET_CAPS[j]
            y = row[k.Y + cap]
            at = 3 + PER_CAP * j
            s[at] += y
            s[at + 1] += y * y
            s[at + 2] += y * tokens
            for f in range(3):
                s[at + 3 + f] += row[k.LONG + 3 * cap + f]


@njit(cache=True, nogil=True)
def _fold(slots, groups, sums, out):  # type: ignore[no-untyped-def]
    """Close sets, in the order given, into the sums of their groups; zero their slots.

    With c = Y/N the mean of a set, the sampling variance of c is from the rollouts of the set,

        v = n/(n - 1) Σ (S - c T)² / N².
    """
    for i in range(len(slots)):
        s = sums[slots[i]]
        total = out[groups[i]]
        n = s[0]
        tokens = s[1]
        if tokens > 0.0:
            total[SETS] += 1.0
            total[N2] += tokens * tokens
            if n < 2.0:
                total[LONE] += 1.0
                total[LONE_N] += tokens
            for j in range(len(SET_CAPS)):
                at = 3 + PER_CAP * j
                c = s[at] / tokens
                to = FOLDED + 4 * j
                total[to + B] += s[at] * c
                if n >= 2.0:
                    spread = max(s[at + 1] - 2.0 * c * s[at + 2] + c * c * s[2], 0.0)
                    spread *= n / (n - 1.0)
                    total[to + NV] += spread / tokens
                    total[to + N2V] += spread
                total[to + H] += s[at + 3] - c * s[at + 4] + c * c * s[at + 5]
        s[:] = 0.0


@dataclass(slots=True)
class SetTable:
    """Open sets of siblings, and the sums of the closed ones.

    Attributes:
        closed: (group, 1, N_CLOSED).
        sets: which row of `open` holds which open set; open: (n_slots, N_OPEN).
    """

    closed: GroupSums = field(default_factory=lambda: GroupSums(N_CLOSED))
    sets: OpenSets = field(default_factory=OpenSets)
    open: Array = field(default_factory=lambda: np.zeros((0, N_OPEN)))

    def __post_init__(self) -> None:
        self.closed.grow(1)

    def add(
        self,
        keys: npt.NDArray[np.uint64],
        expected: npt.NDArray[np.int64],
        groups: npt.NDArray[np.int64],
        use: npt.NDArray[np.bool_],
        rows: Array,
    ) -> None:
        """Add rollouts in order; sets whose rows have all been seen are closed.

        Args:
            keys: set of each rollout; expected: rows of its set in the run, 0 if unknown.
            use: rollouts that enter the sums; the others only count as seen.
            rows: (n, N_ROW).
        """
        slots, complete = self.sets.take(keys.tolist(), expected, groups)
        self.open = widened(self.open, (self.sets.n_slots, N_OPEN))
        _add_rows(slots, use, rows, self.open)
        self._close(complete)

    def finish(self) -> None:
        """Close every set that is still open, in the order in which they were opened."""
        self._close(list(self.sets.slot_of))

    def merge(self, other: SetTable) -> None:
        """Add another shard's table; sets split between the two are joined."""
        self.closed.merge(other.closed)
        mine, theirs = self.sets.join(other.sets)
        self.open = widened(self.open, (self.sets.n_slots, N_OPEN))
        self.open[mine] += other.open[theirs]

    def _close(self, keys: list[int]) -> None:
        if keys:
            slots, groups = self.sets.release(keys)
            _fold(slots, groups, self.open, self.closed.array[:, 0])
