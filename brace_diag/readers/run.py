"""`open_run`: a log, opened. `Run`: what is in it, and its `Rollouts` chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Protocol

from brace_diag.errors import InputError, SchemaError
from brace_diag.readers.ahead import in_order
from brace_diag.readers.chunk import Chunk, chunk_of
from brace_diag.readers.columns import ColumnUse, FileSchema, check_needed, resolve
from brace_diag.readers.find import find
from brace_diag.readers.index import RunIndex, index_of, joined
from brace_diag.readers.memory import is_table, open_table
from brace_diag.readers.selection import ALWAYS, Part, Selection, Steps, T, Turn, parse_steps
from brace_diag.rollouts import Rollouts
from brace_diag.rollouts_schema import COLUMNS, LIST_COLUMNS

CHUNK_TOKENS = 1_000_000
"""Tokens of a chunk, about: a few MB a column, so that memory stays small and caches warm."""

_INDEX_COLUMNS = (
    "prompt_id", "step", "reward", "rewards", "policy_mask", "trainer_version",
    "behavior_version", "versions", "mu_logprobs", "pi_logprobs", "values",
)  # fmt: skip


class Log(Protocol):
    """What each format gives: its schemas, and work that makes `Rollouts`."""

    @property
    def words(self) -> str: ...

    @property
    def n_rows(self) -> int | None: ...

    @property
    def schemas(self) -> list[FileSchema]: ...

    def arrow_types(self, theirs: str) -> list[tuple[str, Any]]: ...

    def own_schema(self, selection: Selection) -> Any: ...

    def own_table(self, selection: Selection, part: Part) -> Any: ...

    def tasks(
        self, selection: Selection, chunk_tokens: int, turn: Turn[T]
    ) -> Iterator[Callable[[], T]]: ...

    def index_tasks(self, selection: Selection) -> Iterator[Callable[[], Rollouts]]: ...


@dataclass(frozen=True, eq=False)
class Run:
    """A log, opened but not read. Iterate over it for its `Rollouts`, as often as needed.

    Attributes:
        source: what was opened, in words.
        files: names of the files, in reading order.
        uses: canonical columns that the log has, and where they come from.
        unused: names of the log's other columns.
        n_rows: rows of the log, a filter on steps not counted; None if only reading tells.
        steps: filter on steps, or None.
    """

    source: str
    files: tuple[str, ...]
    uses: Mapping[str, ColumnUse]
    unused: tuple[str, ...]
    n_rows: int | None
    steps: Steps | None
    log: Log = field(repr=False)
    wide: bool = field(repr=False)

    @property
    def columns(self) -> dict[str, str]:
        """Canonical column -> which column of the log is taken for it, in canonical order."""
        stated = {name: use.statement(len(self.files)) for name, use in self.uses.items()}
        if {"reward", "rewards"} <= set(stated):
            stated["reward"] += ", used for rows without any in rewards"
            stated["rewards"] += ", used for rows with any other than 0"
        return stated

    def __iter__(self) -> Iterator[Rollouts]:
        return self.rollouts()

    def rollouts(
        self, needed: Collection[str] | None = None, *, chunk_tokens: int = CHUNK_TOKENS
    ) -> Generator[Rollouts, None, None]:
        """`Rollouts` of about `chunk_tokens` tokens each, in reading order, decoded ahead.

        Args:
            needed: canonical columns to read; all by default. What every `Rollouts` needs to be
                right (mask, prompt, step, reward, truncation) is read in any case, and a column
                that the log lacks is None.

        Raises: SchemaError, ReaderError where a row or a file is at fault; InputError if the
            filter on steps leaves no row.
        """
        selection = self._selection(self._names(needed))
        return self._stream(lambda log: log.tasks(selection, chunk_tokens, Selection.build))

    def chunks(
        self, needed: Collection[str] | None = None, *, chunk_tokens: int = CHUNK_TOKENS
    ) -> Generator[Chunk, None, None]:
        """As `rollouts`, each with the log's own columns of the same rows, for who copies them.

        Args: as of `rollouts`; `needed` bears on the `Rollouts` alone, all columns are decoded.
        """
        schema = self.own_schema
        selection = replace(self._selection(self._names(needed)), beside=tuple(schema.names))
        if self.log.words == "JSON lines":  # where what is not turned is not parsed
            selection = self._selection(COLUMNS)
        turn = partial(chunk_of, schema, self.log.own_table)
        return self._stream(lambda log: log.tasks(selection, chunk_tokens, turn))

    @cached_property
    def own_schema(self) -> Any:
        """Arrow schema of the log's own columns, in its order, as `chunks` gives them.

        Files are put into one table: a column that some lack is null there. Of JSON lines these
        are the canonical columns, by canonical name. A step that folders tell is a column `step`.

        Raises: SchemaError if the files' types of a column have no common type.
        """
        import pyarrow as pa

        schema = self.log.own_schema(self._selection(COLUMNS))
        told = "step" in self.uses and self.uses["step"].how == "folder"
        if told and "step" not in schema.names:
            schema = schema.append(pa.field("step", pa.int64()))
        return schema

    def index(self) -> RunIndex:
        """The first pass: prompt, step, total reward and staleness of every row.

        It agrees with `rollouts()` row by row. Of Parquet it decodes scalar columns alone, unless
        rewards or masks are lists or the log has rows without tokens.
        """
        names = {*_INDEX_COLUMNS}
        if "behavior_version" in self.uses or "trainer_version" not in self.uses:
            names.discard("versions")
        selection = self._selection(names)
        return joined(
            index_of(part) for part in self._stream(lambda log: log.index_tasks(selection))
        )

    def describe(self) -> list[str]:
        """Lines for a person: files, rows, and what every column was taken for."""
        rows = "" if self.n_rows is None else f", {self.n_rows:,} rows"
        files = (
            "" if self.log.words == "table in memory" else f"{_count(len(self.files), 'file')} of "
        )
        lines = [f"{self.source}: {files}{self.log.words}{rows}"]
        width = max(map(len, self.uses))
        lines += [f"{name:<{width}}  {text}" for name, text in self.columns.items()]
        absent = [name for name in COLUMNS if name not in self.uses]
        if absent:
            lines.append(f"not logged: {', '.join(absent)}")
        if self.unused:
            lines.append(f"not used: {', '.join(self.unused)}")
        if self.steps is not None:
            lines.append(f"steps read: {self.steps}")
        return lines

    def _names(self, needed: Collection[str] | None) -> set[str]:
        """Canonical columns that are turned where `needed` ones are asked for."""
        names = set(COLUMNS) if needed is None else {*needed, *ALWAYS}
        check_needed(names)
        if "behavior_version" in names and "behavior_version" not in self.uses:
            names.add("versions")
        if not names & {*LIST_COLUMNS} & {*self.uses} - {"rewards"}:
            names.add("mu_logprobs")  # something must tell how long the rows are
        return names

    def _selection(self, names: Collection[str]) -> Selection:
        theirs = {name: use.theirs for name, use in self.uses.items() if name in names}
        absent = tuple(name for name in COLUMNS if name not in self.uses)
        return Selection(theirs, self.steps, self.wide, absent)

    def _stream(
        self, tasks_of: Callable[[Log], Iterator[Callable[[], T]]]
    ) -> Generator[T, None, None]:
        found = False
        for part in in_order(tasks_of(self.log)):
            found = True
            yield part
        if not found:
            raise self._nothing_left()

    def _nothing_left(self) -> InputError:
        """The filter on steps leaves no row: say which steps there are."""
        everything = Run(
            self.source, self.files, self.uses, self.unused, self.n_rows, None, self.log, self.wide
        )
        steps = everything.index().step
        from brace_diag.rollouts import UNKNOWN

        known = None if steps is None else steps[steps != UNKNOWN]
        have = "no step is known"
        if known is not None and len(known):
            have = f"the log has steps {known.min()} to {known.max()}"
        return InputError(f"{self.source}: no row has a step in {self.steps}; {have}")


def open_run(
    source: Any,
    *,
    columns_map: Mapping[str, str] | None = None,
    format: str = "auto",
    steps: Any = None,
) -> Run:
    """Open a log: nothing but schemas is read yet.

    Args:
        source: file, folder (with all below it, in natural order), glob or URL, a list of these,
            or a table in memory (pyarrow, polars, or anything with Arrow's C interface).
        columns_map: canonical name -> name in the log, for columns that are named otherwise.
        format: `auto`, `parquet` or `jsonl`.
        steps: rows to read by their step, `a:b:c` half open as in Python, a slice, or one step.

    Raises:
        ReaderError: the source is not there, cannot be opened, or is empty or damaged.
        SchemaError: a required column is missing or has a wrong type.
        InputError: an argument is wrong, or the source mixes formats.
    """
    wanted = parse_steps(steps)
    log, files, words = _open(source, format)
    schemas = log.schemas
    uses, unused = resolve(schemas, dict(columns_map or {}))
    if wanted is not None and "step" not in uses:
        raise SchemaError(
            f"{words}: --steps needs a column step, or folders named step=N; "
            f"the log has: {', '.join(dict.fromkeys(t for s in schemas for t in s.types))}"
        )
    wide = _check_types(log, uses)
    return Run(words, files, uses, unused, log.n_rows, wanted, log, wide)


def _open(source: Any, format: str) -> tuple[Log, tuple[str, ...], str]:
    """The log behind a source, the names of its files, and the source in words."""
    if is_table(source):
        log = open_table(source)
        return log, ("table",), "table in memory"
    kind, places = find(source, format)
    names = tuple(place.name for place in places)
    several = isinstance(source, (list, tuple)) and len(source) > 1
    only = source[0] if isinstance(source, (list, tuple)) else source
    words = f"{only} and {len(source) - 1} more" if several else str(only)
    if kind == "jsonl":
        from brace_diag.readers.jsonl import open_jsonl

        return open_jsonl(places), names, words
    from brace_diag.readers.parquet import open_parquet

    return open_parquet(places), names, words


def _check_types(log: Log, uses: Mapping[str, ColumnUse]) -> bool:
    """Raise SchemaError for a column of a wrong type; whether any token column is float64."""
    from brace_diag.rollouts_columns import check_type, needs_float64

    wide = log.words == "JSON lines"
    for name, use in uses.items():
        if use.how == "folder":
            continue
        # One file of each type is enough; there may be thousands.
        first = {kind: where for where, kind in reversed(log.arrow_types(use.theirs))}
        for kind, where in first.items():
            check_type(kind, name, where)
            wide = wide or needs_float64(kind, name)
    return wide


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
