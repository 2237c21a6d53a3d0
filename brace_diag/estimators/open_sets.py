"""Sets of siblings that are still open: a slot for each, given back once all its rows are seen.

Figures within prompts need the sums of each set of rollouts of one prompt in one step, not of a
hash group of prompts. Whoever needs them keeps arrays with a row per slot, adds rollouts to the
slots given here, folds the sets that are complete into sums that add up, and forgets them: memory
holds the open sets only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Slots = npt.NDArray[np.int64]


@dataclass(slots=True)
class OpenSets:
    """Which slot holds which set.

    Attributes:
        slot_of, group_of, seen: by key of the set: its slot, its hash group, its rows so far.
        free: slots below `n_slots` that hold none.
    """

    slot_of: dict[int, int] = field(default_factory=dict)
    group_of: dict[int, int] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)

    @property
    def n_slots(self) -> int:
        """Slots that arrays must have room for."""
        return max(self.slot_of.values(), default=-1) + 1

    def take(
        self, keys: list[int], expected: npt.NDArray[np.int64], groups: npt.NDArray[np.int64]
    ) -> tuple[Slots, list[int]]:
        """Slot of each rollout, and the keys of the sets that are complete with these.

        Args: keys: set of each rollout; expected: rows of its set in the run, 0 if unknown.
        """
        slots = np.empty(len(keys), np.int64)
        complete: list[int] = []
        for i, key in enumerate(keys):
            slots[i] = self._slot(key, int(groups[i]))
            self.seen[key] += 1
            if self.seen[key] == expected[i]:
                complete.append(key)
        return slots, complete

    def join(self, other: OpenSets) -> tuple[Slots, Slots]:
        """Take over another shard's open sets: slots here, and the same sets' slots there."""
        mine = np.empty(len(other.slot_of), np.int64)
        for i, key in enumerate(other.slot_of):
            mine[i] = self._slot(key, other.group_of[key])
            self.seen[key] += other.seen[key]
        return mine, np.fromiter(other.slot_of.values(), np.int64, len(mine))

    def release(self, keys: list[int]) -> tuple[Slots, npt.NDArray[np.int64]]:
        """Forget sets: slots and groups that they had, in the order given."""
        slots = np.array([self.slot_of.pop(key) for key in keys], np.int64)
        groups = np.array([self.group_of.pop(key) for key in keys], np.int64)
        for key in keys:
            del self.seen[key]
        self.free.extend(slots.tolist())
        return slots, groups

    def _slot(self, key: int, group: int) -> int:
        slot = self.slot_of.get(key, -1)
        if slot < 0:
            slot = self.free.pop() if self.free else len(self.slot_of)
            self.slot_of[key] = slot
            self.group_of[key] = group
            self.seen[key] = 0
        return slot


def widened(array: Array, shape: tuple[int, ...]) -> Array:
    """The array with room for `shape`, new places 0; itself where it has the room.

    A first axis that grows at least doubles, so that filling it one by one stays cheap.
    """
    if all(have >= need for have, need in zip(array.shape, shape, strict=True)):
        return array
    sizes = [max(have, need) for have, need in zip(array.shape, shape, strict=True)]
    if shape[0] > array.shape[0]:
        sizes[0] = max(shape[0], 2 * array.shape[0])
    fresh = np.zeros(sizes)
    fresh[tuple(slice(0, size) for size in array.shape)] = array
    return fresh
