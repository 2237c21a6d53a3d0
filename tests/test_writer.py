"""The canonical writer: how the file is stored, and that it is whole or not there."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from brace_diag.errors import InputError, SchemaError
from brace_diag.writer import CanonicalWriter, write_canonical


def rows(n: int, start: int = 0) -> pa.Table:
    return pa.table(
        {
            "step": pa.array([7] * n, pa.int64()),
            "prompt_id": [f"p{(start + i) % 4}" for i in range(n)],
            "mu_logprobs": pa.array([[-1.0 - i, -2.0] for i in range(n)], pa.list_(pa.float32())),
            "values": pa.array([[0.5, 0.25]] * n, pa.large_list(pa.float64())),
            "entropy": pa.array([[0.5, 0.25]] * n, pa.list_(pa.float16())),
            "policy_mask": [[True, False]] * n,
            "reward": [float(i % 2) for i in range(n)],
        }
    )


def test_what_is_written_is_read_back_in_row_groups_of_512(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    table = rows(1300)
    n = write_canonical(path, table.to_batches(max_chunksize=100), metadata={"made_by": "test"})
    assert n == 1300
    assert pq.read_table(path).equals(table)
    meta = pq.read_metadata(path)
    assert [meta.row_group(i).num_rows for i in range(meta.num_row_groups)] == [512, 512, 276]
    assert meta.metadata[b"made_by"] == b"test"
    assert os.listdir(tmp_path) == ["run.parquet"]


def test_one_big_table_is_cut_into_row_groups_too(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    write_canonical(path, [rows(1024), rows(3)])
    meta = pq.read_metadata(path)
    assert [meta.row_group(i).num_rows for i in range(meta.num_row_groups)] == [512, 512, 3]


def test_encodings(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    write_canonical(path, [rows(100)])
    group = pq.read_metadata(path).row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    for name in ("mu_logprobs", "values"):
        column = columns[f"{name}.list.element"]
        assert "BYTE_STREAM_SPLIT" in column.encodings
        assert not column.has_dictionary_page
    for name in ("reward", "entropy.list.element"):
        assert not columns[name].has_dictionary_page
    assert columns["prompt_id"].has_dictionary_page
    assert {column.compression for column in columns.values()} == {"ZSTD"}


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    write_canonical(path, [rows(1)])
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"run\.parquet exists; .* --force"):
        write_canonical(path, [rows(2)])
    assert path.read_bytes() == before
    assert write_canonical(path, [rows(2)], force=True) == 2
    assert pq.read_metadata(path).num_rows == 2
    assert os.listdir(tmp_path) == ["run.parquet"]


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    with pytest.raises(InputError, match="exists"), CanonicalWriter(path) as writer:
        writer.write(rows(1))
        path.write_bytes(b"another program's")
    assert path.read_bytes() == b"another program's"
    assert os.listdir(tmp_path) == ["run.parquet"]


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    def failing() -> Iterator[pa.Table]:
        yield rows(600)
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        write_canonical(tmp_path / "run.parquet", failing())
    assert os.listdir(tmp_path) == []


def test_an_error_under_force_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    write_canonical(path, [rows(1)])
    with pytest.raises(KeyboardInterrupt), CanonicalWriter(path, force=True) as writer:
        writer.write(rows(600))
        raise KeyboardInterrupt
    assert pq.read_metadata(path).num_rows == 1
    assert os.listdir(tmp_path) == ["run.parquet"]


def test_a_kill_leaves_no_half_file_under_the_name(tmp_path: Path) -> None:
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[2])\n"
        "from test_writer import rows\n"
        "from brace_diag.writer import CanonicalWriter\n"
        "with CanonicalWriter(sys.argv[1]) as w:\n"
        "    w.write(rows(600)); print('written', flush=True); time.sleep(60)\n"
    )
    path = tmp_path / "run.parquet"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path), str(Path(__file__).parent)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "written\n"
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=30)
    child.stdout.close()
    assert not path.exists()
    left = os.listdir(tmp_path)
    assert len(left) == 1 and left[0].startswith(".run.parquet.") and left[0].endswith(".tmp")
    assert write_canonical(path, [rows(1)]) == 1
    assert os.listdir(tmp_path) == ["run.parquet"], "what the dead process left is removed"


def test_only_what_nobody_holds_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    dead, others = tmp_path / ".run.parquet.0123abcd.tmp", tmp_path / ".run.parquet.mine.tmp"
    dead.touch()
    others.touch()
    with CanonicalWriter(path) as writer:
        writer.write(rows(600))
        held = {p.name for p in tmp_path.iterdir()} - {others.name}
        assert dead.name not in held and len(held) == 1
        write_canonical(path, [rows(3)])  # another writer of the same name, meanwhile
        assert held <= {p.name for p in tmp_path.iterdir()}, "a writer that lives keeps its file"
        path.unlink()
    assert pq.read_metadata(path).num_rows == 600
    assert sorted(os.listdir(tmp_path)) == [others.name, path.name]


def test_a_disk_that_is_full_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("Error writing bytes to file. Detail: [errno 28] No space left on device")

    path = tmp_path / "run.parquet"
    with pytest.raises(OSError) as caught, CanonicalWriter(path) as writer:
        writer.write(rows(1))
        monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
        writer.write(rows(600))
    # pyarrow's own errors of this kind carry the number; one without it counts as input/output.
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(path))
    assert os.listdir(tmp_path) == []


def test_long_rollouts_make_smaller_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brace_diag.writer.MAX_WAITING_BYTES", 5_000)
    path = tmp_path / "run.parquet"
    write_canonical(path, rows(400).to_batches(max_chunksize=40))
    meta = pq.read_metadata(path)
    sizes = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
    assert sum(sizes) == 400 and max(sizes) < 200
    assert pq.read_table(path).equals(rows(400))


def test_columns_of_another_log_are_not_judged_by_their_names(tmp_path: Path) -> None:
    odd = pa.table({"values": ["text"]})
    with CanonicalWriter(tmp_path / "a.parquet", foreign=True) as writer:
        writer.write(odd)
    assert pq.read_table(tmp_path / "a.parquet").equals(odd)


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        write_canonical(tmp_path / "no" / "run.parquet", [rows(1)])
    with pytest.raises(InputError, match="is a folder"):
        write_canonical(tmp_path, [rows(1)], force=True)
    with pytest.raises(InputError, match="no batch was written"):
        write_canonical(tmp_path / "run.parquet", [])
    with pytest.raises(SchemaError, match="mu_logprobs has type float64"):
        write_canonical(tmp_path / "run.parquet", [pa.table({"mu_logprobs": [1.0]})])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (rows(1).drop_columns("values"), "lacks column values"),
        (rows(1).append_column("more", pa.array([1])), "has columns more that the first has not"),
        (
            rows(1).set_column(0, "step", pa.array([7], pa.int32())),
            "column step is int32 in one batch and int64 in the first",
        ),
    ],
)
def test_batches_of_different_schema_are_refused(
    tmp_path: Path, second: pa.Table, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        write_canonical(tmp_path / "run.parquet", [rows(1), second])
    assert os.listdir(tmp_path) == []


def test_batches_are_drawn_one_at_a_time(tmp_path: Path) -> None:
    """At most one row group's worth of rows waits, so memory does not grow with the file."""
    with CanonicalWriter(tmp_path / "run.parquet") as writer:
        for _ in range(20):
            writer.write(rows(100))
            assert writer._n_waiting < 512
            assert sum(table.num_rows for table in writer._waiting) == writer._n_waiting
