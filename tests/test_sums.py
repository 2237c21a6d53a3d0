"""Sums add up, jackknives equal their textbook form, histograms and top-k sets merge exactly."""

import pickle
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brace_diag.errors import InputError
from brace_diag.settings import N_GROUPS
from brace_diag.sums import GroupSums, Histogram, Jackknife, jackknife, sup_t_critical, t_quantile
from brace_diag.topk import TopK


def sums_of(rows: list[tuple[int, int, float]]) -> GroupSums:
    made = GroupSums(2)
    for group, cell, value in rows:
        made.grow(cell + 1)
        made.array[group, cell] += (1.0, value)
    return made


ROWS = st.lists(
    st.tuples(st.integers(0, N_GROUPS - 1), st.integers(0, 6), st.floats(-1e3, 1e3)), max_size=30
)


@given(ROWS, ROWS)
def test_merging_is_commutative_and_empty_is_neutral(
    a: list[tuple[int, int, float]], b: list[tuple[int, int, float]]
) -> None:
    left, right = sums_of(a), sums_of(b)
    left.merge(sums_of(b))
    right.merge(sums_of(a))
    assert left.n_cells == right.n_cells
    # One addition of two floats commutes exactly.
    np.testing.assert_array_equal(left.array, right.array)
    before = left.array.copy()
    left.merge(GroupSums(2))
    np.testing.assert_array_equal(left.array, before)


def test_sums_of_other_width_are_refused() -> None:
    with pytest.raises(InputError, match="3 features cannot be added to 2"):
        GroupSums(2).merge(GroupSums(3))


def test_sums_pickle() -> None:
    made = sums_of([(3, 1, 2.5), (4, 0, -1.0)])
    back = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(back.array, made.array)


def mean_of_sums(sums: Any) -> Any:
    return (sums[:, 1] / sums[:, 0])[:, None]


def test_jackknife_of_a_mean_is_the_cluster_standard_error() -> None:
    rng = np.random.default_rng(0)
    sums = np.zeros((N_GROUPS, 2))
    groups = rng.choice(N_GROUPS, 20, replace=False)
    cluster_means = rng.normal(size=20)
    sums[groups, 0] = 7.0
    sums[groups, 1] = 7.0 * cluster_means
    jack = jackknife(mean_of_sums, sums, present=sums[:, 0] > 0)
    # For a mean of equal clusters the jackknife is exactly sd/√g, up to rounding.
    assert jack.value[0] == pytest.approx(cluster_means.mean(), rel=1e-12)
    assert jack.se[0] == pytest.approx(cluster_means.std(ddof=1) / np.sqrt(20), rel=1e-12)
    assert jack.n_groups[0] == 20


def test_jackknife_without_two_groups_has_no_error() -> None:
    sums = np.zeros((N_GROUPS, 2))
    sums[5] = (3.0, 6.0)
    jack = jackknife(mean_of_sums, sums, present=sums[:, 0] > 0)
    assert jack.value[0] == 2.0
    assert np.isnan(jack.se[0])


def test_jackknife_without_any_group_has_no_value() -> None:
    for present in (np.zeros(N_GROUPS, bool), np.zeros((N_GROUPS, 1), bool)):
        jack = jackknife(mean_of_sums, np.zeros((N_GROUPS, 2)), present=present)
        assert np.isnan(jack.value[0])
        assert jack.n_groups[0] == 0
        assert np.isnan(jack.se[0])


def test_an_output_counts_only_the_groups_that_hold_data_for_it() -> None:
    rng = np.random.default_rng(1)
    both = rng.normal(size=12)
    sums = np.zeros((N_GROUPS, 4))
    sums[:12, 0], sums[:12, 1] = 1.0, both
    sums[:5, 2], sums[:5, 3] = 1.0, both[:5]

    def means(s: Any) -> Any:
        return np.stack([s[:, 1] / s[:, 0], s[:, 3] / s[:, 2]], axis=1)

    jack = jackknife(means, sums, present=np.stack([sums[:, 0] > 0, sums[:, 2] > 0], axis=1))
    assert jack.n_groups.tolist() == [12, 5]
    assert jack.se[1] == pytest.approx(both[:5].std(ddof=1) / np.sqrt(5), rel=1e-12)


def test_contrast_has_the_variance_of_the_difference() -> None:
    rng = np.random.default_rng(2)
    deviations = rng.normal(size=(30, 3))
    deviations -= deviations.mean(axis=0)
    jack = Jackknife(np.array([1.0, 2.0, np.nan]), deviations, np.full(3, 30))
    made = jack.contrast(np.array([1.0, -1.0, 0.0]))
    weights = np.array([1.0, -1.0, 0.0])
    assert made.value[0] == -1.0  # the NaN output has no weight and does not leak
    assert made.se[0] ** 2 == pytest.approx(weights @ jack.covariance @ weights, rel=1e-12)


def test_t_quantile_matches_scipy_and_ends_below_two_groups() -> None:
    from scipy import stats

    np.testing.assert_allclose(t_quantile(0.975, [2, 10, 400]), stats.t.ppf(0.975, [1, 9, 399]))
    assert np.isnan(t_quantile(0.975, 1))


def test_sup_t_of_one_output_is_the_t_quantile() -> None:
    rng = np.random.default_rng(3)
    jack = Jackknife(np.ones(1), rng.normal(size=(40, 1)), np.array([40]))
    critical = sup_t_critical(jack, 0.95, np.random.default_rng(0))
    # 20,000 draws: the .95 quantile of |t| has a Monte-Carlo error of about .017; 4 of them.
    assert critical == pytest.approx(float(t_quantile(0.975, 40)), abs=0.07)


def test_sup_t_of_independent_outputs_is_the_sidak_value() -> None:
    rng = np.random.default_rng(4)
    deviations, _ = np.linalg.qr(rng.normal(size=(400, 10)))
    jack = Jackknife(np.ones(10), deviations, np.full(10, 400))
    critical = sup_t_critical(jack, 0.95, np.random.default_rng(0))
    sidak = float(t_quantile(0.5 + 0.5 * 0.95 ** (1 / 10), 400))
    # As above, plus the shared chi that makes the outputs slightly dependent.
    assert critical == pytest.approx(sidak, abs=0.07)


@given(st.lists(st.floats(-10, 10), max_size=50), st.integers(0, 50))
def test_histograms_of_shards_add_up(values: list[float], cut: int) -> None:
    edges = np.linspace(-5, 5, 21)
    whole, a, b = Histogram(edges), Histogram(edges), Histogram(edges)
    whole.add(np.array(values))
    a.add(np.array(values[:cut]))
    b.add(np.array(values[cut:]))
    a.merge(b)
    np.testing.assert_array_equal(a.counts, whole.counts)


def test_histogram_quantile_lies_within_its_bin() -> None:
    edges = np.linspace(-4, 4, 161)
    histogram = Histogram(edges)
    values = np.random.default_rng(5).normal(size=20_000)
    histogram.add(np.append(values, np.nan))
    assert histogram.n_nan == 1
    for p in (0.05, 0.5, 0.95):
        # The exact sample quantile lies in the same bin, which is .05 wide.
        assert abs(histogram.quantile(p) - np.quantile(values, p)) <= 0.05
    assert np.isnan(Histogram(edges).quantile(0.5))


@given(
    st.lists(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2), min_size=1, max_size=40),
    st.randoms(use_true_random=False),
)
def test_top_k_is_the_same_in_any_order_and_any_shards(
    rows: list[list[float]], random: Any
) -> None:
    whole = TopK(5)
    whole.add(np.array(rows))
    shuffled = rows.copy()
    random.shuffle(shuffled)
    cut = random.randint(0, len(rows))
    a, b = TopK(5), TopK(5)
    for shard, part in ((a, shuffled[:cut]), (b, shuffled[cut:])):
        if part:
            shard.add(np.array(part))
    merged = deepcopy(b)
    merged.merge(a)
    for cell in range(2):
        wanted = np.full(5, -np.inf)
        best = np.sort(np.array(rows)[:, cell])[-5:]
        wanted[5 - len(best) :] = best
        np.testing.assert_array_equal(whole.largest(cell), wanted)
        np.testing.assert_array_equal(merged.largest(cell), wanted)


def test_top_k_skips_cells_without_a_value() -> None:
    top = TopK(2)
    top.add(np.array([[1.0, np.nan], [2.0, 7.0]]))
    assert top.largest(0).tolist() == [1.0, 2.0]
    assert top.largest(1).tolist() == [-np.inf, 7.0]
