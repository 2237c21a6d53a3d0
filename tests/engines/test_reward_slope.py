"""`reward_slope` against statsmodels and exact processes, and what it says of bad logs."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm

from brace_diag import InputError, SchemaError, TargetSpec, reward_slope, vtrace_targets
from brace_diag.estimators.reward_slope import estimate_key
from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.estimators.slope_state import SlopeState
from brace_diag.estimators.slope_targets import with_targets
from brace_diag.results import Estimate
from brace_diag.results_slope import RewardSlope, TargetSlopes
from brace_diag.rollouts import Rollouts
from brace_diag.settings import SlopeSettings, cell_edges, parse_targets
from brace_diag.tabular import LatentFamily, SimulatedLog, TokenMDP, sample_log

CAPPED = "vtrace:rho_bar=1,c_bar=1"
MakeRollouts = Callable[..., Rollouts]


def rollouts_of(log: SimulatedLog) -> Rollouts:
    return Rollouts.from_arrow(log.to_table())


def one(result: RewardSlope) -> TargetSlopes:
    (slopes,) = result.slopes.values()
    return slopes


def at(result: RewardSlope, label: str, curve: str, horizon: int) -> Estimate:
    """A figure in the cell that holds a horizon."""
    cells = getattr(result.slopes[label], curve).cells
    return next(c.estimate for c in cells if c.low <= horizon <= c.high)


def test_slopes_and_their_errors_equal_statsmodels(rollouts: MakeRollouts) -> None:
    """The point is OLS itself; the jackknife and CR1 differ by terms of order 1/clusters."""
    batch = rollouts(1, size={"n_prompts": 480, "group": 4, "length": 24})
    result = reward_slope(batch, ["vtrace", "brace:k=5"])
    n, length = batch.n_rollouts, 24
    horizon = np.tile(np.arange(length)[::-1], n)
    prompt, cluster = np.repeat(batch.prompt, length), np.repeat(batch.group, length)
    assert batch.values is not None and batch.mu_logprobs is not None
    values = batch.values.astype(np.float64)
    targets = vtrace_targets(
        batch.mu_logprobs.astype(np.float64),
        batch.pi_logprobs,
        values,
        batch.rewards,
        offsets=batch.offsets,
    )
    x, y = np.repeat(batch.rewards, length) - values, targets - values
    edges = cell_edges(length)
    for c in range(len(edges) - 1):
        own = (horizon >= edges[c]) & (horizon < edges[c + 1])
        frame = pl.DataFrame({"x": x[own], "y": y[own], "prompt": prompt[own]})
        demeaned = frame.select(pl.col("x", "y") - pl.col("x", "y").mean().over("prompt"))
        for name, data in (("pooled", frame), ("within", demeaned)):
            design = sm.add_constant(data["x"].to_numpy())
            fit = sm.OLS(data["y"].to_numpy(), design).fit(
                cov_type="cluster", cov_kwds={"groups": cluster[own]}
            )
            got = at(result, CAPPED, name, int(edges[c]))
            assert got.value == pytest.approx(fit.params[1], rel=1e-9)
            # 310 non-empty groups of 512: 1/310 of the leverage, and CR1's g/(g-1).
            assert got.se == pytest.approx(fit.bse[1], rel=0.02), (name, c)
            assert got.n_clusters == len(np.unique(cluster[own]))


def test_the_return_has_slope_one_and_every_token_weight_one(rollouts: MakeRollouts) -> None:
    slopes = one(reward_slope(rollouts(2), "mc"))
    for curve in (slopes.within, slopes.pooled, slopes.return_weight):
        assert [c.estimate.value for c in curve.cells] == [1.0] * len(curve.cells)
        assert {c.estimate.ci_low for c in curve.cells} == {1.0}
    assert {c.estimate.value for c in slopes.kappa_log10_median.cells} == {0.0}
    assert slopes.trend["within"].slope.value is None


@pytest.fixture(scope="module")
def drifted() -> dict[float, RewardSlope]:
    """Logs of 512 tokens by drift, large enough that a slope's error is a few hundredths."""
    made = {}
    for drift in (0.02, 0.08):
        rng = np.random.default_rng(3)
        mdp = LatentFamily(n_prompts=192, horizon=512, drift=drift).build(rng)
        log = sample_log(mdp, 192, 12, rng)
        made[drift] = reward_slope(rollouts_of(log), [CAPPED, "brace:k=64,rho_bar=1,c_bar=1"])
    return made


@pytest.mark.slow
@pytest.mark.parametrize("drift", [0.02, 0.08])
def test_the_return_weight_of_the_capped_trace_halves_every_139_drifts(
    drifted: dict[float, RewardSlope], drift: float
) -> None:
    """E[C] = 1/2 about 1.39 / E|log w| tokens before the end (69 and 17)."""
    cells = drifted[drift].slopes[CAPPED].return_weight.cells
    h = np.array([(c.low + c.high) / 2.0 for c in cells])
    weight = np.array([c.estimate.value for c in cells], np.float64)
    half = float(np.interp(-0.5, -weight, h))
    # The law is of the family's mean; its spread over prompts and steps leaves a quarter.
    assert half == pytest.approx(1.39 / drift, rel=0.25)


@pytest.mark.slow
def test_the_targets_own_slope_has_the_critics_slope_as_its_floor(
    drifted: dict[float, RewardSlope],
) -> None:
    """With nothing left of the return, the target still follows it as far as the critic does."""
    result = drifted[0.08]
    cell = result.slopes[CAPPED].pooled.cells[-1]
    weight = at(result, CAPPED, "return_weight", int(cell.low)).value
    own, floor = (cell.companions[n] for n in ("target_on_return", "critic_on_return"))
    assert isinstance(own, Estimate) and isinstance(floor, Estimate)
    assert own.value is not None and floor.value is not None and weight is not None
    assert weight < 0.005
    assert abs(own.value - floor.value) < 0.05
    assert floor.value > 0.1
    # The slope of target - V on G - V does not stop there: what prompts share is in both sides.
    assert cell.estimate.value is not None
    assert cell.estimate.value < 0.4 * floor.value


@pytest.mark.slow
def test_the_slope_of_brace_rises_towards_the_end_where_its_weight_is_flat(
    drifted: dict[float, RewardSlope],
) -> None:
    label = "brace:k=64,rho_bar=1,c_bar=1"
    result = drifted[0.08]
    cells = [c for c in result.slopes[label].return_weight.cells if c.low >= 64]
    weight = [c.estimate.value for c in cells]
    assert max(weight) - min(weight) < 0.06  # type: ignore[operator, type-var]
    own = [c.companions["target_on_return"] for c in result.slopes[label].pooled.cells]
    values = [e.value for e in own if isinstance(e, Estimate)]
    low = {int(c.low): i for i, c in enumerate(result.slopes[label].pooled.cells)}
    assert values[low[64]] - values[low[448]] > 0.3  # type: ignore[operator]
    slopes = [at(result, label, "pooled", h).value for h in (64, 448)]
    assert slopes[0] - slopes[1] > 0.05  # type: ignore[operator]


@pytest.mark.slow
def test_intervals_cover_the_slopes_of_the_whole_population() -> None:
    """95 % intervals of 64 prompts x 8 against 4,096 prompts: at least 90 % in 120 logs.

    Two standard errors of 120 draws at .95 are .04; jackknife and t with few prompts in effect
    cost another .01.
    """
    rng = np.random.default_rng(4)
    mdp = LatentFamily(n_prompts=256, horizon=64, drift=0.03).build(rng)
    specs = parse_targets([CAPPED, "brace:k=16"])
    truth = overall(mdp, 4096, specs, rng)
    n = 120
    hits = {(s, f): 0 for s in truth for f in ("within", "pooled", "return_weight")}
    for _ in range(n):
        found = overall(mdp, 64, specs, rng)
        for label, name in hits:
            wanted, got = getattr(truth[label], name), getattr(found[label], name)
            hits[label, name] += got.ci_low <= wanted.value <= got.ci_high
    assert all(0.90 <= hit / n <= 1.0 for hit in hits.values()), hits


def overall(
    mdp: TokenMDP, n_prompts: int, specs: tuple[TargetSpec, ...], rng: np.random.Generator
) -> Any:
    batch = rollouts_of(sample_log(mdp, n_prompts, 8, rng, pool=True))
    n = batch.n_rollouts
    info = RolloutInfo(batch.has_w, np.ones(n, np.bool_), np.zeros(n), batch.prompt, np.full(n, 8))
    state = SlopeState(specs)
    state.update(batch, with_targets(batch, info, specs, 2), threads=2)
    return estimate_key(0, state, SlopeSettings(specs)).overall


def test_windows_that_end_before_the_reward_have_kappa_zero(rollouts: MakeRollouts) -> None:
    result = reward_slope(rollouts(5), "vtrace:n=6")
    for cell in one(result).kappa_log10_median.cells:
        share = cell.companions["zero_share"]
        assert share == (1.0 if cell.low >= 6 else 0.0)
        assert (cell.estimate.value is None) == (cell.low >= 6)
        if cell.low >= 6:
            assert cell.estimate.reason == "kappa is 0 for at least half of the tokens"
            mean = cell.companions["mean"]
            assert isinstance(mean, Estimate) and mean.value == 0.0
    assert any("targets with 6 or more tokens after them" in note for note in result.notes)


def test_discount_and_decay_belong_to_targets_that_name_none(rollouts: MakeRollouts) -> None:
    result = reward_slope(rollouts(6), ["mc", "gae:lam=1", "gae:gamma=1"], gamma=0.9, lam=0.5)
    labels = list(result.slopes)
    assert labels == ["mc:gamma=0.9", "gae:gamma=0.9", "gae:lam=0.5"]
    for label, factor in zip(labels, (0.9, 0.9, 0.5), strict=True):
        weight = at(result, label, "return_weight", 7).value
        # 1e-12: exp of a sum of logarithms.
        assert weight == pytest.approx(factor**7, rel=1e-12)


def test_missing_log_probs_leave_whole_rollouts_out_for_all_targets(
    columns: Callable[..., dict[str, Any]],
) -> None:
    log = columns(7)
    kept = [i for i in range(96) if i % 7]
    pi = [x.copy() for x in log["pi_logprobs"]]
    for i in range(0, 96, 7):
        pi[i][3] = np.nan
    whole = reward_slope(Rollouts.from_lists(**(log | {"pi_logprobs": pi})), ["gae", "brace"])
    rest = reward_slope(
        Rollouts.from_lists(**{k: [v[i] for i in kept] for k, v in log.items()}),
        ["gae", "brace"],
    )
    for label, slopes in rest.slopes.items():
        assert whole.slopes[label].overall.pooled == slopes.overall.pooled
    assert any("14 of 96 rollouts are left out, for all targets alike" in n for n in whole.notes)


def test_targets_without_ratios_need_no_pi(columns: Callable[..., dict[str, Any]]) -> None:
    log = columns(8)
    full = reward_slope(Rollouts.from_lists(**log), ["gae:lam=.9"])
    del log["pi_logprobs"]
    batch = Rollouts.from_lists(**log)
    assert one(reward_slope(batch, "gae:lam=.9")).overall == one(full).overall
    with pytest.raises(SchemaError, match="no column pi_logprobs, which the slope of vtrace"):
        reward_slope(batch, ["gae", "vtrace"])
    del log["values"]
    with pytest.raises(SchemaError, match="no column values"):
        reward_slope(Rollouts.from_lists(**log), "mc")


def test_a_critic_that_matches_every_return_leaves_no_slope(rollouts: MakeRollouts) -> None:
    """V = G on every token: zero variance of X, and every other figure stands."""
    reward = [float(i % 2) for i in range(96)]
    values = [np.full(24, r, np.float32) for r in reward]
    slopes = one(reward_slope(rollouts(9, reward=reward, values=values), "brace"))
    for curve in (slopes.within, slopes.pooled):
        assert {c.estimate.reason for c in curve.cells} == {"zero variance"}
        assert {c.estimate.value for c in curve.cells} == {None}
    assert slopes.overall.return_weight.value is not None
    assert slopes.trend["pooled"].slope.value is None


def test_a_reward_that_never_varies_is_flagged(rollouts: MakeRollouts) -> None:
    result = reward_slope(rollouts(10, reward=[1.0] * 96), ["vtrace"])
    slopes = one(result)
    assert slopes.overall.within.value is not None
    assert not slopes.overall.within.reliable
    assert slopes.overall.return_weight.reliable
    assert result.notes[0].startswith("zero variance of the reward: it is 1 in every rollout")


def test_one_rollout_a_prompt_has_no_slope_within(rollouts: MakeRollouts) -> None:
    result = reward_slope(rollouts(11, size={"n_prompts": 96, "group": 1}), "brace")
    slopes = one(result)
    assert {c.estimate.reason for c in slopes.within.cells} == {
        "no prompt has two rollouts here: nothing to take its means over"
    }
    assert slopes.overall.pooled.value is not None
    assert any(note.startswith("each prompt has one rollout") for note in result.notes)


def test_uncapped_products_beyond_float64_are_named(rollouts: MakeRollouts) -> None:
    pi = [np.full(24, -0.5, np.float32) for _ in range(96)]
    mu = [np.full(24, -60.5, np.float32) for _ in range(96)]
    result = reward_slope(
        rollouts(12, mu_logprobs=mu, pi_logprobs=pi), ["vtrace:rho_bar=inf,c_bar=inf", "brace"]
    )
    wild, tame = result.slopes.values()
    assert wild.overall.pooled.value is None
    assert wild.overall.pooled.reason is not None
    assert "beyond float64" in wild.overall.pooled.reason
    assert wild.kappa_log10_median.cells[0].companions["p95"] == pytest.approx(
        60.0 / math.log(10.0), rel=0.016
    )
    assert tame.overall.pooled.value is not None


def test_lengths_that_vary_are_noted(columns: Callable[..., dict[str, Any]]) -> None:
    log = columns(13)
    for name in ("mu_logprobs", "pi_logprobs", "values"):
        log[name] = [x[: 5 + i % 20] for i, x in enumerate(log[name])]
    result = reward_slope(Rollouts.from_lists(**log), "brace")
    assert result.lengths == (5, 24)
    assert any(n.startswith("lengths vary (5 to 24 tokens)") for n in result.notes)
    fixed = reward_slope(Rollouts.from_lists(**columns(13)), "brace")
    assert fixed.lengths == (24, 24)
    assert not any("lengths vary" in n for n in fixed.notes)


def test_columns_that_are_shifted_make_every_ratio_doubtful(rollouts: MakeRollouts) -> None:
    batch = rollouts(14)
    assert batch.pi_logprobs is not None
    shifted = [np.roll(x, -1) for x in batch.pi_logprobs.reshape(-1, 24)]
    result = reward_slope(rollouts(14, pi_logprobs=shifted), ["gae", "brace"])
    assert result.invalid is not None and result.invalid.startswith("MISALIGNED lag=+1")
    gae, brace = result.slopes.values()
    assert gae.overall.within.reliable
    for estimate in (brace.overall.within, brace.overall.return_weight):
        assert not estimate.reliable and estimate.reason == "MISALIGNED lag=+1"


def test_a_log_without_staleness_says_so(rollouts: MakeRollouts) -> None:
    mu = list(rollouts(15).mu_logprobs.reshape(-1, 24))  # type: ignore[union-attr]
    result = reward_slope(rollouts(15, pi_logprobs=mu), ["brace"])
    assert one(result).overall.return_weight.value == 1.0
    assert result.notes[0].startswith("no staleness logged")
    assert result.invalid is None


def test_each_step_is_the_log_of_its_rollouts(columns: Callable[..., dict[str, Any]]) -> None:
    log = columns(16)
    steps = [i % 3 for i in range(96)]
    result = reward_slope(Rollouts.from_lists(**log, step=steps), ["gae", "brace"], by="step")
    assert [entry.key for entry in result.by] == [0, 1, 2]
    for entry in result.by:
        own = [i for i in range(96) if steps[i] == entry.key]
        part = {name: [column[i] for i in own] for name, column in log.items()}
        alone = reward_slope(Rollouts.from_lists(**part), ["gae", "brace"])
        for label, slopes in alone.slopes.items():
            assert entry.overall[label] == slopes.overall
    with pytest.raises(SchemaError, match="--by staleness"):
        reward_slope(Rollouts.from_lists(**log), "gae", by="staleness")


def test_several_batches_are_one_log(columns: Callable[..., dict[str, Any]]) -> None:
    log = columns(17)
    whole = reward_slope(Rollouts.from_lists(**log), threads=1)
    cut = [range(0, 10), range(10, 11), range(11, 96)]
    parts = [Rollouts.from_lists(**{k: [v[i] for i in own] for k, v in log.items()}) for own in cut]
    several = reward_slope(parts, threads=3)
    assert several.to_dict() == whole.to_dict()
    assert list(whole.slopes) == ["gae", CAPPED, "brace:k=100,rho_bar=1.2,c_bar=1.1"]


def test_the_frame_has_a_row_for_each_target_and_cell(rollouts: MakeRollouts) -> None:
    result = reward_slope(rollouts(18), ["gae", "vtrace:n=4"])
    frame = result.to_frame()
    assert frame["target"].unique(maintain_order=True).to_list() == list(result.slopes)
    row = frame.filter(target="vtrace:n=4,rho_bar=1,c_bar=1", low=2).row(0, named=True)
    cell = result.slopes["vtrace:n=4,rho_bar=1,c_bar=1"].within.cells[2]
    assert row["within"] == cell.estimate.value
    assert row["within_se"] == cell.estimate.se
    assert row["kappa_zero_share"] == 0.0


def test_settings_are_checked() -> None:
    with pytest.raises(InputError, match="no target is given"):
        reward_slope([], [])
    with pytest.raises(InputError, match="level is 1"):
        reward_slope([], "gae", level=1.0)
