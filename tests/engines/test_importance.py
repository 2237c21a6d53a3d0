"""The importance products of whole logs: known laws, known truths, known faults."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from arviz_stats.base import array_stats

from brace_diag import importance_products
from brace_diag.errors import InputError, SchemaError
from brace_diag.results_importance import ImportanceProducts
from brace_diag.rollouts import Rollouts
from brace_diag.tabular import (
    LatentFamily,
    RatioNoise,
    log_product_moments,
    mean_abs_log_w,
    sample_log,
)

Columns = Callable[..., dict[str, Any]]


def simulated(
    drift: float, seed: int, *, horizon: int = 512, noise: RatioNoise | None = None
) -> Rollouts:
    rng = np.random.default_rng(seed)
    mdp = LatentFamily(n_prompts=256, horizon=horizon, drift=drift).build(rng)
    log = sample_log(mdp, 64, 8, rng, pool=True, noise=noise)
    return Rollouts.from_arrow(log.to_table())


def at(result: ImportanceProducts, n: int, name: str, *, capped: bool = True) -> Any:
    curve = result.log_products if capped else result.log_products_uncapped
    return {int(cell.low): cell.companions for cell in curve.cells}[n][name]


def test_forecasts_of_the_capped_product_need_the_spread_between_prompts() -> None:
    """512 tokens on, sqrt(n) sigma holds a third of the log-products at drift .02, c_bar = 1.

    A study of this family found .34 without and .94 with tau, on one pool of prompts. Here four
    pools: coverage without tau differs by .06 (sd) between pools, with tau by .01.
    """
    results = [importance_products(simulated(0.02, seed), c_bar=1.0) for seed in range(4)]
    naive = [at(r, 512, "coverage_naive") for r in results]
    prompt = [at(r, 512, "coverage_prompt") for r in results]
    assert np.mean(naive) == pytest.approx(0.34, abs=0.10)
    assert np.mean(prompt) == pytest.approx(0.94, abs=0.02)
    for r in results:
        # Without a cap log w is nearly a martingale and tau small: every spread will do.
        assert at(r, 512, "coverage_naive", capped=False) == pytest.approx(0.93, abs=0.04)
        assert any("differ in their drift" in note for note in r.notes)
        # exp(n m) is not E[C]: .005 against .03.
        product = at(r, 512, "mean_product").value
        assert product > 2.0 * math.exp(at(r, 512, "forecast_mean"))


@pytest.mark.parametrize(("drift", "half"), [(0.02, 69.0), (0.08, 17.0)])
def test_half_life_and_m_follow_the_drift_at_cap_one(drift: float, half: float) -> None:
    result = importance_products(simulated(drift, 1), c_bar=1.0)
    f = result.figures
    assert f.m.value is not None and f.mean_abs_log_w.value is not None
    # m = -(E|log w| + KL)/2, and KL is small beside E|log w|: 2 to 16 % at these drifts.
    assert f.m.value == pytest.approx(-f.mean_abs_log_w.value / 2, rel=0.2)
    assert f.kl_k1.value is not None
    assert f.m.value == pytest.approx(-(f.mean_abs_log_w.value + f.kl_k1.value) / 2, rel=1e-9)
    assert result.half_life_rule.value == pytest.approx(half, rel=0.1)
    # 1.39/E|log w| takes every prompt for the mean one: some last longer, so E[C] does.
    assert result.half_life.value == pytest.approx(half, rel=0.25)
    assert result.half_life.value == result.half_life_one.value
    assert result.half_life.ci_low is not None and result.half_life.ci_low < half * 1.25


def test_an_exact_ratio_passes_its_checks() -> None:
    for seed in range(3):
        result = importance_products(simulated(0.02, seed, horizon=128))
        f = result.figures
        assert result.ratio.verdict == "importance_ratio"
        assert result.invalid is None
        assert f.mean_weight.ci_low is not None and f.mean_weight.ci_high is not None
        # Four standard errors: it is a draw.
        assert f.mean_weight.se is not None and f.mean_weight.value is not None
        assert abs(f.mean_weight.value - 1.0) < 4 * f.mean_weight.se
        assert f.kl_k1.value is not None and f.kl_k1.se is not None
        assert f.kl_k1.value == pytest.approx(f.kl_k3.value, abs=4 * f.kl_k1.se)
        assert f.ess_rollout.value is not None and f.ess_token.value is not None
        assert 0 < f.ess_rollout.value < f.ess_token.value < 1
        assert f.ess_token_capped.value is not None
        assert f.ess_token_capped.value >= f.ess_token.value


@pytest.mark.slow
def test_intervals_cover_the_exact_m() -> None:
    """E log w and E|log w| of a solved family, 200 logs of 64 prompts drawn from a pool of 128."""
    rng = np.random.default_rng(5)
    mdp = LatentFamily(n_prompts=128, horizon=64, drift=0.05).build(rng)
    sums, _ = log_product_moments(mdp)
    exact = {
        "m_uncapped": sums[np.arange(128), 0, mdp.x0].mean() / 64,
        "mean_abs_log_w": mean_abs_log_w(mdp),
        "mean_weight": 1.0,
        "u_control": 0.0,
    }
    covered = dict.fromkeys(exact, 0)
    for _ in range(200):
        log = sample_log(mdp, 64, 4, rng, pool=True)
        figures = importance_products(Rollouts.from_arrow(log.to_table())).figures
        for name, truth in exact.items():
            own = getattr(figures, name)
            covered[name] += own.ci_low <= truth <= own.ci_high
    for name, hits in covered.items():
        # .95 by 200 draws has a standard error of .015; the prompts' drift is skewed.
        assert 0.91 <= hits / 200 <= 0.99, name


def test_noise_in_the_log_probs_is_miscalibrated_and_blocks_products() -> None:
    """Noise of sd .05 gives E[w] = 1.00125: within .01, and .64 a rollout of 512 tokens."""
    result = importance_products(simulated(0.0, 0, noise=RatioNoise(0.05)))
    assert result.ratio.verdict == "miscalibrated"
    assert result.ratio.cause is not None and "noise in the log-probs" in result.ratio.cause
    # 512 (exp(.05²/2) - 1) = .640; 512 rollouts of 512 draws of sd .05: SE .05.
    assert result.figures.u_control.value == pytest.approx(0.640, abs=0.15)
    assert result.figures.m.reason == "miscalibrated" and not result.figures.m.reliable
    assert result.figures.mean_weight.reliable
    assert result.figures.clip_c_bar.reliable
    assert any(note.startswith("miscalibrated") for note in result.notes)


def test_k_hat_equals_arviz(rollouts: Callable[..., Rollouts]) -> None:
    batch = rollouts(3, size={"n_prompts": 64, "length": 40, "drift": 0.3})
    x = batch.pi_logprobs.astype(float) - batch.mu_logprobs.astype(float)
    s = np.add.reduceat(x, batch.offsets[:-1])
    _, wanted = array_stats.psislw(-s)  # it takes log-likelihoods
    result = importance_products(batch)
    # The same fit; arviz smooths in float64 in another order.
    assert result.pareto_k == pytest.approx(float(wanted), abs=1e-8)
    assert result.pareto_k_limit == pytest.approx(1 - 1 / math.log10(256))


def test_raw_mu_against_processed_pi_is_named_a_temperature() -> None:
    """Logits [1, 0] at T = .6 sample with .841, raw mu is .731: E[w] = 1.0616."""
    rng = np.random.default_rng(0)
    processed, raw = np.log([0.841131, 0.158869]), np.log([0.731059, 0.268941])
    action = np.where(rng.random((400, 20)) < 0.841131, 0, 1)
    rows = {"reward": np.zeros(400), "prompt_id": np.repeat(np.arange(100), 4)}
    wrong = importance_products(
        Rollouts.from_lists(
            mu_logprobs=list(raw[action]), pi_logprobs=list(processed[action]), **rows
        )
    )
    assert wrong.ratio.verdict == "engine_mismatch"
    assert wrong.ratio.cause is not None and "temperature or raw log-probs" in wrong.ratio.cause
    # 8,000 draws of a two-point law with sd .205: SE .0023.
    assert wrong.figures.mean_weight.value == pytest.approx(1.06162, abs=0.01)
    # .841131/.731059 and .158869/.268941.
    assert wrong.ratio.peaked.value == pytest.approx(1.15057, abs=1e-5)
    assert wrong.ratio.other.value == pytest.approx(0.59072, abs=1e-5)
    assert wrong.invalid is not None and wrong.invalid.startswith("engine mismatch")
    assert not wrong.figures.ess_token.reliable
    right = importance_products(
        Rollouts.from_lists(
            mu_logprobs=list(processed[action]), pi_logprobs=list(processed[action]), **rows
        )
    )
    assert right.ratio.verdict == "no_staleness"
    assert right.invalid is not None and right.invalid.startswith("no staleness logged")


def test_a_cut_support_is_named(columns: Columns) -> None:
    """mu renormalised over 95 % of the mass, pi not: w = .95 on every token."""
    made = columns(drift=0.0)
    made["pi_logprobs"] = [m + np.float32(np.log(0.95)) for m in made["mu_logprobs"]]
    result = importance_products(Rollouts.from_lists(**made))
    assert result.ratio.verdict == "engine_mismatch"
    assert result.ratio.cause is not None and "top-p, top-k" in result.ratio.cause
    assert result.ratio.share_below_one.value == 1.0


def test_a_log_ratio_beyond_float32_is_shown_unclamped(columns: Columns) -> None:
    """log w = 89 overflows exp in float32; capped it is log 1.1 = .09531."""
    made = columns()
    made["mu_logprobs"][0][3], made["pi_logprobs"][0][3] = -91.0, -2.0
    result = importance_products(Rollouts.from_lists(**made))
    assert result.tails.highest == 89.0
    assert result.figures.mean_weight.value == pytest.approx(4.4896e38 / (96 * 24), rel=1e-4)
    assert result.figures.m.value is not None and abs(result.figures.m.value) < 0.2
    # One weight outweighs all others.
    assert result.figures.ess_token.value == pytest.approx(1 / (96 * 24), rel=1e-6)
    assert result.tails.n_extreme == 1
    # Under the mask the same token is nothing.
    mask = [np.ones(24, bool) for _ in range(96)]
    mask[0][3] = False
    masked = importance_products(Rollouts.from_lists(**made, policy_mask=mask))
    assert masked.tails.highest is not None and masked.tails.highest < 1.0


def test_bfloat16_log_probs_are_named_as_the_cause(columns: Columns) -> None:
    made = columns(drift=0.02)
    for name in ("mu_logprobs", "pi_logprobs"):
        for row in made[name]:
            row -= np.float32(4.0)
            row.view(np.uint32)[:] &= 0xFFFF0000
    result = importance_products(Rollouts.from_lists(**made))
    assert any("bfloat16 grid" in note for note in result.notes)


def test_a_forced_token_is_called_a_mask_bug() -> None:
    """100 tokens, log w = 0 but for the last, always the same id: -15 in all 20 rollouts."""
    mu = [np.append(np.full(99, -1.0), -0.5) for _ in range(20)]
    pi = [np.append(np.full(99, -1.0), -15.5) for _ in range(20)]
    rows = {
        "mu_logprobs": mu, "pi_logprobs": pi, "reward": np.zeros(20),
        "prompt_id": np.repeat(np.arange(10), 2),
        "rollout_id": [f"r{i}" for i in range(20)],
    }  # fmt: skip
    # Rollouts of their own that happen to be equal would count as copies: their ids tell them apart
    # only where each is probable, so the first tokens differ a little.
    for i in range(20):
        mu[i][:99] -= 0.001 * i
        pi[i][:99] -= 0.001 * i
    ids = [np.append(np.arange(99), 2) for _ in range(20)]
    result = importance_products(Rollouts.from_lists(**rows, token_ids=ids))
    assert result.tails.n_extreme == 20
    assert result.tails.concentrated == (
        "100 % of |log w| > 5 on one id (2): likely a mask bug, not drift"
    )
    assert result.tails.concentrated in result.notes
    carriers = {(c.kind, c.low, c.high): c.share for c in result.tails.carriers}
    assert carriers[("token_id", 2, 2)] == 1.0
    assert carriers[("horizon", 0, 0)] == 1.0
    without = importance_products(Rollouts.from_lists(**rows))
    assert without.tails.concentrated == (
        "100 % of |log w| > 5 on the last policy token: likely a mask bug, not drift"
    )
    assert without.abs_by_horizon.cells[0].estimate.value == 15.0
    share = without.abs_by_horizon.cells[0].companions["extreme_share"]
    assert share.value == 1.0  # type: ignore[union-attr]


def test_a_token_that_pi_cannot_draw_leaves_no_mean_of_logs(columns: Columns) -> None:
    made = columns()
    made["pi_logprobs"][5][2] = -np.inf
    result = importance_products(Rollouts.from_lists(**made))
    assert result.figures.m.value is None
    assert result.figures.m.reason == "pi cannot draw 1 of the sampled tokens: their log w is -inf"
    assert result.figures.usable_horizon.value is None
    assert result.tails.lowest == -math.inf
    assert result.to_dict()["tails"]["lowest"] is None
    assert result.figures.mean_weight.value == pytest.approx(1.0, abs=0.02)
    assert result.log_products.cells[0].estimate.value is None
    assert result.half_life_one.value is None or result.half_life_one.value > 0


def test_the_noise_floor_is_taken_from_fresh_rollouts(columns: Columns) -> None:
    rng = np.random.default_rng(2)
    made = columns(n_prompts=40, drift=0.0)
    fresh = np.arange(160) % 4 == 0
    sizes = np.where(fresh, 0.01, 0.05)
    made["pi_logprobs"] = [
        np.minimum(m + rng.normal(0, s, 24), -1e-5).astype(np.float32)
        for m, s in zip(made["mu_logprobs"], sizes, strict=True)
    ]
    made |= {"trainer_version": [7] * 160, "behavior_version": np.where(fresh, 7, 3).tolist()}
    result = importance_products(Rollouts.from_lists(**made), by="staleness")
    # E|N(0, s)| = s sqrt(2/pi); 960 and 2,880 tokens: 2.5 % and 1.4 % of it.
    root = math.sqrt(2 / math.pi)
    assert result.noise_floor.value == pytest.approx(0.01 * root, rel=0.1)
    assert result.stale_abs_log_w.value == pytest.approx(0.05 * root, rel=0.06)
    assert result.excess_abs_log_w.value == pytest.approx(0.04 * root, rel=0.1)
    assert (result.noise_floor.n_tokens, result.noise_floor.n_rollouts) == (960, 40)
    assert result.stale_abs_log_w.n_rollouts == 120
    assert [entry.key for entry in result.by] == [0, 4]
    assert result.by[0].figures.mean_abs_log_w.value == pytest.approx(
        result.noise_floor.value, rel=1e-12
    )


def test_without_versions_there_is_no_floor(columns: Columns) -> None:
    result = importance_products(Rollouts.from_lists(**columns()))
    assert result.noise_floor.value is None and result.noise_floor.reason
    with pytest.raises(SchemaError, match="staleness"):
        importance_products(Rollouts.from_lists(**columns()), by="staleness")


def test_keys_are_the_figures_of_their_rows(columns: Columns) -> None:
    made = columns() | {"step": [0] * 48 + [3] * 48}
    whole = importance_products(Rollouts.from_lists(**made), by="step")
    for entry, rows in zip(whole.by, (range(48), range(48, 96)), strict=True):
        part = {name: [column[i] for i in rows] for name, column in made.items()}
        alone = importance_products(Rollouts.from_lists(**part)).figures
        assert entry.figures.to_dict() == alone.to_dict()


def test_a_long_horizon_is_the_fall_of_m(columns: Columns) -> None:
    result = importance_products(
        Rollouts.from_lists(**columns()), c_bar=1.0, gamma=0.99, lam=0.95, eps=0.05
    )
    f = result.figures
    assert f.m.value is not None and f.m.value < math.log(0.99 * 0.95)
    assert f.usable_horizon.value == pytest.approx(math.log(20) / -f.m.value)
    assert f.usable_horizon.ci_low == pytest.approx(math.log(20) / -f.m.ci_low)  # type: ignore[operator]
    assert f.usable_horizon.ci_high == pytest.approx(math.log(20) / -f.m.ci_high)  # type: ignore[operator]
    above = columns()
    above["pi_logprobs"] = [m + np.float32(0.001) for m in above["mu_logprobs"]]
    rising = importance_products(Rollouts.from_lists(**above)).figures
    assert rising.usable_horizon.value is None
    assert "not below 0" in (rising.usable_horizon.reason or "")


def test_a_log_without_rewards_known_can_still_be_weighed(columns: Columns) -> None:
    made = columns()
    plain = importance_products(Rollouts.from_lists(**made))
    made["reward"] = [math.nan] * 96
    assert importance_products(Rollouts.from_lists(**made)).figures == plain.figures


def test_copies_count_once_and_pi_is_needed(columns: Columns) -> None:
    made = columns()
    twice = {name: [*column, *column[:8]] for name, column in made.items()}
    once = importance_products(Rollouts.from_lists(**made))
    copied = importance_products(Rollouts.from_lists(**twice))
    assert copied.quality.n_duplicates == 8
    assert copied.figures.to_dict() == once.figures.to_dict()
    del made["pi_logprobs"]
    with pytest.raises(SchemaError, match="pi_logprobs"):
        importance_products(Rollouts.from_lists(**made))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"c_bar": 0.0}, "c_bar is 0.0; it must be above 0, or inf"),
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"level": 1.0}, "level is 1.0"),
        ({"lag": -1}, "lag is -1"),
        ({"by": "prompt"}, "by is 'prompt'"),
    ],
)
def test_settings_out_of_range_are_refused(
    columns: Columns, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        importance_products(Rollouts.from_lists(**columns()), **change)


def test_keys_share_the_verdict_on_the_weights(columns: Columns) -> None:
    made = columns(drift=0.0) | {"step": [0] * 48 + [3] * 48}
    made["pi_logprobs"] = [m + np.float32(np.log(0.95)) for m in made["mu_logprobs"]]
    result = importance_products(Rollouts.from_lists(**made), by="step")
    for entry in result.by:
        assert entry.figures.m.reason == "engine mismatch"
        assert not entry.figures.ess_token.reliable
        assert entry.figures.mean_weight.reliable


def test_threads_and_batches_change_nothing(columns: Columns) -> None:
    made = columns() | {"step": [0] * 48 + [3] * 48}
    whole = importance_products(Rollouts.from_lists(**made), by="step", threads=1)
    for cuts in ([0, 96], [0, 5, 47, 96]):
        parts = [
            Rollouts.from_lists(**{name: column[a:b] for name, column in made.items()})
            for a, b in pairwise(cuts)
        ]
        assert importance_products(parts, by="step", threads=3).to_dict() == whole.to_dict()


def test_frame_has_a_row_for_each_length(columns: Columns) -> None:
    result = importance_products(Rollouts.from_lists(**columns()))
    frame = result.to_frame()
    assert frame["n"].to_list() == [1, 2, 4, 8, 16]
    assert frame["mean"].to_list() == [c.estimate.value for c in result.log_products.cells]
    assert {"coverage_prompt", "mean_product_uncapped"} <= set(frame.columns)
