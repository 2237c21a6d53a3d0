"""Where the policy tokens of logged rows lie, and every list column packed to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag import rollouts_kernels as kernels
from brace_diag.errors import SchemaError
from brace_diag.rollouts_columns import ListColumn, read_only

_NO_PLACES = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Layout:
    """Policy tokens of a batch of logged rows.

    Attributes:
        logged: int64 (n_rows,), tokens of every kind in each row.
        offsets: int64 (n_rows + 1,), of the policy tokens.
        places: int64 (n_tokens,), place of each policy token within its logged row; empty where
            every token is a policy token.
    """

    logged: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]

    @property
    def n_tokens(self) -> int:
        return int(self.offsets[-1])

    @property
    def n_masked(self) -> int:
        return int(self.logged.sum()) - self.n_tokens


def layout_of(
    columns: dict[str, ListColumn], n_rows: int, where: str, file_rows: npt.NDArray[np.int64]
) -> Layout:
    """Lengths checked, policy mask applied. `file_rows` numbers the rows within their file."""
    logged = _row_lengths(columns, n_rows, where, file_rows)
    mask = columns.get("policy_mask")
    if mask is None or mask.flat.all():
        return Layout(logged, _offsets(logged), _NO_PLACES)
    # A row without a mask of its own keeps all of the tokens that its other lists have.
    valid = mask.row_validity()
    kept = kernels.count_kept(mask.flat, mask.starts, logged, valid)
    offsets = _offsets(kept)
    if int(offsets[-1]) == int(logged.sum()):
        return Layout(logged, offsets, _NO_PLACES)
    places = kernels.place_kept(mask.flat, mask.starts, logged, valid, int(offsets[-1]))
    return Layout(logged, offsets, places)


def pack(column: ListColumn, layout: Layout, fill: Any, dtype: Any) -> npt.NDArray[Any]:
    """Policy tokens of one column, (n_tokens,), read-only; a view of the column where it can be."""
    flat = read_only(column.flat.astype(dtype, copy=False))
    first = _contiguous_from(column, layout)
    if first is not None:
        return flat[first : first + layout.n_tokens]
    out = np.empty(layout.n_tokens, dtype=dtype)
    kernels.gather(
        flat,
        column.starts,
        column.row_validity(),
        layout.offsets,
        layout.places,
        flat.dtype.type(fill),
        out,
    )
    return read_only(out)


def _contiguous_from(column: ListColumn, layout: Layout) -> int | None:
    """Where in `flat` the packed tokens start, if they lie there end to end; else None."""
    if len(layout.places) or not np.array_equal(column.lengths, layout.logged):
        return None
    full = layout.logged > 0
    if not full.any():
        return 0
    shift = column.starts[full] - layout.offsets[:-1][full]
    return int(shift[0]) if (shift == shift[0]).all() else None


def _offsets(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _row_lengths(
    columns: dict[str, ListColumn], n_rows: int, where: str, file_rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The one length of all lists of each row; lists that are null do not count, (n_rows,)."""
    lengths = np.zeros(n_rows, dtype=np.int64)
    for column in columns.values():
        np.maximum(lengths, column.lengths, out=lengths)
    for column in columns.values():
        unequal = column.lengths != lengths
        if column.valid is not None:
            unequal &= column.valid
        if unequal.any():
            raise _unequal(columns, int(np.argmax(unequal)), where, file_rows)
    return lengths


def _unequal(
    columns: dict[str, ListColumn], row: int, where: str, file_rows: npt.NDArray[np.int64]
) -> SchemaError:
    found = ", ".join(
        f"{name} {column.lengths[row]}"
        for name, column in columns.items()
        if column.valid is None or column.valid[row]
    )
    place = f"{where} row" if where else "row"
    return SchemaError(
        f"{place} {file_rows[row]}: {found}; all list columns of a row must have one length"
    )
