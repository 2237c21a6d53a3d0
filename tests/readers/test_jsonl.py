"""JSON lines: the same `Rollouts` as Parquet gives, numbers without a JSON word, broken lines."""

from __future__ import annotations

import gzip
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import assert_equal, joined, log

from brace_diag.errors import ReaderError, SchemaError
from brace_diag.hashing import stable_hash
from brace_diag.readers import open_run
from brace_diag.readers.json_values import mark_nonfinite
from brace_diag.rollouts import Rollouts

NAN, INF = float("nan"), float("inf")


def lines_of(table: pa.Table) -> list[str]:
    return [json.dumps(row) for row in table.to_pylist()]


def save(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def row(**columns: Any) -> str:
    return json.dumps({"mu_logprobs": [-1.0], "reward": 1.0, **columns})


@pytest.mark.parametrize("dense", [False, True])
def test_json_lines_equal_parquet(tmp_path: Path, dense: bool) -> None:
    table = log(60, dense=dense, float64=True)
    pq.write_table(table, tmp_path / "run.parquet")
    save(tmp_path / "run.jsonl", *lines_of(table))
    parquet = joined(open_run(tmp_path / "run.parquet"))
    run = open_run(tmp_path / "run.jsonl")
    assert run.n_rows is None
    assert_equal(joined(run), parquet)
    for chunk_tokens in (1, 20, 100):
        assert_equal(joined(run.rollouts(chunk_tokens=chunk_tokens)), parquet)
    for steps in ("1:3", "::2"):
        assert_equal(
            joined(open_run(tmp_path / "run.jsonl", steps=steps)),
            joined(open_run(tmp_path / "run.parquet", steps=steps)),
        )
    for name in ("prompt", "step", "total_reward", "staleness"):
        np.testing.assert_array_equal(
            getattr(run.index(), name), getattr(open_run(table).index(), name)
        )


@pytest.mark.parametrize("n_files", [3, 50])
def test_cut_into_files_and_compressed(tmp_path: Path, n_files: int) -> None:
    table = log(60, float64=True)
    lines = lines_of(table)
    cuts = np.linspace(0, 60, n_files + 1).astype(int)
    for i, (low, high) in enumerate(itertools.pairwise(cuts)):
        text = ("\n".join(lines[low:high]) + "\n").encode()
        kind = i % 3
        if kind == 0:
            (tmp_path / f"{i}.ndjson").write_bytes(text)
        elif kind == 1:
            (tmp_path / f"{i}.jsonl.gz").write_bytes(gzip.compress(text))
        else:
            with pa.output_stream(str(tmp_path / f"{i}.json.zst"), compression="zstd") as out:
                out.write(text)
    run = open_run(tmp_path)
    assert len(run.files) == n_files
    assert_equal(joined(run), joined([Rollouts.from_arrow(table)]))
    assert_equal(joined(run.rollouts(chunk_tokens=1)), joined([Rollouts.from_arrow(table)]))


def test_numbers_that_json_has_no_word_for(tmp_path: Path) -> None:
    path = save(
        tmp_path / "run.jsonl",
        '{"mu_logprobs": [-0.1, NaN, -Infinity, null, "NaN"], "reward": 1}',
    )
    run = open_run(path)
    got = joined(run)
    np.testing.assert_array_equal(got["mu_logprobs"], [-0.1, NAN, -INF, NAN, NAN])
    assert (got["quality"].mu_missing, got["quality"].mu_impossible) == (3, 1)


@pytest.mark.parametrize(
    "word", ["NaN", "nan", "Infinity", "-Infinity", "inf", "-inf", "+Infinity"]
)
@pytest.mark.parametrize("quoted", [False, True])
def test_every_spelling_in_every_place(tmp_path: Path, word: str, quoted: bool) -> None:
    text = f'"{word}"' if quoted else word
    path = save(
        tmp_path / "run.jsonl",
        f'{{"mu_logprobs": [{text}, -1.0, {text}], "values":[0.5,{text} , 0.5], '
        f'"reward": {text}, "bootstrap_value": {text}, "text": "a, {word}, [\\"{word}\\"]", '
        f'"prompt_id": "{word}"}}',
        row(values=[0.5], prompt_id="b", bootstrap_value=0.25),
    )
    got = joined(open_run(path))
    value = float(word)
    mu = [value if value == -INF else NAN, -1.0]
    np.testing.assert_array_equal(got["mu_logprobs"][:2], mu)
    np.testing.assert_array_equal(got["values"], [0.5, NAN, 0.5, 0.5])
    np.testing.assert_array_equal(got["rewards"], [NAN, 1.0])
    np.testing.assert_array_equal(got["bootstrap"], [0.0, 0.25])
    # The id is a string that happens to be such a word: it stays a string.
    assert got["prompt"].tolist() == stable_hash([word, "b"]).tolist()


def test_strings_are_left_alone() -> None:
    lines = [
        b'{"a": "NaN", "b": ["x, NaN, y"], "NaN": 1, "c": "\\", NaN, \\""}',
        b'{"a": 1, "b": "[NaN]"}',
    ]
    marked, any_marked = mark_nonfinite(lines, frozenset())
    assert marked == lines
    assert not any_marked
    assert mark_nonfinite([b'{"a":NaN}'], frozenset()) == ([b'{"a":2e307}'], True)
    assert mark_nonfinite([b'{"a":[1, 2]}'], frozenset({"a"})) == ([b'{"a":[1, 2]}'], False)


number = st.one_of(
    st.sampled_from([None, NAN, INF, -INF, "NaN", "-Infinity", 0, -1, 1]),
    st.floats(-1e300, 1e300, allow_nan=False),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(number, max_size=5), min_size=1, max_size=5), st.data())
def test_any_mixture_of_numbers_reads_as_python_reads_it(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[Any]], data: st.DataObject
) -> None:
    rewards = [data.draw(number) for _ in rows]
    path = tmp_path_factory.mktemp("json") / "run.jsonl"
    save(
        path,
        *(
            json.dumps({"mu_logprobs": [-1.0] * len(x), "values": x, "reward": r})
            for x, r in zip(rows, rewards, strict=True)
        ),
    )
    got = joined(open_run(path))
    as_float = [NAN if x is None else float(x) for row in rows for x in row]
    expected = [x if math.isfinite(x) else NAN for x in as_float]
    np.testing.assert_array_equal(got["values"], expected)
    wanted = [NAN if r is None or not math.isfinite(float(r)) else float(r) for r in rewards]
    np.testing.assert_array_equal(got["rewards"], wanted)


def test_ids_and_flags_of_every_json_type(tmp_path: Path) -> None:
    path = save(
        tmp_path / "run.jsonl",
        row(prompt_id=5, policy_mask=[1], truncated=0, step=1, versions=[3]),
        row(prompt_id="5", policy_mask=[True], truncated=True, step=1.0, versions=[3.0]),
        row(prompt_id=5.0, policy_mask=[0], truncated=None, step=2, versions=[None]),
        row(prompt_id=None, policy_mask=None, truncated=False, step=None),
        row(prompt_id=2**63, policy_mask=[1.0], truncated=1),
    )
    got = joined(open_run(path))
    five = stable_hash([5])[0]
    assert got["prompt"][:3].tolist() == [five] * 3
    assert got["prompt"][4] == stable_hash([str(2**63)])[0]
    assert got["quality"].prompts_missing == 1
    assert got["lengths"].tolist() == [1, 1, 0, 1, 1]
    assert got["truncated"].tolist() == [False, True, False, False, True]
    assert got["step"][:3].tolist() == [1, 1, 2]
    assert got["versions"][:2].tolist() == [3, 3]


def test_blank_lines_carriage_returns_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    text = "\ufeff" + "\r\n".join(["", row(step=1), "  ", "", row(step=2), row(step=3)])
    path.write_bytes(text.encode())  # and no newline at the end
    for chunk_tokens in (1, 10**6):
        got = joined(open_run(path).rollouts(chunk_tokens=chunk_tokens))
        assert got["step"].tolist() == [1, 2, 3]


def test_a_line_longer_than_a_block(tmp_path: Path) -> None:
    mu = [-1.0 - i / 1000 for i in range(5000)]
    path = save(
        tmp_path / "run.jsonl", row(), json.dumps({"mu_logprobs": mu, "reward": 0.0}), row()
    )
    got = joined(open_run(path).rollouts(chunk_tokens=10))
    assert got["lengths"].tolist() == [1, 5000, 1]
    assert got["mu_logprobs"][1:-1].tolist() == mu


def test_blocks_are_bounded(tmp_path: Path) -> None:
    path = save(tmp_path / "run.jsonl", *[row(step=i) for i in range(2000)])
    parts = list(open_run(path).rollouts(chunk_tokens=500))
    assert len(parts) > 5
    assert sum(part.n_rollouts for part in parts) == 2000


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ('{"mu_logprobs": [-1.0], "reward": 1.0', "Expecting"),
        ('{"mu_logprobs": [-1.0,], "reward": 1.0}', "is not JSON"),
        ('{"mu_logprobs": [-1.0], "reward": 1.0}{"a": 1}', "Extra data"),
        ("step 3 done", "Expecting value"),
        ("[1, 2]", "is list<number>; a log has one JSON object a line"),
        ("5", "is number; a log has one JSON object a line"),
    ],
)
@pytest.mark.parametrize("before", [0, 3, 150])
def test_a_broken_line_is_named(tmp_path: Path, broken: str, reason: str, before: int) -> None:
    if broken.startswith("["):
        before = max(before, 1)  # a file that starts with [ is taken for one array
    path = save(tmp_path / "run.jsonl", *[row()] * before, "", broken, row())
    with pytest.raises(ReaderError) as error:
        list(open_run(path))
    assert str(error.value).startswith(f"{path} line {before + 2} is")
    assert reason in str(error.value)


def test_one_json_array(tmp_path: Path) -> None:
    path = save(tmp_path / "run.json", "[", row(), "]")
    with pytest.raises(ReaderError, match=r"is one JSON array; write one object a line: jq -c"):
        open_run(path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("mu_logprobs", "abc", "column mu_logprobs is 'abc'; it must be list<float32>"),
        ("mu_logprobs", 3.5, "column mu_logprobs is 3.5; it must be list<float32>"),
        ("mu_logprobs", [["x"]], r"column mu_logprobs is \[\['x'\]\]; it must be list<float32>"),
        ("mu_logprobs", ["x"], r"column mu_logprobs is \['x'\]"),
        ("reward", {"score": 1}, r"column reward is \{'score': 1\}; it must be float64"),
        ("reward", [1.0], r"column reward is \[1.0\]; it must be float64"),
        ("step", 1.5, "column step is 1.5; it must be int64"),
        ("policy_mask", [True, "x"], "column policy_mask is"),
    ],
)
@pytest.mark.parametrize("before", [0, 150])
def test_a_wrong_type_is_named_with_its_line(
    tmp_path: Path, name: str, value: Any, message: str, before: int
) -> None:
    good = row(step=1, policy_mask=[True])
    bad = json.dumps({**json.loads(good), name: value})
    path = save(tmp_path / "run.jsonl", *[good] * before, bad)
    with pytest.raises(SchemaError, match=f"run.jsonl line {before + 1}: {message}"):
        list(open_run(path))


def test_unequal_lengths_count_rows_not_lines(tmp_path: Path) -> None:
    path = save(
        tmp_path / "run.jsonl", row(), "", row(), "", json.dumps(
            {"mu_logprobs": [-1.0, -2.0], "values": [0.5], "reward": 0.0}
        ),
    )  # fmt: skip
    with pytest.raises(SchemaError, match=r"run\.jsonl row 2: mu_logprobs 2, values 1;"):
        list(open_run(path))


def test_scalars_may_come_late_but_lists_may_not(tmp_path: Path) -> None:
    late = [row() for _ in range(200)] + [row(truncated=True, bootstrap_value=0.5)]
    parts = list(open_run(save(tmp_path / "late.jsonl", *late)).rollouts(chunk_tokens=10))
    assert sum(part.quality.n_truncated for part in parts) == 1
    assert parts[-1].bootstrap[-1] == 0.5
    path = save(tmp_path / "list.jsonl", *late, row(values=[0.5]))
    with pytest.raises(SchemaError, match=r"line 202: column values first turns up here"):
        list(open_run(path))


def test_columns_that_first_are_null(tmp_path: Path) -> None:
    path = save(
        tmp_path / "run.jsonl", row(values=None, policy_mask=[None]), row(values=[0.5]),
        row(values=[0.25], policy_mask=[True]),
    )  # fmt: skip
    run = open_run(path)
    assert run.columns["values"] == "values: list<number> (exact)"
    assert run.columns["policy_mask"] == "policy_mask: list<bool> (exact)"
    got = joined(run)
    np.testing.assert_array_equal(got["values"], [0.5, 0.25])


def test_a_map_applies(tmp_path: Path) -> None:
    path = save(tmp_path / "run.jsonl", '{"lp": [NaN, -1.0], "score": "NaN", "uid": 5, "x": "y"}')
    run = open_run(path, columns_map={"mu_logprobs": "lp", "reward": "score", "prompt_id": "uid"})
    got = joined(run)
    np.testing.assert_array_equal(got["mu_logprobs"], [NAN, -1.0])
    assert got["quality"].rewards_missing == 1
    assert got["prompt"].tolist() == stable_hash([5]).tolist()
    assert run.columns["mu_logprobs"] == "lp: list<number> (mapped)"
    assert run.unused == ("x",)
    with pytest.raises(
        SchemaError, match="no column mu_logprobs; name it with --map mu_logprobs=NAME"
    ):
        open_run(path)


def test_nothing_but_blank_lines(tmp_path: Path) -> None:
    with pytest.raises(ReaderError, match=r"run\.jsonl has no rows"):
        open_run(save(tmp_path / "run.jsonl", "", "  "))


def test_a_broken_archive(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    text = "\n".join(row(step=i, x="y" * i) for i in range(3000)).encode()
    whole = gzip.compress(text)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ReaderError, match=r"run\.jsonl\.gz"):
        list(open_run(path))
    path.write_bytes(b"no archive at all")
    with pytest.raises(ReaderError, match=r"run\.jsonl\.gz"):
        open_run(path)
