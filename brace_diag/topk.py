"""The largest values of every cell, kept exactly whatever the order and the shards."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from numba import njit

from brace_diag.errors import InputError

Array = npt.NDArray[np.float64]


@njit(cache=True, nogil=True)
def _push(heap, value):  # type: ignore[no-untyped-def]
    """Replace the smallest of a binary min-heap by a larger value."""
    n = len(heap)
    at = 0
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        if child + 1 < n and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = value


@njit(cache=True, nogil=True)
def _push_all(heaps, values):  # type: ignore[no-untyped-def]
    """Offer values (n, n_cells) to the heaps of their cells; NaN is never larger."""
    for i in range(values.shape[0]):
        for cell in range(values.shape[1]):
            if values[i, cell] > heaps[cell, 0]:
                _push(heaps[cell], values[i, cell])


@dataclass(slots=True)
class TopK:
    """The k largest values of every cell, as heaps that merge exactly.

    Attributes:
        k: how many are kept for a cell.
        values: float64 (n_cells, k), each row a min-heap, -inf where fewer have been seen;
            `largest` gives them in order.
    """

    k: int
    values: Array = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        if self.values.size == 0:
            self.values = np.full((0, self.k), -np.inf)

    def grow(self, n_cells: int) -> None:
        """Make room for at least `n_cells` cells."""
        missing = n_cells - len(self.values)
        if missing > 0:
            self.values = np.concatenate([self.values, np.full((missing, self.k), -np.inf)])

    def add(self, values: Array) -> None:
        """Add values (n, n_cells); NaN marks a cell without one."""
        self.grow(values.shape[1])
        _push_all(self.values, values)

    def merge(self, other: TopK) -> None:
        """Add another shard's values in place."""
        if other.k != self.k:
            raise InputError(f"top-{other.k} cannot be merged into top-{self.k}")
        self.add(np.ascontiguousarray(other.values.T))

    def largest(self, cell: int) -> Array:
        """The kept values of a cell, ascending, (k,)."""
        return np.sort(self.values[cell])
