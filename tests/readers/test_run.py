"""`open_run` and `Run`: one stream of `Rollouts`, however the log is stored and cut."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import assert_equal, joined, log

from brace_diag.errors import InputError, ReaderError, SchemaError
from brace_diag.hashing import stable_hash
from brace_diag.readers import Run, open_run
from brace_diag.rollouts import UNKNOWN, Rollouts


def save(table: pa.Table, path: Path, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def check_index(run: Run) -> None:
    """The index says of every row what its `Rollouts` say."""
    index, parts = run.index(), list(run.rollouts())
    rows = np.concatenate([part.row for part in parts])
    assert rows.tolist() == list(range(index.n_rows))
    np.testing.assert_array_equal(index.prompt, np.concatenate([p.prompt for p in parts]))
    np.testing.assert_array_equal(
        index.total_reward, np.concatenate([p.total_reward for p in parts])
    )
    for name in ("step", "staleness"):
        mine, theirs = getattr(index, name), [getattr(p, name) for p in parts]
        if mine is None:
            assert all(x is None for x in theirs)
        else:
            np.testing.assert_array_equal(mine, np.concatenate(theirs))


# --- one stream


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("n_files", [1, 3, 50])
def test_a_log_cut_into_files_is_the_same_stream(tmp_path: Path, n_files: int, dense: bool) -> None:
    table = log(60, dense=dense)
    whole = joined([Rollouts.from_arrow(table)])
    cuts = np.linspace(0, table.num_rows, n_files + 1).astype(int)
    for i, (low, high) in enumerate(itertools.pairwise(cuts)):
        save(table.slice(low, high - low), tmp_path / f"part-{i}.parquet", row_group_size=4)
    run = open_run(tmp_path)
    assert len(run.files) == n_files
    assert_equal(joined(run), whole)
    assert_equal(joined(run.rollouts(chunk_tokens=10)), whole)
    check_index(run)


@pytest.mark.parametrize("row_group_size", [1, 7, 1000])
@pytest.mark.parametrize("chunk_tokens", [1, 20, 10**6])
def test_row_groups_and_chunks_do_not_matter(
    tmp_path: Path, row_group_size: int, chunk_tokens: int
) -> None:
    table = log(40, dense=True)
    run = open_run(save(table, tmp_path / "run.parquet", row_group_size=row_group_size))
    parts = list(run.rollouts(chunk_tokens=chunk_tokens))
    assert_equal(joined(parts), joined([Rollouts.from_arrow(table)]))
    if chunk_tokens == 20:
        assert len(parts) > 5
        assert max(p.n_tokens for p in parts) <= 2 * chunk_tokens + 8  # 8: one longest row


def test_tables_in_memory_are_runs_too() -> None:
    table = log(40)
    whole = joined([Rollouts.from_arrow(table)])
    for source in (table, pl.from_arrow(table), table.to_batches()[0]):
        run = open_run(source)
        assert run.n_rows == 40
        assert run.source == "table in memory"
        assert_equal(joined(run), whole)
        check_index(run)
    parts = list(open_run(table).rollouts(chunk_tokens=20))
    assert len(parts) > 5
    assert_equal(joined(parts), whole)


def test_a_table_in_memory_is_not_copied() -> None:
    table = pa.table(
        {
            "mu_logprobs": pa.array([[-1.0, -2.0]] * 10, pa.list_(pa.float32())),
            "reward": [1.0] * 10,
        }
    )
    buffer = np.frombuffer(table["mu_logprobs"].chunk(0).values.buffers()[1], dtype=np.float32)
    for part in open_run(table).rollouts(chunk_tokens=4):
        assert np.shares_memory(part.mu_logprobs, buffer)


def test_the_real_layout_of_a_training_run(tmp_path: Path) -> None:
    """A folder per step, step only in the folder's name, read in natural order."""
    table = log(60)
    for step in range(6):
        piece = table.slice(10 * step, 10).drop_columns("step")
        save(piece, tmp_path / f"step={step * 2}" / "part-0.parquet")
    run = open_run(tmp_path)
    assert run.columns["step"] == "from the folder names step=N"
    assert [Path(f).parent.name for f in run.files] == [f"step={s}" for s in (0, 2, 4, 6, 8, 10)]
    got = joined(run)
    assert got["step"].tolist() == (np.arange(60) // 10 * 2).tolist()
    check_index(run)
    only = joined(open_run(tmp_path, steps="4:9:4"))
    assert set(only["step"].tolist()) == {4, 8}
    assert only["row"].tolist() == list(range(20))
    one = open_run(tmp_path / "step=10")
    assert set(joined(one)["step"].tolist()) == {10}


def test_a_step_column_goes_before_the_folder_name(tmp_path: Path) -> None:
    save(log(10), tmp_path / "step=99" / "a.parquet")
    run = open_run(tmp_path)
    assert run.columns["step"] == "step: int64 (exact)"
    assert set(joined(run)["step"].tolist()) == {0}


# --- steps


@pytest.mark.parametrize("row_group_size", [5, 10, 25, 1000])
@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        ("2:4", [2, 3]), ("2:", [2, 3, 4, 5]), (":2", [0, 1]), ("::2", [0, 2, 4]),
        ("1:6:3", [1, 4]), (3, [3]), ("3", [3]), (slice(1, 3), [1, 2]),
        (slice(None, None, 5), [0, 5]),
    ],
)  # fmt: skip
def test_steps_are_half_open_values(
    tmp_path: Path, steps: Any, kept: list[int], row_group_size: int
) -> None:
    table = log(60)
    path = save(table, tmp_path / "run.parquet", row_group_size=row_group_size)
    wanted = table.filter(pa.array(np.isin(np.arange(60) // 10, kept)))
    run = open_run(path, steps=steps)
    assert_equal(joined(run), joined([Rollouts.from_arrow(wanted)]))
    assert_equal(joined(run.rollouts(chunk_tokens=7)), joined([Rollouts.from_arrow(wanted)]))
    check_index(run)
    assert_equal(joined(open_run(table, steps=steps)), joined([Rollouts.from_arrow(wanted)]))


def test_row_groups_outside_the_steps_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from brace_diag.readers.parquet import LogFile

    path = save(log(60), tmp_path / "run.parquet", row_group_size=10)
    read: list[int] = []
    original = LogFile.read
    monkeypatch.setattr(
        LogFile,
        "read",
        lambda self, groups, names: read.extend(groups) or original(self, groups, names),
    )
    assert sum(part.n_rollouts for part in open_run(path, steps="2:4")) == 20
    assert set(read) == {2, 3}


def test_unknown_steps_are_never_kept() -> None:
    table = pa.table(
        {
            "mu_logprobs": [[-1.0]] * 3,
            "reward": [1.0] * 3,
            "step": pa.array([0, None, 1]),
        }
    )
    assert joined(open_run(table))["step"].tolist() == [0, UNKNOWN, 1]
    assert joined(open_run(table, steps="0:"))["step"].tolist() == [0, 1]


@pytest.mark.parametrize("steps", ["a:b", "1:2:3:4", "", "1:5:0", "-3:", 1.5, "1:5:-1", True])
def test_what_is_no_range_of_steps_is_refused(steps: Any) -> None:
    with pytest.raises(InputError, match=r"steps is .*; it must be a:b:c"):
        open_run(log(10), steps=steps)


def test_steps_without_a_step_column(tmp_path: Path) -> None:
    path = save(log(10).drop_columns("step"), tmp_path / "run.parquet")
    with pytest.raises(SchemaError, match="--steps needs a column step"):
        open_run(path, steps="1:2")


def test_steps_that_are_not_there_say_which_are(tmp_path: Path) -> None:
    path = save(log(60), tmp_path / "run.parquet")
    with pytest.raises(InputError, match=r"no row has a step in 7:9; the log has steps 0 to 5"):
        list(open_run(path, steps="7:9"))
    with pytest.raises(InputError, match="no row has a step"):
        open_run(path, steps="7:9").index()


# --- columns


def test_only_what_is_needed_is_read() -> None:
    table = log(20)
    part = next(open_run(table).rollouts({"values", "reward"}))
    assert part.values is not None
    assert part.mu_logprobs is None and part.pi_logprobs is None and part.trainer_version is None
    assert part.step is not None
    whole = next(open_run(table).rollouts())
    np.testing.assert_array_equal(part.values, whole.values)
    np.testing.assert_array_equal(part.offsets, whole.offsets)
    np.testing.assert_array_equal(part.prompt, whole.prompt)
    bare = next(open_run(table.drop_columns("policy_mask")).rollouts({"reward"}))
    np.testing.assert_array_equal(bare.lengths, [len(x) for x in table["mu_logprobs"].to_pylist()])
    with pytest.raises(InputError, match="no such column: mu"):
        next(open_run(table).rollouts({"mu"}))


def test_columns_state_what_was_taken_for_what(tmp_path: Path) -> None:
    table = (
        log(10)
        .rename_columns(
            {
                "mu_logprobs": "rollout_log_probs",
                "pi_logprobs": "log_probs",
                "prompt_id": "group",
            }
        )
        .append_column("text", pa.array(["x"] * 10))
    )
    path = save(table, tmp_path / "run.parquet")
    run = open_run(
        path,
        columns_map={
            "mu_logprobs": "rollout_log_probs",
            "pi_logprobs": "log_probs",
            "prompt_id": "group",
        },
    )
    assert run.columns["mu_logprobs"] == "rollout_log_probs: list<float32> (mapped)"
    assert run.columns["reward"] == "reward: float64 (exact)"
    assert list(run.columns)[:3] == ["mu_logprobs", "pi_logprobs", "values"]
    assert run.unused == ("text",)
    assert_equal(joined(run), joined([Rollouts.from_arrow(log(10))]))
    text = "\n".join(run.describe())
    assert "1 file of Parquet, 10 rows" in text
    assert "not used: text" in text
    assert "not logged: rewards, loss_mask" in text


def test_both_reward_columns_are_said() -> None:
    table = log(10).append_column("rewards", pa.array([[0.0] * len(x) for x in log(10)["values"]]))
    columns = open_run(table).columns
    assert columns["reward"].endswith("used for rows without any in rewards")
    assert columns["rewards"].endswith("used for rows with any other than 0")


def test_a_map_with_an_unknown_name() -> None:
    with pytest.raises(
        InputError, match=r"cannot map to mu_logprob \(did you mean mu_logprobs\?\)"
    ):
        open_run(log(3), columns_map={"mu_logprob": "x"})
    with pytest.raises(SchemaError, match="no column rewrd to take as reward; did you mean reward"):
        open_run(log(3), columns_map={"reward": "rewrd"})


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("mu_logprobs", "rollout_log_probs"), ("mu_logprobs", "mu_logprob"), ("reward", "score"),
        ("reward", "final_reward"),
    ],
)  # fmt: skip
def test_a_missing_column_suggests_a_map(tmp_path: Path, ours: str, theirs: str) -> None:
    path = save(log(3).rename_columns({ours: theirs}), tmp_path / "run.parquet")
    with pytest.raises(SchemaError) as error:
        open_run(path)
    assert f"if {theirs} is it: --map {ours}={theirs}" in str(error.value)
    assert "its columns: step, prompt_id" in str(error.value)
    assert len(str(error.value).splitlines()) == 2
    open_run(path, columns_map={ours: theirs})


def test_a_missing_column_without_a_likely_name(tmp_path: Path) -> None:
    path = save(log(3).rename_columns({"mu_logprobs": "zzz"}), tmp_path / "run.parquet")
    with pytest.raises(
        SchemaError, match=r"no column mu_logprobs; name it with --map mu_logprobs=NA"
    ):
        open_run(path)


# --- files that differ


def test_widths_differ_between_files(tmp_path: Path) -> None:
    a = pa.table(
        {
            "mu_logprobs": pa.array([[-1.0, -0.5], None], pa.list_(pa.float16())),
            "reward": [1.0, 0.0],
        }
    )
    b = pa.table(
        {
            "mu_logprobs": pa.array([[-0.1]], pa.large_list(pa.float64())),
            "reward": [1.0],
        }
    )
    save(a, tmp_path / "a.parquet")
    save(b, tmp_path / "b.parquet")
    run = open_run(tmp_path)
    got = joined(run)
    assert got["mu_logprobs"].dtype == np.float64
    assert got["mu_logprobs"].tolist() == [-1.0, -0.5, -0.1]
    assert (got["quality"].n_null_rows, got["quality"].n_empty) == (1, 0)
    kinds = "list<float16> / large_list<float64>"
    assert run.columns["mu_logprobs"] == f"mu_logprobs: {kinds} (exact)"
    check_index(run)


def test_an_optional_column_that_one_file_lacks_is_unknown_there(tmp_path: Path) -> None:
    table = log(20)
    lacking = ["pi_logprobs", "step", "policy_mask", "truncated", "prompt_id", "trainer_version"]
    save(table.slice(0, 10), tmp_path / "a.parquet")
    save(table.slice(10, 10).drop_columns(lacking), tmp_path / "b.parquet")
    run = open_run(tmp_path)
    assert run.columns["pi_logprobs"].endswith("in 1 of 2 files")
    a, b = list(run.rollouts(chunk_tokens=1000))
    assert b.pi_logprobs is not None and np.isnan(b.pi_logprobs).all()
    assert b.quality.pi_missing == b.n_tokens > 0
    assert b.quality.n_tokens_masked == 0 < a.quality.n_tokens_masked
    assert b.step is not None and (b.step == UNKNOWN).all()
    assert b.trainer_version is not None and (b.trainer_version == UNKNOWN).all()
    assert len(set(b.prompt.tolist())) == 10
    check_index(run)


def test_a_required_column_that_one_file_lacks_names_the_file(tmp_path: Path) -> None:
    save(log(5), tmp_path / "a.parquet")
    save(log(5).drop_columns("mu_logprobs"), tmp_path / "b.parquet")
    with pytest.raises(SchemaError, match=r"b\.parquet has no column mu_logprobs"):
        open_run(tmp_path)


def test_reward_in_one_file_and_rewards_in_the_next(tmp_path: Path) -> None:
    save(log(10), tmp_path / "a.parquet")
    save(log(10, dense=True), tmp_path / "b.parquet")
    run = open_run(tmp_path)
    got = joined(run)
    assert got["dense"]
    check_index(run)
    total = run.index().total_reward
    alone = open_run(log(10)).index().total_reward
    np.testing.assert_array_equal(total[:10], alone)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("mu_logprobs", pa.array([["a"]]), "column mu_logprobs has type list<"),
        ("mu_logprobs", pa.array([-1.0]), "it must be list<float32> with one entry per token, one"),
        ("reward", pa.array([[1.0]]), "rewards per token belong in `rewards`"),
        ("reward", pa.array(["1"]), "column reward has type string; it must be float64"),
        ("prompt_id", pa.array([[1]]), "it must be string or int64"),
        ("step", pa.array(["1"]), "column step has type string; it must be int64"),
    ],
)
def test_wrong_types_are_found_before_anything_is_read(
    tmp_path: Path, name: str, array: pa.Array, message: str
) -> None:
    table = pa.table({"mu_logprobs": [[-1.0]], "reward": [1.0]})
    table = table.drop_columns(name) if name in table.column_names else table
    path = save(table.append_column(name, array), tmp_path / "run.parquet")
    with pytest.raises(SchemaError, match=message) as error:
        open_run(path)
    assert str(error.value).startswith(f"{path}: ")


def test_unequal_lengths_name_the_row_of_the_file(tmp_path: Path) -> None:
    mu, pi = [[-1.0] * 3] * 20, [[-1.0] * 3] * 20
    mu[17], pi[17] = [-1.0] * 5, [-1.0] * 4
    table = pa.table(
        {
            "mu_logprobs": mu,
            "pi_logprobs": pi,
            "reward": [0.0] * 20,
            "step": [0] * 10 + [1] * 10,
        }
    )
    save(table.slice(0, 10), tmp_path / "a.parquet")
    path = save(table.slice(10), tmp_path / "b.parquet", row_group_size=3)
    for steps in (None, "1:"):
        with pytest.raises(SchemaError) as error:
            list(open_run(tmp_path, steps=steps))
        assert str(error.value) == (
            f"{path} row 7: mu_logprobs 5, pi_logprobs 4; "
            "all list columns of a row must have one length"
        )


# --- the index


def test_the_index_of_plain_rows_reads_no_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from brace_diag.readers.parquet import LogFile

    table = log(60).drop_columns("policy_mask")
    full = pa.array([len(x) > 0 and None not in x for x in table["mu_logprobs"].to_pylist()])
    path = save(table.filter(full), tmp_path / "run.parquet", row_group_size=10)
    check_index(open_run(path))
    names: list[str] = []
    original = LogFile.read
    monkeypatch.setattr(
        LogFile, "read", lambda self, groups, n: names.extend(n) or original(self, groups, n)
    )
    open_run(path).index()
    assert set(names) == {"step", "prompt_id", "reward", "trainer_version", "behavior_version"}


@pytest.mark.parametrize("without", [(), ("policy_mask",), ("policy_mask", "behavior_version")])
@pytest.mark.parametrize("dense", [False, True])
def test_the_index_agrees_with_null_rows_and_empty_rows(
    tmp_path: Path, without: tuple[str, ...], dense: bool
) -> None:
    table = log(60, dense=dense).drop_columns(list(without))
    rng = np.random.default_rng(5)
    for name in ("mu_logprobs", "policy_mask"):
        if name in table.column_names:
            rows = [x if rng.random() > 0.2 else None for x in table[name].to_pylist()]
            kind = table[name].type
            at = table.column_names.index(name)
            table = table.set_column(at, name, pa.array(rows, kind))
    for size in (5, 1000):
        check_index(open_run(save(table, tmp_path / f"{size}.parquet", row_group_size=size)))
    no_statistics = tmp_path / "bare.parquet"
    check_index(open_run(save(table, no_statistics, write_statistics=False)))
    check_index(open_run(table))


def test_staleness_from_versions_per_token(tmp_path: Path) -> None:
    table = pa.table(
        {
            "mu_logprobs": [[-1.0, -1.0], [-1.0], []],
            "policy_mask": [[False, True], [True], []],
            "versions": pa.array([[-1, 3], [2], []], pa.list_(pa.int32())),
            "trainer_version": [5, 5, 5],
            "reward": [1.0, 1.0, 1.0],
        }
    )
    run = open_run(save(table, tmp_path / "run.parquet"))
    staleness = run.index().staleness
    assert staleness is not None and staleness.tolist() == [2, 3, UNKNOWN]
    check_index(run)
    part = next(run.rollouts({"behavior_version", "trainer_version"}))
    assert part.behavior_version is not None
    assert part.behavior_version.tolist() == [3, 2, UNKNOWN]


def test_an_index_without_steps_or_versions(tmp_path: Path) -> None:
    table = pa.table({"mu_logprobs": [[-1.0]], "reward": [1.0], "prompt_id": ["a"]})
    index = open_run(save(table, tmp_path / "run.parquet")).index()
    assert index.step is None and index.staleness is None
    assert index.prompt.tolist() == stable_hash(["a"]).tolist()
    assert index.total_reward.tolist() == [1.0]


# --- situations of real logs


def test_duplicates_keep_their_ids_and_hashes() -> None:
    table = pa.table(
        {
            "mu_logprobs": [[-1.0, -2.0]] * 3 + [[-1.0]],
            "reward": [1.0, 1.0, 1.0, 0.0],
            "rollout_id": ["r", "r", "r", "s"],
            "prompt_id": [1, 1, 1, 1],
        }
    )
    part = next(open_run(table).rollouts())
    assert part.rollout_id is not None
    assert part.rollout_id.tolist() == stable_hash(["r", "r", "r", "s"]).tolist()


def test_masked_cells_change_nothing(tmp_path: Path) -> None:
    def run(junk: float) -> dict[str, Any]:
        table = pa.table(
            {
                "mu_logprobs": [[-1.0, -2.0, junk]],
                "pi_logprobs": [[-1.0, -2.0, junk]],
                "values": [[0.0, 0.0, junk]],
                "rewards": [[0.0, 1.0, 0.0]],
                "policy_mask": [[True, True, False]],
            }
        )
        return joined(open_run(save(table, tmp_path / "run.parquet")))

    clean = run(0.0)
    for junk in (float("nan"), 100.0, 1e30, float("inf"), -9999.0):
        assert_equal(run(junk), clean)


# --- a run as an object


def test_a_run_can_be_read_again_and_pickled(tmp_path: Path) -> None:
    run = open_run(save(log(20), tmp_path / "run.parquet"))
    first = joined(run)
    assert_equal(joined(run), first)
    assert_equal(joined(pickle.loads(pickle.dumps(run))), first)
    assert run.n_rows == 20


def test_names_with_dots_and_names_that_start_alike(tmp_path: Path) -> None:
    table = log(10, dense=True).rename_columns({"rewards": "metrics.rewards", "values": "v.f"})
    table = table.append_column("metrics", pa.array([{"rewards": 9.0}] * 10))
    table = table.append_column("mu_logprobs.old", table["pi_logprobs"])
    path = save(table, tmp_path / "run.parquet", row_group_size=3)
    run = open_run(path, columns_map={"rewards": "metrics.rewards", "values": "v.f"})
    assert run.unused == ("metrics", "mu_logprobs.old")
    assert_equal(joined(run), joined([Rollouts.from_arrow(log(10, dense=True))]))
    check_index(run)


def test_an_empty_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReaderError, match=r"run\.parquet has no rows"):
        open_run(save(log(3).slice(0, 0), tmp_path / "run.parquet"))
    with pytest.raises(SchemaError, match="has no rows"):
        open_run(log(3).slice(0, 0))
    save(log(3).slice(0, 0), tmp_path / "a.parquet")
    save(log(3), tmp_path / "b.parquet")
    assert len(joined(open_run([tmp_path / "a.parquet", tmp_path / "b.parquet"]))["row"]) == 3


def test_opening_loads_no_heavy_package() -> None:
    code = (
        "import sys, brace_diag.readers; "
        "print([m for m in ('pyarrow', 'polars', 'numba', 'torch') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
