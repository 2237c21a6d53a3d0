"""What real logs contain, read from files, with the answer that a user should get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import joined

from brace_diag.errors import SchemaError
from brace_diag.readers import open_run

NAN, INF = float("nan"), float("inf")


def read(path: Path, **columns: Any) -> dict[str, Any]:
    pq.write_table(pa.table(columns), path / "run.parquet")
    return joined(open_run(path / "run.parquet"))


def test_a_masked_overflow_is_not_there(tmp_path: Path) -> None:
    """log w = 89 overflows exp in float32; masked, it contributes nothing, not 0 · inf."""
    got = read(
        tmp_path,
        mu_logprobs=[[-91.0, -0.5]],
        pi_logprobs=[[-2.0, -0.5]],
        policy_mask=[[False, True]],
        reward=[1.0],
    )
    assert (got["pi_logprobs"] - got["mu_logprobs"]).tolist() == [0.0]


def test_the_ratio_that_overflows_keeps_its_two_log_probs(tmp_path: Path) -> None:
    got = read(tmp_path, mu_logprobs=[[-91.0]], pi_logprobs=[[-2.0]], reward=[1.0])
    assert (got["pi_logprobs"] - got["mu_logprobs"]).tolist() == [89.0]
    assert got["has_w"].tolist() == [True]


def test_a_zero_length_response_with_a_reward(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        mu_logprobs=[[-1.0] * 3, [-1.0] * 3],
        rewards=[[0.0, 0.0, 10.0], [0.0, 0.0, 0.0]],
        policy_mask=[[0, 0, 0], [1, 1, 0]],
    )
    assert got["quality"].n_empty == 1
    assert got["lengths"].tolist() == [0, 2]
    assert got["rewards"].tolist() == [0.0, 0.0]
    assert got["quality"].rewards_on_empty == 1
    terminal = read(tmp_path, mu_logprobs=[[], [-1.0, -1.0]], reward=[10.0, 0.0])
    assert terminal["rewards"][terminal["has_reward"]].mean() == 0.0
    assert terminal["rewards"].mean() == 5.0  # including empties


def test_only_empty_responses_are_read_and_counted(tmp_path: Path) -> None:
    got = read(tmp_path, mu_logprobs=pa.array([[], []], pa.list_(pa.float32())), reward=[1.0, 0.0])
    assert got["lengths"].tolist() == [0, 0]
    assert (got["quality"].n_rows, got["quality"].n_rollouts, got["quality"].n_empty) == (2, 0, 2)


@pytest.mark.parametrize("junk", [100.0, NAN, INF, 1e9])
def test_values_at_masked_slots(tmp_path: Path, junk: float) -> None:
    got = read(
        tmp_path,
        mu_logprobs=[[-1.0, -1.0, junk]],
        values=[[0.0, 0.0, junk]],
        rewards=[[0.0, 1.0, 0.0]],
        policy_mask=[[1, 1, 0]],
    )
    assert got["values"].tolist() == [0.0, 0.0]
    assert got["rewards"].tolist() == [0.0, 1.0]
    assert got["has_values"].tolist() == [True]


def test_the_last_step_is_there(tmp_path: Path) -> None:
    got = read(tmp_path, mu_logprobs=[[-1.0, -1.0]], values=[[0.0, 0.0]], rewards=[[0.0, 1.0]])
    assert got["rewards"].tolist() == [0.0, 1.0]


def test_sentinel_fills(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        mu_logprobs=[[-0.5, 0.0, 0.0, 0.0], [-0.5, -9999.0, -1.0, -1.0], [-0.5, 1.0, -1.0, -1.0]],
        pi_logprobs=[[-0.5, -3.0, -2.5, -4.0], [-0.5, -1.0, -1.0, -1.0], [-0.5, -1.0, -1.0, -1.0]],
        reward=[1.0, 1.0, 1.0],
    )
    assert got["quality"].mu_filled == 3 + 1 + 1
    assert np.isnan(got["mu_logprobs"]).sum() == 5
    assert got["quality"].rollouts_without_w == 3


def test_repeated_rows_stay_rows_with_one_id(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        mu_logprobs=[[-1.0]] * 3 + [[-2.0]],
        token_ids=[[7]] * 3 + [[8]],
        rollout_id=["a", "a", "a", "b"],
        reward=[1.0, 1.0, 1.0, 0.0],
    )
    assert len(set(got["rollout_id"].tolist())) == 2
    assert got["rewards"].mean() == 0.75
    assert got["token_ids"].tolist() == [7, 7, 7, 8]


def test_the_pad_after_the_end_carries_the_reward(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        mu_logprobs=[[-1.0] * 5],
        rewards=[[0.0, 0.0, 0.0, 1.0, 0.0]],
        policy_mask=[[1, 1, 1, 0, 0]],
    )
    assert got["rewards"].tolist() == [0.0, 0.0, 1.0]
    assert ("rewards_folded", 1) in [(name, n) for name, n, _ in got["quality"].remarks()]


def test_shapes_of_parquet(tmp_path: Path) -> None:
    half = pa.array([[-1.0, -0.5], None], pa.list_(pa.float16()))
    double = pa.array([[-0.1, -0.2]], pa.large_list(pa.float64()))
    pq.write_table(pa.table({"mu_logprobs": half, "reward": [1.0, 1.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"mu_logprobs": double, "reward": [1.0]}), tmp_path / "b.parquet")
    got = joined(open_run(tmp_path))
    assert got["mu_logprobs"].dtype == np.float64
    assert got["mu_logprobs"].tolist() == [-1.0, -0.5, -0.1, -0.2]
    assert (got["quality"].n_null_rows, got["quality"].n_empty) == (1, 0)


def test_lengths_that_differ_in_row_seven(tmp_path: Path) -> None:
    mu = [[-1.0]] * 7 + [[-1.0] * 5]
    pi = [[-1.0]] * 7 + [[-1.0] * 4]
    with pytest.raises(SchemaError, match="row 7: mu_logprobs 5, pi_logprobs 4"):
        read(tmp_path, mu_logprobs=mu, pi_logprobs=pi, reward=[1.0] * 8)
