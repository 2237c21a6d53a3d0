"""`Run.chunks`: a log's own columns beside its rollouts, row by row the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import log

from brace_diag import open_run
from brace_diag.readers.chunk import Chunk

LISTS = ("mu_logprobs", "pi_logprobs", "values", "policy_mask")


def joined(chunks: list[Chunk]) -> pa.Table:
    return pa.concat_tables([chunk.table for chunk in chunks])


def with_extras(table: pa.Table) -> pa.Table:
    n = table.num_rows
    return table.append_column("text", pa.array([f"t{i}" for i in range(n)])).append_column(
        "tree", pa.array([{"a": [i, i + 1], "b": None} for i in range(n)])
    )


@pytest.mark.parametrize("chunk_tokens", [1, 40, 10**6])
@pytest.mark.parametrize("row_group_size", [7, 60])
def test_own_columns_come_back_whole_and_in_order(
    tmp_path: Path, chunk_tokens: int, row_group_size: int
) -> None:
    table = with_extras(log())
    pq.write_table(table, tmp_path / "run.parquet", row_group_size=row_group_size)
    run = open_run(str(tmp_path / "run.parquet"))
    chunks = list(run.chunks(["mu_logprobs"], chunk_tokens=chunk_tokens))
    assert joined(chunks).equals(table)
    assert run.own_schema.equals(table.schema)
    plain = list(run.rollouts(["mu_logprobs"], chunk_tokens=10**6))
    got = np.concatenate([c.rollouts.mu_logprobs for c in chunks])  # type: ignore[misc]
    np.testing.assert_array_equal(got, np.concatenate([b.mu_logprobs for b in plain]))  # type: ignore[misc]
    assert all(chunk.rollouts.values is None for chunk in chunks), "only what is needed is turned"
    lengths = [len(row) for row in table["mu_logprobs"].to_pylist()]
    assert np.concatenate([chunk.logged for chunk in chunks]).tolist() == lengths
    assert all(chunk.listed.all() for chunk in chunks)


def test_token_index_finds_each_token_in_its_own_list() -> None:
    table = log()
    for chunk in open_run(table).chunks():
        batch, rows = chunk.rollouts, chunk.table["values"].to_pylist()
        assert batch.token_index is not None and batch.values is not None
        for i, row in enumerate(rows):
            span = slice(batch.offsets[i], batch.offsets[i + 1])
            assert chunk.logged[i] == len(row)
            np.testing.assert_array_equal(
                batch.values[span], np.array(row, np.float32)[batch.token_index[span]]
            )


def test_rows_of_which_all_lists_are_null_are_told() -> None:
    table = log(20)
    for name in LISTS:
        rows = table[name].to_pylist()
        rows[3] = rows[12] = None
        if name != "values":
            rows[5] = None
        at = table.column_names.index(name)
        table = table.set_column(at, name, pa.array(rows, table.schema.field(name).type))
    (chunk,) = open_run(table).chunks()
    assert np.flatnonzero(~chunk.listed).tolist() == [3, 12]
    assert chunk.logged[5] == len(table["values"][5])


def test_steps_filter_both_alike(tmp_path: Path) -> None:
    table = with_extras(log())
    pq.write_table(table, tmp_path / "run.parquet", row_group_size=13)
    for source in (str(tmp_path / "run.parquet"), table):
        chunks = list(open_run(source, steps="1:5:2").chunks())
        kept = [i for i, s in enumerate(table["step"].to_pylist()) if s in (1, 3)]
        assert joined(chunks).equals(table.take(kept))
        assert sum(chunk.rollouts.n_rollouts for chunk in chunks) == len(kept)


def test_files_that_differ_give_one_schema(tmp_path: Path) -> None:
    table = log(20)
    wide = table.set_column(0, "step", table["step"].cast(pa.int32()))
    at = table.column_names.index("values")
    wide = wide.set_column(at, "values", table["values"].cast(pa.large_list(pa.float64())))
    pq.write_table(table, tmp_path / "0.parquet")
    pq.write_table(with_extras(wide), tmp_path / "1.parquet")
    run = open_run(str(tmp_path))
    got = joined(list(run.chunks()))
    assert got.column_names == [*table.column_names, "text", "tree"]
    assert got["text"].to_pylist()[:20] == [None] * 20
    assert got.schema.field("step").type == pa.int64()
    assert got["values"].to_pylist() == table["values"].to_pylist() * 2


def json_lines(table: pa.Table, late: dict[str, Any]) -> str:
    rows = [{k: v for k, v in row.items() if v is not None} for row in table.to_pylist()]
    rows[-1] |= late
    return "\n".join(json.dumps(row) for row in rows)


def test_json_lines_have_canonical_columns(tmp_path: Path) -> None:
    table = log(30).drop_columns(["truncated", "bootstrap_value"])
    path = tmp_path / "log.jsonl"
    path.write_text(json_lines(table, {}))
    run = open_run(str(path))
    assert set(run.own_schema.names) == set(table.column_names), "no column that nobody wrote"
    got = joined(list(run.chunks(chunk_tokens=50)))
    for name in table.column_names:
        assert got[name].to_pylist() == table[name].to_pylist(), name
    assert got.schema.field("policy_mask").type == pa.list_(pa.bool_())


def test_json_columns_that_come_late_are_copied(tmp_path: Path) -> None:
    table = log(300).drop_columns(["truncated", "bootstrap_value"])
    path = tmp_path / "log.jsonl"
    path.write_text(json_lines(table, {"truncated": True}))
    run = open_run(str(path))
    assert "truncated" not in run.uses and "truncated" in run.own_schema.names
    got = joined(list(run.chunks(chunk_tokens=50)))
    assert got["truncated"].to_pylist() == [None] * 299 + [True]
