"""What a sweep says of logs whose fixed points are known exactly."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from brace_diag import InputError, SchemaError, Sweep, SweepSettings, sweep
from brace_diag.results_sweep import PAPER_DEFAULT
from brace_diag.rollouts import Rollouts
from brace_diag.tabular import (
    LatentFamily,
    TokenMDP,
    exact_gap_fixed_point,
    exact_truth,
    sample_log,
)

Make = Callable[..., Rollouts]


def family(seed: int, **changes: Any) -> TokenMDP:
    """A critic that is right for mu up to a tenth of the return's spread."""
    made = LatentFamily(n_prompts=64, critic_noise=0.05, critic_prompt_noise=0.0, **changes)
    return made.build(np.random.default_rng(seed))


def a_log(mdp: TokenMDP, n_prompts: int, seed: int = 5) -> Rollouts:
    rng = np.random.default_rng(seed)
    return Rollouts.from_arrow(sample_log(mdp, n_prompts, 8, rng, pool=True).to_table())


FAMILIES: list[tuple[str, dict[str, Any]]] = [
    ("partly aligned", {"horizon": 256, "drift": 0.03, "alignment": 0.7}),
    ("far along the value", {"horizon": 256, "drift": 0.03, "alignment": 0.9}),
    ("long", {"horizon": 512, "drift": 0.02, "alignment": 0.8}),
    ("random length", {"horizon": 256, "drift": 0.04, "alignment": 0.8, "hazard": 0.01}),
]


@pytest.mark.parametrize(("name", "changes"), FAMILIES, ids=[name for name, _ in FAMILIES])
def test_shares_are_within_a_tenth_of_the_exact_fixed_points(
    name: str, changes: dict[str, Any]
) -> None:
    """The grid's corners and middle, v <= 4. With 12,000 rollouts standard errors are below .04, so
    .1 holds the error of the mean field and two standard errors."""
    mdp = family(3, **changes)
    grid = SweepSettings(k=(16, 100, math.inf), rho_bar=(1.0, 2.0), c_bar=(1.0, 2.0))
    found = sweep(a_log(mdp, 1500), grid, threads=2)
    assert found.gate in ("good", "fair")
    assert abs(found.b_hat.value or 0.0) > 0.1 * exact_truth(mdp).s_within
    for point in found.points:
        exact = exact_gap_fixed_point(mdp, k=point.k, rho_bar=point.rho_bar, c_bar=point.c_bar)
        assert point.share.value == pytest.approx(exact.share, abs=0.1), point.label


@pytest.mark.parametrize("drift", [0.01, 0.03])
def test_known_truths_show(drift: float) -> None:
    """rho_bar = 1 loses about half however small the drift; c_bar = 1 with rho_bar = 2 nothing, at
    the least variance; a small k leaves most of the gap where it is."""
    mdp = family(7, horizon=256, drift=drift, alignment=0.8)
    found = sweep(a_log(mdp, 1000), threads=2)
    for c_bar in found.settings.c_bar:
        if c_bar <= 1.0:
            assert found.at(math.inf, 1.0, c_bar).share.value == pytest.approx(0.5, abs=0.15)
        assert found.at(math.inf, 2.0, c_bar).share.value == pytest.approx(1.0, abs=0.03)
    whole = {c: found.at(math.inf, 2.0, c).variance_ratio.value or 0.0 for c in (1.0, 1.1, 2.0)}
    assert whole[1.0] < whole[1.1] < whole[2.0]
    assert (found.at(16, 2.0, 1.0).share.value or 0.0) < 0.25
    shares = [found.at(k, 2.0, 1.0).share.value or 0.0 for k in (16, 64, 100, 256)]
    assert shares == sorted(shares)
    assert found.recommendation is not None
    assert found.recommendation.chosen.rho_bar > 1.0
    assert (found.recommendation.chosen.share.value or 0.0) >= 0.9
    assert found.recommendation.paper_default is found.at(*PAPER_DEFAULT)


def test_intervals_hold_the_exact_share() -> None:
    """30 logs of 128 prompts: nominal 95 %. Fewer than 24 of 30 has probability 1e-3 at 92 %."""
    mdp = family(11, horizon=128, drift=0.04, alignment=0.8)
    grid = SweepSettings(k=(64, math.inf), rho_bar=(2.0,), c_bar=(1.0,))
    exact = exact_gap_fixed_point(mdp, k=64, rho_bar=2.0, c_bar=1.0).share
    held = 0
    for seed in range(30):
        own = sweep(a_log(mdp, 128, seed), grid, threads=1).at(64, 2.0, 1.0).share
        assert own.ci_low is not None and own.ci_high is not None
        held += own.ci_low <= exact <= own.ci_high
    assert held >= 24


def test_windows_beyond_the_longest_response_are_all_the_same(rollouts: Make) -> None:
    found = sweep(rollouts(1, {"length": 24, "drift": 0.2}))
    assert found.longest == 24
    for rho_bar, c_bar in ((1.2, 1.1), (2.0, 1.0)):
        first, second = found.at(64, rho_bar, c_bar), found.at(math.inf, rho_bar, c_bar)
        assert first.share.value == pytest.approx(second.share.value, rel=1e-9)
        assert first.pull == second.pull
        assert (first.residual_bound, second.residual_bound) == (0.0, 0.0)
        assert (found.at(16, rho_bar, c_bar).residual_bound or 0.0) > 0.0


def test_threads_and_cuts_do_not_change_the_answer(rollouts: Make) -> None:
    def text(found: Sweep) -> str:
        return repr(found.to_dict())

    whole = rollouts(2, {"drift": 0.2})
    one = sweep(whole, threads=1)
    assert text(sweep(whole, threads=2)) == text(one)
    assert text(sweep([whole], threads=2)) == text(one)


def test_a_gap_that_is_not_told_apart_has_no_share(rollouts: Make) -> None:
    found = sweep(rollouts(3))
    assert found.recommendation is None
    assert found.no_recommendation is not None
    assert "not told apart from 0" in found.no_recommendation
    assert not any(point.share.reliable for point in found.points)
    assert all(point.variance_ratio.reliable for point in found.points)


def test_a_log_without_staleness_says_so(columns: Callable[..., dict[str, Any]]) -> None:
    made = columns(0)
    found = sweep(Rollouts.from_lists(**made | {"pi_logprobs": made["mu_logprobs"]}))
    assert found.recommendation is None
    assert found.invalid is not None and found.invalid.startswith("no staleness logged")
    assert found.no_recommendation == found.invalid


def test_columns_that_it_needs(rollouts: Make) -> None:
    for name in ("values", "pi_logprobs"):
        with pytest.raises(SchemaError, match=f"no column {name}, which a sweep needs"):
            sweep(rollouts(0, **{name: None}))


def test_the_frame_holds_every_point(rollouts: Make) -> None:
    found = sweep(rollouts(4, {"drift": 0.2}), k=(4, 8), rho_bar=(1.5,), c_bar=(1.0, 1.4))
    frame = found.to_frame()
    labels = [point.label for point in found.points]
    assert frame["target"].to_list() == labels
    assert PAPER_DEFAULT in {(p.k, p.rho_bar, p.c_bar) for p in found.points}
    assert len(labels) == 5
    assert frame["share"].to_list() == [point.share.value for point in found.points]
    with pytest.raises(InputError, match=r"k=5, rho_bar=1\.5, c_bar=1 is not of the grid"):
        found.at(5, 1.5, 1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": ()}, "k is empty"),
        ({"k": (0,)}, "k is 0; a sweep takes whole numbers from 1, and inf"),
        ({"k": (2.5,)}, "k is 2.5"),
        ({"rho_bar": (math.inf,)}, "rho_bar is inf; in a sweep it must be above 0 and finite"),
        ({"c_bar": (-1.0,)}, "c_bar is -1"),
        ({"c_bar": (3.0,)}, r"every c_bar \(3 and up\) is above every rho_bar \(up to 2\)"),
        ({"gamma": 0.0}, "gamma is 0"),
        ({"lam": 1.5}, "lam is 1.5"),
        ({"level": 1.0}, "level is 1.0"),
    ],
)
def test_settings_out_of_range(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SweepSettings(**changes)
