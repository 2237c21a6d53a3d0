"""From what a caller has (packed or padded, any mask, any float type) to packed policy tokens.

Everything that is checked about the arguments of the public functions is checked here, once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError
from brace_diag.targets.layout import Layout, Offsets, fold_rewards, host, make_layout


class Backend:
    """numpy arrays, computed on the CPU. `gpu` has the same for torch tensors."""

    @property
    def kernels(self) -> ModuleType:
        from brace_diag.targets import cpu

        return cpu

    def floats(self, x: Any, name: str) -> Any:
        """`x` as a C-contiguous array of float32 or float64; without a copy where it is one."""
        array = host(x, name)
        if array.dtype.kind == "f" and array.dtype.itemsize in (4, 8):
            return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
        try:
            half = array.dtype.name in ("float16", "bfloat16")
            return np.asarray(array, dtype=np.float32 if half else np.float64, order="C")
        except (TypeError, ValueError):
            raise InputError(
                f"{name} holds {array.dtype}; it must hold real numbers (any float or integer type)"
            ) from None

    def is_float64(self, array: Any) -> bool:
        return bool(array.dtype == np.float64)

    def take(self, array: Any, index: Offsets) -> Any:
        return array[index]

    def empty(self, n_tokens: int, float64: bool) -> Any:
        return np.empty(n_tokens, dtype=np.float64 if float64 else np.float32)

    def restore(self, packed: Any, layout: Layout, fill: float) -> Any:
        """Packed results in the caller's shape, `fill` in the cells that hold no policy token."""
        if layout.index is None:
            return packed.reshape(layout.shape)
        out = np.full(int(np.prod(layout.shape)), fill, dtype=packed.dtype)
        out[layout.index] = packed
        return out.reshape(layout.shape)


@dataclass(frozen=True, slots=True)
class Batch:
    """Arguments ready for the kernels.

    Attributes:
        backend: what the arrays are and where they are computed.
        layout: how to come back to the caller's shape.
        tokens: per-token arrays by name, (n_tokens,) float32 or float64.
        rewards: (n_tokens,) per token, or (n_rollouts, 1) terminal; None if not asked for.
        bootstrap: float64 (n_rollouts,).
        float64: whether the results are float64 (else float32).
    """

    backend: Backend
    layout: Layout
    tokens: Mapping[str, Any]
    rewards: Any
    bootstrap: npt.NDArray[np.float64]
    float64: bool

    def empty(self) -> Any:
        return self.backend.empty(int(self.layout.offsets[-1]), self.float64)

    def restore(self, packed: Any, fill: float = 0.0) -> Any:
        return self.backend.restore(packed, self.layout, fill)


def prepare(
    tokens: Mapping[str, Any],
    *,
    rewards: Any = None,
    offsets: Any = None,
    mask: Any = None,
    bootstrap: Any = None,
) -> Batch:
    """Check and pack the per-token arrays `tokens`; the first decides shape, kind and device.

    Raises: InputError for anything missing, ragged, of a wrong shape or ambiguous.
    """
    lead_name, lead = next(iter(tokens.items()))
    backend = backend_of(lead, lead_name)
    arrays = {name: backend.floats(x, name) for name, x in tokens.items()}
    shape = tuple(arrays[lead_name].shape)
    for name, array in arrays.items():
        if tuple(array.shape) != shape:
            raise InputError(
                f"{name} has shape {tuple(array.shape)}, but {lead_name} has {shape}; "
                "all per-token arrays have one shape"
            )
    layout, flat_mask = make_layout(shape, offsets, mask, lead_name)
    return Batch(
        backend=backend,
        layout=layout,
        tokens={name: pack(backend, array, layout) for name, array in arrays.items()},
        rewards=None if rewards is None else pack_rewards(backend, rewards, layout, flat_mask),
        bootstrap=_per_rollout("bootstrap", 0.0 if bootstrap is None else bootstrap, layout),
        float64=any(backend.is_float64(array) for array in arrays.values()),
    )


def prepare_rewards(
    rewards: Any, *, offsets: Any = None, mask: Any = None, bootstrap: Any = None
) -> Batch:
    """As `prepare` where the rewards are all there is: mask, offsets or they tell the shape."""
    backend = backend_of(rewards, "rewards")
    array = backend.floats(rewards, "rewards")
    shape = tuple(array.shape)
    if mask is not None:
        shape = host(mask, "mask").shape
    elif offsets is not None:
        ends = host(offsets, "offsets").reshape(-1)[-1:]
        shape = (int(ends[0]) if ends.dtype.kind in "iu" and ends.size else 0,)
    layout, flat_mask = make_layout(shape, offsets, mask, "rewards")
    return Batch(
        backend=backend,
        layout=layout,
        tokens={},
        rewards=pack_rewards(backend, array, layout, flat_mask),
        bootstrap=_per_rollout("bootstrap", 0.0 if bootstrap is None else bootstrap, layout),
        float64=backend.is_float64(array),
    )


def backend_of(lead: Any, name: str) -> Backend:
    """The backend that an argument asks for; torch is not imported to find out."""
    if lead is None:
        raise InputError(f"{name} is None; this target needs it")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(lead, torch.Tensor):
        from brace_diag.targets import gpu

        return gpu.backend_of(lead)
    return Backend()


def pack(backend: Backend, array: Any, layout: Layout) -> Any:
    flat = array.reshape(-1)
    return flat if layout.index is None else backend.take(flat, layout.index)


def pack_rewards(
    backend: Backend, rewards: Any, layout: Layout, mask: npt.NDArray[np.bool_] | None
) -> Any:
    """Rewards of the policy tokens (n_tokens,), or terminal rewards (n_rollouts, 1)."""
    shape = np.shape(rewards) if not hasattr(rewards, "shape") else tuple(rewards.shape)
    if not _per_token(shape, layout):
        terminal = _per_rollout("rewards", rewards, layout)
        return terminal.reshape(-1, 1)
    array = backend.floats(rewards, "rewards").reshape(-1)
    if layout.index is None or mask is None:
        return array
    return backend.floats(fold_rewards(host(array, "rewards"), layout, mask), "rewards")


def _per_token(shape: tuple[int, ...], layout: Layout) -> bool:
    """Whether rewards of this shape are one per token (else one per rollout)."""
    n_rollouts = layout.n_rollouts
    if len(layout.shape) == 2:
        return shape == layout.shape
    n_cells = layout.shape[0]
    if shape == (1, n_cells) and n_rollouts != 1:
        return True
    if shape != (n_cells,):
        return False
    if n_cells == n_rollouts and (np.diff(layout.cells) != 1).any():
        raise InputError(
            f"rewards has shape ({n_cells},), and there are {n_cells} tokens and {n_cells} "
            f"rollouts; pass terminal rewards as shape ({n_rollouts}, 1), or rewards per token as "
            f"shape (1, {n_cells})"
        )
    return True


def _per_rollout(name: str, x: Any, layout: Layout) -> npt.NDArray[np.float64]:
    n = layout.n_rollouts
    array = np.asarray(Backend().floats(x, name), dtype=np.float64)
    one_for_all = array.ndim == 0 and (name == "bootstrap" or n == 1)
    if one_for_all:
        return np.full(n, array)
    if array.shape not in ((n,), (n, 1)):
        per_token = "" if name == "bootstrap" else f", or {layout.shape} per token"
        raise InputError(
            f"{name} has shape {array.shape}; allowed: one per rollout, ({n},) or ({n}, 1)"
            f"{per_token}"
        )
    return array.reshape(n)
