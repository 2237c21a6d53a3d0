"""The sums of a sweep against their definition, token by token, and what they do not depend on."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from brace_diag import Rollouts, brace_targets
from brace_diag.estimators import sweep_kernels as kernels
from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.estimators.sweep_share import _back_substituted, _consistent, _Field
from brace_diag.estimators.sweep_state import N_COMMON, N_POINT, SweepState, nodes
from brace_diag.results_sweep import SweepSettings

Array = npt.NDArray[np.float64]
SETTINGS = SweepSettings(
    k=(1, 5, 16, math.inf), rho_bar=(1.0, 1.3), c_bar=(0.9, 1.1), gamma=0.98, lam=0.97
)


def a_batch(seed: int = 0, n: int = 60) -> Rollouts:
    """Rollouts of 1 to 40 tokens: some end before, at and after the ends of windows and cells."""
    rng = np.random.default_rng(seed)
    lengths = np.concatenate([[1, 4, 5, 8, 9, 16, 17, 40], rng.integers(1, 41, n - 8)])
    mu = [rng.uniform(-2.0, -0.5, k) for k in lengths]
    return Rollouts.from_lists(
        mu_logprobs=mu,
        pi_logprobs=[x + rng.normal(0.0, 0.2, len(x)) for x in mu],
        values=[rng.normal(0.4, 0.2, k) for k in lengths],
        reward=rng.normal(0.5, 0.4, n).tolist(),
        prompt_id=np.repeat(np.arange(n // 2), 2).tolist(),
    )


def everything(batch: Rollouts) -> RolloutInfo:
    yes = np.ones(batch.n_rollouts, np.bool_)
    zero = np.zeros(batch.n_rollouts)
    return RolloutInfo(
        use=yes, counted=yes, z=zero, siblings=np.arange(batch.n_rollouts), expected=yes * 1
    )


def summed(batch: Rollouts, settings: SweepSettings = SETTINGS, **options: Any) -> SweepState:
    state = SweepState(settings)
    state.update(batch, everything(batch), **options)
    return state


def responses(batch: Rollouts) -> list[tuple[Array, Array]]:
    """w and D = G - V of every response."""
    assert batch.values is not None and batch.mu_logprobs is not None
    assert batch.pi_logprobs is not None
    out = []
    for i in range(batch.n_rollouts):
        own = slice(batch.offsets[i], batch.offsets[i + 1])
        w = np.exp(batch.pi_logprobs[own].astype(float) - batch.mu_logprobs[own].astype(float))
        left = len(w) - 1 - np.arange(len(w))
        out.append((w, SETTINGS.gamma**left * batch.rewards[i] - batch.values[own]))
    return out


def test_nodes_grow_without_moving() -> None:
    assert nodes(1).tolist() == [0, 4]
    assert nodes(9).tolist() == [0, 4, 8, 12]
    assert nodes(40).tolist() == [0, 4, 8, 12, 16, 24, 32, 48]
    for longest in (4, 5, 100, 1024, 5000):
        at = nodes(longest)
        assert at[-1] >= longest > at[-2]
        assert nodes(8 * longest)[: len(at)].tolist() == at.tolist()


@pytest.mark.parametrize("k", [1, 5, 16, None])
def test_the_field_s_equation_is_its_definition(k: int | None) -> None:
    """Any e that is linear between nodes: the sums give the mean of Σ Cρ(γe' - e) - C_j e_j."""
    batch = a_batch()
    state = summed(batch)
    at = nodes(state.longest)
    rng = np.random.default_rng(1)
    for q, (rho_bar, c_bar) in enumerate(SETTINGS.caps):
        own = state.cells.array[..., q * kernels.N_CELL : (q + 1) * kernels.N_CELL].sum(axis=0)
        field = _Field(at, state.starts.array.sum(axis=0)[None, :, 0], own[None])
        matrix, source = _equation(field, state, k, q)
        for _ in range(3):
            e = rng.normal(size=len(at))
            e[-1] = 0.0  # as for every position beyond the longest response
            for a, start in enumerate(at[:-1]):
                expected = sum(
                    _definition(w, start, k, rho_bar, c_bar, e, at)
                    for w, _ in responses(batch)
                    if len(w) > start
                )
                assert matrix[a] @ e == pytest.approx(expected, rel=1e-10, abs=1e-10)
        for a, start in enumerate(at[:-1]):
            expected = _source_by_definition(batch, int(start), k, rho_bar, c_bar, at)
            assert source[a] == pytest.approx(expected, rel=1e-9, abs=1e-10)


def _equation(field: _Field, state: SweepState, k: int | None, q: int) -> tuple[Array, Array]:
    """Matrix and source that the field hands to its solver."""
    caught: list[tuple[Array, Array]] = []
    from brace_diag.estimators import sweep_share

    kept = sweep_share._back_substituted

    def catch(matrix: Array, source: Array) -> Array:
        caught.append((matrix[0], source[0]))
        return kept(matrix, source)

    sweep_share._back_substituted = catch
    try:
        windows = None
        if k is not None:
            n = len(state.finite_k)
            at = state.windows.array.sum(axis=0)[state.finite_k.tolist().index(k) :: n]
            windows = at[None, :, q * kernels.N_WINDOW : (q + 1) * kernels.N_WINDOW]
        field.solve(k, windows)
    finally:
        sweep_share._back_substituted = kept
    return caught[0]


def _walk(w: Array, start: int, k: int | None, c_bar: float) -> tuple[int, Array]:
    """End of the window and C from the start to it."""
    stop = len(w) if k is None else min(start + k, len(w))
    trace = SETTINGS.gamma * SETTINGS.lam * np.minimum(w[start:stop], c_bar)
    return stop, np.concatenate([[1.0], np.cumprod(trace)])


def _definition(
    w: Array, start: int, k: int | None, rho_bar: float, c_bar: float, e: Array, at: Array
) -> float:
    stop, trace = _walk(w, start, k, c_bar)

    def value(t: int) -> float:
        return float(np.interp(t, at, e))

    total = 0.0
    for t in range(start, stop):
        c = trace[t - start]
        if t == len(w) - 1:
            total -= c * value(t)
        else:
            total += c * min(w[t], rho_bar) * (SETTINGS.gamma * value(t + 1) - value(t))
    return total - (trace[stop - start] * value(stop) if stop < len(w) else 0.0)


def _source_by_definition(
    batch: Rollouts, start: int, k: int | None, rho_bar: float, c_bar: float, at: Array
) -> float:
    """Σ C ρ D, D less its C-weighted mean over the tokens of the cell."""
    cells: dict[int, list[tuple[float, float, float]]] = {}
    for w, d in responses(batch):
        if len(w) <= start:
            continue
        stop, trace = _walk(w, start, k, c_bar)
        for t in range(start, min(stop, len(w) - 1)):
            cell = int(np.searchsorted(at, t, side="right")) - 1
            cells.setdefault(cell, []).append((trace[t - start], min(w[t], rho_bar), d[t]))
    total = 0.0
    for tokens in cells.values():
        c, rho, d = (np.array(x) for x in zip(*tokens, strict=True))
        total += float(np.sum(c * rho * (d - np.sum(c * d) / np.sum(c))))
    return total


def test_the_solver_solves() -> None:
    rng = np.random.default_rng(2)
    matrix = np.triu(rng.normal(size=(3, 6, 7)), 0)
    for a in range(6):
        matrix[:, a, a] = -1.0 - rng.random(3)
    source = rng.normal(size=(3, 6))
    for r in range(3):
        expected = np.linalg.solve(matrix[r, :, :6], -source[r])[0]
        assert _back_substituted(matrix, source)[r] == pytest.approx(expected, rel=1e-12)


def test_the_part_of_the_way_is_where_the_line_meets_the_diagonal() -> None:
    """Shares at λ = 0, 1/4, ..: s = .8 - .2 s gives 2/3; outside 0..1 the ends hold."""
    lam = np.array(kernels.PATHS)
    lines = np.stack([0.8 - 0.2 * lam, 1.3 - 0.1 * lam, -0.4 + 0.1 * lam])
    assert _consistent(lines) == pytest.approx([2.0 / 3.0, 1.2, -0.4], abs=1e-6)


def test_the_tokens_sums_are_those_of_the_targets() -> None:
    batch = a_batch()
    state = summed(batch)
    sums = state.tokens.array[:, 0].sum(axis=0)
    assert batch.values is not None and batch.mu_logprobs is not None
    d = np.concatenate([d for _, d in responses(batch)])
    w = np.concatenate([w for w, _ in responses(batch)])
    assert sums[:N_COMMON] == pytest.approx([len(d), d.sum(), (d**2).sum()], rel=1e-12)
    above = [float((w > cap).sum()) for cap in (0.9, 1.0, 1.1, 1.2, 1.3)]
    assert state.limits.tolist() == [0.9, 1.0, 1.1, 1.2, 1.3]
    assert sums[N_COMMON : N_COMMON + 5].tolist() == above
    at = N_COMMON + 5
    for rho_bar, c_bar in SETTINGS.caps:
        for k in SETTINGS.windows:
            target = brace_targets(
                batch.mu_logprobs, batch.pi_logprobs, batch.values, batch.rewards,
                offsets=batch.offsets, k=k, rho_bar=rho_bar, c_bar=c_bar, gamma=0.98, lam=0.97,
            )  # fmt: skip
            y = np.asarray(target, np.float64) - batch.values
            own = [y.sum(), (y**2).sum(), np.abs(y).sum()]
            assert sums[at : at + N_POINT] == pytest.approx(own, rel=1e-6)  # float32 values
            at += N_POINT


def test_pulls_are_the_products_of_the_trace() -> None:
    batch = a_batch()
    sums = summed(batch).pulls.array[:, 0].sum(axis=0)
    i = 0
    for _, c_bar in SETTINGS.caps:
        for k in SETTINGS.windows:
            expected = 0.0
            for w, _ in responses(batch):
                j = int(min(k, len(w) - 1))
                expected += float(np.prod(0.98 * 0.97 * np.minimum(w[:j], c_bar)))
            assert sums[i] == pytest.approx(expected, rel=1e-10)
            i += 1


def test_neither_threads_nor_cuts_change_a_bit() -> None:
    batch = a_batch(3, 80)
    whole = summed(batch, threads=1)
    halves = SweepState(SETTINGS)
    info = everything(batch)
    halves.update(batch, info, subset=np.arange(33), threads=2)
    halves.update(batch, info, subset=np.arange(33, 80), threads=2)
    merged = SweepState(SETTINGS)
    merged.update(batch, info, subset=np.arange(33))
    other = SweepState(SETTINGS)
    other.update(batch, info, subset=np.arange(33, 80))
    merged.merge(other)
    for name in ("starts", "cells", "windows", "pulls", "shares", "tokens"):
        own = getattr(whole, name).array
        assert np.array_equal(own, getattr(halves, name).array), name
        # A merge adds two sums where one pass adds rollout by rollout.
        np.testing.assert_allclose(getattr(merged, name).array, own, rtol=1e-12, atol=1e-12)
    assert (whole.longest, whole.n_rollouts) == (merged.longest, merged.n_rollouts) == (40, 80)
