"""Estimates by step or staleness: a state for each key, closed once the log has moved past it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.rollouts import UNKNOWN, Rollouts


class State(Protocol):
    """What every estimator's sums can do."""

    def update(
        self,
        batch: Rollouts,
        info: RolloutInfo,
        *,
        subset: npt.NDArray[np.int64] | None = None,
        threads: int = 1,
    ) -> None: ...


S = TypeVar("S", bound=State)
R = TypeVar("R")


class KeyedStates(Generic[S, R]):
    """One state for each key that is still to come; results of those that are complete.

    Rows whose key is not known belong to no key. Memory holds the open keys only, so a log that is
    sorted by its key needs one or two states however many keys it has.
    """

    def __init__(
        self,
        keys: npt.NDArray[np.int64],
        make: Callable[[], S],
        close: Callable[[int, S], R],
    ) -> None:
        """Take the key of every row of the run, how to begin a state and how to end it."""
        self.keys, self.make, self.close = keys, make, close
        known, counts = np.unique(keys, return_counts=True)
        self.left: dict[int, int] = dict(zip(known.tolist(), counts.tolist(), strict=True))
        self.open: dict[int, S] = {}
        self.closed: dict[int, R] = {}

    def update(self, batch: Rollouts, info: RolloutInfo, threads: int = 1) -> None:
        """Add a batch to the states of its keys."""
        keys = self.keys[batch.row]
        for key in np.unique(keys).tolist():
            if key == UNKNOWN:
                continue
            subset = np.flatnonzero(keys == key)
            if key not in self.open:
                self.open[key] = self.make()
            self.open[key].update(batch, info, subset=subset, threads=threads)
            self.left[key] -= len(subset)
            if self.left[key] == 0:
                self.closed[key] = self.close(key, self.open.pop(key))

    def results(self) -> tuple[R, ...]:
        """Results in order of the key; what is still open is closed."""
        for key in list(self.open):
            self.closed[key] = self.close(key, self.open.pop(key))
        return tuple(self.closed[key] for key in sorted(self.closed))


def keyed(
    keys: npt.NDArray[np.int64] | None, make: Callable[[], Any], close: Callable[[int, Any], Any]
) -> KeyedStates[Any, Any] | None:
    """`KeyedStates`, or None where no key was asked for."""
    return None if keys is None else KeyedStates(keys, make, close)
