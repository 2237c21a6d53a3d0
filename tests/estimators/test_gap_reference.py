"""The identity behind the whole family, on its literal definition."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from brace_diag.estimators.gap_reference import doubly_robust_return, gap_at, state_weights


@pytest.mark.parametrize("gamma", [1.0, 0.97])
@pytest.mark.parametrize("dense", [False, True])
def test_doubly_robust_less_return_is_the_sum_of_weighted_advantages(
    ragged: Callable[..., Any], gamma: float, dense: bool
) -> None:
    """DR_t - G_t = Σ_{l>=t} γ^(l-t) C_{t:l} u_l (G_l - V_l), for any V, rewards and bootstrap."""
    log = ragged(np.random.default_rng(0), gamma=gamma, dense=dense, bootstrap=True)
    for sample, rewards, last in zip(log.samples(), log.rewards, log.bootstrap, strict=True):
        robust = doubly_robust_return(sample, rewards, last, gamma)
        for t in range(len(rewards)):
            c = state_weights(sample, t, "doubly_robust", np.inf)
            u = np.expm1(sample.log_w[t:])
            discount = gamma ** np.arange(len(u))
            terms = discount * c * u * (sample.returns[t:] - sample.values[t:])
            # At most 30 terms of order 1 in float64.
            assert robust[t] - sample.returns[t] == pytest.approx(terms.sum(), abs=1e-12)


def test_without_drift_every_member_is_zero(ragged: Callable[..., Any]) -> None:
    log = ragged(np.random.default_rng(1), drift=0.0)
    log.pi = [mu.copy() for mu in log.mu]
    for weight in ("first_order", "doubly_robust", "wdr"):
        assert gap_at(log.samples(), 0, weight)[0] == 0.0
