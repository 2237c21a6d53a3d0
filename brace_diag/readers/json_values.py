"""JSON values as columns: numbers that are not finite, types in words, and odd mixtures."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag.arrow_values import numpy_values
from brace_diag.errors import SchemaError
from brace_diag.rollouts_schema import COLUMNS

# A whole string, and a colon if it is a key.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?', re.DOTALL)
_QUOTED = re.compile(rb'"[-+]?(?:NaN|nan|NAN|Infinity|infinity|INFINITY|Inf|inf|INF)"')
# In the order in which they are replaced; a minus sign before them stays.
_BARE = tuple(
    (sign + word, mark)
    for mark, words in (
        (b"4e307", (b"Infinity", b"infinity", b"INFINITY", b"Inf", b"inf", b"INF")),
        (b"2e307", (b"NaN", b"nan", b"NAN")),
    )
    for word in words
    for sign in (b"+", b"")
)

# No log-prob, value or reward comes near the marks 2e307 and 4e307; these lie between them.
_ANY_MARK, _INFINITY_MARK = 1e307, 3e307


def mark_nonfinite(lines: list[bytes], float_scalars: frozenset[str]) -> tuple[list[bytes], bool]:
    """Lines with NaN, Infinity, "NaN" and the like replaced by marks; whether there was any.

    Bare words are replaced wherever they stand as values; quoted ones as entries of lists, and as
    values of `float_scalars`, the names of scalar columns of numbers. Strings are left alone.
    """
    marked = [_mark_line(line, float_scalars) for line in lines]
    return marked, any(a is not b for a, b in zip(marked, lines, strict=True))


def _mark_line(line: bytes, float_scalars: frozenset[str]) -> bytes:
    """One line with its marks; the very same object if it needs none."""
    parts, done, key = [], 0, ""
    for match in _STRING.finditer(line):
        before, text = line[done : match.start()], match[0]
        parts.append(_mark_bare(before))
        if match[1] is not None:
            key = text[1 : text.rindex(b'"')].decode(errors="replace")
        elif _QUOTED.fullmatch(text) and (
            before.rstrip()[-1:] in (b"[", b",") or key in float_scalars
        ):
            text = _mark_bare(text[1:-1])
        parts.append(text)
        done = match.end()
    parts.append(_mark_bare(line[done:]))
    marked = b"".join(parts)
    return line if marked == line else marked


def _mark_bare(text: bytes) -> bytes:
    """Text outside of strings with its words replaced."""
    if b"N" in text or b"n" in text or b"I" in text:
        for word, mark in _BARE:
            text = text.replace(word, mark)
    return text


def loads(text: bytes) -> Any:
    """One JSON text as Python has it; bare nan and inf in any spelling are numbers too."""
    try:
        return json.loads(text)
    except ValueError:
        marked, any_marked = mark_nonfinite([text], frozenset())
        if not any_marked:
            raise
        return json.loads(marked[0], parse_float=_unmarked_number)


def _unmarked_number(text: str) -> float:
    return float(_unmarked(np.array([float(text)]))[0])


def unmark(table: Any, marked: bool) -> Any:
    """An Arrow table in which marks are the numbers that they stand for."""
    import pyarrow as pa

    if not marked:
        return table
    columns = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if pa.types.is_large_list(column.type) and pa.types.is_floating(column.type.value_type):
            entries = pa.array(_unmarked(_numbers(column.values)))
            column = pa.LargeListArray.from_arrays(column.offsets, entries, mask=column.is_null())
        elif pa.types.is_floating(column.type):
            column = pa.array(_unmarked(_numbers(column)))
        columns[name] = column
    return pa.table(columns)


def _numbers(column: Any) -> npt.NDArray[np.float64]:
    """A float column as a new numpy array, null as NaN."""
    return np.array(numpy_values(column), dtype=np.float64)


def _unmarked(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Numbers with marks undone, in place."""
    big = np.abs(x) > _ANY_MARK
    x[big] = np.where(np.abs(x[big]) > _INFINITY_MARK, np.copysign(np.inf, x[big]), np.nan)
    return x


def type_words(value: Any) -> str:
    """Type of a JSON value in words: `number`, `list<bool>`, `string`, `null`, `object`."""
    if isinstance(value, list):
        kinds = [kind for kind in map(type_words, value[:1000]) if kind != "null"]
        return f"list<{kinds[0] if kinds else 'null'}>"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return "object" if isinstance(value, dict) else "string"


def arrow_column(values: list[Any], name: str, where: str, numbers: list[int]) -> Any:
    """Values of one canonical column, of whatever mixture of JSON types, as an Arrow array.

    Args:
        values: one per line; None where the line lacks the column.
        name: canonical name.
        where: name of the file, for errors.
        numbers: line numbers.

    Raises: SchemaError with the line of the first value that cannot be converted.
    """
    import pyarrow as pa

    column = COLUMNS[name]
    entry = {"float": pa.float64(), "int": pa.int64(), "bool": pa.bool_(), "id": pa.string()}[
        column.kind.rstrip("s")
    ]
    out = []
    for value, number in zip(values, numbers, strict=True):
        try:
            out.append(_converted(value, column.kind))
        except (TypeError, ValueError, OverflowError):
            raise SchemaError(
                f"{where} line {number}: column {name} is {_short(value)}; "
                f"it must be {column.wanted_type}"
            ) from None
    return pa.array(out, pa.large_list(entry) if column.is_list else entry)


def _converted(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind.endswith("s"):
        if not isinstance(value, list):
            raise TypeError
        return [_converted(entry, kind[:-1]) for entry in value]
    if isinstance(value, (list, dict)):
        raise TypeError
    if kind == "id":
        return value if isinstance(value, str) else _id_text(value)
    number = float(value)  # float() also reads the words NaN and -Infinity
    if kind == "float":
        return number
    if number != number:
        return None
    if kind == "bool":
        return number != 0.0
    whole = int(value) if not isinstance(value, str) else int(number)
    if whole != number and not isinstance(value, int):
        raise ValueError
    return whole


def _id_text(value: Any) -> str:
    """An id that is a number, as text: whole floats as integers."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _short(value: Any) -> str:
    """A value for a message: its first offending entry where it is a list of the wrong kind."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
