"""Tables that are already in memory: pyarrow, polars, or anything that speaks Arrow's interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from brace_diag.errors import InputError, SchemaError
from brace_diag.readers.columns import FileSchema
from brace_diag.readers.parquet import MAX_ROWS
from brace_diag.readers.selection import Part, Selection, T, Turn
from brace_diag.rollouts import Rollouts
from brace_diag.rollouts_schema import LIST_COLUMNS, type_text

NAME = "table"


def is_table(source: Any) -> bool:
    """Whether a source is a table in memory rather than the name of something."""
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__")


@dataclass(frozen=True, slots=True)
class MemoryLog:
    """One Arrow table as a log of one file."""

    table: Any
    words: str = "table in memory"

    @property
    def n_rows(self) -> int:
        return int(self.table.num_rows)

    @property
    def schemas(self) -> list[FileSchema]:
        return [FileSchema(NAME, {c.name: type_text(c.type) for c in self.table.schema})]

    def arrow_types(self, theirs: str) -> list[tuple[str, Any]]:
        """(name, Arrow type) of one column."""
        return [(NAME, self.table.schema.field(theirs).type)]

    def own_schema(self, selection: Selection) -> Any:
        """Schema of the table, as it is."""
        return self.table.schema

    def own_table(self, selection: Selection, part: Part) -> Any:
        """Columns of a part as the log has them."""
        return part.table

    def tasks(
        self, selection: Selection, chunk_tokens: int, turn: Turn[T]
    ) -> Iterator[Callable[[], T]]:
        """Work that turns the table, part by part and in order; parts are views of it."""
        table = self.table.select([name for name in selection.names if name in self.columns])
        first_row, done = 0, 0
        for batch in table.to_batches(max_chunksize=self._rows(selection, chunk_tokens)):
            canonical = selection.canonical(batch, None)
            kept = selection.kept_rows(canonical, NAME)
            n_kept = batch.num_rows if kept is None else int(kept.sum())
            if n_kept:
                yield partial(turn, selection, Part(batch, NAME, done, first_row, kept))
            done += batch.num_rows
            first_row += n_kept

    def index_tasks(self, selection: Selection) -> Iterator[Callable[[], Rollouts]]:
        """The same: nothing needs decoding."""
        return self.tasks(selection, 1 << 22, Selection.build)

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(self.table.column_names)

    def _rows(self, selection: Selection, chunk_tokens: int) -> int:
        """Rows of a chunk by the mean size of the longest list column."""
        sizes = [
            self.table.column(theirs).nbytes / self._width(theirs)
            for name, theirs in selection.theirs.items()
            if name in LIST_COLUMNS and theirs in self.columns
        ]
        per_row = max([1.0, *sizes]) / max(1, self.n_rows)
        return max(1, min(MAX_ROWS, int(chunk_tokens / max(1.0, per_row))))

    def _width(self, theirs: str) -> float:
        """Bytes of one entry of a list column."""
        kind = self.table.schema.field(theirs).type
        inner = getattr(kind, "value_type", kind)
        try:
            return max(1.0, float(inner.bit_width)) / 8
        except ValueError:  # a type without a fixed width, which the check of types refuses
            return 1.0


def open_table(source: Any) -> MemoryLog:
    """A table as a log. Raises SchemaError if it has no rows, InputError if a name repeats."""
    import pyarrow as pa

    table = source if isinstance(source, pa.Table) else pa.table(source)
    if len(set(table.column_names)) < table.num_columns:
        raise InputError("the table has two columns of one name")
    if table.num_rows == 0:
        raise SchemaError("the table has no rows")
    return MemoryLog(table)
