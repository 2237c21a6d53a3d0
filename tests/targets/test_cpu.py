"""The numba kernels against the oracle, at sizes where blocks and windows meet awkwardly."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest

from brace_diag.targets import cpu
from brace_diag.targets.recursion import recursion

# Both sides sum up to 130 terms of order 1, weighted by products below 1e3: 1e-16 each.
CLOSE = {"rtol": 1e-11, "atol": 1e-12}


def run(batch, rec, rewards, dtype=np.float64):
    out = np.full(len(batch.values), 77.0, dtype=dtype)
    cpu.targets(rec, batch.mu, batch.pi, batch.values, rewards, batch.bootstrap, batch.offsets, out)
    return out


def test_targets_at_awkward_sizes(
    target, flavour, lengths, windows, parameters, rng, make_batch, expected
):
    batch = make_batch(lengths, rng)
    for window in windows:
        given = parameters(target, window, flavour)
        rec = recursion(target, **given)
        np.testing.assert_allclose(
            run(batch, rec, batch.rewards),
            expected(batch, target, **given),
            err_msg=f"per-token rewards, window {window}",
            **CLOSE,
        )
        np.testing.assert_allclose(
            run(batch, rec, batch.terminal.reshape(-1, 1)),
            expected(batch, target, rewards=batch.terminal_per_token(), **given),
            err_msg=f"terminal rewards, window {window}",
            **CLOSE,
        )


def test_log10_kappa_at_awkward_sizes(
    target, flavour, lengths, windows, parameters, rng, make_batch, expected_kappa
):
    batch = make_batch(lengths, rng)
    for window in windows:
        given = parameters(target, window, flavour)
        out = np.full(len(batch.values), 77.0)
        cpu.log10_kappa(recursion(target, **given), batch.mu, batch.pi, batch.offsets, out)
        np.testing.assert_allclose(
            out, expected_kappa(batch, target, **given), err_msg=f"window {window}", **CLOSE
        )


def test_many_ragged_rollouts(target, parameters, rng, make_batch, expected):
    batch = make_batch(rng.integers(0, 40, size=200), rng)
    given = parameters(target, 7, "discounted")
    got = run(batch, recursion(target, **given), batch.rewards)
    np.testing.assert_allclose(got, expected(batch, target, **given), **CLOSE)


def test_float32_is_the_reference_rounded_once(target, parameters, rng, make_batch, expected):
    batch = make_batch((0, 5, 64, 200), rng, dtype=np.float32)
    given = parameters(target, 16, "discounted")
    got = run(batch, recursion(target, **given), batch.rewards, np.float32)
    wanted = expected(batch, target, **given)
    # Half a unit of float32, and the float64 error in front of the rounding.
    assert np.all(np.abs(got - wanted) <= 0.5001 * np.spacing(np.abs(wanted).astype(np.float32)))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("n_rollouts", [0, 1, 2, 3, 7])
def test_any_number_of_threads_and_rollouts(threads, n_rollouts, rng, make_batch, expected):
    before = numba.get_num_threads()
    numba.set_num_threads(min(threads, before))
    try:
        batch = make_batch(rng.integers(0, 9, size=n_rollouts), rng)
        got = run(batch, recursion("brace", k=3), batch.rewards)
    finally:
        numba.set_num_threads(before)
    np.testing.assert_allclose(got, expected(batch, "brace", k=3), **CLOSE)


def test_concurrent_callers_get_their_own_answers(rng, make_batch):
    batches = [make_batch(rng.integers(0, 300, size=40), rng) for _ in range(8)]
    rec = recursion("brace", k=10)
    alone = [run(batch, rec, batch.rewards) for batch in batches]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda batch: run(batch, rec, batch.rewards), batches))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_read_only_inputs_are_read_in_place(rng, make_batch, expected):
    batch = make_batch((4, 9), rng)
    for array in (batch.mu, batch.pi, batch.values, batch.rewards, batch.offsets):
        array.flags.writeable = False
    got = run(batch, recursion("brace", k=2), batch.rewards)
    np.testing.assert_allclose(got, expected(batch, "brace", k=2), **CLOSE)
