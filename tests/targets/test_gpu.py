"""The torch path against the oracle, on the CPU: the same code runs on any device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from brace_diag import targets as public
from brace_diag.errors import InputError
from brace_diag.targets import gpu
from brace_diag.targets.recursion import recursion

# As for the numba kernels: up to 130 terms of order 1 with products below 1e3.
CLOSE = {"rtol": 1e-11, "atol": 1e-12}


def tensors(batch):
    return [torch.from_numpy(x) for x in (batch.mu, batch.pi, batch.values)]


@pytest.fixture
def on_device(monkeypatch):
    """Tensors on the CPU go the way that those on an accelerator go."""
    monkeypatch.setattr(gpu, "backend_of", lambda lead: gpu.OnDevice(lead.device))


def test_targets_at_awkward_sizes(
    target, flavour, lengths, windows, parameters, rng, make_batch, expected
):
    batch = make_batch(lengths, rng)
    terminal = batch.terminal.reshape(-1, 1)
    for window in windows:
        given = parameters(target, window, flavour)
        for rewards, per_token in (
            (torch.from_numpy(batch.rewards), batch.rewards),
            (terminal, batch.terminal_per_token()),
        ):
            out = torch.full((len(batch.values),), 77.0, dtype=torch.float64)
            gpu.targets(
                recursion(target, **given),
                *tensors(batch),
                rewards,
                batch.bootstrap,
                batch.offsets,
                out,
            )
            wanted = expected(batch, target, rewards=per_token, **given)
            np.testing.assert_allclose(out.numpy(), wanted, err_msg=f"window {window}", **CLOSE)


def test_log10_kappa_at_awkward_sizes(
    target, flavour, lengths, windows, parameters, rng, make_batch, expected_kappa
):
    batch = make_batch(lengths, rng)
    for window in windows:
        given = parameters(target, window, flavour)
        out = torch.full((len(batch.values),), 77.0, dtype=torch.float64)
        gpu.log10_kappa(recursion(target, **given), *tensors(batch)[:2], batch.offsets, out)
        np.testing.assert_allclose(
            out.numpy(), expected_kappa(batch, target, **given), err_msg=f"{window}", **CLOSE
        )


@pytest.mark.parametrize("rewards", ["rewards", "terminal"])
def test_public_functions_on_a_device(target, rewards, rng, make_batch, on_device):
    batch = make_batch((3, 0, 7, 1), rng, dtype=np.float32)
    function = getattr(public, f"{target}_targets")
    arguments = batch.arguments(target, getattr(batch, rewards))
    both = {"offsets": batch.offsets, "bootstrap": batch.bootstrap, "gamma": 0.9}
    got = function(*map(torch.from_numpy, arguments), **both)
    assert got.dtype == torch.float32
    # Two float64 results rounded to float32: at most one unit apart.
    np.testing.assert_allclose(got.numpy(), function(*arguments, **both), rtol=1.2e-7, atol=1e-12)


@pytest.mark.parametrize("hole", [float("nan"), 1e30])
def test_padded_with_holes_on_a_device(hole, rng, on_device):
    shape = (4, 9)
    mask = rng.random(shape) < 0.6
    mask[2] = False
    mu, values, rewards = (rng.standard_normal(shape) for _ in range(3))
    pi = mu + 0.2 * rng.standard_normal(shape)
    wanted = public.brace_targets(mu, pi, values, rewards, mask=mask, k=2)
    kappa = public.log10_kappa(mu, pi, mask=mask, k=2)
    for array in (mu, pi, values):
        array[~mask] = hole
    mu, pi, values, rewards = map(torch.from_numpy, (mu, pi, values, rewards))
    tensor_mask = torch.from_numpy(mask)
    got = public.brace_targets(mu, pi, values, rewards, mask=tensor_mask, k=2)
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-13, atol=1e-13)
    assert (got[~tensor_mask] == 0).all()
    got = public.log10_kappa(mu, pi, mask=tensor_mask, k=2)
    np.testing.assert_allclose(got.numpy(), kappa, rtol=1e-13, atol=1e-13)
    got = public.advantages(values, values, rewards, mask=tensor_mask)
    wanted = public.advantages(*(x.numpy() for x in (values, values, rewards)), mask=mask)
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-13, atol=1e-13)


def test_missing_ratios_stay_in_their_windows_on_a_device(rng, make_batch, on_device):
    batch = make_batch((6, 6, 6), rng)
    batch.mu[9] = np.nan
    mu, pi, values = tensors(batch)
    terminal = torch.from_numpy(batch.terminal)
    offsets = torch.from_numpy(batch.offsets).to(torch.int32)
    for target, k in (("brace", 2), ("brace", 4), ("capped", 2), ("vtrace", 3)):
        function = getattr(public, f"{target}_targets")
        window = {"n": k} if target == "vtrace" else {"k": k}
        got = function(mu, pi, values, terminal, offsets=offsets, **window).numpy()
        wanted = function(
            batch.mu, batch.pi, batch.values, batch.terminal, offsets=batch.offsets, **window
        )
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
        assert np.isnan(got).any()
        assert np.isfinite(got[:6]).all()
        assert np.isfinite(got[12:]).all()


def test_read_only_numpy_arguments_on_a_device(rng, make_batch, on_device):
    batch = make_batch((4, 9), rng)
    for array in (batch.mu, batch.values, batch.rewards, batch.offsets, batch.bootstrap):
        array.flags.writeable = False
    both = {"offsets": batch.offsets, "bootstrap": batch.bootstrap, "k": 2}
    arguments = batch.arguments("brace", batch.rewards)
    got = public.brace_targets(torch.tensor(batch.mu), *arguments[1:], **both)
    np.testing.assert_allclose(got.numpy(), public.brace_targets(*arguments, **both), rtol=1e-13)


def test_no_tokens_on_a_device(on_device):
    nothing = torch.empty(0)
    got = public.brace_targets(
        nothing, nothing, nothing, torch.ones(2, 1), offsets=torch.tensor([0, 0, 0])
    )
    assert got.shape == (0,)
    assert public.mc_targets(torch.ones(0, 5)).shape == (0, 5)


def test_types_on_a_device(on_device):
    half = torch.tensor([0.5, 0.25], dtype=torch.bfloat16, requires_grad=True)
    got = public.gae_targets(half, torch.tensor([1]))
    assert got.dtype == torch.float32
    assert not got.requires_grad
    assert got.tolist() == [1.0, 1.0]
    assert public.gae_targets(torch.tensor([1, 2]), np.ones(2)).dtype == torch.float64
    with pytest.raises(InputError, match=r"values holds torch\.complex64"):
        public.gae_targets(torch.ones(2, dtype=torch.complex64), torch.ones(2))
    with pytest.raises(InputError, match="pi_logprobs is on meta, other arguments on cpu"):
        public.log10_kappa(torch.ones(2), torch.ones(2, device="meta"))
