"""`critic_fit`: against statsmodels, whatever the sharding, and on the logs people really have."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import statsmodels.api as sm

from brace_diag import critic_fit, open_run
from brace_diag.engines.inspect import inspect_run
from brace_diag.errors import InputError, SchemaError
from brace_diag.results_critic import FIT_NAMES, CriticFit
from brace_diag.rollouts import Rollouts
from brace_diag.settings import N_GROUPS, TargetSpec
from brace_diag.tabular import LatentFamily, return_moments, sample_log

DEMO = Path(__file__).parents[2] / "brace_diag" / "data" / "demo.parquet"
Columns = Callable[..., dict[str, Any]]


def one_token(values: list[float], returns: list[float], **extra: Any) -> Rollouts:
    return Rollouts.from_lists(
        mu_logprobs=[[-0.5]] * len(values),
        values=[[v] for v in values],
        reward=returns,
        prompt_id=list(range(len(values))),
        **extra,
    )


def test_explained_variance_is_the_same_for_any_sharding() -> None:
    """R = 0, .1 | 1, .9 and V = .05, .05 | .95, .95: 1 - .0025/.205; each shard alone gives 0."""
    values, returns = [0.05, 0.05, 0.95, 0.95], [0.0, 0.1, 1.0, 0.9]
    for cuts in ([], [2], [1, 3], [1, 2, 3]):
        bounds = [0, *cuts, 4]
        shards = [one_token(values[a:b], returns[a:b]) for a, b in pairwise(bounds)]
        ev = critic_fit(shards).fit.explained_variance
        # The values are float32: .05 and .95 to 3e-8.
        assert ev.value == pytest.approx(1 - 0.0025 / 0.205, abs=1e-7)
        assert round(ev.value, 6) == 0.987805
    for part in (slice(0, 2), slice(2, 4)):
        alone = critic_fit(one_token(values[part], returns[part])).fit.explained_variance
        assert alone.value == pytest.approx(0.0, abs=1e-6)


def distinct_prompts(n: int) -> list[int]:
    """Prompt ids whose hash groups differ, so that groups are prompts."""
    found: dict[int, int] = {}
    batch = Rollouts.from_lists(
        mu_logprobs=[[-0.5]] * 400, reward=[0.0] * 400, prompt_id=list(range(400))
    )
    for prompt, group in enumerate(batch.group.tolist()):
        found.setdefault(group, prompt)
    assert n <= len(found) <= N_GROUPS
    return list(found.values())[:n]


@pytest.fixture
def regression(columns: Columns) -> tuple[Rollouts, Any, Any, Any]:
    """A log whose returns vary along the rollout, and y, x and cluster of every token."""
    made = columns(n_prompts=64)
    made["prompt_id"] = np.repeat(distinct_prompts(64), 4).tolist()
    rng = np.random.default_rng(4)
    rewards = rng.normal(0, 0.3, (256, 24)) + np.repeat(rng.normal(0, 0.05, 64), 4)[:, None]
    batch = Rollouts.from_lists(**(made | {"reward": None, "rewards": list(rewards)}))
    y = rewards[:, ::-1].cumsum(axis=1)[:, ::-1].ravel()
    x = np.concatenate(made["values"]).astype(np.float64)
    return batch, y, x, np.repeat(made["prompt_id"], 24)


def test_calibration_is_statsmodels_ols_with_clustered_errors(
    regression: tuple[Rollouts, Any, Any, Any],
) -> None:
    batch, y, x, cluster = regression
    fit = critic_fit(batch).fit
    ols = sm.OLS(y, sm.add_constant(x))
    sandwich = ols.fit(cov_type="cluster", cov_kwds={"groups": cluster})
    for name, j in (("intercept", 0), ("slope", 1)):
        estimate = getattr(fit, name)
        # The same least squares from sums of 6,144 terms.
        assert estimate.value == pytest.approx(sandwich.params[j], rel=1e-9)
        # The jackknife and the sandwich differ by the clusters' leverage, of order 1/64.
        assert estimate.se == pytest.approx(sandwich.bse[j], rel=0.04)
        assert estimate.n_clusters == 64
    residual = y - x
    assert fit.explained_variance.value == pytest.approx(1 - residual.var() / y.var(), rel=1e-9)
    assert fit.mean_error.value == pytest.approx((x - y).mean(), rel=1e-9)


def test_the_errors_are_those_of_leaving_each_prompt_out(
    regression: tuple[Rollouts, Any, Any, Any],
) -> None:
    """The delete-one-cluster jackknife by refitting: equal to rounding."""
    batch, y, x, cluster = regression
    fit = critic_fit(batch).fit
    left = []
    for prompt in np.unique(cluster):
        rest = cluster != prompt
        params = sm.OLS(y[rest], sm.add_constant(x[rest])).fit().params
        left.append([*params, 1 - (y - x)[rest].var() / y[rest].var()])
    n = len(left)
    wanted = np.sqrt((n - 1) * np.var(left, axis=0))
    for name, se in zip(("intercept", "slope", "explained_variance"), wanted, strict=True):
        assert getattr(fit, name).se == pytest.approx(se, rel=1e-7)


def test_batches_files_and_threads_do_not_matter(tmp_path: Path) -> None:
    """1, 3 and 50 files: the same sums in another order, a few float64 roundings apart."""
    table = pq.read_table(DEMO)
    wanted = critic_fit(open_run(DEMO), by="step", threads=1)
    assert critic_fit(open_run(DEMO), by="step", threads=3).to_dict() == wanted.to_dict()
    for n_files in (3, 50):
        folder = tmp_path / str(n_files)
        folder.mkdir()
        for i, rows in enumerate(np.array_split(np.arange(table.num_rows), n_files)):
            pq.write_table(table.slice(rows[0], len(rows)), folder / f"{i:02d}.parquet")
        found = critic_fit(open_run(folder), by="step")
        assert found.to_dict() == wanted.to_dict()


def test_a_broken_critic_is_told_and_not_called_stale() -> None:
    """V = -16, 13.8 for returns 0 and 1."""
    result = critic_fit(one_token([-16.0, 13.8], [0.0, 1.0]))
    assert result.fit.share_outside.value == 1.0
    assert result.fit.explained_variance.value < 0
    assert result.invalid is not None and result.invalid.startswith("CRITIC_INVALID: 100 %")
    assert "not stale" in result.invalid
    assert result.notes[0] == result.invalid
    assert any("explained variance is below 0" in note for note in result.notes)


def test_a_critic_that_gives_nan_is_told(columns: Columns) -> None:
    made = columns()
    made["values"][5] = np.full(24, np.nan, np.float32)
    result = critic_fit(Rollouts.from_lists(**made))
    assert result.fit.explained_variance.n_rollouts == 95
    assert np.isfinite(result.fit.explained_variance.value)
    assert any("24 critic values are missing" in note for note in result.notes)
    made["values"] = [np.full(24, np.nan, np.float32)] * 96
    nothing = critic_fit(Rollouts.from_lists(**made))
    assert all(getattr(nothing.fit, name).value is None for name in FIT_NAMES)
    assert nothing.calibration.cells == () and nothing.extent.value_low is None


def test_without_pi_the_fit_is_whole_and_ratios_are_refused_by_name(columns: Columns) -> None:
    made = columns()
    with_pi = critic_fit(Rollouts.from_lists(**made), ["mc", "gae:lam=0.9"])
    bare = Rollouts.from_lists(**{k: v for k, v in made.items() if k != "pi_logprobs"})
    without = critic_fit(bare, ["mc", "gae:lam=0.9"])
    assert without.fit == with_pi.fit
    assert without.calibration == with_pi.calibration
    assert {k: v.distance for k, v in without.targets.items()} == {
        k: v.distance for k, v in with_pi.targets.items()
    }
    assert any("the log has no pi_logprobs" in note for note in without.notes)
    assert without.quality.rollouts_without_w == 0
    assert list(critic_fit(bare).targets) == ["mc"]
    for name in ("vtrace", "capped", "brace"):
        label = TargetSpec.of(name).label
        with pytest.raises(SchemaError, match=f"no column pi_logprobs, which the target {label}"):
            critic_fit(bare, [name])


def test_without_a_critic_it_is_refused(columns: Columns) -> None:
    bare = Rollouts.from_lists(**{k: v for k, v in columns().items() if k != "values"})
    with pytest.raises(SchemaError, match="no column values, which the critic's fit needs"):
        critic_fit(bare)


def test_constant_returns_have_no_explained_variance(columns: Columns) -> None:
    result = critic_fit(Rollouts.from_lists(**(columns() | {"reward": [1.0] * 96})))
    ev = result.fit.explained_variance
    assert ev.value is None and not ev.reliable
    assert ev.reason == "all returns are equal: there is no variance to explain"
    assert all(cell.estimate.value is None for cell in result.explained_variance.cells)
    assert result.fit.share_outside.value is None
    assert result.invalid is None
    # What needs no variance of the return is there.
    for estimate in (result.fit.slope, result.fit.intercept):
        assert estimate.value is None
        assert estimate.reason == "all returns are equal: there is nothing to calibrate"
    assert result.fit.mean_error.value is not None
    assert result.targets["mc"].distance.value is not None


def test_returns_that_one_prompt_alone_varies_have_no_error(columns: Columns) -> None:
    rewards = [1.0] * 92 + [0.0, 1.0, 0.0, 1.0]
    ev = critic_fit(Rollouts.from_lists(**(columns() | {"reward": rewards}))).fit.explained_variance
    assert ev.value is not None and ev.se is None and not ev.reliable
    assert ev.reason == "no standard error: without one of the prompts nothing varies"


def test_a_constant_critic_explains_nothing_and_has_no_slope(columns: Columns) -> None:
    flat = [np.full(24, 0.25, np.float32)] * 96
    result = critic_fit(Rollouts.from_lists(**(columns() | {"values": flat})))
    assert result.fit.explained_variance.value == pytest.approx(0.0, abs=1e-12)
    assert result.fit.slope.value is None
    assert result.fit.slope.reason == "all critic values are equal: there is no slope"
    (cell,) = result.calibration.cells
    assert cell.companions["mean_critic"] == pytest.approx(0.25, rel=1e-9)
    assert cell.companions["share"] == 1.0


def test_a_large_offset_costs_no_digits(columns: Columns) -> None:
    """Returns and values a million away: the same EV, to float64 rounding of the offset itself."""
    made = columns()
    values = [v.astype(np.float64) for v in made["values"]]
    plain = critic_fit(Rollouts.from_lists(**(made | {"values": values}))).fit
    far = critic_fit(
        Rollouts.from_lists(
            **(made | {"values": [v + 1e6 for v in values],
                       "reward": [r + 1e6 for r in made["reward"]]})
        )
    ).fit  # fmt: skip
    # Values are stored to 1e-10 there, of spreads of .1.
    assert far.explained_variance.value == pytest.approx(plain.explained_variance.value, rel=1e-7)
    assert far.slope.se == pytest.approx(plain.slope.se, rel=1e-7)


def test_the_reachable_range_holds_every_return_to_go() -> None:
    """Step rewards +1, -1: the sum is 0, but a return to go of -1 is reached, and 2 is not."""
    batch = Rollouts.from_lists(
        mu_logprobs=[[-0.5, -0.5]] * 4,
        values=[[0.0, -1.0], [0.5, -0.9], [1.0, 1.0], [2.0, 0.0]],
        rewards=[[1.0, -1.0], [1.0, -1.0], [0.0, 1.0], [0.0, 0.5]],
        prompt_id=[0, 1, 2, 3],
    )
    result = critic_fit(batch)
    assert (result.extent.return_low, result.extent.return_high) == (-1.0, 1.0)
    assert result.fit.share_outside.value == pytest.approx(1 / 8)
    discounted = critic_fit(batch, gamma=0.5)
    # G = 1 - .5, -1; .5, 1; .25, .5
    assert (discounted.extent.return_low, discounted.extent.return_high) == (-1.0, 1.0)
    assert discounted.fit.mean_error.value == pytest.approx(
        np.mean([0, -1, 0.5, -0.9, 1, 1, 2, 0]) - np.mean([0.5, -1, 0.5, -1, 0.5, 1, 0.25, 0.5])
    )


def test_the_exact_critic_is_calibrated() -> None:
    """V = V^mu: slope 1, intercept 0, no error, a calibration on the diagonal; EV from truth."""
    rng = np.random.default_rng(11)
    mdp = LatentFamily(n_prompts=96, horizon=32, drift=0.02).build(rng)
    v_mu, _ = return_moments(mdp, "mu")
    log = sample_log(mdp.with_critic(v_mu), 96, 16, rng)
    result = critic_fit(open_run(log.to_table()), ["mc", "brace:k=8"])
    for name, wanted in (("slope", 1.0), ("intercept", 0.0), ("mean_error", 0.0)):
        estimate = getattr(result.fit, name)
        # Three true statements at 99.9 %: 3.4 standard errors with 90 degrees of freedom.
        assert abs(estimate.value - wanted) < 3.4 * estimate.se, name
    z = [
        (cell.estimate.value - cell.companions["mean_critic"]) / cell.estimate.se
        for cell in result.calibration.cells
        if cell.estimate.se
    ]
    assert len(z) > 10
    # Twelve or more nearly independent statements: the largest of 20 passes 3.9 in 1 of 200 logs.
    assert max(map(abs, z)) < 3.9
    # Along a rollout the critic learns more: EV grows from the prompt to the last token.
    first, last = (result.explained_variance.cells[i].estimate for i in (0, -1))
    assert last.value > first.value + 2 * np.hypot(last.se, first.se)


def test_by_staleness_the_parts_are_their_own_logs(columns: Columns) -> None:
    made = columns()
    behavior = np.where(np.arange(96) % 3 == 0, 6, 9)
    dated = made | {"trainer_version": [9] * 96, "behavior_version": behavior.tolist()}
    result = critic_fit(Rollouts.from_lists(**dated), ["brace:k=4"], by="staleness")
    assert [entry.key for entry in result.by] == [0, 3]
    label = "brace:k=4,rho_bar=1.2,c_bar=1.1"
    total = 0
    for entry in result.by:
        rows = np.flatnonzero(9 - behavior == entry.key)
        part = {k: [v[i] for i in rows] for k, v in made.items()}
        alone = critic_fit(Rollouts.from_lists(**part), ["brace:k=4"])
        for name in FIT_NAMES:
            mine, theirs = getattr(entry.fit, name), getattr(alone.fit, name)
            if name == "share_outside":
                continue  # its range of returns is the whole log's
            # Another centre and one cell in place of many: float64 rounding.
            assert mine.value == pytest.approx(theirs.value, rel=1e-9)
            assert mine.se == pytest.approx(theirs.se, rel=1e-6)
        density = entry.targets[label].density
        assert density is not None
        total += density.count.sum()
        assert density.count.sum() == 24 * len(rows)
    whole = result.targets[label].density
    assert whole is not None and whole.count.sum() == total == 96 * 24
    assert result.notes[-1] == "staleness is that of the version logged for each rollout"


def test_by_step_keeps_no_pictures(columns: Columns) -> None:
    made = columns() | {"step": [i // 48 for i in range(96)]}
    result = critic_fit(Rollouts.from_lists(**made), by="step")
    assert [entry.key for entry in result.by] == [0, 1]
    assert all(t.density is None for entry in result.by for t in entry.targets.values())
    document = result.to_dict()["by"]
    assert document["key"] == "step"
    assert document["entries"][1]["targets"]["mc"]["distance"]["n_rollouts"] == 48


def test_unknown_keys_are_said(columns: Columns) -> None:
    versions = [9] * 90 + [None] * 6
    made = columns() | {"trainer_version": versions, "behavior_version": [9] * 96}
    result = critic_fit(Rollouts.from_lists(**made), by="staleness")
    assert result.by[0].fit.slope.n_rollouts == 90
    assert any("6 rollouts have no known key" in note for note in result.notes)


def test_a_missing_ratio_leaves_one_target_and_no_other(columns: Columns) -> None:
    made = columns()
    made["pi_logprobs"][3][7] = np.nan
    result = critic_fit(Rollouts.from_lists(**made))
    mc, brace = result.targets.values()
    assert (mc.distance.n_rollouts, brace.distance.n_rollouts) == (96, 95)
    assert result.fit.slope.n_rollouts == 96
    assert any("1 of 96 rollouts are left out" in note for note in result.notes)


def test_copies_count_once(columns: Columns) -> None:
    made = columns()
    doubled = {k: [*v, *v[:10]] for k, v in made.items()}
    result = critic_fit(Rollouts.from_lists(**doubled))
    once = critic_fit(Rollouts.from_lists(**made)).fit
    for name in FIT_NAMES:
        mine, theirs = getattr(result.fit, name), getattr(once, name)
        assert mine.n_rollouts == theirs.n_rollouts == 96
        # Sums about another centre: float64 rounding.
        assert mine.value == pytest.approx(theirs.value, rel=1e-9)
        assert mine.se == pytest.approx(theirs.se, rel=1e-9)
    assert any("10 rows repeat" in note for note in result.notes)


def test_frames_and_arguments(columns: Columns) -> None:
    batch = Rollouts.from_lists(**columns())
    result = critic_fit(batch)
    assert isinstance(result, CriticFit)
    frame = result.to_frame()
    assert isinstance(frame, pl.DataFrame)
    assert frame["n_tokens"].sum() == 96 * 24
    assert frame["mc"].to_list() == [
        c.estimate.value for c in result.targets["mc"].by_position.cells
    ]
    for change in ({"gamma": 0.0}, {"level": 1.0}, {"by": "epoch"}, {"staleness": "middle"}):
        with pytest.raises(InputError, match=next(iter(change))):
            critic_fit(batch, **change)
    with pytest.raises(InputError, match="the name is one of"):
        critic_fit(batch, ["bracee"])


def test_inspect_does_not_miss_weights_that_nobody_logged(columns: Columns) -> None:
    table = pa.table({"mu_logprobs": [[-0.5]], "reward": [1.0]})
    assert inspect_run(open_run(table)).quality.rollouts_without_w == 0
