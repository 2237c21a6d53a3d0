"""The critic's sums against the literal definition, and the laws of an additive state."""

import pickle
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from brace_diag.errors import InputError
from brace_diag.estimators import critic_kernels as kernels
from brace_diag.estimators.critic_calibration import MOST_BINS, joined_bins
from brace_diag.estimators.critic_frame import (
    CALIBRATION_BINS,
    DENSITY_BINS,
    Frame,
    equal_bins,
    returns_extent,
)
from brace_diag.estimators.critic_state import CriticState, critic_info
from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.rollouts import Rollouts
from brace_diag.settings import TargetSpec, cell_edges
from brace_diag.targets import brace_targets

SPECS = (TargetSpec.of("mc"), TargetSpec.of("brace", k=3.0))
ATTRIBUTES = ("cells", "apart", "bins")


def state_of(
    batches: list[Rollouts], gamma: float = 1.0, threads: int = 1, **changes: Any
) -> CriticState:
    state = CriticState(Frame(-1.0, 2.0, 0.4, gamma), len(SPECS), **changes)
    for batch in batches:
        n = batch.n_rollouts
        plain = RolloutInfo(
            use=np.ones(n, np.bool_),
            counted=np.ones(n, np.bool_),
            z=np.zeros(n),
            siblings=batch.prompt,
            expected=np.zeros(n, np.int64),
        )
        specs = tuple(TargetSpec.of(s.name, **(s.parameters | {"gamma": gamma})) for s in SPECS)
        state.update(batch, critic_info(batch, plain, specs), threads=threads)
    return state


def assert_same(a: CriticState, b: CriticState, rtol: float) -> None:
    for name in ATTRIBUTES:
        x, y = getattr(a, name).array, getattr(b, name).array
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * np.abs(y).max(initial=0.0))
    # Counts and extremes are exact whatever the order.
    np.testing.assert_array_equal(a.counts, b.counts)
    np.testing.assert_array_equal(a.extents, b.extents)


@pytest.mark.parametrize(("gamma", "dense"), [(1.0, False), (0.95, True)])
def test_sums_equal_their_definition(ragged: Callable[..., Any], gamma: float, dense: bool) -> None:
    log = ragged(np.random.default_rng(2), longest=40, gamma=gamma, dense=dense, bootstrap=True)
    batch = log.rollouts()
    state = state_of([batch], gamma)
    samples = log.samples()
    returns = np.concatenate([s.returns for s in samples])
    values = np.concatenate([s.values for s in samples]) - 0.4
    position = np.concatenate([np.arange(len(s.values)) for s in samples])
    brace = brace_targets(
        batch.mu_logprobs, batch.pi_logprobs, batch.values, np.concatenate(log.rewards),
        offsets=batch.offsets, bootstrap=batch.bootstrap, k=3, gamma=gamma,
    )  # fmt: skip
    g = returns - 0.4
    edges = cell_edges(40)
    for c in range(len(edges) - 1):
        inside = (position >= edges[c]) & (position < edges[c + 1])
        x, y = values[inside], g[inside]
        outside = np.sum((x + 0.4 < -1.0) | (x + 0.4 > 2.0))
        alive = sum(len(s.values) > edges[c] for s in samples)
        wanted = [len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y, outside, alive]
        found = state.cells.array[:, c].sum(axis=0)
        # float64 sums of up to 500 terms in another order.
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)
        ends = [y.min() + 0.4, y.max() + 0.4, x.min() + 0.4, x.max() + 0.4]
        np.testing.assert_allclose(state.extents[c], ends, rtol=1e-14)
        for k, target in enumerate((returns, brace)):
            d = target[inside] - x - 0.4
            own = state.apart.array[:, c].sum(axis=0)[4 * k : 4 * k + 4]
            np.testing.assert_allclose(
                own, [len(d), np.abs(d).sum(), d.sum(), alive], rtol=1e-10, atol=1e-10
            )
    frame = state.frame
    bins = np.searchsorted(frame.edges(CALIBRATION_BINS), values + 0.4, side="right")
    fine = state.bins.array.sum(axis=0)
    np.testing.assert_array_equal(fine[:, 0], np.bincount(bins, minlength=len(fine)))
    np.testing.assert_allclose(fine[:, 2], np.bincount(bins, g, len(fine)), rtol=1e-10, atol=1e-10)
    cut = frame.edges(DENSITY_BINS)
    across = np.searchsorted(cut, values + 0.4, side="right")
    up = np.searchsorted(cut, brace, side="right")
    counts = np.zeros((len(cut) + 1, len(cut) + 1), np.int64)
    np.add.at(counts, (across, up), 1)
    np.testing.assert_array_equal(state.counts[1], counts)


def test_batches_give_the_same_bits_as_the_whole(ragged: Callable[..., Any]) -> None:
    log = ragged(np.random.default_rng(5), n_prompts=10, longest=50)
    whole = state_of([log.rollouts()])
    for cuts in ([7], [1, 2, 3, 30], list(range(1, 40))):
        parts = [log.rollouts(range(a, b)) for a, b in pairwise([0, *cuts, 40])]
        assert_same(state_of(parts), whole, rtol=0.0)


def test_threads_give_the_same_bits(ragged: Callable[..., Any]) -> None:
    batch = ragged(np.random.default_rng(6), n_prompts=10, longest=50).rollouts()
    assert_same(state_of([batch], threads=3), state_of([batch]), rtol=0.0)


def test_merged_shards_equal_the_whole(ragged: Callable[..., Any]) -> None:
    rng = np.random.default_rng(7)
    log = ragged(rng, n_prompts=10, longest=50)
    whole = state_of([log.rollouts()])
    for n_shards in (2, 3, 7):
        shards = [
            state_of([log.rollouts(p)]) for p in np.array_split(rng.permutation(40), n_shards)
        ]
        total = pickle.loads(pickle.dumps(shards[0]))
        for shard in shards[1:]:
            total.merge(shard)
        # A few dozen additions in another order, less than 1e-15 each relative to the largest.
        assert_same(total, whole, rtol=1e-13)


def test_merging_commutes_and_an_empty_state_changes_nothing(ragged: Callable[..., Any]) -> None:
    log = ragged(np.random.default_rng(8), longest=50)
    a, b = log.rollouts(range(9)), log.rollouts(range(9, 24))
    left, right = state_of([a]), state_of([b])
    left.merge(state_of([b]))
    right.merge(state_of([a]))
    assert_same(left, right, rtol=0.0)  # x + y is y + x to the last bit
    left.merge(state_of([]))
    assert_same(left, right, rtol=0.0)


def test_a_subset_is_the_log_of_its_rollouts(ragged: Callable[..., Any]) -> None:
    log = ragged(np.random.default_rng(9), longest=20)
    batch = log.rollouts()
    chosen = np.arange(1, 24, 3)
    state = CriticState(Frame(-1.0, 2.0, 0.4, 1.0), len(SPECS))
    plain = RolloutInfo(
        *(np.ones(24, np.bool_),) * 2, np.zeros(24), batch.prompt, np.zeros(24, int)
    )
    state.update(batch, critic_info(batch, plain, SPECS), subset=chosen)
    wanted = state_of([log.rollouts(chosen)])
    for name in ATTRIBUTES:
        mine, theirs = getattr(state, name), getattr(wanted, name)
        mine.grow(theirs.n_cells)
        np.testing.assert_array_equal(mine.array, theirs.array)


@pytest.mark.parametrize("change", [{"binned": False}, {"dense": False}, {"positions": False}])
def test_states_of_different_kind_are_not_added(
    ragged: Callable[..., Any], change: dict[str, bool]
) -> None:
    batch = ragged(np.random.default_rng(1)).rollouts()
    with pytest.raises(InputError, match=f"different {next(iter(change))}"):
        state_of([batch]).merge(state_of([batch], **change))


def test_one_cell_holds_what_all_positions_hold(ragged: Callable[..., Any]) -> None:
    batch = ragged(np.random.default_rng(1), longest=60).rollouts()
    whole = state_of([batch], positions=False, binned=False, dense=False)
    assert whole.cells.n_cells == 1 and whole.bins.n_cells == 0 and whole.counts.size == 0
    cells = state_of([batch]).cells.array
    tokens = slice(0, kernels.ROLLOUTS)
    np.testing.assert_allclose(
        whole.cells.array[:, 0, tokens], cells[:, :, tokens].sum(axis=1), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_array_equal(
        whole.cells.array[:, 0, kernels.ROLLOUTS], cells[:, 0, kernels.ROLLOUTS]
    )


def test_bins_are_those_of_searchsorted_everywhere() -> None:
    """The fast way into the equal bins agrees on edges, their neighbours, and far outside."""
    rng = np.random.default_rng(3)
    for low, high in ((0.0, 1.0), (-3.0, 1e6), (0.1, 0.1 + 1e-9), (5.0, 5.0)):
        edges = Frame(low, high, 0.0, 1.0).edges(CALIBRATION_BINS)
        assert (np.diff(edges) > 0).all()
        inner = np.r_[edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)]
        probes = np.r_[inner, rng.uniform(low - 1, high + 1, 2000), -1e300, 1e300]
        found = [kernels.bin_of(x, edges, 40, equal_bins(CALIBRATION_BINS)) for x in probes]
        np.testing.assert_array_equal(found, np.searchsorted(edges, probes, side="right"))


def test_equal_bins_cut_at_the_ends_of_the_range() -> None:
    """A bin never holds values on both sides of a limit, so that none is half outside."""
    frame = Frame(-2.0, 7.0, 0.0, 1.0)
    for n_bins in (CALIBRATION_BINS, DENSITY_BINS):
        edges = frame.edges(n_bins)
        at = np.searchsorted(edges, np.array(frame.limits) - 1e-9)
        np.testing.assert_allclose(edges[at], frame.limits, rtol=1e-12)
        assert at[1] - at[0] == n_bins
        assert edges[0] < -1e3 and edges[-1] > 1e3


def test_the_range_of_returns_is_that_of_all_tokens(ragged: Callable[..., Any]) -> None:
    log = ragged(np.random.default_rng(4), gamma=0.9, dense=True, bootstrap=True)
    returns = np.concatenate([s.returns for s in log.samples()])
    found = returns_extent([log.rollouts(range(5)), log.rollouts(range(5, 24))], 0.9)
    assert found == pytest.approx((returns.min(), returns.max()), rel=1e-14)
    assert returns_extent([], 1.0) == (0.0, 0.0)


def test_joined_bins_hold_their_share() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        tokens = rng.integers(0, 50, 240) * (rng.random(240) < 0.3)
        firsts = joined_bins(tokens.astype(float))
        held = np.add.reduceat(tokens, firsts)
        assert held.sum() == tokens.sum()
        assert len(firsts) <= MOST_BINS
        assert (held >= tokens.sum() / MOST_BINS).all()
    assert joined_bins(np.zeros(5)).tolist() == []
    assert joined_bins(np.array([0.0, 7.0, 0.0])).tolist() == [1]
