"""Figures of the importance products against statsmodels and literal formulas."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from statsmodels.regression.linear_model import OLS

from brace_diag.estimators import importance_estimates as ie
from brace_diag.estimators.importance_state import ImportanceState
from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.rollouts import Rollouts

C_BAR = 1.1


def log_of(log_w: list[Any], prompts: list[int], **extra: Any) -> Rollouts:
    mu = [np.full(len(x), -3.0) for x in log_w]
    return Rollouts.from_lists(
        mu_logprobs=mu,
        pi_logprobs=[m + x for m, x in zip(mu, log_w, strict=True)],
        reward=np.zeros(len(mu)),
        prompt_id=prompts,
        **extra,
    )


def state_of(batch: Rollouts, lag: int | None = None) -> ImportanceState:
    n = batch.n_rollouts
    everyone = np.ones(n, np.bool_)
    state = ImportanceState(C_BAR, 1.2, lag)
    info = RolloutInfo(everyone, everyone, np.zeros(n), batch.prompt, np.zeros(n, np.int64))
    state.update(batch, info)
    state.sets.finish()
    return state


def autoregressive(rng: np.random.Generator, n: int, rho: float = 0.6) -> Any:
    x = rng.normal(0, 0.1, n)
    for t in range(1, n):
        x[t] += rho * x[t - 1]
    return x - 0.02


@pytest.mark.parametrize("lag", [0, 1, 24, None])
@pytest.mark.parametrize("n", [30, 700])
def test_long_run_sigma_equals_statsmodels_on_one_series(n: int, lag: int | None) -> None:
    x = autoregressive(np.random.default_rng(n), n)
    own = ie.figures(state_of(log_of([x], [0]), lag), 0.0)
    # The rule of Newey and West (1994): 3 at 30 tokens, 6 at 700.
    used = int(4 * (n / 100) ** (2 / 9)) if lag is None else lag
    for name, y in (("", np.minimum(x, np.log(C_BAR))), ("_uncapped", x)):
        fit = OLS(y, np.ones(n)).fit(
            cov_type="HAC", cov_kwds={"maxlags": used, "use_correction": False}
        )
        # Sums of squares about the mean, by expansion: rounding of 1e-16 n against the result.
        assert own.value(f"sigma_hac{name}") == pytest.approx(fit.bse[0] * np.sqrt(n), rel=1e-9)
        assert own.value(f"m{name}") == pytest.approx(y.mean(), rel=1e-12)
        assert own.value(f"sigma{name}") == pytest.approx(y.std(), rel=1e-10)


def test_autocovariances_add_up_over_rollouts_and_never_cross_them() -> None:
    rng = np.random.default_rng(1)
    xs = [autoregressive(rng, n) for n in (5, 40, 1, 17, 90)]
    prompts = [0, 0, 1, 1, 2]
    lag = 6
    own = ie.figures(state_of(log_of(xs, prompts), lag), 0.0)
    total, n = 0.0, sum(map(len, xs))
    for p in range(3):
        mine = [x for x, q in zip(xs, prompts, strict=True) if q == p]
        mean = np.concatenate(mine).mean()
        for x in mine:
            e = x - mean
            total += e @ e
            for h in range(1, min(lag, len(e) - 1) + 1):
                total += 2 * (1 - h / (lag + 1)) * (e[h:] @ e[:-h])
    assert own.value("sigma_hac_uncapped") == pytest.approx(np.sqrt(total / n), rel=1e-10)


def test_tau_is_the_spread_between_prompts_without_their_sampling_error() -> None:
    rng = np.random.default_rng(2)
    xs, prompts = [], []
    for p in range(40):
        for _ in range(3):
            xs.append(rng.normal(-0.05 + 0.02 * (p % 5), 0.1, int(rng.integers(3, 30))))
            prompts.append(p)
    own = ie.figures(state_of(log_of(xs, prompts)), 0.0)
    n = np.array([sum(len(x) for x in xs[3 * p : 3 * p + 3]) for p in range(40)], float)
    y = np.array([sum(x.sum() for x in xs[3 * p : 3 * p + 3]) for p in range(40)])
    v = np.array(
        [
            1.5 * sum((x.sum() - y[p] / n[p] * len(x)) ** 2 for x in xs[3 * p : 3 * p + 3])
            for p in range(40)
        ]
    ) / n**2  # fmt: skip
    total = n.sum()
    top = (y**2 / n).sum() - y.sum() ** 2 / total - (n * v).sum() + (n**2 * v).sum() / total
    wanted = top / (total - (n**2).sum() / total)
    assert own.value("tau_squared_uncapped") == pytest.approx(wanted, rel=1e-9)


def test_tau_is_unbiased_when_prompts_differ_and_when_they_do_not() -> None:
    rng = np.random.default_rng(3)
    for tau in (0.0, 0.03):
        found = []
        for _ in range(60):
            means = np.repeat(rng.normal(-0.1, tau, 30), 4) if tau else np.full(120, -0.1)
            xs = [rng.normal(m, 0.2, int(rng.integers(10, 60))) for m in means]
            own = ie.figures(state_of(log_of(xs, np.repeat(np.arange(30), 4).tolist())), 0.0)
            found.append(own.value("tau_squared_uncapped"))
        # Three standard errors of the mean of 60 draws.
        assert np.mean(found) == pytest.approx(tau**2, abs=3 * np.std(found) / np.sqrt(60))


def test_one_rollout_a_prompt_takes_its_sampling_error_from_the_long_run_variance() -> None:
    rng = np.random.default_rng(4)
    found = []
    for _ in range(60):
        xs = [rng.normal(m, 0.2, 400) for m in rng.normal(-0.1, 0.03, 60)]
        own = ie.figures(state_of(log_of(xs, list(range(60)))), 0.0)
        found.append(own.value("tau_squared_uncapped"))
    # The mean of a rollout is its own centre: its long-run variance is low by (L + 1)/T, 2 %.
    assert np.mean(found) == pytest.approx(9e-4, abs=3 * np.std(found) / np.sqrt(60) + 2e-6)


def test_a_constant_weight_has_no_spread() -> None:
    own = ie.figures(state_of(log_of([np.full(9, -0.1)] * 6, [0, 0, 1, 1, 2, 2])), 0.0)
    assert own.value("m") == pytest.approx(-0.1)
    for name in ("sigma", "sigma_hac", "tau_squared"):
        assert own.value(name) == 0.0


def test_discount_and_trace_decay_shift_m_alone(ragged: Callable[..., Any]) -> None:
    state = state_of(ragged(np.random.default_rng(5)).rollouts())
    plain, shifted = ie.figures(state, 0.0), ie.figures(state, np.log(0.9))
    for name in ie.NAMES:
        shift = np.log(0.9) if name in ("m", "m_uncapped") else 0.0
        np.testing.assert_allclose(
            shifted.value(name), plain.value(name) + shift, rtol=1e-14, err_msg=name
        )
    windows = ie.window_figures(state, np.log(0.9))
    unshifted = ie.window_figures(state, 0.0)
    for level in range(3):
        at = windows.column(level, 0, 0)
        factor = 0.9 ** (2**level)
        expected = unshifted.jack.value[at : at + 3].copy()
        expected[0] += np.log(factor)
        expected[2] *= factor
        np.testing.assert_allclose(windows.jack.value[at : at + 3], expected, rtol=1e-12)


def test_whole_rollout_figures_are_those_of_the_products(ragged: Callable[..., Any]) -> None:
    log = ragged(np.random.default_rng(6), n_prompts=10, drift=0.2)
    own = ie.figures(state_of(log.rollouts()), 0.0)
    w = np.exp([s.log_w.sum() for s in log.samples()])
    c = np.exp([np.minimum(s.log_w, np.log(C_BAR)).sum() for s in log.samples()])
    assert own.value("ess_rollout") == pytest.approx(w.mean() ** 2 / (w**2).mean(), rel=1e-11)
    assert own.value("ess_rollout_capped") == pytest.approx(
        c.mean() ** 2 / (c**2).mean(), rel=1e-11
    )
    wanted = np.log(np.mean((w - 1) ** 2))
    assert own.value("log_chi2_rollout") == pytest.approx(wanted, rel=1e-10)
    x = np.concatenate([s.log_w for s in log.samples()])
    one = np.exp(x)
    assert own.value("ess_token") == pytest.approx(one.mean() ** 2 / (one**2).mean(), rel=1e-12)
    assert own.value("kl_k1") == pytest.approx(-x.mean(), rel=1e-11)
    assert own.value("kl_k3") == pytest.approx((one - 1 - x).mean(), rel=1e-11)
    assert own.value("chi2_token") == pytest.approx(((one - 1) ** 2).mean(), rel=1e-12)


def test_half_life_is_where_the_mean_product_crosses_one_half() -> None:
    """Every product falls as .9^n: 6.58 tokens, whatever the grid of window lengths."""
    state = state_of(log_of([np.full(64, np.log(0.9))] * 12, np.repeat(range(6), 2).tolist()))
    found = ie.half_life(ie.window_figures(state, 0.0), 0)
    assert found is not None
    assert found.value[0] == pytest.approx(np.log(0.5) / np.log(0.9), rel=1e-12)
    slow = state_of(log_of([np.full(64, -0.001)] * 30, np.repeat(range(6), 5).tolist()))
    assert ie.half_life(ie.window_figures(slow, 0.0), 0) is None
