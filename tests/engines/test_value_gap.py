"""`value_gap` on a real log with measured truth, its invariances, and what it says of bad logs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from brace_diag.engines.local import value_gap
from brace_diag.errors import SchemaError
from brace_diag.estimators.gap_reference import Sample, gap_at
from brace_diag.readers import open_run
from brace_diag.results import ValueGap
from brace_diag.rollouts import Rollouts
from brace_diag.tabular import LatentFamily, sample_log

DATA = Path(__file__).parents[1] / "data"
DEMO = Path(__file__).parents[2] / "brace_diag" / "data"
LOGS = ((DATA / "async_run", (40, 80, 160)), (DEMO / "demo", (60, 120, 200)))


@pytest.fixture(scope="module")
def by_step() -> dict[int, tuple[ValueGap, list[dict[str, Any]]]]:
    """Gap of every probed step of the real run, with the gaps measured by fresh continuations."""
    found = {}
    for stem, steps in LOGS:
        probes = json.loads(stem.with_suffix(".truth.json").read_text())["probes"]
        for step in steps:
            gap = value_gap(open_run(stem.with_suffix(".parquet"), steps=step))
            found[step] = (gap, [p for p in probes if p["step"] == step])
    return found


def z_scores(entry: tuple[ValueGap, list[dict[str, Any]]]) -> dict[int, float]:
    gap, probes = entry
    cells = {cell.low: cell.estimate for cell in gap.gap.cells}
    scores = {}
    for probe in probes:
        estimate = cells[probe["position"]]
        assert estimate.value is not None and estimate.se is not None
        noise = np.hypot(estimate.se, probe["b_se"])
        scores[probe["position"]] = (estimate.value - probe["b"]) / noise
    return scores


def test_measured_truth_holds_jointly_over_independent_steps(by_step: dict[int, Any]) -> None:
    """Positions of one step share rollouts, steps do not: one chi-square per position."""
    scores = [z_scores(entry) for entry in by_step.values()]
    assert len(scores) == 6
    for position in (0, 8, 16, 32, 48, 56):
        chi = sum(s[position] ** 2 for s in scores)
        # Both tails at .5 %: intervals that are far too wide fail as well as wrong ones.
        assert stats.chi2.ppf(0.005, 6) < chi < stats.chi2.ppf(0.995, 6), position


def compare_with_definition(batch: Rollouts, gap: ValueGap, starts: tuple[int, ...]) -> Any:
    """(difference in standard errors, ratio of the errors) at each start."""
    samples = samples_of(batch)
    cells = {cell.low: cell.estimate for cell in gap.gap.cells}
    for start in starts:
        literal, contributions = gap_at(samples, start)
        estimate = cells[start]
        assert estimate.value is not None and estimate.se is not None
        clustered = clustered_error(contributions, [s.prompt for s in samples])
        yield (estimate.value - literal) / estimate.se, estimate.se / clustered


def test_cells_differ_from_the_per_token_definition_by_little(by_step: dict[int, Any]) -> None:
    """Pooled normalisers and baselines against per-token ones with the OTHER prompts' mean."""
    run = open_run(DEMO / "demo.parquet", steps=60)
    gap = value_gap(run, baseline="critic")
    for off, ratio in compare_with_definition(next(iter(run.rollouts())), gap, (0, 16, 48)):
        # The other-prompts mean alone scales a contribution by 32/31, 3 % of it; cells add less.
        assert abs(off) < 0.06
        # Jackknife and sandwich errors agree to 1/clusters; hash groups merge two of 32 prompts.
        assert ratio == pytest.approx(1.0, abs=0.08)


@pytest.mark.parametrize(("drift", "alignment"), [(0.005, 0.3), (0.02, 0.3), (0.02, 1.0)])
def test_cells_differ_by_under_three_per_cent_of_an_error_on_exact_processes(
    drift: float, alignment: float
) -> None:
    rng = np.random.default_rng(5)
    family = LatentFamily(horizon=128, drift=drift, alignment=alignment, n_prompts=64)
    batch = Rollouts.from_arrow(sample_log(family.build(rng), 64, 8, rng).to_table())
    gap = value_gap(batch, baseline="critic")
    for off, ratio in compare_with_definition(batch, gap, (0, 32, 96)):
        assert abs(off) < 0.03
        # Delete-one-group and CR1 errors of 64 clusters differ by about 1/64, up or down.
        assert ratio == pytest.approx(1.0, abs=0.03)


def samples_of(batch: Rollouts) -> list[Sample]:
    assert batch.mu_logprobs is not None and batch.pi_logprobs is not None
    assert batch.values is not None
    made = []
    for i in range(batch.n_rollouts):
        at = slice(batch.offsets[i], batch.offsets[i + 1])
        log_w = batch.pi_logprobs[at].astype(float) - batch.mu_logprobs[at].astype(float)
        returns = np.full(len(log_w), batch.rewards[i])
        made.append(
            Sample(log_w, batch.values[at].astype(float), returns, int(batch.prompt[i] % 2**31))
        )
    return made


def clustered_error(contributions: Any, prompts: list[int]) -> float:
    """CR1 standard error of a mean, clusters = prompts."""
    labels = np.unique(prompts, return_inverse=True)[1]
    sums = np.bincount(labels, contributions - contributions.mean())
    p = len(sums)
    return float(np.sqrt(p / (p - 1) * (sums**2).sum()) / len(contributions))


def test_row_order_batches_and_threads_do_not_matter(rollouts: Callable[..., Rollouts]) -> None:
    whole = rollouts()
    wanted = value_gap(whole).to_dict()
    run = open_run(DEMO / "demo.parquet")
    assert value_gap(run, threads=1).to_dict() == value_gap(run, threads=3).to_dict()
    again = value_gap([rollouts()]).to_dict()
    assert again == wanted


def test_reversed_rows_agree_to_rounding(
    columns: Callable[..., Any], rollouts: Callable[..., Rollouts]
) -> None:
    flipped = {name: column[::-1] for name, column in columns().items()}
    a, b = value_gap(rollouts()), value_gap(Rollouts.from_lists(**flipped))
    for x, y in zip(a.gap.cells, b.gap.cells, strict=True):
        # The same float64 sums in another order.
        assert x.estimate.value == pytest.approx(y.estimate.value, rel=1e-9, abs=1e-12)
        assert x.estimate.se == pytest.approx(y.estimate.se, rel=1e-9)


def test_scaling_rewards_and_critic_scales_the_gap(
    columns: Callable[..., Any], rollouts: Callable[..., Rollouts]
) -> None:
    made = columns()
    scaled = value_gap(
        rollouts(
            reward=[1000.0 * r for r in made["reward"]],
            values=[1000.0 * v for v in made["values"]],
        )
    )
    plain = value_gap(rollouts())
    # float32 values are rounded anew after scaling: relative 6e-8 of values that nearly cancel.
    assert scaled.batch.b_hat.value == pytest.approx(1000 * plain.batch.b_hat.value, rel=1e-4)
    assert scaled.batch.g_pi_signed.se == pytest.approx(1000 * plain.batch.g_pi_signed.se, rel=1e-4)


def test_without_drift_the_gap_is_exactly_zero_and_said_to_be_no_evidence(
    columns: Callable[..., Any], rollouts: Callable[..., Rollouts]
) -> None:
    gap = value_gap(rollouts(pi_logprobs=columns()["mu_logprobs"]))
    for cell in gap.gap.cells:
        assert cell.estimate.value == 0.0
        assert cell.estimate.se == 0.0
    assert any("no staleness logged" in note for note in gap.notes)


def test_batch_figures_are_the_plain_means(columns: Callable[..., Any]) -> None:
    made = columns()
    gap = value_gap(Rollouts.from_lists(**made))
    first = [float(v[0]) for v in made["values"]]
    batch = gap.batch
    assert batch.reward_mu.value == pytest.approx(np.mean(made["reward"]), rel=1e-12)
    assert batch.critic_mean.value == pytest.approx(np.mean(first), rel=1e-12)
    assert batch.reward_pi.value == pytest.approx(batch.reward_mu.value + batch.b_hat.value)
    assert batch.g_pi_signed.value == pytest.approx(batch.critic_mean.value - batch.reward_pi.value)
    assert batch.g_pi_hat.value == abs(batch.g_pi_signed.value)
    assert batch.g_pi_hat.ci_low >= 0.0
    spread = np.sqrt(np.mean([np.var(r, ddof=1) for r in np.reshape(made["reward"], (24, 4))]))
    assert batch.return_sd.value == pytest.approx(spread, rel=1e-12)


def test_critic_bias_is_critic_less_return_less_gap(columns: Callable[..., Any]) -> None:
    made = columns()
    gap = value_gap(Rollouts.from_lists(**made))
    for b, bias in zip(gap.gap.cells, gap.critic_bias.cells, strict=True):
        at = int(b.low)
        over = np.mean([float(v[at]) for v in made["values"]]) - np.mean(made["reward"])
        assert bias.estimate.value == pytest.approx(over - b.estimate.value, rel=1e-6)


def test_without_a_critic_the_gap_stands_and_the_rest_is_null(
    rollouts: Callable[..., Rollouts],
) -> None:
    gap = value_gap(rollouts(values=None))
    assert gap.batch.b_hat.value is not None
    assert gap.batch.critic_mean.value is None
    assert gap.batch.g_pi_hat.reason == "the log has no critic values"
    assert all(cell.estimate.value is None for cell in gap.critic_bias.cells)


def test_group_baseline_helps_without_a_critic_and_can_be_refused(
    rollouts: Callable[..., Rollouts],
) -> None:
    # Half of the prompts are solved, half are not: the others' mean tells nearly all.
    solved = np.repeat(np.arange(64) % 2, 8).astype(float)
    noisy = np.where(np.arange(512) % 16 == 3, 1.0 - solved, solved)
    size = {"n_prompts": 64, "group": 8}
    batch = rollouts(values=None, reward=noisy.tolist(), size=size)
    automatic, plain = value_gap(batch), value_gap(batch, baseline="critic")
    assert automatic.batch.b_hat.se < plain.batch.b_hat.se
    assert "group baseline" in automatic.batch.b_hat.method
    assert any("other rollouts" in note for note in automatic.notes)


def test_copies_are_used_once(
    columns: Callable[..., Any], rollouts: Callable[..., Rollouts]
) -> None:
    made = columns()
    doubled = {name: [*column, *column[:5]] for name, column in made.items()}
    a = value_gap(Rollouts.from_lists(**doubled), baseline="critic")
    b = value_gap(rollouts(), baseline="critic")
    assert a.quality.n_duplicates == 5
    assert a.batch.to_dict() == b.batch.to_dict()
    # A copy's return must not centre its original.
    assert "group" not in value_gap(Rollouts.from_lists(**doubled)).batch.b_hat.method


def test_one_prompt_has_no_interval(columns: Callable[..., Any], rollouts: Any) -> None:
    gap = value_gap(rollouts(prompt_id=[0] * 96))
    assert gap.batch.b_hat.ci_low is None
    assert gap.batch.b_hat.reason == "one prompt only: no standard error"


def test_few_prompts_are_marked(rollouts: Callable[..., Rollouts]) -> None:
    gap = value_gap(rollouts(size={"n_prompts": 6}))
    assert gap.batch.b_hat.ci_low is not None
    assert not gap.batch.b_hat.reliable
    assert any("clusters of prompts" in note for note in gap.notes)


def test_one_rollout_a_prompt_uses_total_variances_and_says_so(
    rollouts: Callable[..., Rollouts],
) -> None:
    gap = value_gap(rollouts(size={"n_prompts": 96, "group": 1}))
    assert "one rollout a prompt" in gap.batch.b_hat.method
    assert gap.gap.cells[0].companions["within_var_log_product"] > 0
    assert gap.whitening["prompt_second_moment"] is None
    assert not gap.batch.return_sd.reliable


def test_one_rollout_alone_gives_a_value_and_no_interval(rollouts: Callable[..., Rollouts]) -> None:
    gap = value_gap(rollouts(size={"n_prompts": 1, "group": 1, "length": 1}))
    assert gap.batch.b_hat.ci_low is None
    assert gap.batch.reward_mu.value in (0.0, 1.0)


def test_a_spread_beyond_the_gate_is_refused_with_the_probe_that_would_tell(
    rollouts: Callable[..., Rollouts],
) -> None:
    gap = value_gap(rollouts(size={"drift": 0.9, "length": 32}))
    assert gap.gate == "refused"
    assert gap.batch.b_hat.value is None
    assert "fresh rollouts from pi are needed" in gap.batch.b_hat.reason
    assert gap.batch.reward_mu.value is not None  # what does not rest on w stays
    assert gap.probe_rollouts > 500  # 2 (1.71/.1)² = 587 for 24 clusters


def test_direction_only_is_marked(rollouts: Callable[..., Rollouts]) -> None:
    gap = value_gap(rollouts(size={"drift": 0.5, "length": 24}))
    assert gap.gate == "direction"
    assert gap.batch.b_hat.value is not None
    assert not gap.batch.b_hat.reliable


def test_missing_log_probs_leave_rollouts_out_and_are_counted(
    columns: Callable[..., Any], rollouts: Callable[..., Rollouts]
) -> None:
    made = columns()
    made["mu_logprobs"][3][5] = np.nan
    made["mu_logprobs"][8][0] = -np.inf
    gap = value_gap(Rollouts.from_lists(**made))
    assert gap.quality.rollouts_without_w == 2
    assert gap.batch.b_hat.n_rollouts == 94
    assert gap.batch.reward_mu.n_rollouts == 96
    assert any("2 of 96 rollouts are left out" in note for note in gap.notes)


def test_all_log_probs_missing_is_null_with_a_reason(
    columns: Callable[..., Any], rollouts: Callable[..., Rollouts]
) -> None:
    nothing = [np.full(24, np.nan, np.float32)] * 96
    gap = value_gap(rollouts(pi_logprobs=nothing))
    assert gap.batch.b_hat.value is None
    assert gap.batch.b_hat.reason == "no rollout with all that this needs"
    assert gap.gap.cells == ()
    json.dumps(gap.to_dict(), allow_nan=False)


def test_no_policy_token_is_a_clear_error(rollouts: Callable[..., Rollouts]) -> None:
    empty = Rollouts.from_lists(mu_logprobs=[[], []], pi_logprobs=[[], []], reward=[10.0, 0.0])
    with pytest.raises(SchemaError, match="no policy tokens in 2 rows"):
        value_gap(empty)


def test_no_pi_is_refused_by_name(rollouts: Callable[..., Rollouts]) -> None:
    with pytest.raises(SchemaError, match="no column pi_logprobs"):
        value_gap(rollouts(pi_logprobs=None))


def test_horizon_axis_carries_its_warning(rollouts: Callable[..., Rollouts]) -> None:
    for axis in ("horizon", "relative"):
        gap = value_gap(rollouts(), axis=axis)
        assert gap.gap.axis == axis
        assert any("conditions on the realised length" in note for note in gap.notes)
        # The batch figures stay at position 0.
        assert gap.batch.b_hat.value == value_gap(rollouts()).batch.b_hat.value


def test_by_step_equals_each_step_alone(by_step: dict[int, Any]) -> None:
    whole = value_gap(open_run(DEMO / "demo.parquet"), by="step", by_positions=True)
    assert [entry.key for entry in whole.by] == [60, 120, 200]
    for entry in whole.by:
        alone = by_step[entry.key][0]
        assert entry.batch.to_dict() == alone.batch.to_dict()
        assert entry.gap.to_dict() == alone.gap.to_dict()


def test_by_staleness_needs_versions(rollouts: Callable[..., Rollouts]) -> None:
    with pytest.raises(SchemaError, match="trainer_version and behavior_version"):
        value_gap(rollouts(), by="staleness")
    gap = value_gap(open_run(DEMO / "demo.parquet"), by="staleness")
    assert [entry.key for entry in gap.by] == [16]


def test_results_are_strict_json_and_a_frame(by_step: dict[int, Any]) -> None:
    gap = by_step[60][0]
    json.dumps(gap.to_dict(), allow_nan=False)
    frame = gap.to_frame()
    assert frame.height == len(gap.gap.cells)
    assert {"low", "value", "first_order_value", "critic_bias_value"} <= set(frame.columns)


def test_simultaneous_band_is_wider_than_one_interval(by_step: dict[int, Any]) -> None:
    for gap, _ in by_step.values():
        pointwise = stats.t.ppf(0.975, gap.batch.b_hat.n_clusters - 1)
        assert pointwise < gap.gap.simultaneous < 4.0
