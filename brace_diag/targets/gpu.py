"""Targets in torch, on any device that has float64: packed doubling, O(n_tokens log window).

A window of affine maps is built from maps over 1, 2, 4, … tokens (the binary digits of its length).
A map never reaches past its rollout's last token, so a NaN stays within its rollout and its window.
Tensors on the CPU are handed to the numba kernels instead, without a copy.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from brace_diag.errors import InputError
from brace_diag.targets.inputs import Backend
from brace_diag.targets.layout import Layout, Offsets
from brace_diag.targets.recursion import TAIL_RETURN, TAIL_VALUE, Recursion

Tensor = torch.Tensor


def _tensor(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """`array` on the device; a read-only one is copied, since tensors are always writable."""
    return torch.from_numpy(array if array.flags.writeable else array.copy()).to(device)


class OnHost(Backend):
    """Tensors computed by the numba kernels: those on the CPU, or on a device without float64."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def restore(self, packed: Any, layout: Layout, fill: float) -> Tensor:
        return torch.from_numpy(super().restore(packed, layout, fill)).to(self.device)


class OnDevice(Backend):
    """Tensors computed where they lie."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @property
    def kernels(self) -> ModuleType:
        return sys.modules[__name__]

    def floats(self, x: Any, name: str) -> Tensor:
        if not isinstance(x, torch.Tensor):
            return _tensor(super().floats(x, name), self.device)
        if x.device != self.device:
            raise InputError(
                f"{name} is on {x.device}, other arguments on {self.device}; move it there"
            )
        x = x.detach()
        if x.is_complex():
            raise InputError(f"{name} holds {x.dtype}; it must hold real numbers")
        keep = x.dtype in (torch.float32, torch.float64)
        dtype = x.dtype if keep else torch.float32 if x.is_floating_point() else torch.float64
        return torch.as_tensor(x, dtype=dtype)

    def is_float64(self, array: Any) -> bool:
        return bool(array.dtype == torch.float64)

    def take(self, array: Any, index: Offsets) -> Tensor:
        return torch.as_tensor(array[_tensor(index, self.device)])

    def empty(self, n_tokens: int, float64: bool) -> Tensor:
        dtype = torch.float64 if float64 else torch.float32
        return torch.empty(n_tokens, dtype=dtype, device=self.device)

    def restore(self, packed: Any, layout: Layout, fill: float) -> Tensor:
        if layout.index is None:
            return torch.as_tensor(packed.reshape(layout.shape))
        out = torch.full((int(np.prod(layout.shape)),), fill, dtype=packed.dtype).to(self.device)
        out[_tensor(layout.index, self.device)] = packed
        return out.reshape(layout.shape)


def backend_of(lead: Tensor) -> Backend:
    """Where tensors like `lead` are computed."""
    host = lead.device.type in ("cpu", "mps")
    return OnHost(lead.device) if host else OnDevice(lead.device)


def targets(
    rec: Recursion,
    mu_logprobs: Tensor,
    pi_logprobs: Tensor,
    values: Tensor,
    rewards: Any,
    bootstrap: npt.NDArray[np.float64],
    offsets: Offsets,
    out: Tensor,
) -> None:
    """Write the target of every packed token to `out`; arguments as in `cpu.targets`."""
    rows = _Rows(offsets, out.device)
    after = _tensor(bootstrap, out.device)
    r = rows.rewards(rewards)
    end = r[rows.last] + rec.gamma * after[rows.filled]
    v = a = b = following = r  # placeholders where the critic is not read
    if rec.reads_values:
        v = values.double()
        following = rows.next(v, after)
        w = _weights(rec, mu_logprobs, pi_logprobs) if rec.reads_weights else torch.ones_like(v)
        rho, c = w.clamp(max=rec.rho_bar), rec.lam * w.clamp(max=rec.c_bar)
        a = rec.gamma * c
        b = (1 - rho) * v + rho * r + rec.gamma * (rho - c) * following
        a[rows.last] = 0.0
        weighted = (1 - rho[rows.last]) * v[rows.last] + rho[rows.last] * end
        b[rows.last] = end if rec.tail == TAIL_RETURN else weighted
    if rec.window >= rows.longest and rec.reads_values:
        out.copy_(rows.window(a, b, rows.longest)[1])
        return
    if rec.tail == TAIL_VALUE:
        e = v
    else:
        step = r.clone() if rec.tail == TAIL_RETURN else b + (a - rec.gamma) * following
        step[rows.last] = end if rec.tail == TAIL_RETURN else b[rows.last]
        e = rows.window(torch.full_like(step, rec.gamma), step, rows.longest)[1]
    if rec.window == 0:
        out.copy_(e)
        return
    big_a, big_b = rows.window(a, b, rec.window)
    out.copy_(big_b + big_a * rows.ahead(e, rec.window, after))


def log10_kappa(
    rec: Recursion, mu_logprobs: Tensor, pi_logprobs: Tensor, offsets: Offsets, out: Tensor
) -> None:
    """Write log10 of each target's derivative in the last token's reward to `out`."""
    rows = _Rows(offsets, out.device)
    log_w = torch.zeros(len(out), dtype=torch.float64, device=out.device)
    if rec.reads_weights:
        log_w = _log_weights(mu_logprobs, pi_logprobs)
    log_c = rec.log_lam + log_w.clamp(max=float(np.log(rec.c_bar)))
    log_c[rows.last] = 0.0
    whole = rec.tail == TAIL_VALUE
    total = rows.window(torch.ones_like(log_c), log_c, rows.longest if whole else rec.window)[1]
    total = total + rows.horizon.double() * float(np.log(rec.gamma))
    if rec.reads_weights and rec.tail != TAIL_RETURN:
        at_end = log_w.clamp(max=float(np.log(rec.rho_bar)))[rows.last]
        total = total + torch.repeat_interleave(at_end, rows.lengths[rows.filled])
    outside = rows.horizon >= rec.window
    if whole:
        total = torch.where(outside, -torch.inf, total)
    out.copy_(total / float(np.log(10.0)))


def advantages(
    target: Tensor,
    values: Tensor,
    rewards: Any,
    bootstrap: npt.NDArray[np.float64],
    offsets: Offsets,
    gamma: float,
    out: Tensor,
) -> None:
    """Write r_s + γ target_{s+1} - V_s to `out`; after each last token the bootstrap."""
    rows = _Rows(offsets, out.device)
    following = rows.next(target.double(), _tensor(bootstrap, out.device))
    out.copy_(rows.rewards(rewards) + gamma * following - values.double())


def _log_weights(mu_logprobs: Tensor, pi_logprobs: Tensor) -> Tensor:
    """Log w in float64; NaN where a log-prob is missing or mu cannot draw the sample."""
    mu = mu_logprobs.double()
    log_w = pi_logprobs.double() - mu
    return torch.where((log_w == torch.inf) | (mu == torch.inf), torch.nan, log_w)


def _weights(rec: Recursion, mu_logprobs: Tensor, pi_logprobs: Tensor) -> Tensor:
    return torch.exp(_log_weights(mu_logprobs, pi_logprobs).clamp(max=rec.log_cap))


class _Rows:
    """Rollout boundaries of packed tokens, and what moves along a rollout without leaving it."""

    def __init__(self, offsets: Offsets, device: torch.device) -> None:
        lengths = np.diff(offsets)
        self.n_tokens = int(offsets[-1])
        self.longest = int(lengths.max(initial=0))
        self.lengths = _tensor(lengths, device)
        self.filled = self.lengths > 0
        ends = _tensor(offsets[1:], device)
        self.last = ends[self.filled] - 1
        self.horizon = torch.repeat_interleave(ends - 1, self.lengths) - torch.arange(
            self.n_tokens, device=device
        )

    def rewards(self, rewards: Any) -> Tensor:
        """Rewards per token (n_tokens,) float64, from per-token or (n_rollouts, 1) terminal."""
        if rewards.ndim == 1:
            return torch.as_tensor(rewards).double()
        r = torch.zeros(self.n_tokens, dtype=torch.float64, device=self.last.device)
        r[self.last] = _tensor(rewards.reshape(-1), r.device)[self.filled]
        return r

    def next(self, x: Tensor, after: Tensor) -> Tensor:
        """x_{s+1}, and `after` (n_rollouts,) past each last token."""
        following = torch.roll(x, -1)
        following[self.last] = after[self.filled]
        return following

    def ahead(self, x: Tensor, steps: int, after: Tensor) -> Tensor:
        """x_{s+steps}, and `after` (n_rollouts,) where that is past the last token."""
        out = torch.repeat_interleave(after, self.lengths)
        n = self.n_tokens - steps
        if n > 0:
            out[:n] = torch.where(self.horizon[:n] >= steps, x[steps:], out[:n])
        return out

    def window(self, a: Tensor, b: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """f_s ∘ … ∘ f_{j-1}, j = min(s + length, T), for every s: its slope and its offset."""
        length = min(length, self.longest)
        big_a, big_b = torch.ones_like(a), torch.zeros_like(b)
        covered, span = 0, 1
        while span <= length:
            if length & span:
                big_a, big_b = self._then(big_a, big_b, a, b, covered)
                covered += span
            if 2 * span <= length:
                a, b = self._then(a, b, a, b, span)
            span *= 2
        return big_a, big_b

    def _then(
        self, a1: Tensor, b1: Tensor, a2: Tensor, b2: Tensor, ahead: int
    ) -> tuple[Tensor, Tensor]:
        """The map at s composed with the one at s + ahead, if that is in the same rollout."""
        n = self.n_tokens - ahead
        a, b = a1.clone(), b1.clone()
        inside = self.horizon[:n] >= ahead
        b[:n] = torch.where(inside, b1[:n] + a1[:n] * b2[ahead:], b1[:n])
        a[:n] = torch.where(inside, a1[:n] * a2[ahead:], a1[:n])
        return a, b
