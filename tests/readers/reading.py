"""Helpers of the reader tests: made-up logs, and batches of `Rollouts` joined for comparison."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from brace_diag.rollouts import Rollouts

PER_TOKEN = (
    "mu_logprobs", "pi_logprobs", "values", "versions", "entropy", "prox_logprobs", "loss_mask",
    "token_ids",
)  # fmt: skip


def log(n: int = 60, seed: int = 0, *, dense: bool = False, float64: bool = False) -> pa.Table:
    """A log of n rollouts over steps 0, 1, .. of ten rows, with masks, nulls and empty rows."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, n)
    lengths[rng.random(n) < 0.1] = 0
    kind = pa.float64() if float64 else pa.float32()

    def floats(draw: Any, null: float = 0.0) -> pa.Array:
        rows = [np.float32(draw(m)).astype(float).tolist() for m in lengths]
        rows = [[x if rng.random() >= null else None for x in row] for row in rows]
        return pa.array(rows, pa.list_(kind))

    columns = {
        "step": pa.array(np.arange(n) // 10),
        "prompt_id": pa.array([f"p{i % 7}" if rng.random() > 0.1 else None for i in range(n)]),
        "mu_logprobs": floats(lambda m: -rng.exponential(size=m) - 0.01, 0.02),
        "pi_logprobs": floats(lambda m: -rng.exponential(size=m) - 0.01),
        "values": floats(lambda m: rng.random(m)),
        "policy_mask": pa.array([(rng.random(m) < 0.7).tolist() for m in lengths]),
        "trainer_version": pa.array(np.arange(n) // 10 + 1),
        "behavior_version": pa.array([int(x) if x else None for x in rng.integers(0, 3, n)]),
        "truncated": pa.array((rng.random(n) < 0.3).tolist()),
        "bootstrap_value": pa.array(rng.random(n).round(2)),
    }
    if dense:
        columns["rewards"] = floats(lambda m: (rng.random(m) < 0.3) * 1.0)
    else:
        columns["reward"] = pa.array([x if x < 0.9 else None for x in rng.random(n).round(3)])
    return pa.table(columns)


def joined(batches: Iterable[Rollouts]) -> dict[str, Any]:
    """Batches end to end, as columns; what no batch has is None."""
    parts = list(batches)
    out: dict[str, Any] = {"quality": None, "dense": next(p.dense for p in parts)}
    assert all(p.dense == out["dense"] for p in parts)
    for field in dataclasses.fields(Rollouts):
        name = field.name
        values = [getattr(part, name) for part in parts]
        if name == "quality":
            out[name] = sum(values[1:], values[0])
        elif name == "offsets":
            out["lengths"] = np.concatenate([part.lengths for part in parts])
        elif name not in ("dense", "token_index"):
            assert len({value is None for value in values}) == 1, name
            out[name] = None if values[0] is None else np.concatenate(values)
    # Where a chunk has no masked token its index is None, and stands for the places themselves.
    out["token_index"] = np.concatenate([_places(part) for part in parts])
    return out


def _places(part: Rollouts) -> np.ndarray[Any, Any]:
    if part.token_index is not None:
        return part.token_index
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(n) for n in part.lengths)])


def assert_equal(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        if isinstance(a[name], np.ndarray):
            assert a[name].dtype == b[name].dtype, name
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)
        else:
            assert a[name] == b[name], name
