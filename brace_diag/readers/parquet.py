"""Parquet logs: only the needed columns, row group by row group or, of a big one, in slices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag.errors import ReaderError, SchemaError
from brace_diag.readers.columns import FileSchema
from brace_diag.readers.find import Place
from brace_diag.readers.selection import Part, Selection, T, Turn
from brace_diag.rollouts import Rollouts
from brace_diag.rollouts_schema import LIST_COLUMNS, type_text

MAX_ROWS = 4096
"""Rows of a chunk at most: their overhead is small by then, and so is what a chunk holds."""

INDEX_TOKENS, INDEX_ROWS = 1 << 21, 1 << 14
"""Chunk of the index, which holds one or two narrow lists at most, and mostly none."""

_MARK = b"PAR1"
_LENGTHS_FROM = ("policy_mask", "mu_logprobs", "pi_logprobs", "values")


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file with its parsed footer; `leaves` are the physical columns of each column."""

    place: Place
    metadata: Any
    schema: Any
    leaves: dict[str, list[int]]

    def tokens(self, group: int, names: Collection[str]) -> int:
        """Entries of the longest of these columns in a row group."""
        columns = [leaf for name in names for leaf in self.leaves.get(name, ())]
        meta = self.metadata.row_group(group)
        return int(max([meta.num_rows, *(meta.column(leaf).num_values for leaf in columns)]))

    def rows(self, group: int) -> int:
        return int(self.metadata.row_group(group).num_rows)

    def step_range(self, group: int, name: str) -> tuple[int, int] | None:
        """Least and greatest step of a row group by its statistics, or None."""
        if len(self.leaves.get(name, ())) != 1:
            return None
        statistics = self.metadata.row_group(group).column(self.leaves[name][0]).statistics
        if statistics is None or not statistics.has_min_max:
            return None
        low, high = statistics.min, statistics.max
        return (low, high) if isinstance(low, int) and isinstance(high, int) else None

    def has_gaps(self, group: int, name: str) -> bool:
        """Whether a list column may hold null or empty lists, by the statistics."""
        for leaf in self.leaves.get(name, ()):
            statistics = self.metadata.row_group(group).column(leaf).statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                return True
        return name not in self.leaves

    def has_null_lists(self, group: int, name: str) -> bool:
        """Whether a list column holds a null list; reads the column."""
        return any(b.column(name).null_count for b in self.batches(group, [name], MAX_ROWS))

    def read(self, groups: list[int], names: Collection[str]) -> Any:
        """Row groups as one Arrow table, on the calling thread alone."""
        with self._opened() as file, self._damage_named(groups):
            present = [name for name in names if name in self.leaves]
            return file.read_row_groups(groups, columns=present, use_threads=False)

    def batches(self, group: int, names: Collection[str], rows: int) -> Iterator[Any]:
        """One row group as record batches of so many rows."""
        present = [name for name in names if name in self.leaves]
        with self._opened() as file, self._damage_named([group]):
            yield from file.iter_batches(batch_size=rows, row_groups=[group], columns=present)

    def _opened(self) -> Any:
        import pyarrow.parquet as pq

        remote = self.place.filesystem is not None
        return pq.ParquetFile(self.place.open(), metadata=self.metadata, pre_buffer=remote)

    def _damage_named(self, groups: list[int]) -> Any:
        return _damage(f"{self.place.name}, row group {groups[0]}")


@dataclass(frozen=True, slots=True)
class ParquetLog:
    """Parquet files of a run, in order."""

    files: tuple[LogFile, ...]
    words: str = "Parquet"

    @property
    def n_rows(self) -> int:
        return sum(file.metadata.num_rows for file in self.files)

    @property
    def schemas(self) -> list[FileSchema]:
        return [
            FileSchema(
                file.place.name,
                {column.name: type_text(column.type) for column in file.schema},
                file.place.folder_step,
            )
            for file in self.files
        ]

    def arrow_types(self, theirs: str) -> list[tuple[str, Any]]:
        """(file, Arrow type) of one column, for every file that has it."""
        return [
            (file.place.name, file.schema.field(theirs).type)
            for file in self.files
            if theirs in file.leaves
        ]

    def own_schema(self, selection: Selection) -> Any:
        """One schema that holds the columns of all files, those of the first file first.

        Raises: SchemaError if a column's types have no common type.
        """
        import pyarrow as pa

        first = self.files[0].schema
        try:
            joined = pa.unify_schemas([f.schema for f in self.files], promote_options="permissive")
        except pa.ArrowException as error:
            raise SchemaError(f"the files cannot be put into one table: {error}") from None
        return joined.with_metadata(first.metadata)

    def own_table(self, selection: Selection, part: Part) -> Any:
        """Columns of a part as the log has them."""
        return part.table

    def tasks(
        self, selection: Selection, chunk_tokens: int, turn: Turn[T]
    ) -> Iterator[Callable[[], T]]:
        """Work that turns the run, part by part and in order, some 10^6 tokens each."""
        names = selection.names
        first_row = 0
        for file in self.files:
            for span in _spans(file, selection, names, chunk_tokens):
                kept = _kept(file, span, selection)
                n_kept = span.n_rows if kept is None else int(kept.sum())
                if n_kept:
                    yield from _span_tasks(
                        file, span, selection, kept, first_row, chunk_tokens, turn
                    )
                first_row += n_kept

    def index_tasks(self, selection: Selection) -> Iterator[Callable[[], Rollouts]]:
        """Work that gives `Rollouts` right in everything but their tokens, in order."""
        names = [theirs for name, theirs in selection.theirs.items() if name in LIST_COLUMNS]
        first_row = 0
        for file in self.files:
            for span in _spans(file, selection, names, INDEX_TOKENS, INDEX_ROWS):
                kept = _kept(file, span, selection)
                n_kept = span.n_rows if kept is None else int(kept.sum())
                if n_kept:
                    yield from _index_tasks(file, span, selection, kept, first_row)
                first_row += n_kept


@dataclass(frozen=True, slots=True)
class _Span:
    """Successive row groups of a file, and the number in the file of their first row."""

    groups: list[int]
    file_row: int
    n_rows: int
    n_tokens: int


def open_parquet(places: list[Place]) -> ParquetLog:
    """Footers of all files. Raises ReaderError for what is not, or no longer, a Parquet file."""
    log = ParquetLog(tuple(_footer(place) for place in places))
    if log.n_rows == 0:
        raise ReaderError(f"{places[0].name}{_and_more(places)} has no rows")
    return log


def _and_more(places: list[Place]) -> str:
    return f" (and {len(places) - 1} more)" if len(places) > 1 else ""


def _footer(place: Place) -> LogFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with place.open() as stream:
        _check_marks(place, stream)
        try:
            file = pq.ParquetFile(stream)
            schema = file.schema_arrow
        except (pa.ArrowException, OSError) as error:
            raise ReaderError(
                f"{place.name} is damaged: its footer cannot be read ({error})"
            ) from error
        return LogFile(place, file.metadata, schema, _leaves_of(file.metadata, schema.names))


def _leaves_of(metadata: Any, names: list[str]) -> dict[str, list[int]]:
    """Physical columns of each column; a column's own name may have dots in it."""
    leaves: dict[str, list[int]] = {}
    columns, top = metadata.schema, set(names)
    for leaf in range(metadata.num_columns):
        parts = columns.column(leaf).path.split(".")
        prefixes = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
        name = next((prefix for prefix in prefixes if prefix in top), parts[0])
        leaves.setdefault(name, []).append(leaf)
    return leaves


def _check_marks(place: Place, stream: Any) -> None:
    """Raise ReaderError unless the file starts and ends as Parquet files do."""
    size = stream.size()
    head = bytes(stream.read_at(min(16, size), 0))
    if head[:4] != _MARK:
        raise ReaderError(
            f"{place.name} is not a Parquet file: it starts with {head!r}; "
            "for JSON lines choose --format jsonl"
        )
    if size < 12 or bytes(stream.read_at(4, size - 4)) != _MARK:
        raise ReaderError(
            f"{place.name} is cut short ({size} bytes, without the closing mark PAR1); "
            "was its writer killed? Copy or write it again"
        )


class _damage:
    """Context in which pyarrow's errors become a `ReaderError` that names the damaged place."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        import pyarrow as pa

        if isinstance(error, (pa.ArrowException, OSError)) and not isinstance(error, ReaderError):
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ReaderError(
                f"{self.where} cannot be decoded: {reason}; the file is damaged, "
                "copy or write it again"
            ) from error


def _spans(
    file: LogFile,
    selection: Selection,
    names: Collection[str],
    chunk_tokens: int,
    max_rows: int = MAX_ROWS,
) -> Iterator[_Span]:
    """Row groups that the filter may keep, small neighbours put together."""
    groups: list[int] = []
    file_row, start, n_rows, n_tokens = 0, 0, 0, 0
    for group in range(file.metadata.num_row_groups):
        rows, tokens = file.rows(group), file.tokens(group, names)
        wanted = rows > 0 and _may_keep(file, group, selection)
        full = n_tokens + tokens > chunk_tokens or n_rows + rows > max_rows
        if groups and (full or not wanted):
            yield _Span(groups, start, n_rows, n_tokens)
            groups = []
        if wanted:
            if not groups:
                start, n_rows, n_tokens = file_row, 0, 0
            groups.append(group)
            n_rows, n_tokens = n_rows + rows, n_tokens + tokens
        file_row += rows
    if groups:
        yield _Span(groups, start, n_rows, n_tokens)


def _may_keep(file: LogFile, group: int, selection: Selection) -> bool:
    if selection.steps is None:
        return True
    name = selection.theirs["step"]
    if name not in file.leaves:
        step = file.place.folder_step
        return step is not None and selection.steps.may_keep(step, step)
    known = file.step_range(group, name)
    return known is None or selection.steps.may_keep(*known)


def _kept(file: LogFile, span: _Span, selection: Selection) -> npt.NDArray[np.bool_] | None:
    """Rows of a span that the filter keeps; None: all. Reads the step column if it must."""
    if selection.steps is None:
        return None
    name = selection.theirs["step"]
    table = file.read(span.groups, [name])
    only_step = Selection({"step": name}, selection.steps, selection.wide)
    if table.num_columns == 0:  # the folder tells the one step, and the filter keeps it
        return None
    return only_step.kept_rows(only_step.canonical(table, file.place.folder_step), file.place.name)


def _span_tasks(
    file: LogFile,
    span: _Span,
    selection: Selection,
    kept: npt.NDArray[np.bool_] | None,
    first_row: int,
    chunk_tokens: int,
    turn: Turn[T],
) -> Iterator[Callable[[], T]]:
    """A span as one task that decodes it, or, of one big row group, as a task for each slice."""
    names = selection.names
    if span.n_tokens <= 2 * chunk_tokens and (span.n_rows <= MAX_ROWS or len(span.groups) > 1):
        yield partial(_decode, file, span, selection, kept, first_row, turn)
        return
    rows = max(1, min(MAX_ROWS, span.n_rows * chunk_tokens // max(1, span.n_tokens)))
    done = 0
    for batch in file.batches(span.groups[0], names, rows):
        keep = None if kept is None else kept[done : done + batch.num_rows]
        n_kept = batch.num_rows if keep is None else int(keep.sum())
        if n_kept:
            part = Part(
                batch, file.place.name, span.file_row + done, first_row, keep,
                file.place.folder_step,
            )  # fmt: skip
            yield partial(turn, selection, part)
        done += batch.num_rows
        first_row += n_kept


def _decode(
    file: LogFile,
    span: _Span,
    selection: Selection,
    kept: npt.NDArray[np.bool_] | None,
    first_row: int,
    turn: Turn[T],
) -> T:
    table = file.read(span.groups, selection.names)
    place = file.place
    part = Part(table, place.name, span.file_row, first_row, kept, place.folder_step)
    return turn(selection, part)


def _index_tasks(
    file: LogFile,
    span: _Span,
    selection: Selection,
    kept: npt.NDArray[np.bool_] | None,
    first_row: int,
) -> Iterator[Callable[[], Rollouts]]:
    """As `_span_tasks`, with as few lists as tell which rows have a policy token."""
    theirs = selection.theirs
    listed = [name for name in theirs if name in LIST_COLUMNS and theirs[name] in file.leaves]
    others = [name for name in theirs if name not in _LENGTHS_FROM]
    lengths = [name for name in _LENGTHS_FROM if name in listed]
    first = theirs[lengths[0]]
    gaps = any(file.has_gaps(group, first) for group in span.groups)
    if not gaps and set(listed) <= {"mu_logprobs", "pi_logprobs", "values"}:
        bare = _narrowed(selection, others)
        yield partial(_decode, file, span, bare, kept, first_row, Selection.build_bare)
        return
    # A null list says nothing of its row's length: then the other lists must be asked.
    if not gaps or not any(file.has_null_lists(group, first) for group in span.groups):
        lengths = lengths[:1]
    narrow = _narrowed(selection, [*others, *lengths])
    yield from _span_tasks(file, span, narrow, kept, first_row, INDEX_TOKENS, Selection.build)


def _narrowed(selection: Selection, names: list[str]) -> Selection:
    return replace(selection, theirs={name: selection.theirs[name] for name in names})
