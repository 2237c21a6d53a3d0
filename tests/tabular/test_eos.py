"""One state and a random length: closed forms against dynamic programming and enumeration."""

from __future__ import annotations

import numpy as np
import pytest

from brace_diag.errors import InputError
from brace_diag.tabular import EosMDP, enumerate_paths, exact_truth

EOS = EosMDP(hazard_mu=0.05, hazard_pi=0.07, right_mu=0.5, right_pi=0.42)


def test_the_gap_is_the_same_at_every_position():
    """Cutting at 2,000 tokens leaves .95^1000 = 5e-23 of the responses alive at 1,000."""
    truth = exact_truth(EOS.build(horizon=2000, n_prompts=2))
    np.testing.assert_allclose(truth.gap_by_position[:1000], EOS.gap, rtol=0, atol=1e-12)
    assert truth.reward_mu == pytest.approx(0.5, abs=1e-12)
    assert truth.reward_pi == pytest.approx(0.42, abs=1e-12)
    assert truth.mean_length == pytest.approx(1 / 0.05, abs=1e-9)
    np.testing.assert_allclose(truth.alive_by_position[:50], 0.95 ** np.arange(50), rtol=1e-12)


def test_by_realised_horizon_importance_sampling_reads_something_else():
    """E[(W - 1) R | the response ends h tokens later], from the list of all responses."""
    mdp = EOS.build(horizon=12)
    paths = enumerate_paths(mdp)
    product = np.where(paths.states >= 0, paths.weight, 1.0).prod(1)
    reward = paths.reward.sum(1)
    for h in range(11):  # the twelfth token may also be a cut
        these = paths.length == h + 1
        mass = paths.probability[these]
        read = mass @ ((product - 1.0) * reward)[these] / mass.sum()
        assert read == pytest.approx(float(EOS.by_horizon(h)), abs=1e-12)
        assert mass.sum() == pytest.approx(float(EOS.horizon_probability(h)), abs=1e-12)
    near, far = EOS.by_horizon(np.array([0, 100]))
    assert near > 0 > EOS.gap > far  # even the sign is wrong near the end


def test_over_all_horizons_it_averages_to_the_gap():
    h = np.arange(4000)
    mean = (EOS.horizon_probability(h) * EOS.by_horizon(h)).sum()
    assert mean == pytest.approx(EOS.gap, abs=1e-12)


@pytest.mark.parametrize("name", ["hazard_mu", "hazard_pi", "right_mu", "right_pi"])
def test_probabilities_outside_their_range_are_refused(name):
    with pytest.raises(InputError, match=name):
        EosMDP(**{name: 1.0})
