"""JSON-lines logs: one rollout a line, read by polars in bounded blocks of lines.

JSON has no word for numbers that are not finite; logs have NaN, -Infinity, "NaN" and null. Before
polars sees a block, such tokens become numbers beyond any that a log can hold; afterwards they
become what they stood for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from brace_diag.errors import ReaderError, SchemaError
from brace_diag.readers.columns import FileSchema
from brace_diag.readers.find import Place, errors_named
from brace_diag.readers.json_values import arrow_column, loads, mark_nonfinite, type_words, unmark
from brace_diag.readers.selection import Part, Selection, T, Turn
from brace_diag.rollouts import Rollouts
from brace_diag.rollouts_schema import COLUMNS

_HEAD_BYTES, _HEAD_LINES = 1 << 20, 100
_MAY_COME_LATE = ("prompt_id", "reward", "truncated", "bootstrap_value")
_BYTES_PER_TOKEN = 16  # text of a chunk: a line has some 20 bytes for each number


@dataclass(frozen=True, slots=True)
class Line:
    """One line that holds a row: its number in the file, from 1, and its text."""

    number: int
    text: bytes


@dataclass(frozen=True, slots=True)
class JsonlLog:
    """JSON-lines files of a run, in order.

    Attributes:
        places: the files.
        schemas: columns seen in the first lines of each.
        flags: columns whose first entries are true or false, not 0 or 1.
    """

    places: tuple[Place, ...]
    schemas: list[FileSchema]
    flags: frozenset[str] = field(default_factory=frozenset)
    words: str = "JSON lines"

    @property
    def n_rows(self) -> None:
        """Not known before the last line is read."""
        return None

    def arrow_types(self, theirs: str) -> list[tuple[str, Any]]:
        """None: values are checked as they are read."""
        return []

    def own_schema(self, selection: Selection) -> Any:
        """Canonical columns of the log, those included that turn up late in a file."""
        import pyarrow as pa

        late = [n for n in _MAY_COME_LATE if n in selection.absent and self._mentions(n)]
        present = {*selection.theirs, *late}
        return pa.schema([(name, _arrow_type(name)) for name in COLUMNS if name in present])

    def own_table(self, selection: Selection, part: Part) -> Any:
        """Columns of a part by their canonical names."""
        return selection.canonical(part.table, part.folder_step)

    def tasks(
        self, selection: Selection, chunk_tokens: int, turn: Turn[T]
    ) -> Iterator[Callable[[], T]]:
        """Work that turns the run, part by part and in order."""
        first_row, n_bytes = 0, max(1, chunk_tokens * _BYTES_PER_TOKEN)
        mark = False
        for place in self.places:
            file_row = 0
            for lines in _blocks(place, n_bytes):
                table, mark = _parse(lines, selection, self.flags, place.name, mark)
                chosen = _with_late(table, selection, lines, place.name)
                canonical = chosen.canonical(table, place.folder_step)
                kept = chosen.kept_rows(canonical, place.name)
                n_kept = len(lines) if kept is None else int(kept.sum())
                if n_kept:
                    part = Part(table, place.name, file_row, first_row, kept, place.folder_step)
                    yield partial(turn, chosen, part)
                file_row += len(lines)
                first_row += n_kept

    def index_tasks(self, selection: Selection) -> Iterator[Callable[[], Rollouts]]:
        """The same: a line must be parsed whole to get at its scalars."""
        return self.tasks(selection, 1 << 20, Selection.build)

    def _mentions(self, name: str) -> bool:
        """Whether any file holds this word in quotes."""
        word = f'"{name}"'.encode()
        blocks = (block for place in self.places for block in _blocks(place, _HEAD_BYTES))
        return any(word in line.text for block in blocks for line in block)


def _arrow_type(name: str) -> Any:
    """Arrow type of a canonical column whose values were JSON."""
    import pyarrow as pa

    column = COLUMNS[name]
    entries = {"float": pa.float64(), "int": pa.int64(), "bool": pa.bool_(), "id": pa.string()}
    entry = entries[column.kind.removesuffix("s")]
    return pa.list_(entry) if column.is_list else entry


def open_jsonl(places: list[Place]) -> JsonlLog:
    """The columns of every file, by its first lines. Raises ReaderError for a broken line."""
    schemas, flags, n_lines = [], set(), 0
    for place in places:
        types: dict[str, str] = {}
        for line in next(_blocks(place, _HEAD_BYTES), [])[:_HEAD_LINES]:
            n_lines += 1
            for name, value in _object(line, place.name).items():
                words = type_words(value)
                if words != "null" or name not in types:
                    types.setdefault(name, words)
                    types[name] = words if types[name] in ("null", "list<null>") else types[name]
        flags |= {name for name, words in types.items() if words in ("bool", "list<bool>")}
        schemas.append(FileSchema(place.name, types, place.folder_step))
    if n_lines == 0:
        raise ReaderError(f"{places[0].name} has no rows")
    return JsonlLog(tuple(places), schemas, frozenset(flags))


def _blocks(place: Place, n_bytes: int) -> Iterator[list[Line]]:
    """Lines of a file, some `n_bytes` of them at a time; blank ones are passed over."""
    number, rest = 1, b""
    for chunk in _chunks(place, n_bytes):
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:  # a line longer than a chunk
            rest += chunk
            continue
        texts = (rest + head).split(b"\n")
        lines = _rows(texts, number)
        number, rest = number + len(texts), tail
        if lines:
            yield lines
    lines = _rows([rest], number)
    if lines:
        yield lines


def _rows(texts: list[bytes], number: int) -> list[Line]:
    return [Line(number + i, text) for i, text in enumerate(texts) if text and not text.isspace()]


def _chunks(place: Place, n_bytes: int) -> Iterator[bytes]:
    """Bytes of a file, decompressed, without a byte-order mark."""
    import pyarrow as pa

    with place.open() as raw, errors_named(place.name):
        stream = pa.CompressedInputStream(raw, place.compression) if place.compression else raw
        first = True
        while chunk := bytes(stream.read(n_bytes)):
            if first and chunk.lstrip()[:1] == b"[":
                raise ReaderError(
                    f"{place.name} is one JSON array; write one object a line: jq -c '.[]'"
                )
            yield chunk.removeprefix(b"\xef\xbb\xbf") if first else chunk
            first = False


def _object(line: Line, where: str) -> dict[str, Any]:
    """One line as an object. Raises ReaderError with its number."""
    try:
        value = loads(line.text)
    except (ValueError, RecursionError) as error:
        raise ReaderError(
            f"{where} line {line.number} is not JSON: {error}; "
            "a log has one JSON object a line, and each line must be complete"
        ) from None
    if not isinstance(value, dict):
        raise ReaderError(
            f"{where} line {line.number} is {type_words(value)}; "
            "a log has one JSON object a line, with columns by name"
        )
    return value


def _parse(
    lines: list[Line], selection: Selection, flags: frozenset[str], where: str, mark: bool
) -> tuple[Any, bool]:
    """Lines as an Arrow table with the file's own names for the selected columns.

    Most logs hold plain numbers alone, so a block is marked only when polars has refused it, or
    when the block before had to be (`mark`). Returns whether this one had to be.
    """
    texts, schema = [line.text for line in lines], _schema(selection, flags)
    table = None if mark else _by_polars(texts, schema)
    if table is None:
        texts, mark = mark_nonfinite(texts, _float_scalars(selection))
        table = _by_polars(texts, schema)
        table = None if table is None else unmark(table, mark)
    if table is None:
        # A broken line, or one whose values have other types than the first lines had.
        table = _parse_slowly(lines, selection, where)
    return table, mark


def _by_polars(texts: list[bytes], schema: dict[str, Any]) -> Any:
    """Lines as an Arrow table, or None if polars refuses them."""
    import polars as pl

    try:
        frame = pl.read_ndjson(b"\n".join(texts), schema=schema)
    except pl.exceptions.PolarsError:
        return None
    return frame.to_arrow() if frame.height == len(texts) else None


def _float_scalars(selection: Selection) -> frozenset[str]:
    """The file's names of scalar columns of numbers."""
    every = _every_column(selection)
    return frozenset(theirs for name, theirs in every.items() if COLUMNS[name].kind == "float")


def _schema(selection: Selection, flags: frozenset[str]) -> dict[str, Any]:
    import polars as pl

    types: dict[str, Any] = {}
    for name, theirs in _every_column(selection).items():
        kind = COLUMNS[name].kind
        if kind in ("bool", "bools"):
            entry: Any = pl.Boolean if theirs in flags else pl.Int64
        else:
            entry = {"float": pl.Float64, "int": pl.Int64, "id": pl.String}[kind.rstrip("s")]
        types[theirs] = pl.List(entry) if COLUMNS[name].is_list else entry
    return types


def _every_column(selection: Selection) -> dict[str, str]:
    """The selected columns, and those that may turn up late in the file."""
    taken = set(selection.theirs.values())
    late = {name: name for name in selection.absent if name not in taken}
    return {**selection.theirs, **late}


def _parse_slowly(lines: list[Line], selection: Selection, where: str) -> Any:
    """As `_parse`, one line at a time: it finds the broken line, and converts what it can."""
    import pyarrow as pa

    rows = [_object(line, where) for line in lines]
    numbers = [line.number for line in lines]
    return pa.table(
        {
            theirs: arrow_column([row.get(theirs) for row in rows], name, where, numbers)
            for name, theirs in _every_column(selection).items()
        }
    )


def _with_late(table: Any, selection: Selection, lines: list[Line], where: str) -> Selection:
    """The selection, with columns that the first lines lacked and these lines have.

    Scalars that a program may log only where they apply (`truncated`) may come late: a line
    without them says no more than a null. A late column of another kind is refused, since the
    rows before it were read without it.
    """
    late: dict[str, str] = {}
    for name in _every_column(selection).keys() - selection.theirs.keys():
        column = table.column(name)
        if column.null_count == len(column):
            continue
        if name not in _MAY_COME_LATE:
            row = column.is_valid().to_pylist().index(True)
            raise SchemaError(
                f"{where} line {lines[row].number}: column {name} first turns up here, and is "
                f"missing in the first {_HEAD_LINES} lines; write it in every line, null if unknown"
            )
        late[name] = name
    return replace(selection, theirs={**selection.theirs, **late}) if late else selection
