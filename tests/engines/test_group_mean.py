"""The group mean for a critic: the same as a log that holds it, and what it says of gaps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brace_diag import (
    Rollouts,
    SchemaError,
    audit,
    critic_fit,
    open_run,
    reward_slope,
    sweep,
    trend,
    value_gap,
    with_group_mean,
)
from brace_diag.tabular import LatentFamily, exact_truth, sample_log

Columns = Callable[..., dict[str, Any]]
DATA = Path(__file__).parents[1] / "data" / "async_run.parquet"


def others_mean(made: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Mean reward of the prompt's other rollouts, one by one."""
    reward, prompt = np.array(made["reward"]), np.array(made["prompt_id"])
    return np.array(
        [reward[(prompt == p) & (np.arange(len(reward)) != i)].mean() for i, p in enumerate(prompt)]
    )


def test_it_is_the_log_with_that_column(columns: Columns) -> None:
    made = columns(1)
    lengths = [len(row) for row in made["mu_logprobs"]]
    values = [np.full(n, v) for n, v in zip(lengths, others_mean(made), strict=True)]
    explicit = Rollouts.from_lists(**made | {"values": values})
    bare = {k: v for k, v in made.items() if k != "values"}
    computed = with_group_mean(Rollouts.from_lists(**bare))
    for ask in (value_gap, audit, critic_fit, reward_slope, sweep):
        assert ask(computed).to_dict() == ask(explicit).to_dict(), ask  # type: ignore[operator]


def test_values_of_the_log_are_not_read(columns: Columns) -> None:
    with_critic = with_group_mean(Rollouts.from_lists(**columns(1)))
    bare = {k: v for k, v in columns(1).items() if k != "values"}
    without = with_group_mean(Rollouts.from_lists(**bare))
    assert value_gap(with_critic).to_dict() == value_gap(without).to_dict()


def test_siblings_are_of_one_step(columns: Columns) -> None:
    """Two rollouts a step: the other one of the step, not those of other steps."""
    made = columns(2, n_prompts=24, group=4)
    made["step"] = np.tile([0, 0, 1, 1], 24).tolist()
    (batch,) = with_group_mean(Rollouts.from_lists(**made)).rollouts()
    reward = np.array(made["reward"]).reshape(-1, 2)
    assert batch.values is not None
    assert batch.values[batch.offsets[:-1]].tolist() == reward[:, ::-1].ravel().tolist()


def test_a_rollout_without_siblings_has_no_value(columns: Columns) -> None:
    made = columns(3)
    made["prompt_id"] = [*made["prompt_id"][:-1], 999]
    found = value_gap(with_group_mean(Rollouts.from_lists(**made)))
    assert found.quality.rollouts_without_values == 1
    assert found.batch.b_hat.n_rollouts == 95


def test_the_gap_is_that_of_any_critic_and_the_bias_is_its_staleness() -> None:
    """The group mean is unbiased for E_mu[R], so that V - E_pi[R] is -b; intervals hold both."""
    rng = np.random.default_rng(4)
    mdp = LatentFamily(n_prompts=128, horizon=64, drift=0.05, alignment=0.8).build(rng)
    truth = exact_truth(mdp)
    held = 0
    for _ in range(20):
        log = Rollouts.from_arrow(sample_log(mdp, 128, 8, rng).to_table())
        batch = value_gap(with_group_mean(log), threads=1).batch
        assert batch.g_mu_signed.value == pytest.approx(0.0, abs=1e-12)
        g = batch.g_pi_signed
        assert g.ci_low is not None and g.ci_high is not None
        held += g.ci_low <= -truth.gap <= g.ci_high
    assert held >= 16  # nominal .95 of 20; fewer than 16 has probability 3e-3


def test_a_log_on_disk_says_where_values_come_from() -> None:
    run = with_group_mean(open_run(DATA))
    assert run.columns["values"] == "the mean return of the prompt's other rollouts"
    assert run.uses["values"].how == "computed"
    found = trend(run)
    assert all(point.figures["explained_variance"].value is not None for point in found.points)


def test_rewards_by_token_bound_the_values_as_in_a_log_that_holds_them(columns: Columns) -> None:
    """Returns to go reach further than total rewards: 1 at the first token, -1 at the last."""
    made = columns(5)
    del made["reward"]
    made["rewards"] = [np.r_[2.0, np.zeros(len(row) - 2), -1.0] for row in made["mu_logprobs"]]
    values = [np.full(len(row), 1.0) for row in made["mu_logprobs"]]
    explicit = critic_fit(Rollouts.from_lists(**made | {"values": values}))
    computed = critic_fit(with_group_mean(Rollouts.from_lists(**made)))
    assert (computed.extent.return_low, computed.extent.return_high) == (-1.0, 1.0)
    assert computed.extent == explicit.extent


def test_without_groups_there_is_none(columns: Columns) -> None:
    made = columns(1, group=1)
    with pytest.raises(SchemaError, match="no prompt has two rollouts in a step"):
        with_group_mean(Rollouts.from_lists(**made))
