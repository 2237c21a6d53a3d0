"""Counts in fixed bins against the numbers themselves."""

import numpy as np
import pytest

from brace_diag.estimators import importance_bins as bins


def counts_of(values: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    counts = np.zeros(bins.N_BINS, np.int64)
    bins.add_counts(values, len(values), counts)
    return counts


def test_every_edge_opens_its_own_bin() -> None:
    edges = bins.magnitudes()
    assert len(edges) == bins.SIDE + 1
    assert (np.diff(edges) > 0).all()
    inner = edges[:-1]
    np.testing.assert_array_equal(np.flatnonzero(counts_of(inner)), bins.ZERO + 1 + np.arange(352))
    np.testing.assert_array_equal(np.flatnonzero(counts_of(-inner)), np.arange(352))
    below = np.nextafter(edges[1:], 0.0)
    np.testing.assert_array_equal(counts_of(below), counts_of(inner))


def test_what_is_beyond_goes_to_the_last_bins() -> None:
    counts = counts_of(np.array([1e30, -1e30, 1e-30, -1e-30, 0.0, -0.0]))
    assert counts[[0, bins.N_BINS - 1]].tolist() == [1, 1]
    assert counts[bins.ZERO - 1 : bins.ZERO + 2].tolist() == [1, 2, 1]


@pytest.mark.parametrize("spread", [0.001, 0.1, 30.0])
def test_quantiles_and_shares_are_those_of_the_sample(spread: float) -> None:
    x = np.random.default_rng(3).normal(-spread / 2, spread, 20_000)
    x[::5] = 0.0
    counts = counts_of(x)
    for p in (0.001, 0.025, 0.3, 0.5, 0.975, 0.999):
        # A bin is an eighth of |x| wide and quantiles are interpolated inside: a few per cent.
        assert bins.quantile(counts, p) == pytest.approx(
            float(np.quantile(x, p)), rel=0.05, abs=0.01 * spread
        )
    for low, high in (
        (-spread, spread),
        (-2 * spread, 0.0),
        (0.0, 0.0),
        (0.3 * spread, 2 * spread),
    ):
        wanted = np.mean((x >= low) & (x <= high))
        # At most the share of one bin, about 2 % at its largest, interpolated to a tenth of it.
        assert bins.within(counts, low, high) == pytest.approx(wanted, abs=0.004)


def test_survival_counts_each_side_of_all() -> None:
    counts = counts_of(np.array([-4.0, -0.5, 0.0, 1.0, 4.0]))
    edges = bins.magnitudes()
    up, down = bins.survival(counts, 1), bins.survival(counts, -1)
    assert up[edges == 1.0] == pytest.approx(0.4)
    assert up[edges == 4.0] == pytest.approx(0.2)
    assert down[edges == 0.5] == pytest.approx(0.4)
    assert down[edges == 8.0] == 0.0
    assert (np.diff(up) <= 0).all()


def test_nothing_counted_is_no_number() -> None:
    empty = np.zeros(bins.N_BINS, np.int64)
    assert np.isnan(bins.quantile(empty, 0.5))
    assert np.isnan(bins.within(empty, -1.0, 1.0))
