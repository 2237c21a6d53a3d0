"""Where the targets of a whole log are computed: numba on the CPU, or torch on a CUDA device."""

from __future__ import annotations

import importlib.util
import os
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError
from brace_diag.rollouts import Floats, Rollouts
from brace_diag.targets.recursion import Recursion

DEVICES = ("auto", "cpu", "cuda")
# Device files of the drivers that torch's cuda works with: NVIDIA, WSL and ROCm.
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


class Batch(Protocol):
    """Packed tokens where they are computed; every method fills a numpy array (n_tokens,)."""

    def targets(self, rec: Recursion, out: Floats) -> None: ...

    def advantages(self, target: Floats, gamma: float, out: Floats) -> None: ...

    def log10_kappa(self, rec: Recursion, out: Floats) -> None: ...


class Device(Protocol):
    """A place to compute at."""

    @property
    def name(self) -> str: ...

    def load(self, rollouts: Rollouts) -> Batch: ...


def device_of(wanted: str) -> Device:
    """The device of this name; `auto`: cuda where torch finds a device, else the CPU.

    torch is not imported on a machine without the driver of a device.

    Raises: InputError for an unknown name, or for `cuda` where there is none.
    """
    if wanted not in DEVICES:
        raise InputError(f"device is {wanted!r}; allowed: {', '.join(DEVICES)}")
    if wanted == "cpu":
        return OnCpu()
    why_not = _no_cuda()
    if why_not is None:
        return OnTorch("cuda")
    if wanted == "cuda":
        raise InputError(f"device is 'cuda', but {why_not}; allowed here: auto, cpu")
    return OnCpu()


def _no_cuda() -> str | None:
    """Why torch can use no CUDA device here, or None where it can."""
    if not any(os.path.exists(path) for path in _DRIVERS):
        return "this machine has no driver of a CUDA device"
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    return None if torch.cuda.is_available() else "torch finds no CUDA device"


class OnCpu:
    """numba kernels that read the log's arrays in place."""

    name = "cpu"

    def load(self, rollouts: Rollouts) -> Batch:
        return _CpuBatch(rollouts)


class _CpuBatch:
    def __init__(self, rollouts: Rollouts) -> None:
        from brace_diag.targets import cpu

        self.kernels = cpu
        self.mu, self.pi, self.values, self.rewards = packed(rollouts)
        self.bootstrap, self.offsets = rollouts.bootstrap, rollouts.offsets

    def targets(self, rec: Recursion, out: Floats) -> None:
        self.kernels.targets(
            rec, self.mu, self.pi, self.values, self.rewards, self.bootstrap, self.offsets, out
        )

    def advantages(self, target: Floats, gamma: float, out: Floats) -> None:
        self.kernels.advantages(
            target, self.values, self.rewards, self.bootstrap, self.offsets, gamma, out
        )

    def log10_kappa(self, rec: Recursion, out: Floats) -> None:
        self.kernels.log10_kappa(rec, self.mu, self.pi, self.offsets, out)


class OnTorch:
    """torch on one device; each batch is moved there once, whatever is computed of it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def load(self, rollouts: Rollouts) -> Batch:
        return _TorchBatch(rollouts, self.name)


class _TorchBatch:
    def __init__(self, rollouts: Rollouts, device: str) -> None:
        import torch

        from brace_diag.targets import gpu

        self.kernels = gpu

        def move(x: npt.NDArray[Any]) -> Any:
            # A copy: torch refuses arrays that cannot be written.
            return torch.from_numpy(x.copy()).to(device)

        self.move = move
        mu, pi, values, rewards = packed(rollouts)
        self.mu, self.pi, self.values = self.move(mu), self.move(pi), self.move(values)
        self.rewards = self.move(rewards) if rollouts.dense else rewards
        self.bootstrap, self.offsets = rollouts.bootstrap, rollouts.offsets

    def targets(self, rec: Recursion, out: Floats) -> None:
        result = self.move(out)
        self.kernels.targets(
            rec, self.mu, self.pi, self.values, self.rewards, self.bootstrap, self.offsets, result
        )
        out[:] = result.cpu().numpy()

    def advantages(self, target: Floats, gamma: float, out: Floats) -> None:
        result = self.move(target)
        self.kernels.advantages(
            result, self.values, self.rewards, self.bootstrap, self.offsets, gamma, result
        )
        out[:] = result.cpu().numpy()

    def log10_kappa(self, rec: Recursion, out: Floats) -> None:
        result = self.move(out)
        self.kernels.log10_kappa(rec, self.mu, self.pi, self.offsets, result)
        out[:] = result.cpu().numpy()


def packed(rollouts: Rollouts) -> tuple[Any, Any, Any, npt.NDArray[np.float64]]:
    """mu, pi, values, rewards as the kernels take them; what is not logged is NaN, hence missing.

    Terminal rewards are (n_rollouts, 1).
    """
    dtype = token_type(rollouts)
    arrays = [
        np.full(rollouts.n_tokens, np.nan, dtype) if x is None else x
        for x in (rollouts.mu_logprobs, rollouts.pi_logprobs, rollouts.values)
    ]
    rewards = rollouts.rewards if rollouts.dense else rollouts.rewards.reshape(-1, 1)
    return arrays[0], arrays[1], arrays[2], rewards


def token_type(rollouts: Rollouts) -> npt.DTypeLike:
    """float64 where a token column of the batch is, else float32."""
    columns = (rollouts.mu_logprobs, rollouts.pi_logprobs, rollouts.values)
    wide = any(x is not None and x.dtype == np.float64 for x in columns)
    return np.float64 if wide else np.float32
