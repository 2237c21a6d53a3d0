"""From a source to its files, and what is said when there is nothing to read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from reading import assert_equal, joined, log

from brace_diag.errors import InputError, MissingExtraError, ReaderError
from brace_diag.readers import open_run
from brace_diag.readers.find import Place, natural_order


def put(path: Path, n: int = 5) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(log(n), path)
    return path


def names(source: Any, below: Path, **options: Any) -> list[str]:
    return [str(Path(name).relative_to(below)) for name in open_run(source, **options).files]


def test_numbers_sort_as_numbers() -> None:
    paths = ["step=10/a", "step=2/a", "step=2/a10", "step=2/a9", "b", "a"]
    assert sorted(paths, key=natural_order) == [
        "a", "b", "step=2/a", "step=2/a9", "step=2/a10", "step=10/a",
    ]  # fmt: skip


def test_a_folder_is_read_with_all_below_it(tmp_path: Path) -> None:
    for name in ("s10/a.parquet", "s2/b.parquet", "s2/a.pq", ".hidden/x.parquet", "_tmp/x.parquet",
                 "s2/.a.parquet.1f.tmp", "s2/_x.parquet"):  # fmt: skip
        put(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not a log")
    assert names(tmp_path, tmp_path) == ["s2/a.pq", "s2/b.parquet", "s10/a.parquet"]


def test_globs_and_lists(tmp_path: Path) -> None:
    for name in ("s10/a.parquet", "s2/a.parquet", "s2/b.parquet"):
        put(tmp_path / name)
    assert names(f"{tmp_path}/*/a.parquet", tmp_path) == ["s2/a.parquet", "s10/a.parquet"]
    assert names(f"{tmp_path}/s*", tmp_path) == ["s2/a.parquet", "s2/b.parquet", "s10/a.parquet"]
    assert names(f"{tmp_path}/**", tmp_path) == ["s2/a.parquet", "s2/b.parquet", "s10/a.parquet"]
    given = [tmp_path / "s10" / "a.parquet", str(tmp_path / "s2" / "b.parquet")]
    assert names(given, tmp_path) == ["s10/a.parquet", "s2/b.parquet"]
    with pytest.raises(ReaderError, match="no file matches this pattern"):
        open_run(f"{tmp_path}/*.jsonl")
    with pytest.raises(InputError, match="is given more than once"):
        open_run([tmp_path / "s2", tmp_path / "s2" / "a.parquet"])
    with pytest.raises(InputError, match="empty list"):
        open_run([])


def test_a_name_with_brackets_is_a_name_first(tmp_path: Path) -> None:
    path = put(tmp_path / "run[1].parquet")
    assert open_run(path).files == (str(path),)


def test_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "run.parquet")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_run("~/run.parquet").n_rows == 5


def test_a_file_that_is_not_there_suggests_one(tmp_path: Path) -> None:
    put(tmp_path / "run.parquet")
    with pytest.raises(ReaderError) as error:
        open_run(tmp_path / "rum.parquet")
    assert str(error.value) == (
        f"{tmp_path}/rum.parquet: no such file or folder; did you mean {tmp_path}/run.parquet?"
    )
    with pytest.raises(ReaderError, match=r"no such file or folder \(and no folder .*/nowhere\)"):
        open_run(tmp_path / "nowhere" / "run.parquet")


def test_folders_without_logs(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ReaderError, match=r"has no file to read \(it is empty\); a log is a file"):
        open_run(empty)
    (empty / "notes.txt").write_text("x")
    with pytest.raises(ReaderError, match=r"\(it holds notes\.txt\)"):
        open_run(empty)
    put(empty / "run.parquet")
    with pytest.raises(ReaderError, match="a log is a file format jsonl"):
        open_run(empty, format="jsonl")


def test_mixed_formats_need_a_choice(tmp_path: Path) -> None:
    put(tmp_path / "run.parquet")
    (tmp_path / "truth.json").write_text('{"mu_logprobs": [-1.0], "reward": 1.0}\n')
    with pytest.raises(InputError, match=r"holds 1 jsonl and 1 parquet files; .*--format parquet"):
        open_run(tmp_path)
    assert names(tmp_path, tmp_path, format="parquet") == ["run.parquet"]
    assert names(tmp_path, tmp_path, format="jsonl") == ["truth.json"]
    with pytest.raises(InputError, match="format is 'csv'; allowed: auto, parquet, jsonl"):
        open_run(tmp_path, format="csv")


def test_a_file_without_an_ending_is_known_by_its_bytes(tmp_path: Path) -> None:
    parquet = put(tmp_path / "run")
    lines = tmp_path / "lines"
    lines.write_text('\n {"mu_logprobs": [-1.0], "reward": 1.0}\n')
    other = tmp_path / "other"
    other.write_text("step,reward\n")
    assert open_run(parquet).n_rows == 5
    assert len(list(open_run(lines))) == 1
    with pytest.raises(ReaderError, match="neither Parquet nor JSON lines: it starts with b'step,"):
        open_run(other)


def test_a_text_file_named_parquet(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    path.write_text('{"mu_logprobs": [-1.0]}\n')
    with pytest.raises(ReaderError, match=r"is not a Parquet file: it starts with b'\{\"mu_log"):
        open_run(path)
    path.write_bytes(b"")
    with pytest.raises(ReaderError, match=r"run\.parquet is empty \(0 bytes\)"):
        open_run(path)


def test_a_cut_file(tmp_path: Path) -> None:
    path = put(tmp_path / "run.parquet")
    whole = path.read_bytes()
    for n in (5, 100, len(whole) - 1):
        path.write_bytes(whole[:n])
        with pytest.raises(ReaderError, match=rf"is cut short \({n} bytes, without the closing"):
            open_run(path)
    path.write_bytes(whole[:100] + b"PAR1")
    with pytest.raises(ReaderError, match="is damaged: its footer cannot be read"):
        open_run(path)


@pytest.mark.parametrize("row_group_size", [5, 100])
def test_damaged_pages(tmp_path: Path, row_group_size: int) -> None:
    path = tmp_path / "run.parquet"
    pq.write_table(log(100), path, row_group_size=row_group_size, compression="zstd")
    whole = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(0).column(2)
    start, size = column.data_page_offset, column.total_compressed_size
    whole[start : start + size] = b"\xff" * size
    path.write_bytes(whole)
    run = open_run(path)
    for chunk_tokens in (10, 10**6):
        with pytest.raises(
            ReaderError, match=r"run\.parquet, row group 0 cannot be decoded: .*the "
        ):
            list(run.rollouts(chunk_tokens=chunk_tokens))


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root nothing is forbidden, so the refusal of the operating system is put in its place."""
    path = put(tmp_path / "run.parquet")

    def refusing(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(name: Any, *rest: Any, **options: Any) -> Any:
            if str(name) == str(path):
                raise PermissionError(13, "Permission denied", str(path))
            return original(name, *rest, **options)

        return call

    monkeypatch.setattr("builtins.open", refusing(open))
    with pytest.raises(ReaderError, match=r"run\.parquet may not be read: permission denied"):
        open_run(path)


def test_no_permission_for_a_folder_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files must not be left out without a word."""
    put(tmp_path / "open" / "a.parquet")
    put(tmp_path / "closed" / "b.parquet")
    original = os.scandir

    def refusing(path: Any = ".") -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return original(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(ReaderError, match=r"/closed may not be read: permission denied"):
        open_run(tmp_path)


def test_a_folder_named_as_a_file(tmp_path: Path) -> None:
    put(tmp_path / "run.parquet" / "part-0.parquet")
    assert open_run(tmp_path / "run.parquet").n_rows == 5


def test_endings() -> None:
    for path, kind, compression in (
        ("a.parquet", "parquet", None),
        ("a.JSONL", "jsonl", None),
        ("a.ndjson.gz", "jsonl", "gzip"),
        ("a.json.zst", "jsonl", "zstd"),
        ("a.gz", None, "gzip"),
        ("a", None, None),
    ):
        assert (Place(path, path).format, Place(path, path).compression) == (kind, compression)


def test_urls(tmp_path: Path) -> None:
    for step in (2, 10):
        put(tmp_path / f"step={step}" / "a.parquet")
    local = joined(open_run(tmp_path))
    run = open_run(f"file://{tmp_path}")
    assert [name.split("/")[-2] for name in run.files] == ["step=2", "step=10"]
    assert run.files[0].startswith("file://")
    assert_equal(joined(run), local)
    assert len(open_run(f"file://{tmp_path}/step=2/a.parquet").files) == 1
    assert len(open_run(f"file://{tmp_path}/*/a.parquet").files) == 2
    with pytest.raises(ReaderError, match=r"no such file or folder"):
        open_run(f"file://{tmp_path}/nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReaderError, match="no file to read here"):
        open_run(f"file://{tmp_path}/empty")


def test_urls_by_fsspec(tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    for step in (2, 10):
        path = put(tmp_path / f"step={step}" / "a.parquet")
        memory.pipe(f"/logs/step={step}/a.parquet", path.read_bytes())
    memory.pipe("/logs/lines/run.jsonl", b'{"mu_logprobs": [-1.0], "reward": 1.0}\n')
    try:
        run = open_run("memory://logs", format="parquet")
        assert_equal(joined(run), joined(open_run(tmp_path)))
        assert len(open_run("memory://logs/step=*/a.parquet").files) == 2
        assert len(list(open_run("memory://logs/lines/run.jsonl"))) == 1
    finally:
        memory.rm("/logs", recursive=True)


def test_urls_without_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(
        MissingExtraError, match=r"reading memory:// needs a package .*pip install fs"
    ):
        open_run("memory://logs")
    monkeypatch.undo()
    with pytest.raises(ReaderError, match="nosuch://x cannot be opened"):
        open_run("nosuch://x")
