"""Situations that people who read such logs have met, with the answer that they should get."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brace_diag.engines.inspect import inspect_run
from brace_diag.engines.local import value_gap
from brace_diag.errors import SchemaError
from brace_diag.readers import open_run
from brace_diag.results import Check
from brace_diag.rollouts import Rollouts

Columns = Callable[..., dict[str, Any]]
DEMO = Path(__file__).parents[2] / "brace_diag" / "data" / "demo.parquet"


def check(rollouts: Rollouts | list[Rollouts], name: str) -> Check:
    found = {c.id: c for c in inspect_run(rollouts).checks}
    return found[name]


def test_a_log_ratio_beyond_float32_gives_finite_numbers(columns: Columns) -> None:
    """log w = 89 overflows exp in float32; in float64 it is 4.4896e38 and one huge weight."""
    made = columns()
    made["mu_logprobs"][0][3], made["pi_logprobs"][0][3] = -91.0, -2.0
    batch = Rollouts.from_lists(**made)
    gap = value_gap(batch)
    assert gap.mean_weight.value == pytest.approx(4.4896e38 / (96 * 24), rel=1e-4)
    for cell in gap.gap.cells:
        assert cell.estimate.value is None or np.isfinite(cell.estimate.value)
    # Under the mask the same token is nothing.
    mask = [np.ones(24, bool) for _ in range(96)]
    mask[0][3] = False
    masked = value_gap(Rollouts.from_lists(**made, policy_mask=mask))
    assert masked.mean_weight.value == pytest.approx(1.0, abs=0.02)


def test_columns_shifted_by_one_are_called_misaligned() -> None:
    batch = Rollouts.from_lists(
        mu_logprobs=[[-0.1, -2.0, -0.3, -1.5, -0.7]],
        pi_logprobs=[[-2.0, -0.3, -1.5, -0.7, -1.0]],
        values=[[0.5] * 5],
        reward=[1.0],
        prompt_id=[0],
    )
    found = check(batch, "alignment")
    assert found.status == "fail"
    assert "MISALIGNED lag=+1" in found.message
    gap = value_gap(batch)
    assert gap.notes[0].startswith("MISALIGNED lag=+1")
    assert not gap.batch.b_hat.reliable


@pytest.mark.parametrize("lag", [-2, -1, 1, 2])
def test_a_shift_is_found_under_staleness_and_named_with_its_sign(
    columns: Columns, lag: int
) -> None:
    made = columns(n_prompts=8, drift=0.05)
    # pi at t is that of the token at t + lag.
    shifted = [np.roll(pi, -lag) for pi in made["pi_logprobs"]]
    batch = Rollouts.from_lists(**(made | {"pi_logprobs": shifted}))
    assert f"MISALIGNED lag={lag:+d}" in check(batch, "alignment").message


@pytest.mark.parametrize("lag", [-1, 1])
def test_a_shift_is_found_in_a_real_stale_log(lag: int) -> None:
    """Small vocabulary, 16 updates of staleness: the right shift fits only 1.6 times better."""
    batch = next(iter(open_run(DEMO).rollouts()))
    assert batch.pi_logprobs is not None
    shifted = np.roll(batch.pi_logprobs.reshape(-1, 64), -lag, axis=1).ravel()
    found = check(replace(batch, pi_logprobs=shifted), "alignment")
    assert f"MISALIGNED lag={lag:+d}" in found.message
    assert check(batch, "alignment").status == "ok"


def test_a_very_stale_but_aligned_log_is_not_called_misaligned(columns: Columns) -> None:
    assert check(Rollouts.from_lists(**columns(drift=1.0)), "alignment").status == "ok"


def test_an_empty_response_with_a_reward_touches_no_sibling() -> None:
    lists = {"mu_logprobs": [[], [-0.5, -0.5]], "pi_logprobs": [[], [-0.6, -0.4]]}
    batch = Rollouts.from_lists(**lists, values=[[], [0.1, 0.2]], reward=[10.0, 0.0])
    gap = value_gap(batch)
    assert gap.quality.n_empty == 1
    assert gap.batch.reward_mu.value == 0.0
    assert gap.quality.rewards_on_empty == 1
    assert any("carry a reward" in note for note in gap.notes)
    empties = Rollouts.from_lists(mu_logprobs=[[]], pi_logprobs=[[]], reward=[10.0])
    with pytest.raises(SchemaError, match="no policy tokens"):
        inspect_run(empties)


@pytest.mark.parametrize("poison", [np.nan, 1e30, -np.inf, 0.0])
def test_nothing_under_the_mask_matters(columns: Columns, poison: float) -> None:
    made = columns()
    plain = value_gap(Rollouts.from_lists(**made)).to_dict()
    holes = [np.array([1, 1, 0, 0] * 12, bool) for _ in range(96)]
    padded: dict[str, Any] = {"policy_mask": holes}
    for name in ("mu_logprobs", "pi_logprobs", "values"):
        padded[name] = [np.full(48, poison, np.float32) for _ in range(96)]
        for row, column, hole in zip(padded[name], made[name], holes, strict=True):
            row[hole] = column
    assert value_gap(Rollouts.from_lists(**(made | padded))).to_dict() == plain


def test_raw_mu_against_processed_pi_is_a_definition_mismatch() -> None:
    """Logits [1, 0] at T=.6 sample with .841; raw mu is .731: E_mu[w] = 1.0616, not drift."""
    rng = np.random.default_rng(0)
    processed = np.log([0.841131, 0.158869])
    raw = np.log([0.731059, 0.268941])
    first = rng.random((400, 20)) < 0.841131
    action = np.where(first, 0, 1)
    rows = {"values": [[0.5] * 20] * 400, "reward": rng.integers(0, 2, 400).astype(float)}
    ids = np.repeat(np.arange(100), 4)
    wrong = Rollouts.from_lists(
        mu_logprobs=list(raw[action]), pi_logprobs=list(processed[action]), prompt_id=ids, **rows
    )
    found = check(wrong, "mean_weight")
    assert found.status == "fail"
    assert "definitions differ" in found.message
    assert "dividing log-probs by T does not mend it" in found.message
    # E over the sampler of (sampled/raw) = .841131²/.731059 + .158869²/.268941 = 1.0616.
    assert value_gap(wrong).mean_weight.value == pytest.approx(1.06162, abs=0.01)
    assert value_gap(wrong).notes[0].startswith("engine mismatch")
    right = Rollouts.from_lists(
        mu_logprobs=list(processed[action]), pi_logprobs=list(processed[action]), prompt_id=ids,
        **rows,
    )  # fmt: skip
    assert check(right, "mean_weight").status == "ok"


def test_bfloat16_log_probs_have_a_printed_noise_floor(columns: Columns) -> None:
    made = columns()
    for mu in made["mu_logprobs"]:
        mu.view(np.uint32)[:] &= 0xFFFF0000
    made["mu_logprobs"][0][0] = 0.03125
    batch = Rollouts.from_lists(**made)
    assert "bfloat16 grid (spacing 2^-5" in check(batch, "precision").message
    assert "1 log-probs are above 0 (mu 1" in check(batch, "positive_logprobs").message
    assert any("bfloat16 grid" in note for note in value_gap(batch).notes)


def test_float32_log_probs_are_on_no_grid(columns: Columns) -> None:
    assert "precision" not in {c.id for c in inspect_run(Rollouts.from_lists(**columns())).checks}


def test_half_precision_is_summed_in_float64() -> None:
    """64,000 times float16(-.1) is -6398.44; a float16 sum would stick at -256."""
    one = np.float16(-0.1)
    batch = Rollouts.from_lists(
        mu_logprobs=[np.full(64_000, one)],
        pi_logprobs=[np.zeros(64_000, np.float16)],
        reward=[1.0],
        values=[np.full(64_000, 0.5, np.float16)],
    )
    from brace_diag.estimators.duplicates import content_digest

    assert content_digest(batch)[1][0] == pytest.approx(-6398.44, abs=0.005)


def test_a_broken_critic_is_not_called_stale() -> None:
    batch = Rollouts.from_lists(
        mu_logprobs=[[-0.5], [-0.7]],
        pi_logprobs=[[-0.6], [-0.6]],
        values=[[-16.0], [13.8]],
        reward=[0.0, 1.0],
        prompt_id=[0, 1],
    )
    found = check(batch, "critic_range")
    assert found.status == "fail"
    assert "CRITIC_INVALID: 100 % of the critic's values" in found.message
    assert "not stale" in found.message
    assert any(note.startswith("CRITIC_INVALID") for note in value_gap(batch).notes)


def test_pi_copied_from_mu_while_stale_is_no_evidence(columns: Columns) -> None:
    made = columns()
    copied = made | {
        "pi_logprobs": made["mu_logprobs"],
        "trainer_version": [9] * 96,
        "behavior_version": [5] * 96,
    }
    batch = Rollouts.from_lists(**copied)
    found = check(batch, "pi_copied")
    assert found.status == "fail"
    assert "copied, not recomputed" in found.message
    assert value_gap(batch).notes[0].startswith("pi copied")
    fresh = Rollouts.from_lists(**(copied | {"behavior_version": [9] * 96}))
    assert check(fresh, "staleness").status == "note"


def test_without_pi_the_rest_can_still_be_inspected(columns: Columns) -> None:
    made = columns()
    del made["pi_logprobs"]
    found = inspect_run(Rollouts.from_lists(**made))
    assert found.summary["mean_abs_log_w"] is None
    assert {"critic_range", "clusters"} <= {c.id for c in found.checks}


def test_fill_values_are_missing_and_counted() -> None:
    batch = Rollouts.from_lists(
        mu_logprobs=[[-0.5, 0.0, 0.0, 0.0], [-0.5, -9999.0, -1.0, -1.0], [-0.3, 1.0, -1.0, -1.0]],
        pi_logprobs=[[-0.5, -3.0, -2.5, -4.0], [-0.5, -0.9, -1.1, -1.0], [-0.3, -0.2, -1.0, -1.0]],
        reward=[1.0, 0.0, 1.0],
    )
    assert batch.quality.mu_filled == 5
    found = check(batch, "fills")
    assert found.status == "warn"
    assert found.message.startswith("5 mu and 0 pi log-probs are fill values")
    assert value_gap(batch).batch.b_hat.value is None


def test_copied_rows_count_once() -> None:
    """Three copies of a solved rollout and one failure: R is .5 once each, .75 raw."""
    rows = {
        "mu_logprobs": [[-1.0, -2.0]] * 3 + [[-0.5, -1.5]],
        "pi_logprobs": [[-1.1, -1.9]] * 3 + [[-0.6, -1.4]],
        "values": [[0.5, 0.5]] * 4,
        "reward": [1.0, 1.0, 1.0, 0.0],
        "prompt_id": ["p"] * 4,
        "rollout_id": ["a", "a", "a", "b"],
    }
    gap = value_gap(Rollouts.from_lists(**rows))
    assert gap.quality.n_duplicates == 2
    assert gap.batch.reward_mu.value == 0.5
    assert any("2 rows repeat an earlier row" in note for note in gap.notes)


def test_equal_short_responses_with_their_own_ids_are_no_copies() -> None:
    """A one-token answer drawn eight times repeats by chance; dropping repeats would bias R."""
    rows = {
        "mu_logprobs": [[-0.1]] * 7 + [[-2.35]],
        "pi_logprobs": [[-0.12]] * 7 + [[-2.2]],
        "reward": [1.0] * 7 + [0.0],
        "prompt_id": [0] * 8,
        "rollout_id": list(range(8)),
    }
    gap = value_gap(Rollouts.from_lists(**rows))
    assert gap.quality.n_duplicates == 0
    assert gap.quality.n_repeats_kept == 6
    assert gap.batch.reward_mu.value == 7 / 8


def test_uneven_groups_are_clusters_of_any_size(columns: Columns) -> None:
    batch = Rollouts.from_lists(
        mu_logprobs=[[-0.5, -1.0]] * 5,
        pi_logprobs=[[-0.4, -1.2], [-0.6, -0.9], [-0.5, -1.0], [-0.7, -1.1], [-0.3, -0.8]],
        reward=[1.0, 0.0, 0.0, 1.0, 1.0],
        prompt_id=["a", "a", "a", "a", "b"],
    )
    gap = value_gap(batch)
    assert gap.batch.b_hat.n_clusters == 2
    assert gap.batch.b_hat.ci_low is not None
    assert not gap.batch.b_hat.reliable
    assert check(batch, "clusters").message == "2 prompts: intervals are rough below 20"


def test_a_reward_after_the_end_moves_back_and_its_sum_is_kept() -> None:
    batch = Rollouts.from_lists(
        mu_logprobs=[[-0.5] * 5],
        pi_logprobs=[[-0.6] * 5],
        rewards=[[0.0, 0.0, 0.0, 1.0, 0.0]],
        policy_mask=[[1, 1, 1, 0, 0]],
    )
    assert batch.total_reward.tolist() == [1.0]
    assert batch.rewards.tolist() == [0.0, 0.0, 1.0]
    assert "1 rewards sat on non-policy tokens" in check(batch, "rewards_folded").message
    assert value_gap(batch).batch.reward_mu.value == 1.0
