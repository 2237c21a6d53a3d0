"""The numbers of an Arrow array as numpy sees them, read from its buffers.

`pyarrow.Array.to_numpy` does the same but first imports pandas wherever that is installed, which
takes a quarter of a second that no command needs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def numpy_values(array: Any) -> npt.NDArray[Any]:
    """Entries of a primitive Arrow array (numbers or booleans), (n,).

    A view of the buffer where there is nothing to change: null floats become NaN in a copy, and
    booleans are unpacked. What stands at nulls of integers and booleans is arbitrary.
    """
    import pyarrow as pa

    n, skip = len(array), array.offset
    if pa.types.is_boolean(array.type):
        return _flags(array.buffers()[1], skip, n)
    dtype = np.dtype(array.type.to_pandas_dtype())
    buffer = array.buffers()[1]
    if n == 0 or buffer is None:
        return np.zeros(n, dtype)
    values: npt.NDArray[Any] = np.frombuffer(buffer, dtype, count=skip + n)[skip:]
    if array.null_count and np.issubdtype(dtype, np.floating):
        values = values.copy()
        values[~_flags(array.buffers()[0], skip, n)] = np.nan
    return values


def valid_entries(array: Any) -> npt.NDArray[np.bool_]:
    """True where an Arrow array of any type is not null, (n,)."""
    return numpy_values(array.is_valid())


def _flags(buffer: Any, skip: int, n: int) -> npt.NDArray[np.bool_]:
    """n bits of a bitmap after the first `skip`, least significant first."""
    if n == 0 or buffer is None:
        return np.zeros(n, np.bool_)
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8), count=skip + n, bitorder="little")
    return bits[skip:].astype(np.bool_)
