"""V-trace against rlax and torchrl, on random ragged data."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import rlax
import torch
from torchrl.objectives.value.functional import vtrace_advantage_estimate

from brace_diag.targets import gae_targets, vtrace_targets

LENGTHS = (1, 2, 17, 64, 5, 130)
# All sides are float64 recursions over at most 130 terms of order 1.
CLOSE = {"rtol": 1e-11, "atol": 1e-12}


@pytest.mark.parametrize(("gamma", "lam", "rho_bar"), [(1.0, 1.0, 1.0), (0.97, 0.9, 1.5)])
def test_rlax(gamma, lam, rho_bar, rng, make_batch):
    batch = make_batch(LENGTHS, rng)
    wanted = np.empty(len(batch.values))
    with jax.enable_x64(True):
        for i, cells in batch.rollouts():
            values = np.append(batch.values[cells], batch.bootstrap[i])
            errors = rlax.vtrace(
                values[:-1],
                values[1:],
                batch.rewards[cells],
                np.full(len(values) - 1, gamma),
                np.exp(batch.pi[cells] - batch.mu[cells]),
                lambda_=lam,
                clip_rho_threshold=rho_bar,
            )
            wanted[cells] = np.asarray(errors) + values[:-1]
    got = vtrace_targets(
        batch.mu,
        batch.pi,
        batch.values,
        batch.rewards,
        offsets=batch.offsets,
        bootstrap=batch.bootstrap,
        rho_bar=rho_bar,
        gamma=gamma,
        lam=lam,
    )
    np.testing.assert_allclose(got, wanted, **CLOSE)


def test_rlax_lambda_returns_are_gae_targets(rng, make_batch):
    batch = make_batch(LENGTHS, rng)
    wanted = np.empty(len(batch.values))
    with jax.enable_x64(True):
        for i, cells in batch.rollouts():
            following = np.append(batch.values[cells][1:], batch.bootstrap[i])
            discount = np.full(len(following), 0.97)
            wanted[cells] = rlax.lambda_returns(
                batch.rewards[cells], discount, following, lambda_=0.9
            )
    got = gae_targets(
        batch.values,
        batch.rewards,
        offsets=batch.offsets,
        bootstrap=batch.bootstrap,
        gamma=0.97,
        lam=0.9,
    )
    np.testing.assert_allclose(got, wanted, **CLOSE)


# torchrl forms the discount in float32: 31/32 is exact there.
@pytest.mark.parametrize(("gamma", "rho_bar", "c_bar"), [(1.0, 1.0, 1.0), (31 / 32, 1.2, 1.1)])
def test_torchrl(gamma, rho_bar, c_bar, rng, make_batch):
    """torchrl packs trajectories end to end too, and cuts them where `done` is set."""
    batch = make_batch(LENGTHS, rng)
    last = batch.offsets[1:] - 1
    following = np.roll(batch.values, -1)
    following[last] = batch.bootstrap
    done = np.zeros(len(batch.values), dtype=bool)
    done[last] = True
    column = [
        torch.from_numpy(x).reshape(-1, 1)
        for x in (batch.pi, batch.mu, batch.values, following, batch.rewards, done)
    ]
    _, wanted = vtrace_advantage_estimate(
        gamma,
        *column,
        terminated=torch.zeros_like(column[-1]),  # so that the bootstrap counts
        rho_thresh=torch.tensor(rho_bar, dtype=torch.float64),
        c_thresh=torch.tensor(c_bar, dtype=torch.float64),
    )
    got = vtrace_targets(
        *(torch.from_numpy(x) for x in (batch.mu, batch.pi, batch.values, batch.rewards)),
        offsets=batch.offsets,
        bootstrap=batch.bootstrap,
        rho_bar=rho_bar,
        c_bar=c_bar,
        gamma=gamma,
    )
    np.testing.assert_allclose(got.numpy(), wanted.reshape(-1).numpy(), **CLOSE)
