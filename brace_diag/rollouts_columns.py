"""Arrow columns as numpy arrays: views where Arrow's buffers allow it, checked where not.

Every function takes `where`, the words that name the source in an error ("run.parquet").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag.arrow_values import numpy_values, valid_entries
from brace_diag.errors import SchemaError
from brace_diag.rollouts import UNKNOWN
from brace_diag.rollouts_schema import COLUMNS, type_text

NO_TOKEN_ID = -1
TOKEN_FLOATS = ("mu_logprobs", "pi_logprobs", "values", "entropy", "prox_logprobs")
"""List columns of numbers that share one width in memory; rewards are float64 in any case."""


@dataclass(slots=True)
class ListColumn:
    """A list column as logged: row i holds flat[starts[i] : starts[i] + lengths[i]].

    Attributes:
        flat: entries of all rows, read-only; float32 or float64, int64, or bool.
        starts, lengths: int64 (n_rows,).
        valid: bool (n_rows,), False where the row's list is null (its length is 0 then), or None.
    """

    flat: npt.NDArray[Any]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    valid: npt.NDArray[np.bool_] | None

    def row_validity(self) -> npt.NDArray[np.bool_]:
        """`valid` written out."""
        return np.ones(len(self.starts), dtype=np.bool_) if self.valid is None else self.valid


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view that cannot be written: one array type for compiled code, whatever the source."""
    view = array.view()
    view.flags.writeable = False
    return view


def list_column(array: Any, name: str, where: str) -> ListColumn:
    """An Arrow list array of any flavour as a `ListColumn`; no copy of plain float entries."""
    import pyarrow as pa

    array, types = _one_array(array), pa.types
    if types.is_null(array.type):
        nothing = np.zeros(len(array), dtype=np.int64)
        flat = _entries(pa.nulls(0), name, where)
        return ListColumn(flat, nothing, nothing, np.zeros(len(array), dtype=np.bool_))
    if types.is_fixed_size_list(array.type):
        size = array.type.list_size
        entries = array.values.slice(array.offset * size, len(array) * size)
        lengths = np.full(len(array), size, dtype=np.int64)
        starts = np.arange(len(array), dtype=np.int64) * size
    elif types.is_list(array.type) or types.is_large_list(array.type):
        offsets = numpy_values(array.offsets).astype(np.int64)
        first, last = (offsets[0], offsets[-1]) if len(offsets) else (0, 0)
        entries = array.values.slice(first, last - first)
        starts, lengths = offsets[:-1] - first, np.diff(offsets)
    elif "list_view" in str(array.type).split("<")[0]:
        entries = array.values
        starts = numpy_values(array.offsets).astype(np.int64)
        lengths = numpy_values(array.sizes).astype(np.int64)
    else:
        raise _wrong_type(str(array.type), name, where)
    valid = None
    if array.null_count:
        valid = valid_entries(array)
        lengths = np.where(valid, lengths, 0)
    return ListColumn(_entries(entries, name, where), starts, lengths, valid)


def _one_array(array: Any) -> Any:
    """A chunked or extension array as one plain array."""
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _entries(array: Any, name: str, where: str) -> npt.NDArray[Any]:
    """Entries of a list column by the kind of the column, read-only."""
    convert = {"floats": float_array, "ints": int_array, "bools": bool_array}
    return read_only(convert[COLUMNS[name].kind](array, name, where))


def float_array(array: Any, name: str, where: str) -> npt.NDArray[np.floating[Any]]:
    """Numbers as float32 (from float16, float32) or float64 (from all else); null is NaN."""
    import pyarrow as pa

    array, types = _one_array(array), pa.types
    if types.is_null(array.type):
        return np.full(len(array), np.nan, dtype=np.float32)
    if types.is_float16(array.type):
        return np.asarray(numpy_values(array), dtype=np.float32)
    if not types.is_floating(array.type):
        if types.is_boolean(array.type):
            array = array.cast(pa.uint8())
        if not (types.is_integer(array.type) or types.is_decimal(array.type)):
            raise _wrong_entry(array.type, name, where)
        array = array.cast(pa.float64(), safe=False)
    return numpy_values(array)


def int_array(array: Any, name: str, where: str) -> npt.NDArray[np.int64]:
    """Integers (or whole floats) as int64; null is UNKNOWN, or -1 for token ids."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array, types = _one_array(array), pa.types
    missing = NO_TOKEN_ID if name == "token_ids" else UNKNOWN
    if types.is_null(array.type):
        return np.full(len(array), missing, dtype=np.int64)
    if types.is_floating(array.type):
        # pandas stores integers with gaps as floats, and the gaps as NaN.
        array = array.cast(pa.float64())
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, pa.float64()), array)
    elif not types.is_integer(array.type):
        raise _wrong_entry(array.type, name, where)
    try:
        array = array.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise SchemaError(f"{_at(where)}column {name} is not whole numbers: {error}") from None
    numbers = numpy_values(array)
    return np.where(valid_entries(array), numbers, missing) if array.null_count else numbers


def bool_array(array: Any, name: str, where: str) -> npt.NDArray[np.bool_]:
    """Booleans (or numbers, true where not 0); null and NaN are False."""
    import pyarrow as pa

    array, types = _one_array(array), pa.types
    if types.is_null(array.type):
        return np.zeros(len(array), dtype=np.bool_)
    if types.is_boolean(array.type):
        flags = numpy_values(array)
        return flags & valid_entries(array) if array.null_count else flags
    if not (types.is_integer(array.type) or types.is_floating(array.type)):
        raise _wrong_entry(array.type, name, where)
    numbers = float_array(array, name, where)
    return np.asarray((numbers != 0) & ~np.isnan(numbers))


def check_type(kind: Any, name: str, where: str) -> None:
    """Raise SchemaError unless a column of this Arrow type can be read as the canonical column."""
    import pyarrow as pa

    column, empty = COLUMNS[name], pa.nulls(0, kind)
    if column.is_list:
        list_column(empty, name, where)
    elif column.kind == "id":
        _check_id(kind, name, where)
    else:
        scalar_column(empty, name, where)


def needs_float64(kind: Any, name: str) -> bool:
    """Whether a token column of this Arrow type would lose digits as float32."""
    import pyarrow as pa

    if name not in TOKEN_FLOATS:
        return False
    return list_column(pa.nulls(0, kind), name, "").flat.dtype == np.float64


def scalar_column(array: Any, name: str, where: str) -> npt.NDArray[Any]:
    """One value per row: float64 (null is NaN), int64 (null is UNKNOWN) or bool (null is False)."""
    kind = COLUMNS[name].kind
    if kind == "float":
        return np.asarray(float_array(array, name, where), dtype=np.float64)
    return int_array(array, name, where) if kind == "int" else bool_array(array, name, where)


def _check_id(kind: Any, name: str, where: str) -> None:
    import pyarrow as pa

    from brace_diag.hashing import stable_hash

    try:
        stable_hash(pa.nulls(0, kind))
    except SchemaError:
        raise _wrong_type(str(kind), name, where) from None


def _wrong_entry(kind: Any, name: str, where: str) -> SchemaError:
    """A scalar column, or the entries of a list column, are of a wrong type."""
    return _wrong_type(f"list<{kind}>" if COLUMNS[name].is_list else str(kind), name, where)


def _wrong_type(kind: str, name: str, where: str) -> SchemaError:
    column = COLUMNS[name]
    text = f"{_at(where)}column {name} has type {type_text(kind)}; it must be {column.wanted_type}"
    if column.is_list and "list" not in kind:
        text += " with one entry per token, one row per rollout"
    elif name == "reward" and "list" in kind:
        text += " (one number per rollout); rewards per token belong in `rewards`"
    return SchemaError(text)


def _at(where: str) -> str:
    return f"{where}: " if where else ""
