"""The cheap first pass over a run: what every row is, without its tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from brace_diag.rollouts import UNKNOWN, Rollouts


@dataclass(frozen=True, slots=True, eq=False)
class RunIndex:
    """One entry per row, in the order and numbering of `Run.rollouts()`.

    Attributes:
        prompt: uint64 (n_rows,), as `Rollouts.prompt`.
        step: int64 (n_rows,), `UNKNOWN` where not logged; or None.
        total_reward: float64 (n_rows,), as `Rollouts.total_reward`: NaN where the return is not
            known or the row has no policy token.
        staleness: int64 (n_rows,), trainer version - behaviour version, `UNKNOWN` where either is
            not logged; or None.
    """

    prompt: npt.NDArray[np.uint64]
    step: npt.NDArray[np.int64] | None
    total_reward: npt.NDArray[np.float64]
    staleness: npt.NDArray[np.int64] | None

    @property
    def n_rows(self) -> int:
        """Rows of the run, empty ones included."""
        return len(self.prompt)


def index_of(rollouts: Rollouts) -> RunIndex:
    """Index of one batch."""
    return RunIndex(
        prompt=rollouts.prompt,
        step=rollouts.step,
        total_reward=rollouts.total_reward,
        staleness=rollouts.staleness,
    )


def joined(parts: Iterable[RunIndex]) -> RunIndex:
    """Indices of successive batches as one; a column that no batch has is None."""
    rows = list(parts)
    sizes = [part.n_rows for part in rows]
    return RunIndex(
        prompt=np.concatenate([np.zeros(0, np.uint64), *(part.prompt for part in rows)]),
        step=_joined([part.step for part in rows], sizes),
        total_reward=np.concatenate([np.zeros(0), *(part.total_reward for part in rows)]),
        staleness=_joined([part.staleness for part in rows], sizes),
    )


def _joined(
    columns: list[npt.NDArray[np.int64] | None], sizes: list[int]
) -> npt.NDArray[np.int64] | None:
    if all(column is None for column in columns):
        return None
    return np.concatenate(
        [
            np.full(size, UNKNOWN, dtype=np.int64) if column is None else column
            for column, size in zip(columns, sizes, strict=True)
        ]
    )
