"""Canonical Parquet, written so that it reads fast and is whole or not there at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from brace_diag.errors import InputError
from brace_diag.rollouts_schema import COLUMNS
from brace_diag.temporary import TemporaryFile

ROWS_PER_GROUP = 512
"""Rollouts of a row group: some 10^6 tokens, which is what a reader holds at a time."""

MAX_WAITING_BYTES = 1 << 28
"""Of long rollouts fewer make a row group, so that memory stays bounded whatever their length."""

_COMPRESSION_LEVEL = 1  # higher levels shrink log-probs by a percent or two, at twice the time


class CanonicalWriter:
    """Context manager that writes one canonical Parquet file, batch by batch.

    The file appears under its name when the block ends well, complete and on disk; until then,
    and for good if the block raises or the process is killed, nothing stands under that name
    (or, with `force`, what stood there before). The temporary file that a killed process leaves
    is removed by the next one that writes a file of the name.

    Floats are zstd over BYTE_STREAM_SPLIT without dictionaries, row groups hold 512 rollouts.

    Args:
        path: file to write; its folder must exist.
        metadata: words to store in the file's footer.
        force: replace a file that is there.
        rows_per_group: rows of a row group.
        foreign: the columns are another log's; what their names mean there is not checked.

    Raises: InputError if the file exists and `force` is off, if its folder does not exist, if a
        canonical column has a wrong type, or if batches differ in schema. OSError naming the file
        if it cannot be written, as on a full disk.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        metadata: Mapping[str, str] | None = None,
        force: bool = False,
        rows_per_group: int = ROWS_PER_GROUP,
        foreign: bool = False,
    ) -> None:
        self.path = Path(path)
        self.rows_per_group = rows_per_group
        self.foreign = foreign
        self.metadata = dict(metadata or {})
        self.force = force
        self.n_rows = 0
        self._waiting: list[Any] = []
        self._n_waiting = 0
        self._waiting_bytes = 0
        self._schema: Any = None
        self._sink: Any = None
        self._writer: Any = None
        self._temporary: TemporaryFile | None = None

    def __enter__(self) -> CanonicalWriter:
        if not self.path.parent.is_dir():
            raise InputError(f"{self.path}: there is no folder {self.path.parent}; make it first")
        if self.path.is_dir():
            raise InputError(f"{self.path} is a folder; give the name of a file")
        self._refuse_to_replace()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                with self._named():
                    self._finish()
        finally:
            self._drop()

    def write(self, batch: Any) -> None:
        """Append the rows of a pyarrow table or record batch; it may be of any size."""
        import pyarrow as pa

        table = pa.table(batch) if isinstance(batch, pa.RecordBatch) else batch
        if self._schema is None:
            self._open(table.schema)
        elif not table.schema.equals(self._schema):
            raise InputError(f"{self.path}: {_difference(self._schema, table.schema)}")
        self.n_rows += table.num_rows
        self._waiting.append(table)
        self._n_waiting += table.num_rows
        self._waiting_bytes += table.nbytes
        if self._n_waiting >= self.rows_per_group:
            self._flush(self._n_waiting - self._n_waiting % self.rows_per_group)
        elif self._waiting_bytes >= MAX_WAITING_BYTES:
            self._flush(self._n_waiting)

    def _open(self, schema: Any) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self.foreign:
            _check_types(schema, self.path)
        leaves = _leaves(schema)
        split = [path for path, split in leaves.items() if split]
        dictionary = [path for path, split in leaves.items() if split is None]
        stored = {**(schema.metadata or {}), **{k.encode(): v for k, v in self.metadata.items()}}
        self._schema = schema
        with self._named():
            self._temporary = TemporaryFile(self.path)
            self._sink = pa.OSFile(str(self._temporary.path), "wb")
        self._writer = pq.ParquetWriter(
            self._sink,
            schema.with_metadata(stored),
            compression="zstd",
            compression_level=_COMPRESSION_LEVEL,
            use_dictionary=dictionary or False,
            column_encoding=dict.fromkeys(split, "BYTE_STREAM_SPLIT"),
        )

    def _flush(self, n_rows: int) -> None:
        """Write the first rows that wait; keep the rest, so that row groups are full."""
        import pyarrow as pa

        table = pa.concat_tables(self._waiting)
        with self._named():
            self._writer.write_table(
                table.slice(0, n_rows).replace_schema_metadata(self._writer.schema.metadata),
                row_group_size=self.rows_per_group,
            )
        self._waiting = [table.slice(n_rows)]
        self._n_waiting -= n_rows
        self._waiting_bytes = self._waiting[0].nbytes

    def _finish(self) -> None:
        if self._writer is None or self._temporary is None:
            raise InputError(f"{self.path}: no batch was written, so there is no file to make")
        if self._n_waiting:
            self._flush(self._n_waiting)
        self._writer.close()
        self._sink.close()
        temporary = self._temporary.path
        _sync(temporary)
        if self.force:
            os.replace(temporary, self.path)
        else:
            self._publish(temporary)
        _sync(self.path.parent)

    def _publish(self, temporary: Path) -> None:
        """Give the file its name unless another file took it in the meantime."""
        try:
            os.link(temporary, self.path)  # unlike a rename, never replaces
        except FileExistsError:
            self._refuse_to_replace()
        except OSError:  # a file system without hard links
            self._refuse_to_replace()
            os.replace(temporary, self.path)

    def _refuse_to_replace(self) -> None:
        if self.path.exists() and not self.force:
            raise InputError(f"{self.path} exists; choose another name, or replace it with --force")

    def _drop(self) -> None:
        """Close and remove what is left of the temporary file; an earlier error goes first."""
        import pyarrow as pa

        for part in (self._writer, self._sink):
            with contextlib.suppress(OSError, pa.ArrowException):
                if part is not None:
                    part.close()
        if self._temporary is not None:
            self._temporary.drop()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """An error of the operating system names the file that was asked for."""
        try:
            yield
        except OSError as error:
            words = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(error.errno or errno.EIO, words, str(self.path)) from error


def write_canonical(
    path: str | os.PathLike[str],
    batches: Iterable[Any],
    metadata: Mapping[str, str] | None = None,
    force: bool = False,
) -> int:
    """Write batches of rows as one canonical Parquet file, atomically; returns the rows written.

    Args:
        path: file to write.
        batches: pyarrow tables or record batches of one schema, drawn one at a time.
        metadata: words to store in the file's footer.
        force: replace a file that is there.

    Raises: as `CanonicalWriter`, and whatever `batches` raises; no file is made then.
    """
    with CanonicalWriter(path, metadata=metadata, force=force) as writer:
        for batch in batches:
            writer.write(batch)
    return writer.n_rows


def _check_types(schema: Any, path: Path) -> None:
    from brace_diag.rollouts_columns import check_type

    for column in schema:
        if column.name in COLUMNS:
            check_type(column.type, column.name, str(path))


def _leaves(schema: Any) -> dict[str, bool | None]:
    """Every Parquet column by its path ("values.list.element"): None, or for floats whether
    BYTE_STREAM_SPLIT is for it (entries of lists, but for float16).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    stored = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    leaves: dict[str, bool | None] = {}
    for i in range(len(stored.names)):
        column = stored.column(i)
        wide = column.physical_type in ("FLOAT", "DOUBLE")
        is_float = wide or column.logical_type.type == "FLOAT16"
        leaves[column.path] = wide and "." in column.path if is_float else None
    return leaves


def _difference(expected: Any, got: Any) -> str:
    """How the schema of a batch differs from that of the first, in words."""
    for column in expected:
        if column.name not in got.names:
            return f"a batch lacks column {column.name}; all batches must have one schema"
        kind = got.field(column.name).type
        if kind != column.type:
            return f"column {column.name} is {kind} in one batch and {column.type} in the first"
    extra = [name for name in got.names if name not in expected.names]
    return f"a batch has columns {', '.join(extra) or 'in another order'} that the first has not"


def _sync(path: Path) -> None:
    """Force a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
