"""What the first, cheap pass over a log knows: sets of siblings and the returns of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class SiblingIndex:
    """Per row of the run, in reading order.

    Attributes:
        key: uint64 (n_rows,), same for rollouts of one prompt in one step.
        expected: int64 (n_rows,), rows of the set.
        others_mean: float64 (n_rows,), mean total reward of the other rollouts of the set whose
            reward is known; NaN where there is none.
        has_siblings: whether any set holds two rows.
    """

    key: npt.NDArray[np.uint64]
    expected: npt.NDArray[np.int64]
    others_mean: npt.NDArray[np.float64]

    @property
    def has_siblings(self) -> bool:
        return bool((self.expected > 1).any())

    @classmethod
    def build(
        cls,
        prompt: npt.NDArray[np.uint64],
        step: npt.NDArray[np.int64] | None,
        total_reward: npt.NDArray[np.float64],
    ) -> SiblingIndex:
        """Sets of siblings from the scalar columns of the whole run."""
        key = prompt if step is None else _mix(prompt ^ _mix(step.astype(np.uint64)))
        _, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
        known = np.isfinite(total_reward)
        reward = np.where(known, total_reward, 0.0)
        total = np.bincount(inverse, weights=reward)
        number = np.bincount(inverse, weights=known.astype(np.float64))
        others = number[inverse] - known
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(others > 0, (total[inverse] - reward) / others, np.nan)
        return cls(key, counts[inverse].astype(np.int64), mean)


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """splitmix64 finaliser, element by element."""
    with np.errstate(over="ignore"):
        z = x + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out: Any = z ^ (z >> np.uint64(31))
    return out  # type: ignore[no-any-return]
