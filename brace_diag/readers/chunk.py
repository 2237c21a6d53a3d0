"""`Chunk`: rows of a log as `Rollouts`, and beside them the log's own columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag.errors import SchemaError
from brace_diag.readers.selection import Part, Selection
from brace_diag.rollouts import Rollouts
from brace_diag.rollouts_columns import list_column
from brace_diag.rollouts_schema import LIST_COLUMNS, type_text


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Successive rows of a run, twice.

    Attributes:
        table: pyarrow Table of the log's own columns, as logged (see `Run.own_schema`).
        rollouts: the same rows as estimators and targets see them.
        logged: int64 (n_rows,), entries of each row's own lists, masked tokens included.
        listed: bool (n_rows,), False where all of the row's lists are null.
    """

    table: Any
    rollouts: Rollouts
    logged: npt.NDArray[np.int64]
    listed: npt.NDArray[np.bool_]


def chunk_of(
    schema: Any, own_table: Callable[[Selection, Part], Any], selection: Selection, part: Part
) -> Chunk:
    """Turn one decoded part of a log into a `Chunk` whose table has this schema."""
    import pyarrow as pa

    rollouts = selection.build(part)
    table, canonical = own_table(selection, part), selection.canonical(part.table, part.folder_step)
    if part.kept is not None:
        kept = pa.array(part.kept)
        table, canonical = table.filter(kept), canonical.filter(kept)
    logged, listed = _lengths(canonical, rollouts, part.where)
    return Chunk(_conformed(table, schema, part), rollouts, logged, listed)


def _lengths(
    table: Any, rollouts: Rollouts, where: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """`logged` and `listed` of a table with canonical names."""
    listed = np.ones(rollouts.n_rollouts, np.bool_)
    if rollouts.token_index is None and rollouts.quality.n_null_rows == 0:
        return rollouts.lengths, listed
    logged = np.zeros(rollouts.n_rollouts, np.int64)
    listed[:] = False
    for name in LIST_COLUMNS:
        if name in table.schema.names and not listed.all():
            column = list_column(table.column(name), name, where)
            np.maximum(logged, column.lengths, out=logged)
            listed |= column.row_validity()
    return logged, listed


def _conformed(table: Any, schema: Any, part: Part) -> Any:
    """The table with the columns and types of the run's schema."""
    import pyarrow as pa

    columns = []
    for wanted in schema:
        if wanted.name in table.schema.names:
            column = table.column(wanted.name)
            if column.type != wanted.type:
                column = _cast(column, wanted, part.where)
        elif wanted.name == "step" and part.folder_step is not None:
            column = pa.array(np.full(table.num_rows, part.folder_step), wanted.type)
        else:
            column = pa.nulls(table.num_rows, wanted.type)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(column: Any, wanted: Any, where: str) -> Any:
    import pyarrow as pa

    try:
        return column.cast(wanted.type)
    except pa.ArrowException as error:
        raise SchemaError(
            f"{where}: column {wanted.name} is {type_text(column.type)} and "
            f"{type_text(wanted.type)} in other files; write them alike ({error})"
        ) from None
