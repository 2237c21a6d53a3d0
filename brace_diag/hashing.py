"""A hash of ids that is the same on every machine, in every process and in every version.

The hash decides to which of the groups of `settings.N_GROUPS` a prompt belongs, and so which sums
a log adds up to. It can never change: tests/test_hashing.py holds known answers.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

from brace_diag.arrow_values import numpy_values
from brace_diag.errors import SchemaError

_BASIS = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_ROW_TAG = np.frombuffer(b"\x00row:", dtype=np.uint8)


def stable_hash(ids: Any) -> npt.NDArray[np.uint64]:
    """64-bit hash of each id: splitmix64's finaliser over FNV-1a of the id's text.

    An integer is hashed as its decimal digits and a string as its UTF-8 bytes, so that 5 and "5"
    are one id however a log stores it. Whole floats count as integers.

    Args:
        ids: Arrow array or chunked array, numpy array, or list; integers, strings or bytes.

    Returns: uint64 (n,). The hash of a null is not defined; see `hash_ids`.

    Raises: SchemaError if the ids are neither integers nor text.
    """
    return _hash_valid(ids_as_arrow(ids))


def hash_ids(ids: Any, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """`stable_hash` of ids, with a null id replaced by the row's own number: its own cluster.

    Args:
        ids: as in `stable_hash`, with nulls; or None, where no row has an id.
        rows: int64 (n,), number of each row among all rows that are read of the run.

    Returns: uint64 (n,).
    """
    if ids is None:
        return hash_rows(rows)
    array = ids_as_arrow(ids)
    missing = null_ids(array)
    if not missing.any():
        return _hash_valid(array)
    hashes = _hash_valid(array)
    hashes[missing] = hash_rows(rows[missing])
    return hashes


def hash_rows(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Hash of rows that have no id: that of the bytes `\\0row:` and the row number, (n,)."""
    return _hash_signed(np.ascontiguousarray(rows, dtype=np.int64), _ROW_TAG)


def null_ids(ids: Any) -> npt.NDArray[np.bool_]:
    """Which ids are missing: null, or NaN where ids are floats, bool (n,)."""
    array = ids_as_arrow(ids)
    return numpy_values(array.is_null(nan_is_null=True))


def ids_as_arrow(ids: Any) -> Any:
    """Any kind of ids as one Arrow array of integers, floats or text."""
    import pyarrow as pa

    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    if not isinstance(ids, pa.Array):
        ids = _from_python(ids)
    if pa.types.is_dictionary(ids.type):
        ids = ids.dictionary_decode()
    return ids


def _from_python(ids: Any) -> Any:
    import pyarrow as pa

    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iuf":
        return pa.array(ids)
    try:
        return pa.array(ids.tolist() if isinstance(ids, np.ndarray) else list(ids))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # Integers and strings are mixed, or an integer is beyond int64.
        return pa.array([None if i is None else _text(i) for i in ids], pa.large_string())


def _text(one: Any) -> str:
    if isinstance(one, str):
        return one
    if isinstance(one, (int, np.integer)) and not isinstance(one, bool):
        return str(int(one))
    raise SchemaError(f"an id is {one!r} ({type(one).__name__}); ids must be integers or strings")


def _hash_valid(array: Any) -> npt.NDArray[np.uint64]:
    """Hashes of an Arrow array; what stands at nulls is arbitrary."""
    import pyarrow as pa

    kind, types = array.type, pa.types
    if types.is_null(kind):
        return np.zeros(len(array), dtype=np.uint64)
    if types.is_unsigned_integer(kind):
        numbers = numpy_values(array.cast(pa.uint64()))
        return _hash_unsigned(np.ascontiguousarray(numbers))
    if types.is_floating(kind):
        array = _whole_floats(array)
    elif not types.is_integer(kind):
        return _hash_text(_text_array(array))
    numbers = numpy_values(array.cast(pa.int64()))
    return _hash_signed(np.ascontiguousarray(numbers), _ROW_TAG[:0])


def _whole_floats(array: Any) -> Any:
    """Float ids (an integer column with gaps, as pandas writes it) as integers."""
    import pyarrow as pa

    numbers = numpy_values(array.cast(pa.float64())).copy()
    numbers[np.isnan(numbers)] = 0.0
    # Beyond 2^53 two ids may share one float, so such a number is no id.
    broken = ~((numbers == np.floor(numbers)) & (np.abs(numbers) < 2.0**53))
    if broken.any():
        raise SchemaError(
            f"an id is the float {numbers[np.argmax(broken)]!r}; ids must be integers or strings"
        )
    return pa.array(numbers.astype(np.int64))


def _text_array(array: Any) -> Any:
    """A text or binary array with 64-bit offsets."""
    import pyarrow as pa

    name = str(array.type)
    if name in ("large_string", "large_binary"):
        return array
    if name in ("string", "string_view"):
        return array.cast(pa.large_string())
    if name in ("binary", "binary_view") or name.startswith("fixed_size_binary"):
        return array.cast(pa.large_binary())
    raise SchemaError(f"an id column has type {name}; ids must be integers or strings")


def _hash_text(array: Any) -> npt.NDArray[np.uint64]:
    if len(array) == 0:
        return np.zeros(0, dtype=np.uint64)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    content = np.frombuffer(data, dtype=np.uint8) if data is not None else _ROW_TAG[:0]
    return _hash_bytes(content, ends)


@nb.njit(cache=True, nogil=True, inline="always")
def _finish(h: np.uint64) -> np.uint64:
    h ^= h >> np.uint64(30)
    h *= _MIX_1
    h ^= h >> np.uint64(27)
    h *= _MIX_2
    return h ^ (h >> np.uint64(31))


@nb.njit(cache=True, nogil=True)
def _hash_bytes(
    content: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    out = np.empty(len(ends) - 1, dtype=np.uint64)
    for i in range(len(out)):
        h = _BASIS
        for j in range(ends[i], ends[i + 1]):
            h = (h ^ np.uint64(content[j])) * _PRIME
        out[i] = _finish(h)
    return out


@nb.njit(cache=True, nogil=True)
def _feed_digits(h: np.uint64, number: np.uint64) -> np.uint64:
    """FNV-1a state after the decimal digits of a number, most significant first."""
    scale = np.uint64(1)
    while number // scale >= np.uint64(10):
        scale *= np.uint64(10)
    while scale > np.uint64(0):
        digit = (number // scale) % np.uint64(10)
        h = (h ^ (np.uint64(48) + digit)) * _PRIME
        scale //= np.uint64(10)
    return h


@nb.njit(cache=True, nogil=True)
def _hash_signed(
    numbers: npt.NDArray[np.int64], tag: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint64]:
    out = np.empty(len(numbers), dtype=np.uint64)
    start = _BASIS
    for byte in tag:
        start = (start ^ np.uint64(byte)) * _PRIME
    for i in range(len(numbers)):
        h = start
        magnitude = np.uint64(numbers[i])
        if numbers[i] < 0:
            h = (h ^ np.uint64(45)) * _PRIME  # the minus sign
            magnitude = ~magnitude + np.uint64(1)
        out[i] = _finish(_feed_digits(h, magnitude))
    return out


@nb.njit(cache=True, nogil=True)
def _hash_unsigned(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    out = np.empty(len(numbers), dtype=np.uint64)
    for i in range(len(numbers)):
        out[i] = _finish(_feed_digits(_BASIS, numbers[i]))
    return out
