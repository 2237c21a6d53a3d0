"""A table with one row per rollout, written while a log is measured."""

from __future__ import annotations

import os
from types import TracebackType

from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.estimators.rollout_rows import rollout_rows
from brace_diag.rollouts import Rollouts
from brace_diag.writer import CanonicalWriter

ROWS_PER_GROUP = 1 << 16


class RolloutTable:
    """Context manager whose `add` is the `watch` of `value_gap`; see `rollout_rows` for columns.

    The file appears when the block ends well, and not at all otherwise.

    Args:
        path: file to write, Parquet.
        gamma: discount per policy token.
        force: replace a file that is there.

    Raises: as `CanonicalWriter`.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, gamma: float = 1.0, force: bool = False
    ) -> None:
        self.gamma = gamma
        self._writer = CanonicalWriter(path, force=force, rows_per_group=ROWS_PER_GROUP)

    def __enter__(self) -> RolloutTable:
        self._writer.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.__exit__(kind, error, trace)

    def add(self, batch: Rollouts, info: RolloutInfo) -> None:
        """Write the rows of a batch."""
        self._writer.write(rollout_rows(batch, info, self.gamma))
