"""What is read of a run: which columns, which steps, in which width; and a table turned by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError
from brace_diag.rollouts import UNKNOWN, Rollouts

ALWAYS = (
    "policy_mask", "prompt_id", "step", "reward", "rewards", "truncated", "bootstrap_value",
)  # fmt: skip
"""Columns that are read whatever is asked for: without them a `Rollouts` would not be right."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps start <= s < stop with (s - start) a multiple of `stride`; None is no bound."""

    start: int | None
    stop: int | None
    stride: int

    def keeps(self, steps: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which rows are kept, (n_rows,); an unknown step is never kept."""
        kept: npt.NDArray[np.bool_] = np.asarray(steps != UNKNOWN)
        if self.start is not None:
            kept &= steps >= self.start
        if self.stop is not None:
            kept &= steps < self.stop
        if self.stride > 1:
            kept &= np.where(kept, steps - (self.start or 0), 0) % self.stride == 0
        return kept

    def may_keep(self, low: int, high: int) -> bool:
        """Whether any step in low .. high could be kept."""
        if (self.start is not None and high < self.start) or (
            self.stop is not None and low >= self.stop
        ):
            return False
        first = self.start or 0
        next_one = first + -(-(max(low, first) - first) // self.stride) * self.stride
        return next_one <= high if self.start is not None or low >= 0 else True

    def __str__(self) -> str:
        ends = [str(x) if x is not None else "" for x in (self.start, self.stop)]
        return ":".join(ends) + (f":{self.stride}" if self.stride > 1 else "")


def parse_steps(steps: Any) -> Steps | None:
    """Steps as `a:b:c` (half open, on the step's value), a slice, one step, or None for all.

    Raises: InputError if it is none of these, or a bound is negative or the stride not positive.
    """
    if steps is None or isinstance(steps, Steps):
        return steps
    wanted = (
        f"steps is {steps!r}; it must be a:b:c as in Python, for example 60:220:20, or one step"
    )
    if isinstance(steps, (int, np.integer)) and not isinstance(steps, bool):
        return _bounded(int(steps), int(steps) + 1, 1, wanted)
    if isinstance(steps, slice):
        return _bounded(steps.start, steps.stop, steps.step, wanted)
    if not isinstance(steps, str):
        raise InputError(wanted)
    try:
        parts = [int(part) if part.strip() else None for part in steps.split(":")]
    except ValueError:
        raise InputError(wanted) from None
    if len(parts) == 1 and parts[0] is not None:
        return _bounded(parts[0], parts[0] + 1, 1, wanted)
    if not 2 <= len(parts) <= 3:
        raise InputError(wanted)
    return _bounded(parts[0], parts[1], parts[2] if len(parts) == 3 else None, wanted)


def _bounded(start: int | None, stop: int | None, stride: int | None, wanted: str) -> Steps:
    stride = 1 if stride is None else stride
    if stride < 1:
        raise InputError(f"{wanted}; the stride must be at least 1")
    if (start is not None and start < 0) or (stop is not None and stop < 0):
        raise InputError(f"{wanted}; bounds are values of the step column and cannot be negative")
    return Steps(start, stop, stride)


@dataclass(frozen=True, slots=True)
class Selection:
    """Columns and steps that one pass reads.

    Attributes:
        theirs: name in the log by canonical name, for every column that is read.
        steps: filter, or None.
        wide: token columns are float64, because some file has them so.
        absent: canonical columns that the run was found not to have.
        beside: names in the log of further columns, decoded and left as they are.
    """

    theirs: Mapping[str, str]
    steps: Steps | None
    wide: bool
    absent: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Every column that is decoded, by its name in the log."""
        return list(dict.fromkeys((*self.theirs.values(), *self.beside)))

    def canonical(self, table: Any, folder_step: int | None) -> Any:
        """An Arrow table with canonical names; columns that this file lacks are null."""
        import pyarrow as pa

        have = set(table.schema.names)
        arrays: dict[str, Any] = {}
        for name, theirs in self.theirs.items():
            if theirs in have:
                arrays[name] = table.column(theirs)
            elif name == "step" and folder_step is not None:
                step = np.full(table.num_rows, folder_step, dtype=np.int64)
                arrays[name] = pa.array(step)
            else:
                arrays[name] = pa.nulls(table.num_rows)
        if isinstance(table, pa.RecordBatch):
            return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
        return pa.table(arrays)

    def kept_rows(self, table: Any, where: str) -> npt.NDArray[np.bool_] | None:
        """Rows that the filter on steps keeps; None: all. The table has canonical names."""
        if self.steps is None:
            return None
        from brace_diag.rollouts_columns import int_array

        kept = self.steps.keeps(int_array(table.column("step"), "step", where))
        return None if kept.all() else kept

    def build(self, part: Part) -> Rollouts:
        """`Rollouts` of the kept rows of one part."""
        return self._rollouts(self.canonical(part.table, part.folder_step), part)

    def build_bare(self, part: Part) -> Rollouts:
        """The same for a table without lists: one token of log-prob 0 stands in every row."""
        import pyarrow as pa

        table = self.canonical(part.table, part.folder_step)
        n = table.num_rows
        zeros = pa.Array.from_buffers(pa.float32(), n, [None, pa.py_buffer(bytes(4 * n))])
        ones = pa.FixedSizeListArray.from_arrays(zeros, 1)
        return self._rollouts(table.append_column("mu_logprobs", ones), part)

    def _rollouts(self, table: Any, part: Part) -> Rollouts:
        import pyarrow as pa

        file_rows = part.file_row + np.arange(table.num_rows, dtype=np.int64)
        if part.kept is not None:
            table, file_rows = table.filter(pa.array(part.kept)), file_rows[part.kept]
        return Rollouts.from_arrow(
            table, where=part.where, first_row=part.first_row, file_rows=file_rows, wide=self.wide
        )


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of rows of one file, decoded, with the file's own column names.

    Attributes:
        table: Arrow table or record batch.
        where: name of the file.
        file_row: number of its first row in the file.
        first_row: number of its first kept row in the run.
        kept: rows that the filter keeps, or None for all.
        folder_step: step that the folder tells, or None.
    """

    table: Any
    where: str
    file_row: int
    first_row: int
    kept: npt.NDArray[np.bool_] | None = None
    folder_step: int | None = None


T = TypeVar("T")
Turn: TypeAlias = Callable[[Selection, Part], T]
"""What becomes of a decoded part: `Selection.build`, or anything else that a pass wants of it."""
