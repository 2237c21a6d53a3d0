"""What an audit says of logs whose right answer is known."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from brace_diag import InputError, Rollouts, SchemaError, audit, open_run, sweep
from brace_diag.results_audit import Audit, AuditCheck
from brace_diag.tabular import LatentFamily, RatioNoise, TokenMDP, exact_truth, sample_log

DEMO = Path(__file__).parents[2] / "brace_diag" / "data" / "demo.parquet"
Changed = Callable[..., Rollouts]


def family(drift: float, alignment: float, **changes: Any) -> TokenMDP:
    made = LatentFamily(
        n_prompts=256, horizon=128, drift=drift, alignment=alignment, **changes
    )  # fmt: skip
    return made.build(np.random.default_rng(17))


def a_log(mdp: TokenMDP, seed: int, n_prompts: int = 64, noise: RatioNoise | None = None) -> Any:
    rng = np.random.default_rng(seed)
    return sample_log(mdp, n_prompts, 8, rng, pool=True, noise=noise).to_table()


def judged(mdp: TokenMDP, seed: int, **options: Any) -> Audit:
    return audit(Rollouts.from_arrow(a_log(mdp, seed, **options)), threads=1)


def check(found: Audit, name: str) -> AuditCheck:
    return {c.id: c for c in found.checks}[name]


@pytest.fixture(scope="module")
def stale() -> TokenMDP:
    return family(0.04, 0.8)


@pytest.fixture
def changed(stale: TokenMDP) -> Changed:
    """`changed(column=replacement)`: a stale log as lists; None drops a column."""

    def make(**changes: Any) -> Rollouts:
        made = a_log(stale, 3).to_pydict() | changes
        keep = {k: v for k, v in made.items() if v is not None and k in COLUMNS}
        return Rollouts.from_lists(**keep)

    return make


COLUMNS = ("mu_logprobs", "pi_logprobs", "values", "reward", "prompt_id", "rollout_id",
           "trainer_version", "behavior_version", "loss_mask", "step")  # fmt: skip


def test_a_large_gap_needs_correction_and_a_small_one_none(stale: TokenMDP) -> None:
    truth = exact_truth(stale)
    assert truth.gap > 0.2 * truth.s_within
    for seed in range(3):
        found = judged(stale, seed)
        assert found.verdict == "needs_correction"
        assert found.overall.reason.startswith("pi earns")
        assert "a critic fitted to this log is too low" in found.overall.reason
    small = family(0.004, 0.2)
    truth = exact_truth(small)
    assert 0.0 < truth.gap < 0.03 * truth.s_within
    for seed in range(3):
        found = judged(small, seed, n_prompts=256)
        assert found.verdict == "negligible"
        assert found.overall.next is None


def test_needs_correction_comes_with_the_settings_of_a_sweep(
    stale: TokenMDP, changed: Changed
) -> None:
    found = judged(stale, 0)
    advised = sweep(Rollouts.from_arrow(a_log(stale, 0)), threads=1).recommendation
    assert found.recommendation is not None and advised is not None
    assert found.recommendation.to_dict() == advised.to_dict()
    assert found.overall.next == (
        f"train the critic on {advised.label}: brace-diag targets computes it"
    )
    assert judged(family(0.004, 0.2), 0, n_prompts=256).recommendation is None
    log = Rollouts.from_arrow(a_log(stale, 0))
    assert audit(log, advice=False).recommendation is None
    # Without a critic there is no target to sweep; the verdict stands.
    without = audit(changed(values=None))
    assert (without.verdict, without.recommendation) == ("needs_correction", None)


@pytest.mark.parametrize(
    ("mdp", "noise"),
    [
        (family(0.0, 0.0), RatioNoise(0.02)),
        (family(0.0, 0.0), RatioNoise(0.05)),
        (family(0.0, 0.0), RatioNoise(0.02, "student_t")),
        (family(0.03, 0.0, neutral=True), None),
    ],
    ids=["noise .02", "noise .05", "t3 noise .02", "value-neutral drift"],
)
def test_nothing_to_correct_is_never_corrected(mdp: TokenMDP, noise: RatioNoise | None) -> None:
    for seed in range(8):
        found = judged(mdp, seed, noise=noise)
        assert found.verdict in ("negligible", "inconclusive")


def test_pi_equal_to_mu_is_called_untested() -> None:
    found = judged(family(0.0, 0.0), 1)
    assert found.verdict == "no_staleness"
    assert found.overall.reason.startswith("no staleness logged")
    assert "nothing was tested" in found.overall.reason


def test_too_much_variance_asks_for_a_number_of_fresh_rollouts() -> None:
    found = judged(family(0.2, 0.3), 1)
    assert found.overall.within_var_log_product is not None
    assert found.overall.within_var_log_product > 10.0
    assert found.verdict == "needs_probe"
    assert found.overall.gate == "refused"
    assert found.overall.rollouts_needed == found.probe_rollouts
    assert f"about {found.probe_rollouts:,} fresh rollouts from pi" in str(found.overall.next)
    assert check(found, "log_product_variance").status == "fail"


def test_the_verdict_is_the_same_however_the_log_is_cut(stale: TokenMDP, tmp_path: Path) -> None:
    table = a_log(stale, 5)
    whole = tmp_path / "whole.parquet"
    pq.write_table(table, whole)
    parts = tmp_path / "parts"
    parts.mkdir()
    for i, (start, n) in enumerate(((0, 3), (3, 300), (303, 209))):
        pq.write_table(table.slice(start, n), parts / f"{i}.parquet", row_group_size=64)
    expected = audit(open_run(whole), threads=1).to_dict()
    for other in (
        audit(open_run(whole), threads=2),
        audit(open_run(parts), threads=2),
        audit([Rollouts.from_arrow(table.slice(i, 100)) for i in range(0, 512, 100)]),
    ):
        same(other.to_dict(), expected)


def same(found: Any, expected: Any) -> None:
    """Equal words; numbers equal to 1e-9, the promise for sums taken in another order."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            same(found[key], expected[key])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    else:
        assert found == expected


@pytest.mark.parametrize("missing", ["pi_logprobs", "mu_logprobs"])
def test_without_one_policy_it_says_what_is_missing_and_what_is_left(
    changed: Changed, missing: str
) -> None:
    found = audit(changed(**{missing: None}))
    assert found.verdict == "invalid"
    assert f"no {missing}" in found.overall.reason
    assert "still can" in found.overall.reason
    assert f"--map {missing}=NAME" in str(found.overall.next)
    assert found.overall.b_hat.value is None
    assert check(found, "explained_variance").value is not None


def test_without_values_the_gap_is_judged_and_the_critic_is_not(changed: Changed) -> None:
    found = audit(changed(values=None))
    assert found.verdict == "needs_correction"
    told = check(found, "explained_variance")
    assert told.status == "note" and told.value is None
    assert "no critic values" in told.message


def test_without_prompts_the_spread_over_prompts_is_not_claimed(changed: Changed) -> None:
    found = audit(changed(prompt_id=None))
    assert found.overall.prompt_mean_square.value is None
    assert found.overall.prompt_mean_square.reason
    assert check(found, "clusters").status != "ok"


def test_one_prompt_has_no_standard_error(changed: Changed) -> None:
    found = audit(changed(prompt_id=[7] * 512))
    assert found.verdict == "invalid"
    assert "one prompt" in found.overall.reason
    assert "64 or more" in str(found.overall.next)


def test_returns_that_never_vary_leave_no_margin(changed: Changed) -> None:
    found = audit(changed(reward=[1.0] * 512))
    assert found.verdict == "inconclusive"
    assert "do not vary within a prompt" in found.overall.reason
    assert found.overall.rollouts_needed is None


def test_a_shift_is_invalid_and_named(changed: Changed) -> None:
    table = a_log(family(0.02, 0.3), 2).to_pydict()
    shifted = [np.roll(pi, -1) for pi in table["pi_logprobs"]]
    found = audit(changed(**(table | {"pi_logprobs": shifted})))
    assert found.verdict == "invalid"
    assert "MISALIGNED lag=+1" in found.overall.reason
    assert check(found, "alignment").status == "fail"
    assert check(found, "alignment").value == 1


def test_pi_copied_from_mu_on_stale_rollouts_is_no_evidence(changed: Changed) -> None:
    mu = a_log(family(0.04, 0.8), 3).to_pydict()["mu_logprobs"]
    versions = {"trainer_version": [9] * 512, "behavior_version": [5] * 512}
    found = audit(changed(pi_logprobs=mu, **versions))
    assert found.verdict == "invalid"
    assert "copied, not recomputed" in found.overall.reason
    # Where nothing is known to be stale the same columns are no staleness.
    unknown = audit(changed(pi_logprobs=mu, trainer_version=None, behavior_version=None))
    assert unknown.verdict == "no_staleness"


def test_fills_are_invalid_where_they_cost_rollouts_and_noted_where_not(changed: Changed) -> None:
    table = a_log(family(0.04, 0.8), 3).to_pydict()
    for n, invalid in ((10, False), (100, True)):
        mu = [np.array(x) for x in table["mu_logprobs"]]
        for row in mu[:n]:
            row[5] = -9999.0
        found = audit(changed(mu_logprobs=mu))
        assert (found.verdict == "invalid") is invalid
        assert check(found, "fills").value == n
        assert check(found, "fills").status in (("fail",) if invalid else ("warn", "note"))


def test_a_cut_support_is_an_engine_mismatch_with_its_cause(changed: Changed) -> None:
    """mu renormalised after top-p: every sampled token is .95 as likely under pi."""
    table = a_log(family(0.0, 0.0), 3).to_pydict()
    pi = [np.array(x) + np.log(0.95) for x in table["mu_logprobs"]]
    found = audit(changed(**(table | {"pi_logprobs": pi})))
    assert found.verdict == "invalid"
    assert "engine mismatch: mean pi/mu over tokens is 0.9500" in found.overall.reason
    assert "top-p" in found.overall.reason


def test_a_broken_critic_is_invalid_and_a_poor_one_is_not(changed: Changed) -> None:
    table = a_log(family(0.04, 0.8), 3).to_pydict()
    lengths = [len(x) for x in table["values"]]
    broken = audit(changed(values=[np.full(n, 7.5) for n in lengths]))
    assert broken.verdict == "invalid"
    assert broken.overall.reason.startswith("CRITIC_INVALID")
    missing = audit(changed(values=[np.full(n, np.nan) for n in lengths]))
    assert missing.verdict == "invalid"
    rng = np.random.default_rng(0)
    poor = audit(changed(values=[rng.random(n) for n in lengths]))
    assert poor.verdict == "needs_correction"
    assert check(poor, "explained_variance").status == "warn"


def test_copied_rows_are_named_and_change_no_number(stale: TokenMDP, changed: Changed) -> None:
    table = a_log(stale, 3)
    twice = audit([Rollouts.from_arrow(table), Rollouts.from_arrow(table.slice(0, 100))])
    # A prompt's other rollouts are counted beforehand, copies and all, and are no control then.
    once = audit(Rollouts.from_arrow(table), baseline="critic")
    assert twice.overall.b_hat.value == pytest.approx(once.overall.b_hat.value, rel=1e-12)
    assert check(twice, "duplicates").value == 100
    assert check(twice, "duplicates").status == "warn"


def test_a_loss_mask_that_cuts_the_reward_is_named(changed: Changed) -> None:
    keeps = [np.ones(128, bool) for _ in range(512)]
    assert check(audit(changed(loss_mask=keeps)), "loss_mask").status == "ok"
    for row in keeps[:400]:
        row[-1] = False
    told = check(audit(changed(loss_mask=keeps)), "loss_mask")
    assert told.status == "warn"
    assert "the terminal reward enters no loss there" in told.message


def test_noise_blocks_the_spread_and_is_marked() -> None:
    found = judged(family(0.0, 0.0), 4, noise=RatioNoise(0.05))
    assert check(found, "control").status == "warn"
    assert "marked: the mean sum of pi/mu - 1" in found.overall.reason


def test_a_step_can_differ_from_the_whole(stale: TokenMDP) -> None:
    still = family(0.0, 0.0)
    tables = [a_log(still, 1), a_log(stale, 2)]
    for i, table in enumerate(tables):
        n = table.column_names.index("step")
        tables[i] = table.set_column(n, "step", [np.full(512, 10 * i)])
        n = table.column_names.index("prompt_id")
        shifted = np.asarray(table["prompt_id"]) + 1000 * i
        tables[i] = tables[i].set_column(n, "prompt_id", [shifted])
        n = table.column_names.index("rollout_id")
        tables[i] = tables[i].set_column(n, "rollout_id", [np.arange(512) + 1000 * i])
    found = audit([Rollouts.from_arrow(t) for t in tables], by="step")
    assert list(found.by) == [0, 10]
    assert found.by[0].verdict == "no_staleness"
    assert found.by[10].verdict == "needs_correction"
    assert [entry["key"] for entry in found.to_dict()["by"]["entries"]] == [0, 10]


def test_the_demo_log_needs_a_probe() -> None:
    """Sixteen updates of staleness: too much variance to read a size from."""
    found = audit(open_run(DEMO))
    assert found.verdict == "needs_probe"
    assert found.overall.rollouts_needed is not None and found.overall.rollouts_needed > 300


def test_every_check_says_what_it_was_held_against(stale: TokenMDP) -> None:
    found = judged(stale, 0)
    for one in found.checks:
        if one.threshold is not None:
            assert one.source, one.id
        if one.status in ("warn", "fail"):
            assert one.next, one.id
    frame = found.to_frame()
    assert frame["id"].to_list() == [one.id for one in found.checks]


@pytest.mark.parametrize("margin", [0.0, -0.1, float("nan")])
def test_a_margin_that_is_none_is_refused(stale: TokenMDP, margin: float) -> None:
    with pytest.raises(InputError, match="margin"):
        audit(Rollouts.from_arrow(a_log(stale, 0)), margin=margin)


def test_by_step_needs_a_step(changed: Changed) -> None:
    with pytest.raises(SchemaError, match="step"):
        audit(changed(step=None), by="step")


def test_without_returns_nothing_is_judged(changed: Changed, tmp_path: Path) -> None:
    found = audit(changed(reward=[float("nan")] * 512))
    assert found.verdict == "invalid"
    assert found.overall.reason == "no return is known: every reward is missing"
    path = tmp_path / "run.parquet"
    pq.write_table(a_log(family(0.04, 0.8), 0).drop_columns(["reward"]), path)
    with pytest.raises(SchemaError, match="reward"):
        audit(open_run(path))
