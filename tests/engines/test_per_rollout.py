"""One row per rollout: numbers by hand, the gap's own estimates as means, whole or not there."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from brace_diag import InputError, Rollouts, value_gap
from brace_diag.engines.per_rollout import RolloutTable


def rows_of(batches: Any, path: Path, **settings: Any) -> pl.DataFrame:
    with RolloutTable(path, gamma=settings.get("gamma", 1.0)) as table:
        value_gap(batches, watch=table.add, **settings)
    return pl.read_parquet(path)


def by_hand(mu: Any, pi: Any, v: Any, reward: float, gamma: float) -> tuple[float, ...]:
    """S_0, Σu, first-order and doubly robust sums of a rollout, term by term."""
    length = len(mu)
    w = [math.exp(float(p) - float(m)) for m, p in zip(mu, pi, strict=True)]
    d = [gamma ** (length - 1 - t) * reward - float(v[t]) for t in range(length)]
    c = [math.prod(w[:t]) for t in range(length)]
    first = sum(gamma**t * (w[t] - 1) * d[t] for t in range(length))
    both = sum(gamma**t * c[t] * (w[t] - 1) * d[t] for t in range(length))
    return sum(map(math.log, w)), sum(w) - length, first, both


@pytest.mark.parametrize("gamma", [1.0, 0.97])
def test_rows_are_the_sums_by_hand(
    columns: Callable[..., dict[str, Any]],
    rollouts: Callable[..., Rollouts],
    tmp_path: Path,
    gamma: float,
) -> None:
    log = columns(3)
    table = rows_of(rollouts(3), tmp_path / "rows.parquet", gamma=gamma)
    assert table["used"].all() and table["why_not"].null_count() == len(table) == 96
    assert table["row"].to_list() == list(range(96))
    got = table.select("log_product", "u_sum", "first_order", "doubly_robust").to_numpy()
    for i in range(96):
        v = log["values"][i]
        wanted = by_hand(log["mu_logprobs"][i], log["pi_logprobs"][i], v, log["reward"][i], gamma)
        # Sums of 24 float64 terms of order 1, in another order.
        np.testing.assert_allclose(got[i], wanted, atol=1e-12)
        assert table["v_0"][i] == v[0]
        assert table["return"][i] == pytest.approx(gamma**23 * log["reward"][i], abs=1e-14)


def test_doubly_robust_is_the_change_of_the_return(
    columns: Callable[..., dict[str, Any]], rollouts: Callable[..., Rollouts], tmp_path: Path
) -> None:
    """DR_0 - G_0 by its recursion DR_t = V_t + w_t (r_t + DR_{t+1} - V_t), per rollout."""
    log = columns(4)
    table = rows_of(rollouts(4), tmp_path / "rows.parquet")
    for i in range(0, 96, 7):
        w = np.exp(log["pi_logprobs"][i].astype(float) - log["mu_logprobs"][i])
        v = log["values"][i].astype(float)
        robust = 0.0
        for t in range(len(w) - 1, -1, -1):
            r = log["reward"][i] if t == len(w) - 1 else 0.0
            robust = v[t] + w[t] * (r + robust - v[t])
        wanted = robust - log["reward"][i]
        assert table["doubly_robust"][i] == pytest.approx(wanted, abs=1e-10)


def test_why_a_rollout_is_not_used(rollouts: Callable[..., Rollouts], tmp_path: Path) -> None:
    batch = {
        "mu_logprobs": [[-3.0] * 6, [-3.0] * 6, [], [-2.5] * 6, [-2.0] * 5, [-1.0] * 4],
        "pi_logprobs": [[-3.1] * 6, [-3.1] * 6, [], [-2.6] * 6, [-2.1] * 5, [-1.0, None, -1, -1]],
        "values": [[0.5] * 6, [0.5] * 6, [], [0.5] * 6, [None] * 5, [0.5] * 4],
        "reward": [1.0, 1.0, 0.0, None, 0.0, 1.0],
        "prompt_id": [1, 1, 1, 2, 2, 3],
        "step": [4, 4, 4, 5, 5, None],
    }
    table = rows_of(Rollouts.from_lists(**batch), tmp_path / "rows.parquet")
    assert table["why_not"].to_list() == [
        None,
        "repeats an earlier row",
        "no policy token",
        "the reward is missing",
        "a critic value is missing",
        "a log-prob is missing",
    ]
    assert table["used"].to_list() == [True] + [False] * 5
    assert table["doubly_robust"].is_null().to_list() == [False] + [True] * 5
    assert table["log_product"].is_null().to_list() == [False, False, True, False, False, True]
    assert table["return"].to_list() == [1.0, 1.0, None, None, 0.0, 1.0]
    assert table["step"].to_list() == [4, 4, 4, 5, 5, None]
    assert table["staleness"].null_count() == 6
    assert table["length"].to_list() == [6, 6, 0, 6, 5, 4]
    assert table["prompt_hash"][0] == table["prompt_hash"][1] != table["prompt_hash"][3]


def test_the_result_is_the_same_and_batches_do_not_matter(
    rollouts: Callable[..., Rollouts], tmp_path: Path
) -> None:
    batches = [rollouts(seed) for seed in range(3)]
    table = rows_of(batches, tmp_path / "rows.parquet")
    assert len(table) == 288 and table["row"].to_list() == list(range(288))
    plain = value_gap(batches)
    with RolloutTable(tmp_path / "again.parquet") as again:
        watched = value_gap(batches, watch=again.add)
    assert watched == plain


def test_a_failure_leaves_no_table(rollouts: Callable[..., Rollouts], tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    with pytest.raises(RuntimeError, match="stop"), RolloutTable(path) as table:
        value_gap(rollouts(0), watch=table.add)
        raise RuntimeError("stop")
    assert os.listdir(tmp_path) == []
    rows_of(rollouts(0), path)
    with pytest.raises(InputError, match=r"rows\.parquet exists; .*--force"):
        rows_of(rollouts(0), path)
