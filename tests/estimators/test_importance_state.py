"""The laws of an additive state, and its sums against literal loops."""

import pickle
from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from brace_diag.errors import InputError
from brace_diag.estimators import importance_kernels as k
from brace_diag.estimators.importance_bins import ZERO
from brace_diag.estimators.importance_state import ImportanceState
from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.rollouts import Rollouts

GROUP_SUMS = ("sums", "windows", "positions", "horizons")


def info_of(batch: Rollouts, expected: int = 0) -> RolloutInfo:
    n = batch.n_rollouts
    everyone = np.ones(n, np.bool_)
    return RolloutInfo(everyone, everyone, np.zeros(n), batch.prompt, np.full(n, expected))


def state_of(batches: list[Rollouts], threads: int = 1, expected: int = 0) -> ImportanceState:
    state = ImportanceState(1.1, 1.2)
    for batch in batches:
        state.update(batch, info_of(batch, expected), threads=threads)
    return state


def assert_same(a: ImportanceState, b: ImportanceState, rtol: float) -> None:
    a, b = deepcopy(a), deepcopy(b)
    a.sets.finish()
    b.sets.finish()
    pairs = [(getattr(a, name).array, getattr(b, name).array) for name in GROUP_SUMS]
    pairs += [(a.sets.closed.array, b.sets.closed.array)]
    for x, y in pairs:
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * np.abs(y).max())
    # The scale is the largest of each group, whatever the order; its exponentials are rounded.
    np.testing.assert_array_equal(a.logs.top, b.logs.top)
    np.testing.assert_allclose(a.logs.total, b.logs.total, rtol=max(rtol, 1e-15))
    np.testing.assert_array_equal(a.tails.largest(0), b.tails.largest(0))
    np.testing.assert_array_equal(a.window_counts, b.window_counts)
    np.testing.assert_array_equal(a.token_counts, b.token_counts)
    for name in ("lowest", "highest", "ids", "shortest", "longest"):
        assert getattr(a, name) == getattr(b, name), name


def drifting(ragged: Callable[..., Any], seed: int, **size: Any) -> Any:
    """A ragged log with token ids, some log-weights beyond 5, some exactly 0."""
    log = ragged(np.random.default_rng(seed), longest=50, drift=0.3, **size)
    for pi in log.pi[::3]:
        pi[-1] -= 9.0
    for mu, pi in list(zip(log.mu, log.pi, strict=True))[1::4]:
        pi[: len(pi) // 2] = mu[: len(mu) // 2]
    return log


def batch_of(log: Any, chosen: Any = None) -> Rollouts:
    index = range(len(log.mu)) if chosen is None else chosen
    ids = [np.arange(len(log.mu[i])) % 7 for i in index]
    return log.rollouts(index, token_ids=ids)  # type: ignore[no-any-return]


def test_batches_give_the_same_bits_as_the_whole(ragged: Callable[..., Any]) -> None:
    log = drifting(ragged, 5, n_prompts=10)
    whole = state_of([batch_of(log)], expected=4)
    for cuts in ([7], [1, 2, 3, 30], list(range(1, 40))):
        parts = [batch_of(log, range(a, b)) for a, b in pairwise([0, *cuts, 40])]
        for expected in (0, 4):
            cut = state_of(parts, expected=expected)
            if expected:
                assert not cut.sets.sets.slot_of  # every set was complete and is forgotten
                assert_same(cut, whole, rtol=0.0)
            else:
                # Sets close at the end in the order they opened in: the same sums reordered.
                assert_same(cut, whole, rtol=1e-14)


def test_threads_give_the_same_bits(ragged: Callable[..., Any]) -> None:
    log = drifting(ragged, 6, n_prompts=10)
    assert_same(state_of([batch_of(log)], threads=3), state_of([batch_of(log)]), rtol=0.0)


def test_merged_shards_equal_the_whole(ragged: Callable[..., Any]) -> None:
    rng = np.random.default_rng(7)
    log = drifting(ragged, 7, n_prompts=10)
    whole = state_of([batch_of(log)])
    for n_shards in (2, 3, 7):
        order = rng.permutation(40)
        shards = [state_of([batch_of(log, part)]) for part in np.array_split(order, n_shards)]
        total = pickle.loads(pickle.dumps(shards[0]))
        for shard in shards[1:]:
            total.merge(shard)
        # A few dozen additions in another order, less than 1e-15 each relative to the largest.
        assert_same(total, whole, rtol=1e-13)


def test_merging_an_empty_state_changes_nothing(ragged: Callable[..., Any]) -> None:
    state = state_of([batch_of(drifting(ragged, 8))])
    empty = ImportanceState(1.1, 1.2)
    empty.merge(state)
    assert_same(empty, state, rtol=0.0)
    merged = deepcopy(state)
    merged.merge(ImportanceState(1.1, 1.2))
    assert_same(merged, state, rtol=0.0)


def test_states_of_other_settings_are_not_added() -> None:
    for other in (
        ImportanceState(1.0, 1.2),
        ImportanceState(1.1, 2.0),
        ImportanceState(1.1, 1.2, lag=3),
        ImportanceState(1.1, 1.2, full=False),
    ):
        with pytest.raises(InputError, match="cannot be added"):
            ImportanceState(1.1, 1.2).merge(other)


def test_a_subset_is_a_log_of_its_own(ragged: Callable[..., Any]) -> None:
    log = drifting(ragged, 9)
    batch, chosen = batch_of(log), np.array([1, 4, 5, 9, 17])
    part = ImportanceState(1.1, 1.2)
    part.update(batch, info_of(batch), subset=chosen)
    assert_same(part, state_of([batch_of(log, chosen)]), rtol=0.0)


def test_token_sums_are_those_of_the_definition(ragged: Callable[..., Any]) -> None:
    log = drifting(ragged, 10)
    state = state_of([batch_of(log)])
    sums = state.sums.array[:, 0].sum(axis=0)
    x = np.concatenate([s.log_w for s in log.samples()])
    mu = np.concatenate(log.mu)
    w = np.exp(x)
    rho = np.minimum(w, 1.2)
    wanted = {
        k.ROLLOUTS: 24, k.TOKENS: len(x), k.U: (w - 1).sum(), k.U2: ((w - 1) ** 2).sum(),
        k.ABS: np.abs(x).sum(), k.RHO: rho.sum(), k.RHO2: (rho**2).sum(), k.N_RHO: (w > 1.2).sum(),
        k.N_C: (w > 1.1).sum(), k.N_ZERO: 0, k.N_DOWN: (x < 0).sum(), k.N_MOVED: (x != 0).sum(),
        k.PEAKED: (mu >= np.log(0.5)).sum(), k.PEAKED_U: (w - 1)[mu >= np.log(0.5)].sum(),
        k.FRESH: 0, k.STALE: 0,
    }  # fmt: skip
    for j, cap in enumerate((1.1, 1.0, np.inf)):
        y = np.minimum(x, np.log(cap))
        wanted |= {k.Y + j: y.sum(), k.Y2 + j: (y**2).sum()}
    for column, value in wanted.items():
        # 600 terms in another order, the vectorised exp within 1 ulp.
        assert sums[column] == pytest.approx(value, rel=1e-12, abs=1e-12), column
    assert state.lowest == x.min()
    assert state.highest == x.max()
    assert state.token_counts.sum() == len(x)
    assert state.token_counts[ZERO] == (x == 0).sum() > 20


def test_windows_tile_each_rollout(ragged: Callable[..., Any]) -> None:
    log = drifting(ragged, 11)
    windows = state_of([batch_of(log)]).windows.array.sum(axis=0)
    longest = max(len(m) for m in log.mu)
    assert len(windows) == longest.bit_length()
    for level in range(len(windows)):
        n = 2**level
        for j, cap in enumerate((1.1, 1.0, np.inf)):
            sums = np.concatenate(
                [
                    np.minimum(s.log_w, np.log(cap))[: len(s.log_w) // n * n].reshape(-1, n).sum(1)
                    for s in log.samples()
                ]
            )
            found = windows[level, 1 + 3 * j : 4 + 3 * j]
            wanted = [sums.sum(), (sums**2).sum(), np.exp(sums).sum()]
            np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)
            assert windows[level, 0] == len(sums)


def test_places_count_from_both_ends(ragged: Callable[..., Any]) -> None:
    log = drifting(ragged, 12)
    state = state_of([batch_of(log)])
    samples = log.samples()
    for t in range(8):
        for sums, pick in ((state.positions, t), (state.horizons, -1 - t)):
            x = np.array([s.log_w[pick] for s in samples if len(s.log_w) > t])
            found = sums.array[:, t].sum(axis=0)
            wanted = [len(x), np.abs(x).sum(), (np.abs(x) > 5).sum()]
            np.testing.assert_allclose(found, wanted, rtol=1e-13)
    extreme = np.concatenate([np.arange(len(s.log_w))[np.abs(s.log_w) > 5] % 7 for s in samples])
    assert state.ids == {i: int((extreme == i).sum()) for i in np.unique(extreme).tolist()}
    assert sum(state.ids.values()) == 8


def test_whole_rollouts_never_saturate(ragged: Callable[..., Any]) -> None:
    """W = e^2000 leaves float64; its logarithm does not."""
    log = drifting(ragged, 13)
    log.mu[3], log.pi[3] = np.full(50, -41.0), np.full(50, -1.0)
    log.values[3], log.rewards[3] = np.full(50, 0.5), np.zeros(50)
    state = state_of([batch_of(log)])
    total, scale = state.logs.scaled()
    assert scale[:2].tolist() == [2000.0, 4000.0]
    assert np.isfinite(total).all()
    # log (W - 1)² of the largest.
    assert scale[4] == 4000.0
