"""Where the policy tokens of each rollout lie among the cells that a caller passed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the policy tokens of each rollout lie among the caller's cells.

    Attributes:
        shape: shape of the caller's per-token arrays, (n_cells,) or (n_rollouts, width).
        cells: first flat cell of each rollout, (n_rollouts + 1,).
        offsets: first packed policy token of each rollout, (n_rollouts + 1,).
        index: flat cell of every policy token, (n_tokens,); None where all cells are.
    """

    shape: tuple[int, ...]
    cells: Offsets
    offsets: Offsets
    index: Offsets | None

    @property
    def n_rollouts(self) -> int:
        return len(self.cells) - 1


def host(x: Any, name: str) -> npt.NDArray[Any]:
    """`x` as a numpy array; a torch tensor loses its gradient and comes from its device.

    What a masked array hides is missing: NaN.
    """
    if x is None:
        raise InputError(f"{name} is None; this target needs it")
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        if str(x.dtype) == "torch.bfloat16":  # numpy has no such type; float32 holds it exactly
            x = x.float()
        return np.asarray(x.numpy())
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        kind = x.dtype if x.dtype.kind == "f" else np.float64
        return np.where(np.ma.getmaskarray(x), np.nan, x.data).astype(kind)
    try:
        return np.asarray(x)
    except ValueError:
        raise InputError(f"{name} is ragged; pad it, or pack it and pass offsets") from None


def make_layout(
    shape: tuple[int, ...], offsets: Any, mask: Any, name: str
) -> tuple[Layout, npt.NDArray[np.bool_] | None]:
    """The layout and the flat mask (None where every cell is a policy token)."""
    if len(shape) == 2:
        if offsets is not None:
            raise InputError(
                f"{name} has shape {shape} and offsets are given; offsets go with packed 1-D arrays"
            )
        cells = np.arange(shape[0] + 1, dtype=np.int64) * shape[1]
    elif len(shape) == 1:
        whole = np.array([0, shape[0]], dtype=np.int64)
        cells = whole if offsets is None else _offsets(offsets, shape[0])
    else:
        raise InputError(
            f"{name} has shape {shape}; allowed: (n_tokens,) with offsets, or (n_rollouts, width)"
        )
    if mask is None:
        return Layout(shape, cells, cells, None), None
    flat = _mask(mask, shape, name)
    if flat.all():
        return Layout(shape, cells, cells, None), None
    before = np.concatenate(([0], np.cumsum(flat, dtype=np.int64)))
    return Layout(shape, cells, before[cells], np.flatnonzero(flat)), flat


def _offsets(offsets: Any, n_cells: int) -> Offsets:
    array = host(offsets, "offsets")
    if array.ndim != 1 or array.dtype.kind not in "iu" or len(array) == 0:
        raise InputError(
            f"offsets has shape {array.shape} and type {array.dtype}; "
            "it must be integers of shape (n_rollouts + 1,)"
        )
    array = np.ascontiguousarray(array, dtype=np.int64)
    if array[0] != 0 or array[-1] != n_cells:
        raise InputError(
            f"offsets run from {array[0]} to {array[-1]}; they must run from 0 to the number of "
            f"tokens, {n_cells}"
        )
    if (falls := np.flatnonzero(np.diff(array) < 0)).size:
        i = int(falls[0])
        raise InputError(
            f"offsets fall from {array[i]} to {array[i + 1]} at rollout {i}; they must not decrease"
        )
    return array


def _mask(mask: Any, shape: tuple[int, ...], name: str) -> npt.NDArray[np.bool_]:
    array = host(mask, "mask")
    if array.shape != shape:
        raise InputError(f"mask has shape {array.shape}, but {name} has {shape}; they must agree")
    if array.dtype != np.bool_:
        try:
            odd = array[(array != 0) & (array != 1)]
        except TypeError:
            odd = array.reshape(-1)
        if odd.size:
            raise InputError(f"mask holds {odd[0]}; allowed: true and false, or 1 and 0")
    return np.asarray(array != 0).reshape(-1)


def fold_rewards(
    rewards: npt.NDArray[Any], layout: Layout, mask: npt.NDArray[np.bool_]
) -> npt.NDArray[Any]:
    """Move each reward on a non-policy cell to the policy token before it, or else to the first.

    What is not a number there is padding. A rollout without policy tokens keeps no reward.
    """
    folded = rewards[mask]
    stray = np.flatnonzero(~mask & (rewards != 0) & np.isfinite(rewards))
    row = np.searchsorted(layout.cells, stray, side="right") - 1
    kept = layout.offsets[row + 1] > layout.offsets[row]
    stray, row = stray[kept], row[kept]
    if stray.size:
        before = np.cumsum(mask)[stray]
        folded = folded.astype(np.float64)
        np.add.at(folded, np.maximum(before - 1, layout.offsets[row]), rewards[stray])
    return folded
