"""Builders of `Rollouts` from what a program holds in memory: padded arrays, or lists of lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError, SchemaError
from brace_diag.hashing import ids_as_arrow
from brace_diag.rollouts import Rollouts
from brace_diag.rollouts_build import LoggedRows, assemble, from_arrow
from brace_diag.rollouts_columns import ListColumn, bool_array, float_array, int_array, read_only
from brace_diag.rollouts_schema import COLUMNS, LIST_COLUMNS

_CONVERT = {
    "floats": float_array,
    "float": float_array,
    "ints": int_array,
    "int": int_array,
    "bools": bool_array,
    "bool": bool_array,
}


def from_padded(columns: dict[str, Any], first_row: int = 0) -> Rollouts:
    """`Rollouts` of padded arrays.

    Args:
        columns: by canonical name. Columns per token are (n_rollouts, width); the others are
            (n_rollouts,), or one value for all rollouts. numpy arrays, torch tensors (any device,
            bfloat16 too) or nested lists. Padding is what `policy_mask` leaves out.
        first_row: number of the first rollout among all that are read of the run.

    Raises: InputError for a name that is not canonical or a shape that does not fit.
    """
    _check_names(columns)
    arrays = {name: as_numpy(x) for name, x in columns.items() if x is not None}
    shape = _padded_shape(arrays)
    counted = np.arange(shape[0], dtype=np.int64)
    logged = LoggedRows(rows=counted + first_row, file_rows=counted)
    for name, array in arrays.items():
        if COLUMNS[name].is_list:
            logged.lists[name] = _padded_column(name, array, shape)
            continue
        array = np.broadcast_to(array, shape[:1]) if array.ndim == 0 else array
        if array.shape != shape[:1]:
            raise InputError(f"{name} has shape {array.shape}; it must be {shape[:1]}")
        if COLUMNS[name].kind == "id":
            logged.ids[name] = array
        else:
            logged.scalars[name] = _numbers(array, name)
    return assemble(logged)


def from_lists(columns: dict[str, Any], first_row: int = 0) -> Rollouts:
    """`Rollouts` of one sequence per rollout.

    Args:
        columns: by canonical name. Columns per token are sequences of lists, numpy arrays or
            torch tensors, None for a rollout where the column is missing; the others are
            sequences of single values. None stands for a missing number anywhere.
        first_row: number of the first rollout among all that are read of the run.

    Raises: InputError for a name that is not canonical or columns of different length;
        SchemaError if the lists of a rollout differ in length.
    """
    import pyarrow as pa

    _check_names(columns)
    present = {name: x for name, x in columns.items() if x is not None}
    sizes = {name: len(x) for name, x in present.items()}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise InputError(f"columns have different numbers of rollouts: {told}")
    arrays = {name: _arrow_column(name, x) for name, x in present.items()}
    if not arrays:
        raise InputError("no column was given; give at least mu_logprobs and reward")
    return from_arrow(pa.table(arrays), first_row=first_row)


def as_numpy(x: Any) -> npt.NDArray[Any]:
    """An array, tensor or nested list as numpy; torch is not imported for it."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        # numpy has no bfloat16; float32 holds every one of its numbers.
        x = x.float() if str(x.dtype) == "torch.bfloat16" else x
        return np.asarray(x.numpy())
    return np.asarray(x)


def _check_names(columns: dict[str, Any]) -> None:
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        raise InputError(f"no such column: {', '.join(unknown)}; there are: {', '.join(COLUMNS)}")


def _padded_shape(arrays: dict[str, npt.NDArray[Any]]) -> tuple[int, int]:
    """The one shape (n_rollouts, width) of all columns per token."""
    reference = next((name for name in LIST_COLUMNS if name in arrays), None)
    if reference is None:
        raise InputError("no column per token was given; give at least mu_logprobs")
    shape = arrays[reference].shape
    if len(shape) != 2:
        raise InputError(f"{reference} has shape {shape}; it must be (n_rollouts, width)")
    return shape[0], shape[1]


def _padded_column(name: str, array: npt.NDArray[Any], shape: tuple[int, int]) -> ListColumn:
    if array.shape != shape:
        raise InputError(f"{name} has shape {array.shape}; the other columns have {shape}")
    lengths = np.full(shape[0], shape[1], dtype=np.int64)
    starts = np.arange(shape[0], dtype=np.int64) * shape[1]
    flat = _numbers(np.ascontiguousarray(array).reshape(-1), name)
    return ListColumn(read_only(flat), starts, lengths, None)


def _numbers(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """A flat numpy array in the type that the column has in memory."""
    import pyarrow as pa

    kind = COLUMNS[name].kind
    if array.dtype.kind not in "biuf" and array.dtype != object:
        raise InputError(f"{name} has dtype {array.dtype}; it must be numeric")
    as_it_is = {"floats": (np.float32, np.float64), "bools": (np.bool_,), "bool": (np.bool_,)}
    flat = array
    if array.dtype not in as_it_is.get(kind, ()):
        # Arrow's converter knows None, whole floats and every width of integer.
        flat = _CONVERT[kind](pa.array(array), name, "")
    return np.asarray(flat, dtype=np.float64) if kind == "float" else flat


def _arrow_column(name: str, x: Any) -> Any:
    import pyarrow as pa

    column = COLUMNS[name]
    if not column.is_list:
        x = as_numpy(x) if hasattr(x, "detach") else x
        return ids_as_arrow(x) if column.kind == "id" else pa.array(x)
    rows = [None if row is None else _row(row) for row in x]
    try:
        return pa.array(rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SchemaError(f"column {name} does not hold lists of one type: {error}") from None


def _row(row: Any) -> Any:
    if hasattr(row, "detach") or isinstance(row, np.ndarray):
        return as_numpy(row)
    return list(row)
