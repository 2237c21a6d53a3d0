"""Every branch of the ordered rule, by hand-made estimates."""

import math

import numpy as np
import pytest
from scipy import stats

from brace_diag.results import Estimate, Gate
from brace_diag.verdicts.rule import Bounds, bounds, probe_rollouts, rollouts_needed, verdict

CLUSTERS = 64
Q = float(stats.t.ppf(0.95, CLUSTERS - 1))
S_A = 0.4
D = 0.1 * S_A


def an_estimate(value: float | None, se: float | None, clusters: int = CLUSTERS) -> Estimate:
    reason = None if value is not None else "made to be missing"
    return Estimate(
        value, se, None, None, 0.95, 1000, 512, clusters, "by hand", value is not None, reason
    )


def the_bounds(
    b: float | None,
    se: float | None,
    *,
    v: float | None = 1.0,
    gate: Gate = "good",
    s_a: float | None = S_A,
    spread: tuple[float | None, float | None] = (0.0, 1e-5),
    miscalibrated: bool = False,
    margin: float = 0.1,
) -> Bounds:
    return bounds(
        an_estimate(b, se),
        an_estimate(s_a, None),
        an_estimate(*spread),
        v,
        gate,
        margin,
        miscalibrated=miscalibrated,
    )


def test_one_sided_bounds_use_the_students_quantile() -> None:
    x = the_bounds(-0.1, 0.02)
    assert x.d == pytest.approx(D)
    assert x.low == pytest.approx(0.1 - Q * 0.02)
    assert x.high == pytest.approx(0.1 + Q * 0.02)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_the_margin_decides_not_significance(sign: float) -> None:
    just_in, just_out = D - Q * 0.01 - 1e-9, D + Q * 0.01 + 1e-9
    assert verdict(the_bounds(sign * just_in, 0.01)) == "negligible"
    assert verdict(the_bounds(sign * just_out, 0.01)) == "needs_correction"
    assert verdict(the_bounds(sign * D, 0.01)) == "inconclusive"
    # Twenty standard errors from 0, and harmless all the same.
    assert verdict(the_bounds(sign * 0.01, 0.0005)) == "negligible"


def test_a_control_that_is_off_asks_more_of_a_correction_and_nothing_else() -> None:
    between = D + 2.0 * 0.01  # t_.95 = 1.67 and t_.99 = 2.39 at 64 clusters
    assert verdict(the_bounds(between, 0.01)) == "needs_correction"
    assert verdict(the_bounds(between, 0.01, miscalibrated=True)) == "inconclusive"
    assert verdict(the_bounds(D + 2.5 * 0.01, 0.01, miscalibrated=True)) == "needs_correction"
    assert verdict(the_bounds(D - 1.7 * 0.01, 0.01, miscalibrated=True)) == "negligible"


def test_a_refused_variance_comes_before_every_number() -> None:
    for b in (0.0, 0.5):
        assert verdict(the_bounds(b, 0.001, v=10.1, gate="refused")) == "needs_probe"


def test_between_four_and_ten_a_decided_gap_stays_decided() -> None:
    wide = {"v": 5.0, "gate": "direction"}
    assert verdict(the_bounds(0.3, 0.02, **wide)) == "needs_correction"  # type: ignore[arg-type]
    assert verdict(the_bounds(0.0, 0.01, **wide)) == "negligible"  # type: ignore[arg-type]
    assert verdict(the_bounds(D, 0.01, **wide)) == "needs_probe"  # type: ignore[arg-type]


def test_an_interval_as_wide_as_the_margin_needs_a_probe() -> None:
    assert verdict(the_bounds(D, D / Q * 1.001)) == "needs_probe"
    assert verdict(the_bounds(D, D / Q * 0.999)) == "inconclusive"


def test_gaps_of_prompts_that_cancel_are_not_negligible() -> None:
    hidden = (4.0 * D**2, 0.01 * D**2)
    assert verdict(the_bounds(0.0, 0.005, spread=hidden)) == "inconclusive"
    # Not shown to lie beyond the margin, and what cannot be asked, do not block.
    unsure = (4.0 * D**2, 4.0 * D**2)
    assert verdict(the_bounds(0.0, 0.005, spread=unsure)) == "negligible"
    assert verdict(the_bounds(0.0, 0.005, spread=(None, None))) == "negligible"
    # Nor does a spread that rests on weights which are not calibrated.
    assert verdict(the_bounds(0.0, 0.005, spread=hidden, miscalibrated=True)) == "negligible"


@pytest.mark.parametrize("s_a", [None, 0.0])
def test_without_a_margin_nothing_is_decided(s_a: float | None) -> None:
    assert verdict(the_bounds(0.5, 0.01, s_a=s_a)) == "inconclusive"


def test_without_a_standard_error_nothing_is_decided() -> None:
    assert verdict(the_bounds(0.5, None)) == "inconclusive"
    assert verdict(the_bounds(None, None)) == "inconclusive"


def test_the_rollouts_needed_would_decide() -> None:
    """With n times the rollouts the error is 1/sqrt(n): at the told n the bound is the margin."""
    for b in (0.5 * D, 1.5 * D):
        x = the_bounds(b, 0.015)
        n = rollouts_needed(x, 512)
        assert n is not None and n > 512
        se = 0.015 * math.sqrt(512 / n)
        assert verdict(the_bounds(b, se * 0.999)) != "inconclusive"
        assert verdict(the_bounds(b, se * 1.01)) == "inconclusive"


def test_no_number_where_more_rollouts_would_not_decide() -> None:
    assert rollouts_needed(the_bounds(D, 0.01), 512) is None
    assert rollouts_needed(the_bounds(D * 1.0001, 0.01), 512) is None
    assert rollouts_needed(the_bounds(0.0, 0.02, spread=(2 * D**2, 2 * D**2)), 512) is None
    assert rollouts_needed(the_bounds(None, None), 512) is None


def test_a_probe_of_the_told_size_resolves_the_margin() -> None:
    """SE = sqrt(2) s_A / sqrt(n) times t_.95 is the margin of .1 s_A."""
    n = probe_rollouts(CLUSTERS, 0.1)
    assert Q * math.sqrt(2.0 / n) <= 0.1 < Q * math.sqrt(2.0 / (n - 1))
    # Half the margin takes four times the rollouts, up to rounding.
    assert probe_rollouts(CLUSTERS, 0.05) == pytest.approx(4 * n, abs=4)


def test_the_rule_keeps_its_error_rate_at_the_margin() -> None:
    """b at the margin: each of the two claims is made by chance in one of twenty logs."""
    rng = np.random.default_rng(5)
    said = [verdict(the_bounds(D + 0.01 * z, 0.01)) for z in rng.standard_t(CLUSTERS - 1, 4000)]
    for claim in ("negligible", "needs_correction"):
        # Binomial error of .05 in 4000 is .0034; three of them.
        assert said.count(claim) / 4000 == pytest.approx(0.05, abs=0.011)  # type: ignore[arg-type]
