"""The data contract: every rule of how logged rows become packed policy tokens."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brace_diag.errors import InputError, SchemaError
from brace_diag.hashing import stable_hash
from brace_diag.rollouts import UNKNOWN, Rollouts

NAN, INF = float("nan"), float("inf")


def fields(r: Rollouts) -> dict[str, Any]:
    return {f.name: getattr(r, f.name) for f in dataclasses.fields(r)}


def assert_same(a: Rollouts, b: Rollouts) -> None:
    for name, left in fields(a).items():
        right = getattr(b, name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype, name
            np.testing.assert_array_equal(left, right, err_msg=name)
        else:
            assert left == right, name


def counts(r: Rollouts) -> dict[str, int]:
    """Remarks of the quality block, the missing prompts aside, which most tests do not give."""
    return {name: n for name, n, _ in r.quality.remarks() if name != "prompts_missing"}


def floats(rows: Any, kind: Any = None) -> pa.Array:
    return pa.array(rows, pa.list_(kind or pa.float32()))


# --- packing, views and types


def test_plain_float_lists_are_not_copied() -> None:
    table = pa.table(
        {
            "mu_logprobs": floats([[-1.0, -2.0], [], [-3.0]]),
            "pi_logprobs": floats([[-1.5, -2.5], [], [-3.5]]),
            "values": floats([[0.1, 0.2], [], [0.3]]),
            "reward": [1.0, 0.0, 0.5],
        }
    )
    r = Rollouts.from_arrow(table)
    for name in ("mu_logprobs", "pi_logprobs", "values"):
        buffer = np.frombuffer(table[name].chunk(0).values.buffers()[1], dtype=np.float32)
        array = getattr(r, name)
        assert np.shares_memory(array, buffer), name
        assert array.dtype == np.float32
        assert not array.flags.writeable
    assert r.offsets.tolist() == [0, 2, 2, 3]
    assert r.token_index is None
    assert r.lengths.tolist() == [2, 0, 1]
    assert (r.n_rollouts, r.n_tokens) == (3, 3)


def test_an_all_true_mask_costs_no_copy_either() -> None:
    table = pa.table(
        {
            "mu_logprobs": floats([[-1.0, -2.0], [-3.0]], pa.float64()),
            "policy_mask": pa.array([[True, True], [True]]),
            "reward": [1.0, 0.0],
        }
    )
    r = Rollouts.from_arrow(table)
    buffer = np.frombuffer(table["mu_logprobs"].chunk(0).values.buffers()[1], dtype=np.float64)
    assert np.shares_memory(r.mu_logprobs, buffer)
    assert r.mu_logprobs is not None and r.mu_logprobs.dtype == np.float64


def test_a_slice_of_a_table_is_its_own_rows() -> None:
    table = pa.table(
        {
            "mu_logprobs": floats([[-9.0], [-1.0, -2.0], [-3.0], [-8.0]]),
            "policy_mask": pa.array([[True], [True, False], [True], [True]]),
            "reward": [9.0, 1.0, 2.0, 9.0],
            "prompt_id": ["z", "a", "b", "z"],
        }
    )
    r = Rollouts.from_arrow(table.slice(1, 2), first_row=1)
    assert r.mu_logprobs is not None and r.mu_logprobs.tolist() == [-1.0, -3.0]
    assert r.rewards.tolist() == [1.0, 2.0]
    assert r.prompt.tolist() == stable_hash(["a", "b"]).tolist()
    assert r.row.tolist() == [1, 2]
    buffer = np.frombuffer(table["mu_logprobs"].chunk(0).values.buffers()[1], dtype=np.float32)
    unmasked = Rollouts.from_arrow(table.slice(1, 2).drop_columns("policy_mask"))
    assert np.shares_memory(unmasked.mu_logprobs, buffer)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float16()),
        pa.list_(pa.float32()),
        pa.list_(pa.float64()),
        pa.large_list(pa.float32()),
        pa.large_list(pa.float64()),
        pa.list_view(pa.float32()),
        pa.list_(pa.float32(), 2),
        pa.list_(pa.float16(), 2),
    ],
    ids=str,
)
def test_every_list_type_reads_alike(kind: pa.DataType) -> None:
    # Numbers that float16 holds exactly.
    rows = [[-9.0, -9.0], [-1.0, -0.5], None, [-2.0, None], [-0.25, -4.0]]
    table = pa.table({"mu_logprobs": pa.array(rows, kind), "reward": [0.0] * 5}).slice(1)
    r = Rollouts.from_arrow(table)
    wide = kind.value_type == pa.float64()
    assert r.mu_logprobs is not None
    assert r.mu_logprobs.dtype == (np.float64 if wide else np.float32)
    np.testing.assert_array_equal(r.mu_logprobs, [-1.0, -0.5, -2.0, NAN, -0.25, -4.0])
    assert r.offsets.tolist() == [0, 2, 2, 4, 6]
    assert counts(r) == {"n_null_rows": 1, "mu_missing": 1, "rewards_on_empty": 1}


def test_one_wide_column_makes_all_wide() -> None:
    table = pa.table(
        {
            "mu_logprobs": floats([[-1.0]], pa.float16()),
            "pi_logprobs": pa.array([[-1.0]], pa.large_list(pa.float64())),
            "reward": [1.0],
        }
    )
    r = Rollouts.from_arrow(table)
    assert r.mu_logprobs is not None and r.mu_logprobs.dtype == np.float64
    narrow = Rollouts.from_arrow(table.drop_columns("pi_logprobs"))
    assert narrow.mu_logprobs is not None and narrow.mu_logprobs.dtype == np.float32
    asked = Rollouts.from_arrow(table.drop_columns("pi_logprobs"), wide=True)
    assert asked.mu_logprobs is not None and asked.mu_logprobs.dtype == np.float64


def test_a_chunked_table_is_one_batch() -> None:
    one = pa.table({"mu_logprobs": floats([[-1.0, -2.0]]), "reward": [1.0]})
    two = pa.table({"mu_logprobs": floats([[-3.0]]), "reward": [2.0]})
    r = Rollouts.from_arrow(pa.concat_tables([one, two]))
    assert r.mu_logprobs is not None and r.mu_logprobs.tolist() == [-1.0, -2.0, -3.0]


# --- policy mask


def test_masked_tokens_vanish_whatever_they_hold() -> None:
    def build(junk: float) -> Rollouts:
        return Rollouts.from_lists(
            mu_logprobs=[[junk, -1.0, junk, -2.0], [junk]],
            pi_logprobs=[[junk, -1.5, junk, -2.5], [junk]],
            values=[[junk, 0.5, junk, 0.25], [junk]],
            entropy=[[junk, 1.0, junk, 2.0], [junk]],
            policy_mask=[[False, True, False, True], [False]],
            reward=[1.0, 0.0],
        )

    clean = build(0.0)
    for junk in (NAN, INF, -INF, 1e30, -9999.0, 1.0):
        assert_same(clean, build(junk))
    assert clean.mu_logprobs is not None and clean.mu_logprobs.tolist() == [-1.0, -2.0]
    assert clean.token_index is not None and clean.token_index.tolist() == [1, 3]
    assert counts(clean) == {"n_empty": 1, "n_tokens_masked": 3, "rewards_on_empty": 1}
    assert clean.has_w.tolist() == [True, False]


def test_masks_of_numbers_and_with_nulls() -> None:
    for mask in (
        pa.array([[1, 0, 1], [1]], pa.list_(pa.int8())),
        pa.array([[1.0, NAN, 1.0], [1.0]]),
        pa.array([[True, None, True], [True]]),
        pa.array([[True, False, True], None]),  # no mask of its own: all of its tokens
    ):
        table = pa.table(
            {
                "mu_logprobs": floats([[-1.0, -2.0, -3.0], [-4.0]]),
                "policy_mask": mask,
                "reward": [0.0, 0.0],
            }
        )
        r = Rollouts.from_arrow(table)
        assert r.mu_logprobs is not None and r.mu_logprobs.tolist() == [-1.0, -3.0, -4.0]


def test_only_masked_tokens_is_not_an_error_here() -> None:
    r = Rollouts.from_lists(mu_logprobs=[[-1.0]], policy_mask=[[False]], rewards=[[2.0]])
    assert r.n_tokens == 0
    assert r.offsets.tolist() == [0, 0]
    assert counts(r) == {"n_empty": 1, "n_tokens_masked": 1, "rewards_on_empty": 1}


# --- lengths


def test_unequal_lengths_name_file_row_and_lengths() -> None:
    mu = [[-1.0]] * 7 + [[-1.0] * 5]
    pi = [[-1.0]] * 7 + [[-1.0] * 4]
    table = pa.table({"mu_logprobs": floats(mu), "pi_logprobs": floats(pi), "reward": [0.0] * 8})
    with pytest.raises(SchemaError) as error:
        Rollouts.from_arrow(table, where="run.parquet", first_row=100)
    assert str(error.value) == (
        "run.parquet row 7: mu_logprobs 5, pi_logprobs 4; "
        "all list columns of a row must have one length"
    )


def test_an_empty_list_beside_a_full_one_is_unequal_but_a_null_is_missing() -> None:
    with pytest.raises(SchemaError, match="row 0: mu_logprobs 2, values 0"):
        Rollouts.from_lists(mu_logprobs=[[-1.0, -2.0]], values=[[]], reward=[0.0])
    r = Rollouts.from_lists(mu_logprobs=[[-1.0, -2.0]], values=[None], reward=[0.0])
    assert r.values is not None and np.isnan(r.values).all()
    assert counts(r) == {"values_missing": 2, "rollouts_without_values": 1}


def test_a_mask_of_another_length_is_unequal() -> None:
    with pytest.raises(SchemaError, match="row 0: mu_logprobs 2, policy_mask 3"):
        Rollouts.from_lists(
            mu_logprobs=[[-1.0, -2.0]], policy_mask=[[True, True, False]], reward=[0.0]
        )


def test_null_rows_are_missing_not_empty() -> None:
    r = Rollouts.from_lists(
        mu_logprobs=[None, [], None], pi_logprobs=[[-1.0, -2.0], [], None], reward=[1.0, 1.0, 1.0]
    )
    assert r.offsets.tolist() == [0, 2, 2, 2]
    assert counts(r) == {
        "n_empty": 1,
        "n_null_rows": 2,
        "mu_missing": 2,
        "rewards_on_empty": 2,
        "rollouts_without_w": 1,
    }
    assert r.quality.n_rows == 3
    assert r.quality.n_rollouts == 1


# --- missing and impossible numbers


def test_missing_log_probs_are_nan_and_counted() -> None:
    r = Rollouts.from_lists(
        mu_logprobs=[[-1.0, None, NAN, INF], [-1.0, -INF], [-1.0, -1.0]],
        pi_logprobs=[[-1.0, -1.0, -1.0, -1.0], [-1.0, -1.0], [-INF, -1.0]],
        reward=[0.0, 0.0, 0.0],
    )
    assert r.mu_logprobs is not None
    np.testing.assert_array_equal(r.mu_logprobs, [-1, NAN, NAN, NAN, -1, -INF, -1, -1])
    assert r.has_w.tolist() == [False, False, True]
    assert counts(r) == {
        "mu_missing": 3,
        "mu_impossible": 1,
        "pi_zero": 1,
        "rollouts_without_w": 2,
    }


def test_positive_log_probs_are_kept_and_counted() -> None:
    r = Rollouts.from_lists(mu_logprobs=[[0.03125, -1.0]], pi_logprobs=[[-1.0, 2.0]], reward=[0.0])
    assert r.mu_logprobs is not None and r.mu_logprobs[0] == 0.03125
    assert counts(r) == {"mu_positive": 1, "pi_positive": 1}
    assert r.has_w.tolist() == [True]


def test_positive_beside_missing_is_counted_apart() -> None:
    r = Rollouts.from_lists(
        mu_logprobs=[[0.5, NAN, INF, -INF, 1.0, -9000.0, -8999.0, 0.0, -2.0]],
        pi_logprobs=[[-1.0] * 9],
        reward=[0.0],
    )
    assert counts(r) == {
        "mu_positive": 1,
        "mu_missing": 2,
        "mu_impossible": 1,
        "mu_filled": 2,
        "rollouts_without_w": 1,
    }


def test_without_pi_nothing_of_w_is_claimed() -> None:
    r = Rollouts.from_lists(mu_logprobs=[[-1.0]], reward=[0.0])
    assert r.has_w.tolist() == [False]
    assert r.pi_logprobs is None
    assert counts(r) == {}


@pytest.mark.parametrize("fill", [-9999.0, -9000.0, 1.0])
def test_fill_values_are_missing(fill: float) -> None:
    for name, other in (("mu", "pi"), ("pi", "mu")):
        r = Rollouts.from_lists(
            **{
                f"{name}_logprobs": [[-0.5, fill, -2.0]],
                f"{other}_logprobs": [[-0.5, -3.0, -2.5]],
                "reward": [1.0],
            }
        )
        np.testing.assert_array_equal(getattr(r, f"{name}_logprobs"), [-0.5, NAN, -2.0])
        assert counts(r) == {f"{name}_filled": 1, "rollouts_without_w": 1}


def test_trailing_exact_zeros_are_a_fill() -> None:
    zeros, probs = [-0.5, 0.0, 0.0, -0.0], [-0.5, -3.0, -2.5, -4.0]
    r = Rollouts.from_lists(mu_logprobs=[zeros], pi_logprobs=[probs], reward=[1.0])
    np.testing.assert_array_equal(r.mu_logprobs, [-0.5, NAN, NAN, NAN])
    assert counts(r) == {"mu_filled": 3, "rollouts_without_w": 1}
    mirrored = Rollouts.from_lists(mu_logprobs=[probs], pi_logprobs=[zeros], reward=[1.0])
    np.testing.assert_array_equal(mirrored.pi_logprobs, [-0.5, NAN, NAN, NAN])
    assert counts(mirrored) == {"pi_filled": 3, "rollouts_without_w": 1}


@pytest.mark.parametrize(
    ("mu", "pi"),
    [
        ([-0.5, -1.0, 0.0], [-0.5, -1.0, -4.0]),  # one zero may be a certain token
        ([-0.5, 0.0, 0.0], [-0.5, -0.01, -0.02]),  # pi finds them nearly certain too
        ([0.0, 0.0, -0.5], [-3.0, -3.0, -0.5]),  # not at the end
        ([-0.5, 0.0, 0.0], [-0.5, NAN, NAN]),  # nothing to judge by
    ],
)
def test_zeros_that_are_no_fill_stay(mu: list[float], pi: list[float]) -> None:
    r = Rollouts.from_lists(mu_logprobs=[mu], pi_logprobs=[pi], reward=[1.0])
    np.testing.assert_array_equal(r.mu_logprobs, mu)
    assert r.quality.mu_filled == 0


def test_a_fill_costs_a_copy_and_leaves_the_log_untouched() -> None:
    table = pa.table(
        {
            "mu_logprobs": floats([[-0.5, -9999.0]]),
            "pi_logprobs": floats([[-0.5, -1.0]]),
            "reward": [1.0],
        }
    )
    r = Rollouts.from_arrow(table)
    assert table["mu_logprobs"].to_pylist() == [[-0.5, -9999.0]]
    buffer = np.frombuffer(table["pi_logprobs"].chunk(0).values.buffers()[1], dtype=np.float32)
    assert np.shares_memory(r.pi_logprobs, buffer)


def test_values_must_be_finite() -> None:
    r = Rollouts.from_lists(
        mu_logprobs=[[-1.0, -1.0], [-1.0], [-1.0]],
        values=[[0.5, None], [INF], [0.25]],
        reward=[0.0, 0.0, 0.0],
    )
    np.testing.assert_array_equal(r.values, [0.5, NAN, NAN, 0.25])
    assert r.has_values.tolist() == [False, False, True]
    assert counts(r) == {"values_missing": 2, "rollouts_without_values": 2}


# --- rewards


def test_a_reward_after_the_last_policy_token_moves_back() -> None:
    r = Rollouts.from_lists(
        mu_logprobs=[[-1.0] * 5], rewards=[[0, 0, 0, 1.0, 0]], policy_mask=[[1, 1, 1, 0, 0]]
    )
    assert r.rewards.tolist() == [0.0, 0.0, 1.0]
    assert r.total_reward.tolist() == [1.0]
    assert counts(r) == {"n_tokens_masked": 2, "rewards_folded": 1}


def test_a_reward_before_the_first_policy_token_moves_on() -> None:
    r = Rollouts.from_lists(
        mu_logprobs=[[-1.0] * 5],
        rewards=[[0.5, 0, 0.25, 2.0, 1.0]],
        policy_mask=[[0, 0, 1, 0, 1]],
    )
    assert r.rewards.tolist() == [0.5 + 0.25 + 2.0, 1.0]
    assert counts(r) == {"n_tokens_masked": 3, "rewards_folded": 2}


def test_what_is_not_a_number_off_the_mask_is_no_reward() -> None:
    r = Rollouts.from_lists(
        mu_logprobs=[[-1.0] * 4], rewards=[[NAN, 1.0, None, INF]], policy_mask=[[0, 1, 0, 0]]
    )
    assert r.rewards.tolist() == [1.0]
    assert counts(r) == {"n_tokens_masked": 3}


def test_an_empty_rollout_with_a_reward_touches_no_sibling() -> None:
    r = Rollouts.from_lists(
        mu_logprobs=[[-1.0] * 3, [-1.0] * 3],
        rewards=[[0, 0, 10.0], [0, 0, 0]],
        policy_mask=[[0, 0, 0], [1, 1, 0]],
    )
    assert r.rewards.tolist() == [0.0, 0.0]
    assert r.has_reward.tolist() == [False, True]
    np.testing.assert_array_equal(r.total_reward, [NAN, 0.0])
    assert counts(r) == {"n_empty": 1, "n_tokens_masked": 4, "rewards_on_empty": 1}
    terminal = Rollouts.from_lists(
        mu_logprobs=[[], [-1.0]], reward=[10.0, 0.0], pi_logprobs=[[], [-1.0]]
    )
    assert terminal.rewards.tolist() == [10.0, 0.0]
    assert terminal.has_reward.tolist() == [False, True]
    np.testing.assert_array_equal(terminal.total_reward, [NAN, 0.0])
    assert counts(terminal) == {"n_empty": 1, "rewards_on_empty": 1}


def test_missing_rewards() -> None:
    terminal = Rollouts.from_lists(mu_logprobs=[[-1.0]] * 4, reward=[None, NAN, INF, 1.0])
    np.testing.assert_array_equal(terminal.rewards, [NAN, NAN, NAN, 1.0])
    assert terminal.has_reward.tolist() == [False, False, False, True]
    assert counts(terminal) == {"rewards_missing": 3}
    dense = Rollouts.from_lists(
        mu_logprobs=[[-1.0, -1.0]] * 4, rewards=[None, [NAN, 1.0], [1.0, INF], [1.0, 2.0]]
    )
    assert dense.has_reward.tolist() == [False, False, False, True]
    assert dense.rewards.dtype == np.float64
    assert counts(dense) == {"rewards_missing": 3}
    none = Rollouts.from_lists(mu_logprobs=[[-1.0]])
    assert counts(none) == {"rewards_missing": 1}


def test_both_reward_columns_are_settled_row_by_row() -> None:
    r = Rollouts.from_lists(
        mu_logprobs=[[-1.0, -1.0]] * 5 + [[]],
        rewards=[[0.25, 0.75], [0.0, 0.0], None, [NAN, 0.0], [0.5, 0.0], []],
        reward=[1.0, 2.0, 3.0, None, 1.5, 4.0],
    )
    assert r.dense
    expected = [0.25, 0.75, 0.0, 2.0, 0.0, 3.0, NAN, 0.0, 0.5, 0.0]
    np.testing.assert_array_equal(r.rewards, expected)
    assert counts(r) == {
        "n_empty": 1,
        "rewards_missing": 1,
        "rewards_conflict": 1,
        "rewards_on_empty": 1,
    }


# --- truncation and bootstrap


def test_bootstrap_is_used_where_truncated() -> None:
    r = Rollouts.from_lists(
        mu_logprobs=[[-1.0]] * 4 + [[]],
        reward=[0.0] * 5,
        truncated=[True, False, True, None, True],
        bootstrap_value=[0.5, 0.75, None, 0.25, None],
    )
    assert r.bootstrap.tolist() == [0.5, 0.0, 0.0, 0.0, 0.0]
    assert r.truncated is not None
    assert r.truncated.tolist() == [True, False, True, False, True]
    assert (r.quality.n_truncated, r.quality.truncated_without_bootstrap) == (2, 1)


def test_without_a_truncated_column_a_bootstrap_that_is_a_number_is_used() -> None:
    r = Rollouts.from_lists(
        mu_logprobs=[[-1.0]] * 3, reward=[0.0] * 3, bootstrap_value=[0.5, None, INF]
    )
    assert r.bootstrap.tolist() == [0.5, 0.0, 0.0]
    assert r.truncated is None
    assert r.quality.n_truncated == 0


# --- versions


def test_versions_unknown_is_unknown_and_odd_is_counted() -> None:
    r = Rollouts.from_lists(
        mu_logprobs=[[-1.0] * 3] * 6,
        reward=[0.0] * 6,
        policy_mask=[[0, 1, 1]] * 6,
        versions=[[-1, 3, 4], [-1, 4, 3], [9, 3, 6], [-1, None, 4], None, [9, 2, 2]],
        trainer_version=[5, 5, 5, None, 5, 5],
    )
    assert r.versions is not None
    assert r.versions.tolist() == [3, 4, 4, 3, 3, 6, UNKNOWN, 4, UNKNOWN, UNKNOWN, 2, 2]
    assert r.behavior_version is not None
    assert r.behavior_version.tolist() == [3, 4, 3, 4, UNKNOWN, 2]
    assert r.staleness is not None
    assert r.staleness.tolist() == [2, 1, 2, UNKNOWN, UNKNOWN, 3]
    assert r.quality.versions_odd == 2  # decreasing; above the trainer's


def test_a_behavior_version_above_the_trainers_is_odd() -> None:
    r = Rollouts.from_lists(
        mu_logprobs=[[-1.0], [-1.0], [-1.0], []],
        reward=[0.0] * 4,
        behavior_version=[6, 5, None, 6],
        trainer_version=[5, 5, 5, 5],
    )
    assert r.quality.versions_odd == 1
    assert r.staleness is not None
    assert r.staleness.tolist() == [-1, 0, UNKNOWN, -1]


def test_no_versions_no_staleness() -> None:
    r = Rollouts.from_lists(mu_logprobs=[[-1.0]], reward=[0.0], trainer_version=[5])
    assert r.staleness is None
    assert r.versions is None


# --- ids and other columns


def test_prompts_are_hashed_and_missing_ones_are_their_own_cluster() -> None:
    r = Rollouts.from_lists(
        mu_logprobs=[[-1.0], [-1.0], [-1.0], []],
        reward=[0.0] * 4,
        prompt_id=["a", None, 7, None],
        rollout_id=[1, 2, 3, 4],
        first_row=10,
    )
    row_11 = Rollouts.from_lists(mu_logprobs=[[-1.0]], reward=[0.0], first_row=11)
    assert r.prompt[0] == stable_hash(["a"])[0]
    assert r.prompt[1] == row_11.prompt[0]
    assert r.prompt[2] == stable_hash([7])[0]
    assert r.quality.prompts_missing == 2 - 1  # the empty row is no rollout
    assert row_11.quality.prompts_missing == 1
    assert r.rollout_id is not None
    assert r.rollout_id.tolist() == stable_hash([1, 2, 3, 4]).tolist()


def test_other_columns_are_packed_too() -> None:
    r = Rollouts.from_lists(
        mu_logprobs=[[-1.0, -2.0, -3.0], [-4.0]],
        reward=[0.0, 0.0],
        policy_mask=[[1, 0, 1], [1]],
        entropy=[[0.1, NAN, 0.3], None],
        prox_logprobs=[[-1.5, NAN, -3.5], [-4.5]],
        loss_mask=[[False, True, True], None],
        token_ids=[[11, 12, 13], None],
        step=[4, None],
    )
    np.testing.assert_array_equal(r.entropy, [0.1, 0.3, NAN])
    np.testing.assert_array_equal(r.prox_logprobs, [-1.5, -3.5, -4.5])
    assert r.loss_mask is not None and r.loss_mask.tolist() == [False, True, True]
    assert r.token_ids is not None and r.token_ids.tolist() == [11, 13, -1]
    assert r.step is not None and r.step.tolist() == [4, UNKNOWN]


def test_every_array_is_read_only() -> None:
    r = Rollouts.from_lists(
        mu_logprobs=[[-1.0, -9999.0, -2.0]],
        pi_logprobs=[[-1.0] * 3],
        values=[[INF, 0.0, 0.0]],
        policy_mask=[[1, 1, 0]],
        rewards=[[0, 0, 1.0]],
        prompt_id=["a"],
        rollout_id=["b"],
        step=[1],
        trainer_version=[1],
        versions=[[0, 0, 0]],
        truncated=[True],
        bootstrap_value=[1.0],
        entropy=[[0.0] * 3],
        prox_logprobs=[[0.0] * 3],
        loss_mask=[[1, 1, 1]],
        token_ids=[[1, 2, 3]],
    )
    for name, value in fields(r).items():
        assert value is not None, name
        if isinstance(value, np.ndarray):
            assert not value.flags.writeable, name


# --- the three builders agree


@st.composite
def logs(draw: st.DrawFn) -> dict[str, list[Any]]:
    """Columns of a few short rollouts with masks, nulls and every kind of number."""
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=5))
    number = st.one_of(
        st.sampled_from([None, NAN, INF, -INF, -9999.0, 1.0, 0.0, -0.5]),
        st.floats(-20, 0.5, width=32),
    )

    def column(entry: st.SearchStrategy[Any]) -> list[Any]:
        return [draw(st.lists(entry, min_size=n, max_size=n)) for n in lengths]

    def scalars(entry: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(entry, min_size=len(lengths), max_size=len(lengths)))

    return {
        "mu_logprobs": column(number),
        "pi_logprobs": column(number),
        "values": column(number),
        "rewards": column(st.sampled_from([None, 0.0, 0.0, 1.0, NAN, -2.0])),
        "policy_mask": column(st.booleans()),
        "versions": column(st.integers(-1, 3)),
        "prompt_id": scalars(st.sampled_from([None, "a", "b"])),
        "trainer_version": scalars(st.sampled_from([None, 2, 3])),
        "truncated": scalars(st.booleans()),
        "bootstrap_value": scalars(st.sampled_from([None, 0.5])),
    }


def padded(columns: dict[str, list[Any]]) -> dict[str, Any]:
    """The same rows padded with junk to one width."""
    width = max(map(len, columns["mu_logprobs"])) + 1
    junk = {"policy_mask": False, "versions": 7, "rewards": 0.0}
    out: dict[str, Any] = {}
    for name, rows in columns.items():
        if isinstance(rows[0], list):
            rows = [row + [junk.get(name, 1e30)] * (width - len(row)) for row in rows]
        dtype = None if name in ("policy_mask", "truncated") else object
        out[name] = np.array(rows, dtype=dtype)
    return out


@settings(max_examples=150, deadline=None)
@given(logs())
def test_lists_padded_and_arrow_agree(columns: dict[str, list[Any]]) -> None:
    lists = Rollouts.from_lists(**columns)
    arrow = Rollouts.from_arrow(
        pa.table(
            {
                "mu_logprobs": floats(columns["mu_logprobs"], pa.float64()),
                "pi_logprobs": pa.array(columns["pi_logprobs"], pa.large_list(pa.float64())),
                "values": floats(columns["values"], pa.float64()),
                "rewards": floats(columns["rewards"]),
                "policy_mask": pa.array(columns["policy_mask"], pa.list_(pa.bool_())),
                "versions": pa.array(columns["versions"], pa.list_(pa.int32())),
                "prompt_id": pa.array(columns["prompt_id"], pa.string()),
                "trainer_version": pa.array(columns["trainer_version"], pa.int16()),
                "truncated": pa.array(columns["truncated"]),
                "bootstrap_value": pa.array(columns["bootstrap_value"], pa.float32()),
            }
        ),
        wide=True,
    )
    wide = {f.name: getattr(lists, f.name) for f in dataclasses.fields(lists)}
    for name in ("mu_logprobs", "pi_logprobs", "values"):  # all-null lists have no float type
        wide[name] = wide[name].astype(np.float64)
    assert_same(Rollouts(**wide), arrow)
    from_padding = Rollouts.from_padded(**padded(columns))
    masked = from_padding.quality.n_tokens_masked
    assert masked >= arrow.quality.n_tokens_masked
    same = dataclasses.replace(
        from_padding,
        quality=dataclasses.replace(
            from_padding.quality, n_tokens_masked=arrow.quality.n_tokens_masked
        ),
        token_index=arrow.token_index,
        **{
            name: getattr(from_padding, name).astype(np.float64)
            for name in ("mu_logprobs", "pi_logprobs", "values")
        },
    )
    assert_same(same, arrow)


@settings(max_examples=100, deadline=None)
@given(logs())
def test_counts_and_totals_add_up(columns: dict[str, list[Any]]) -> None:
    r = Rollouts.from_lists(**columns)
    n_logged = sum(map(len, columns["mu_logprobs"]))
    kept = [sum(mask) for mask in columns["policy_mask"]]
    assert r.lengths.tolist() == kept
    assert r.quality.n_tokens + r.quality.n_tokens_masked == n_logged
    assert r.quality.n_rollouts + r.quality.n_empty == r.quality.n_rows == len(kept)
    for i, (rewards, mask) in enumerate(
        zip(columns["rewards"], columns["policy_mask"], strict=True)
    ):
        logged = [NAN if x is None else x for x in rewards]
        on = [x for x, m in zip(logged, mask, strict=True) if m]
        off = [x for x, m in zip(logged, mask, strict=True) if not m and x == x]
        if on:  # what was logged is what is there, wherever it now sits
            np.testing.assert_equal(r.total_reward[i], sum(on) + sum(off))


def test_halves_of_a_batch_are_the_batch() -> None:
    rng = np.random.default_rng(3)
    mu = [-rng.exponential(size=n) for n in (3, 0, 5, 2, 7)]
    mask = [rng.random(len(row)) < 0.6 for row in mu]
    rewards = [rng.integers(0, 2, len(row)).astype(float) for row in mu]
    whole = Rollouts.from_lists(mu_logprobs=mu, policy_mask=mask, rewards=rewards)
    parts = [
        Rollouts.from_lists(
            mu_logprobs=mu[s], policy_mask=mask[s], rewards=rewards[s], first_row=s.start or 0
        )
        for s in (slice(0, 2), slice(2, 5))
    ]
    assert sum((p.quality for p in parts[1:]), parts[0].quality) == whole.quality
    for name in ("mu_logprobs", "rewards", "prompt", "row", "has_reward", "lengths"):
        np.testing.assert_array_equal(
            np.concatenate([getattr(p, name) for p in parts]), getattr(whole, name)
        )


def test_padded_torch_tensors() -> None:
    mu = torch.tensor([[-0.5, -1.0], [-2.0, 0.0]], dtype=torch.bfloat16)
    r = Rollouts.from_padded(
        mu_logprobs=mu.requires_grad_(),
        reward=torch.tensor([1.0, 0.0]),
        policy_mask=torch.tensor([[1, 1], [1, 0]]),
        prompt_id=torch.tensor([3, 4]),
        step=7,
    )
    assert r.mu_logprobs is not None and r.mu_logprobs.dtype == np.float32
    assert r.mu_logprobs.tolist() == [-0.5, -1.0, -2.0]
    assert r.step is not None and r.step.tolist() == [7, 7]
    assert r.prompt.tolist() == stable_hash([3, 4]).tolist()
    lists = Rollouts.from_lists(
        mu_logprobs=[torch.tensor([-0.5, -1.0]), torch.tensor([-2.0])],
        reward=torch.tensor([1.0, 0.0]),
        prompt_id=torch.tensor([3, 4]),
        step=[7, 7],
    )
    np.testing.assert_array_equal(lists.mu_logprobs, r.mu_logprobs)
    np.testing.assert_array_equal(lists.prompt, r.prompt)


def test_padded_float32_is_not_copied() -> None:
    mu = -np.ones((3, 4), dtype=np.float32)
    r = Rollouts.from_padded(mu_logprobs=mu, reward=np.zeros(3))
    assert np.shares_memory(r.mu_logprobs, mu)
    assert mu.flags.writeable


# --- refusals


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"mu": [[-1.0]]}, "no such column: mu; there are: mu_logprobs, "),
        ({"mu_logprobs": [-1.0, -2.0]}, r"mu_logprobs has shape \(2,\)"),
        ({"mu_logprobs": [[-1.0]], "values": [[0.0, 1.0]]}, r"values has shape \(1, 2\)"),
        ({"mu_logprobs": [[-1.0]], "reward": [0.0, 1.0]}, r"reward has shape \(2,\)"),
        ({"mu_logprobs": [["a"]]}, "mu_logprobs has dtype"),
        ({"reward": [1.0]}, "no column per token"),
    ],
)
def test_padded_input_is_checked(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Rollouts.from_padded(**columns)


def test_lists_are_checked() -> None:
    with pytest.raises(InputError, match="different numbers of rollouts: mu_logprobs 2, reward 1"):
        Rollouts.from_lists(mu_logprobs=[[-1.0], [-2.0]], reward=[1.0])
    with pytest.raises(InputError, match="no column was given"):
        Rollouts.from_lists()
    with pytest.raises(InputError, match="no such column: logp"):
        Rollouts.from_lists(logp=[[-1.0]])
    with pytest.raises(SchemaError, match="mu_logprobs"):
        Rollouts.from_lists(mu_logprobs=[["a", 1.0]], reward=[1.0])


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("mu_logprobs", pa.array([["a"]]), "has type list<string>; it must be list<float32>"),
        ("mu_logprobs", pa.array([-1.0]), "one entry per token, one row per rollout"),
        ("reward", pa.array([[1.0]]), "rewards per token belong in `rewards`"),
        ("step", pa.array([1.5]), "step is not whole numbers"),
        ("step", pa.array(["1"]), "step has type string; it must be int64"),
        ("versions", pa.array([[1.5]]), "versions is not whole numbers"),
        ("policy_mask", pa.array([["x"]]), "policy_mask has type list<string>"),
        ("truncated", pa.array(["x"]), "truncated has type string; it must be bool"),
    ],
)
def test_wrong_types_name_column_type_and_wanted_type(
    name: str, array: pa.Array, message: str
) -> None:
    with pytest.raises(SchemaError, match=message) as error:
        Rollouts.from_arrow(pa.table({name: array}), where="run.parquet")
    assert str(error.value).startswith("run.parquet: ")
