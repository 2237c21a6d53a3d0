"""k-hat against arviz-stats, and where it does not exist."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from brace_diag.estimators.pareto import (
    generalised_pareto_shape,
    pareto_k,
    pareto_k_limit,
    tail_length,
)


@pytest.mark.parametrize("n", [60, 512, 5000])
@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
def test_equals_arviz(n: int, spread: float) -> None:
    log_weights = np.random.default_rng(n).normal(0, spread, n)
    _, wanted = array_stats.psislw(-log_weights)  # it takes log-likelihoods
    largest = np.sort(log_weights)[-1024:]
    # The same fit; arviz smooths in float64 in another order.
    assert pareto_k(largest, n) == pytest.approx(float(wanted), abs=1e-8)


def test_a_tail_that_is_too_short_or_flat_has_no_k() -> None:
    assert pareto_k(np.zeros(100), 100) is None
    assert pareto_k(np.arange(5.0), 5) is None
    assert pareto_k(np.full(100, -np.inf), 100) is None


def test_weights_equal_to_the_cutoff_are_no_exceedances() -> None:
    """Half of the tail ties with the cutoff: k is that of the other half, and warns of nothing."""
    tail = np.sort(np.random.default_rng(3).exponential(0.5, 40)) + 1.0
    tied = np.concatenate([np.zeros(600), np.ones(60), tail])
    found = pareto_k(tied[-1024:], len(tied))
    excess = np.exp(tail - tail[-1]) - np.exp(1.0 - tail[-1])
    assert found == pytest.approx(generalised_pareto_shape(excess), rel=1e-12)
    assert pareto_k(np.concatenate([np.zeros(600), np.ones(90), [2.0] * 3]), 693) is None


def test_limits() -> None:
    assert pareto_k_limit(10) == 0.0
    assert pareto_k_limit(512) == pytest.approx(1 - 1 / np.log10(512))
    assert pareto_k_limit(10**6) == 0.7
    assert tail_length(0) == 0
    assert tail_length(100) == 20
    assert tail_length(10_000) == 300
