"""What a simulated log looks like on disk, and that reading it back gives the policy's tokens."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from brace_diag.errors import InputError
from brace_diag.rollouts import Rollouts
from brace_diag.tabular import EosMDP, LatentFamily, ToolHoles, concatenate, sample_log


@pytest.fixture(scope="module")
def family():
    return LatentFamily(n_prompts=6, horizon=20, hazard=0.1).build(np.random.default_rng(0))


def assert_same_rollouts(rollouts, log):
    for name in ("offsets", "mu_logprobs", "pi_logprobs", "values", "token_ids"):
        np.testing.assert_array_equal(getattr(rollouts, name), getattr(log, name), err_msg=name)
    np.testing.assert_array_equal(rollouts.total_reward, log.reward)
    assert rollouts.has_w.all() and rollouts.has_values.all() and rollouts.has_reward.all()


def test_columns_are_canonical(family):
    log = sample_log(family, 6, 4, np.random.default_rng(1))
    table = log.to_table()
    types = {name: str(table.schema.field(name).type) for name in table.column_names}
    lists = {"mu_logprobs": "float", "pi_logprobs": "float", "values": "float"}
    for name, inner in (lists | {"token_ids": "int32"}).items():
        assert types.pop(name).endswith(f": {inner}>")
    ids = ("prompt_id", "rollout_id", "step", "trainer_version", "behavior_version")
    assert types == dict.fromkeys(ids, "int64") | {"reward": "double"}
    assert table.num_rows == 24
    assert table["values"].to_pylist()[3] == log.values[log.offsets[3] : log.offsets[4]].tolist()
    assert_same_rollouts(Rollouts.from_arrow(table), log)


def test_holes_change_nothing_for_who_reads_the_mask(family):
    plain = sample_log(family, 6, 4, np.random.default_rng(1))
    holes = ToolHoles(rate=0.3, mean_length=3.0)
    log = sample_log(family, 6, 4, np.random.default_rng(1), holes=holes)
    np.testing.assert_array_equal(log.token_ids, plain.token_ids)
    columns = log.to_columns()
    mask = columns["policy_mask"]
    n_tool = log.tool_before.sum() + log.tool_after.sum()
    assert len(mask) == log.n_tokens + n_tool == columns["offsets"][-1] > log.n_tokens
    assert_same_rollouts(Rollouts.from_arrow(log.to_table()), plain)
    # All of the poison is there, and nothing else.
    for name in ("mu_logprobs", "pi_logprobs", "values"):
        off = columns[name][~mask]
        assert set(np.unique(off.astype(str))) == set(np.float32(holes.poison).astype(str))


def test_holes_are_as_frequent_and_as_long_as_asked(family):
    log = sample_log(family, 6, 800, np.random.default_rng(2), holes=ToolHoles(0.2, 3.0))
    runs = np.concatenate([log.tool_before, log.tool_after])
    met = runs > 0
    # Four standard errors of a share, and of a geometric mean of 3 (sd 2.4).
    assert met.mean() == pytest.approx(0.2, abs=4 * np.sqrt(0.16 / len(runs)))
    assert runs[met].mean() == pytest.approx(3.0, abs=4 * 2.45 / np.sqrt(met.sum()))


def test_each_run_of_holes_stands_where_it_was_drawn(family):
    log = sample_log(family, 3, 2, np.random.default_rng(3), holes=ToolHoles(0.5, 2.0))
    columns = log.to_columns()
    mask, offsets = columns["policy_mask"], columns["offsets"]
    for i in range(log.n_rollouts):
        row = []
        for t in range(log.offsets[i], log.offsets[i + 1]):
            row += [False] * log.tool_before[t] + [True]
        row += [False] * log.tool_after[i]
        np.testing.assert_array_equal(mask[offsets[i] : offsets[i + 1]], row)


def test_step_rewards_are_logged_per_token_and_holes_earn_nothing(random_mdp):
    mdp = random_mdp(2)
    log = sample_log(mdp, 2, 5, np.random.default_rng(4), holes=ToolHoles(0.5, 2.0))
    columns = log.to_columns()
    assert "reward" not in columns
    assert (columns["rewards"][~columns["policy_mask"]] == 0).all()
    rollouts = Rollouts.from_arrow(log.to_table())
    assert rollouts.dense
    np.testing.assert_array_equal(rollouts.rewards, log.rewards)


def test_concatenated_logs_are_one_log(family):
    parts = [
        sample_log(family, 6, 2, np.random.default_rng(s), step=s, holes=ToolHoles())
        for s in (0, 1)
    ]
    whole = concatenate(parts)
    assert whole.n_rollouts == 24
    assert len(np.unique(whole.rollout_id)) == 24
    np.testing.assert_array_equal(whole.step, np.repeat([0, 1], 12))
    tables = [part.to_table().drop_columns("rollout_id") for part in parts]
    masked = whole.to_columns()["policy_mask"]
    np.testing.assert_array_equal(
        masked, np.concatenate([p.to_columns()["policy_mask"] for p in parts])
    )
    both = Rollouts.from_arrow(pa.concat_tables(tables))
    ours = Rollouts.from_arrow(whole.to_table())
    for name in ("offsets", "mu_logprobs", "values", "rewards", "step", "prompt"):
        np.testing.assert_array_equal(getattr(both, name), getattr(ours, name))


def test_logs_that_differ_in_columns_are_not_joined(family):
    one = sample_log(family, 2, 2, np.random.default_rng(0))
    other = sample_log(EosMDP(0.3).build(5), 1, 2, np.random.default_rng(0))
    with pytest.raises(InputError, match="values"):
        concatenate([one, other])
    with pytest.raises(InputError, match="no log"):
        concatenate([])
