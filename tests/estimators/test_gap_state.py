"""The fast sums against the literal definition, and the laws of an additive state."""

import pickle
from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest

from brace_diag.estimators import gap_estimates as ge
from brace_diag.estimators.gap_reference import gap_in_cells
from brace_diag.estimators.gap_state import GapState
from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.rollouts import Rollouts
from brace_diag.settings import cell_edges

WEIGHTS: dict[str, tuple[Literal["wdr", "doubly_robust", "first_order"], float]] = {
    "wdr": ("wdr", 2.0),
    "wdr_wide": ("wdr", 5.0),
    "doubly_robust": ("doubly_robust", np.inf),
    "first_order": ("first_order", np.inf),
}


def info_of(batch: Rollouts, z: Any = None, expected: int = 0) -> RolloutInfo:
    n = batch.n_rollouts
    return RolloutInfo(
        use=batch.has_w & batch.has_values & batch.has_reward & (batch.lengths > 0),
        counted=np.ones(n, np.bool_),
        z=np.zeros(n) if z is None else z,
        siblings=batch.prompt,
        expected=np.full(n, expected),
    )


def state_of(batches: list[Rollouts], gamma: float = 1.0, axis: Any = "position") -> GapState:
    state = GapState(axis, gamma, True)
    for batch in batches:
        state.update(batch, info_of(batch))
    return state


@pytest.mark.parametrize("drift", [0.02, 0.3, 1.5])
@pytest.mark.parametrize(("gamma", "dense"), [(1.0, False), (0.95, True)])
def test_every_weight_equals_its_definition(
    ragged: Callable[..., Any], drift: float, gamma: float, dense: bool
) -> None:
    """Small drift caps nothing, .3 some tokens, 1.5 nearly all: all three code paths."""
    log = ragged(
        np.random.default_rng(2), longest=70, drift=drift, gamma=gamma, dense=dense, bootstrap=True
    )
    jack = ge.gap_jackknife(state_of([log.rollouts()], gamma), 0.0)
    edges = cell_edges(70)
    for i, start in enumerate(jack.starts):
        for name, (weight, tau) in WEIGHTS.items():
            if name == "wdr_wide" and i > 0:
                continue  # kept for the first start only
            wanted = gap_in_cells(log.samples(), int(edges[start]), edges, weight, tau, gamma)
            got = jack.jack.value[jack.column(i, name, "critic")]
            # float64 sums of up to 1,700 terms in another order, products up to e^10.
            assert got == pytest.approx(wanted, rel=1e-9, abs=1e-11), (name, start)


def test_extreme_products_stay_exact(ragged: Callable[..., Any]) -> None:
    """Log-products beyond ±300 leave the fast path; capped weights are still the definition's."""
    log = ragged(np.random.default_rng(3), longest=40, drift=0.1)
    for pi in log.pi[::3]:
        pi -= 40.0  # w near 0 on every token
    for mu in log.mu[1::5]:
        mu -= 40.0  # w near e^40
    jack = ge.gap_jackknife(state_of([log.rollouts()]), 0.0)
    edges = cell_edges(40)
    for i, start in enumerate(jack.starts):
        wanted = gap_in_cells(log.samples(), int(edges[start]), edges)
        got = jack.jack.value[jack.column(i, "wdr", "critic")]
        assert got == pytest.approx(wanted, rel=1e-9)


def test_pi_that_cannot_draw_a_token_has_weight_zero(ragged: Callable[..., Any]) -> None:
    log = ragged(np.random.default_rng(4), longest=12, drift=0.1)
    finite = deepcopy(log)
    for sure, lowered in zip(log.pi, finite.pi, strict=True):
        sure[-1] = -np.inf
        lowered[-1] = -8000.0  # its weight underflows to exactly 0
    got = ge.gap_jackknife(state_of([log.rollouts()]), 0.0).jack.value
    wanted = ge.gap_jackknife(state_of([finite.rollouts()]), 0.0).jack.value
    np.testing.assert_array_equal(got, wanted)
    assert np.isfinite(got).all()


def assert_same(a: GapState, b: GapState, rtol: float) -> None:
    a, b = deepcopy(a), deepcopy(b)
    a.table.finish()
    b.table.finish()
    for name in ("pairs", "cells", "starts", "rollouts"):
        x, y = getattr(a, name).array, getattr(b, name).array
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * np.abs(y).max())
    for name in ("within", "spread", "u_statistic"):
        x, y = getattr(a.table, name).array, getattr(b.table, name).array
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * np.abs(y).max())
    np.testing.assert_allclose(a.weights.ess(), b.weights.ess(), rtol=max(rtol, 1e-12))
    for cell in range(len(a.tails.values)):
        np.testing.assert_array_equal(a.tails.largest(cell), b.tails.largest(cell))


def test_batches_give_the_same_bits_as_the_whole(ragged: Callable[..., Any]) -> None:
    log = ragged(np.random.default_rng(5), n_prompts=10, longest=50)
    whole = state_of([log.rollouts()])
    for cuts in ([7], [1, 2, 3, 30], list(range(1, 40))):
        bounds = [0, *cuts, 40]
        parts = [log.rollouts(range(a, b)) for a, b in pairwise(bounds)]
        cut = state_of(parts)
        assert_same(cut, whole, rtol=0.0)


def test_threads_give_the_same_bits(ragged: Callable[..., Any]) -> None:
    batch = ragged(np.random.default_rng(6), n_prompts=10, longest=50).rollouts()
    one, three = GapState("position", 1.0, True), GapState("position", 1.0, True)
    one.update(batch, info_of(batch), threads=1)
    three.update(batch, info_of(batch), threads=3)
    assert_same(three, one, rtol=0.0)


def test_merged_shards_equal_the_whole(ragged: Callable[..., Any]) -> None:
    """Any split, any order, siblings torn apart: equal to the rounding of float64 sums."""
    rng = np.random.default_rng(7)
    log = ragged(rng, n_prompts=10, longest=50)
    whole = state_of([log.rollouts()])
    for n_shards in (2, 3, 7):
        order = rng.permutation(40)
        shards = [state_of([log.rollouts(part)]) for part in np.array_split(order, n_shards)]
        total = pickle.loads(pickle.dumps(shards[0]))
        for shard in shards[1:]:
            total.merge(shard)
        # A few dozen additions in another order, less than 1e-15 each relative to the largest.
        assert_same(total, whole, rtol=1e-13)


def test_merging_an_empty_state_changes_nothing(ragged: Callable[..., Any]) -> None:
    state = state_of([ragged(np.random.default_rng(8)).rollouts()])
    for merged in (deepcopy(state), GapState("position", 1.0, True)):
        other = GapState("position", 1.0, True) if merged.pairs.n_cells else state
        merged.merge(other)
        assert_same(merged, state, rtol=0.0)


def test_closing_complete_sets_early_changes_nothing(ragged: Callable[..., Any]) -> None:
    log = ragged(np.random.default_rng(9), n_prompts=8, group=4)
    late, early = state_of([log.rollouts()]), GapState("position", 1.0, True)
    for i in range(0, 32, 2):
        batch = log.rollouts(range(i, i + 2))
        early.update(batch, info_of(batch, expected=4))
    assert not early.table.sets.slot_of  # every set was complete and is forgotten
    assert len(early.table.open[0]) <= 2
    assert_same(early, late, rtol=1e-14)


def test_within_variance_is_the_pooled_sample_variance(ragged: Callable[..., Any]) -> None:
    log = ragged(np.random.default_rng(10), n_prompts=5, group=6, longest=20)
    state = state_of([log.rollouts()])
    state.table.finish()
    got, lone = ge.within_variance(state)
    assert not lone
    samples = log.samples()
    for start in (0, 3, 7):
        squares, freedom = 0.0, 0
        for prompt in range(5):
            s = [
                x.log_w[start:].sum()
                for x in samples
                if x.prompt == prompt and len(x.log_w) > start
            ]
            if len(s) > 1:
                squares += np.var(s) * len(s)
                freedom += len(s) - 1
        assert got[start] == pytest.approx(squares / freedom, rel=1e-10)


def test_second_moment_over_prompts_is_the_u_statistic(ragged: Callable[..., Any]) -> None:
    """One token a rollout has one cell, so octaves and cells coincide and the match is exact."""
    log = ragged(np.random.default_rng(11), n_prompts=7, group=5, longest=1, drift=0.5)
    state = state_of([log.rollouts()])
    state.table.finish()
    got = ge.prompt_second_moment(state, 0.0)
    samples = log.samples()
    u = np.array([np.expm1(s.log_w[0]) for s in samples])
    d = np.array([s.returns[0] - s.values[0] for s in samples])
    c = (u * (d - d.mean())).reshape(7, 5)
    wanted = np.mean((c.sum(axis=1) ** 2 - (c**2).sum(axis=1)) / 20.0)
    assert got is not None
    assert got.value[0] == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("axis", ["horizon", "relative"])
def test_other_axes_equal_the_definition_when_lengths_do_not_vary(
    ragged: Callable[..., Any], axis: str
) -> None:
    """With one length, horizon cells are position cells from the other end."""
    log = ragged(np.random.default_rng(12), longest=1)
    rng = np.random.default_rng(13)
    length = 40
    for i in range(len(log.mu)):
        log.mu[i] = -rng.exponential(0.8, length)
        log.pi[i] = log.mu[i] + rng.normal(-0.02, 0.2, length)
        log.values[i] = rng.uniform(0.2, 0.8, length)
        log.rewards[i] = np.append(np.zeros(length - 1), rng.integers(0, 2))
    state = state_of([log.rollouts()], axis=axis)
    jack = ge.gap_jackknife(state, 0.0)
    if axis == "relative":
        edges = np.arange(0, 41, 2)
        first = {int(c): int(edges[c]) for c in jack.starts}
    else:
        horizon = cell_edges(length)
        inside = horizon[horizon <= length]
        edges = np.sort(length - inside)
        first = {int(c): int(length - horizon[c + 1]) for c in jack.starts}
    for i, cell in enumerate(jack.starts):
        wanted = gap_in_cells(log.samples(), first[int(cell)], edges)
        got = jack.jack.value[jack.column(i, "wdr", "critic")]
        assert got == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_replicates_are_the_gap_without_each_group(ragged: Callable[..., Any]) -> None:
    log = ragged(np.random.default_rng(14), n_prompts=5, group=4, longest=20)
    whole = state_of([log.rollouts()])
    jack = ge.gap_jackknife(whole, 0.0).jack
    without = []
    for prompt in range(5):
        rest = state_of([log.rollouts([i for i, p in enumerate(log.prompts) if p != prompt])])
        rest.longest = whole.longest  # where the last cell is cut belongs to the whole log
        without.append(ge.gap_jackknife(rest, 0.0).jack.value)
    # Outputs to which every prompt contributes; the others leave absent prompts out of the mean.
    shared = int((jack.n_groups == 5).sum())
    assert shared > 50
    replicates = np.array([w[:shared] for w in without])
    # Rows stand in the order of the hash groups, not of the prompts: compare as sets by sorting.
    got = np.sort(jack.deviations[:, :shared], axis=0)
    wanted = np.sort(replicates - replicates.mean(axis=0), axis=0)
    # Total minus group loses a few of float64's sixteen digits.
    np.testing.assert_allclose(got, wanted, atol=1e-11)


def test_position_zero_alone_is_the_first_start_of_all(ragged: Callable[..., Any]) -> None:
    batch = ragged(np.random.default_rng(15), longest=60).rollouts()
    whole, alone = state_of([batch]), GapState("position", 1.0, False, spread=False)
    alone.update(batch, info_of(batch))
    assert alone.pairs.array.nbytes < whole.pairs.array.nbytes / 5
    a, b = ge.gap_jackknife(alone, 0.0), ge.gap_jackknife(whole, 0.0)
    assert a.starts.tolist() == [0]
    np.testing.assert_array_equal(a.jack.value, b.jack.value[: ge.N_OUT])
    np.testing.assert_array_equal(a.jack.deviations, b.jack.deviations[:, : ge.N_OUT])
    alone.table.finish()
    whole.table.finish()
    assert ge.within_variance(alone)[0][0] == ge.within_variance(whole)[0][0]
