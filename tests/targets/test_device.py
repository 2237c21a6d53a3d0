"""Where targets are computed: the choice, and that the places agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from brace_diag import InputError, Rollouts
from brace_diag.targets import device
from brace_diag.targets.recursion import recursion


def batch(dense: bool, dtype: Any) -> Rollouts:
    rng = np.random.default_rng(3)
    lengths = [5, 0, 1, 40, 17]
    lists: dict[str, Any] = {
        name: [draw(n).astype(dtype) for n in lengths]
        for name, draw in {
            "mu_logprobs": lambda n: -rng.exponential(size=n),
            "pi_logprobs": lambda n: -rng.exponential(size=n),
            "values": rng.random,
        }.items()
    }
    lists["mu_logprobs"][3][7] = np.nan
    if dense:
        lists["rewards"] = [rng.random(n) for n in lengths]
    else:
        lists["reward"] = rng.random(5)
    return Rollouts.from_lists(
        **lists, truncated=[True, False, False, True, False], bootstrap_value=rng.random(5)
    )


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("brace", {"k": 4, "gamma": 0.97}),
        ("vtrace", {"n": 3}),
        ("capped", {"k": 2}),
        ("mc", {"gamma": 0.98}),
        ("gae", {"lam": 0.9}),
    ],
)
def test_torch_and_numba_agree(
    dense: bool, dtype: Any, name: str, parameters: dict[str, float]
) -> None:
    """torch runs the code of CUDA devices here, on the CPU."""
    rollouts, rec = batch(dense, dtype), recursion(name, **parameters)
    here, there = device.OnCpu().load(rollouts), device.OnTorch("cpu").load(rollouts)
    # Both are float64 inside and rounded once: one unit in the last place of float32 at most.
    tolerance = 2e-7 if dtype == np.float32 else 1e-13
    results = []
    for place in (here, there):
        target, advantage, kappa = (np.zeros(rollouts.n_tokens, dtype) for _ in range(3))
        place.targets(rec, target)
        place.advantages(target, rec.gamma, advantage)
        place.log10_kappa(rec, kappa)
        results.append((target, advantage, kappa))
    for mine, other in zip(*results, strict=True):
        np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance)
        assert mine.any()


def test_auto_takes_cuda_where_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device.device_of("cpu").name == "cpu"
    monkeypatch.setattr(device, "_no_cuda", lambda: None)
    assert device.device_of("auto").name == device.device_of("cuda").name == "cuda"
    monkeypatch.setattr(device, "_no_cuda", lambda: "torch is not installed")
    assert device.device_of("auto").name == "cpu"
    with pytest.raises(InputError, match="device is 'cuda', but torch is not installed; allowed"):
        device.device_of("cuda")


def test_why_there_is_no_cuda_device(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(device, "_DRIVERS", ())
    assert device._no_cuda() == "this machine has no driver of a CUDA device"
    monkeypatch.setattr(device, "_DRIVERS", ("/dev/null",))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device._no_cuda() == "torch finds no CUDA device"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device._no_cuda() is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert device._no_cuda() == "torch is not installed"
