"""Rewards on policy tokens, and the bootstrap after the last one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag import rollouts_kernels as kernels
from brace_diag.rollouts_columns import ListColumn, read_only
from brace_diag.rollouts_layout import Layout

# float32 lists of up to 10^5 rewards add up to no better than this, relative.
_CONFLICT = 1e-5


@dataclass(frozen=True, slots=True)
class Rewards:
    """Rewards of a batch; fields as in `Rollouts`, and counts by field of `DataQuality`."""

    rewards: npt.NDArray[np.float64]
    dense: bool
    has_reward: npt.NDArray[np.bool_]
    counts: dict[str, int]


def rewards_of(
    per_token: ListColumn | None, per_row: npt.NDArray[np.float64] | None, layout: Layout
) -> Rewards:
    """Rewards from `rewards` (per token), `reward` (per row), or both.

    With both columns a row's `rewards` count if any of them is a number other than 0; else its
    `reward` sits on its last policy token. The rule looks at one row alone, so that the answer
    does not depend on how a log is cut into files.
    """
    if per_row is not None:
        per_row = np.where(np.isfinite(per_row), per_row, np.nan)
    if per_token is None:
        return _terminal(per_row, layout)
    return _dense(per_token, per_row, layout)


def _terminal(per_row: npt.NDArray[np.float64] | None, layout: Layout) -> Rewards:
    full = np.diff(layout.offsets) > 0
    rewards = np.full(len(full), np.nan) if per_row is None else per_row
    known = np.isfinite(rewards)
    counts = {
        "rewards_missing": int((full & ~known).sum()),
        "rewards_on_empty": int((~full & known).sum()),
    }
    return Rewards(read_only(rewards), False, read_only(full & known), counts)


def _dense(column: ListColumn, per_row: npt.NDArray[np.float64] | None, layout: Layout) -> Rewards:
    full = np.diff(layout.offsets) > 0
    flat = read_only(column.flat.astype(np.float64, copy=False))
    out = np.empty(layout.n_tokens)
    valid = column.row_validity()
    folded, on_empty = kernels.fold_rewards(
        flat, column.starts, column.lengths, valid, layout.offsets, layout.places, out
    )
    counts = {"rewards_folded": int(folded), "rewards_on_empty": int(on_empty)}
    if per_row is not None:
        told = kernels.row_nonzero(flat, column.starts, column.lengths, valid)
        _fill_from_rows(out, per_row, told, layout.offsets)
        sums = kernels.row_sums(out, layout.offsets)
        apart = np.abs(sums - per_row) > _CONFLICT * np.maximum(1.0, np.abs(per_row))
        counts["rewards_conflict"] = int((full & told & apart).sum())
        counts["rewards_on_empty"] += int((~full & ~told & np.isfinite(per_row)).sum())
    known = kernels.rows_finite(read_only(out), layout.offsets)
    counts["rewards_missing"] = int((full & ~known).sum())
    return Rewards(read_only(out), True, read_only(known), counts)


def _fill_from_rows(
    out: npt.NDArray[np.float64],
    per_row: npt.NDArray[np.float64],
    told: npt.NDArray[np.bool_],
    offsets: npt.NDArray[np.int64],
) -> None:
    """Rows whose `rewards` say nothing get their `reward` on the last policy token, in place."""
    lengths = np.diff(offsets)
    use = ~told & np.isfinite(per_row) & (lengths > 0)
    out[np.repeat(use, lengths)] = 0.0
    out[offsets[1:][use] - 1] = per_row[use]


def bootstrap_of(
    scalars: dict[str, npt.NDArray[Any]], layout: Layout
) -> tuple[npt.NDArray[np.float64], dict[str, int]]:
    """V after the last policy token, and the counts of truncated rollouts.

    `bootstrap_value` is used where `truncated` is true, or, in a log without that column, where it
    is a number. Everywhere else the bootstrap is 0.
    """
    full = np.diff(layout.offsets) > 0
    value = scalars.get("bootstrap_value")
    value = np.full(len(full), np.nan) if value is None else value
    truncated = scalars.get("truncated")
    known = np.isfinite(value)
    used = known if truncated is None else known & truncated
    cut = np.zeros(len(full), dtype=np.bool_) if truncated is None else full & truncated
    counts = {
        "n_truncated": int(cut.sum()),
        "truncated_without_bootstrap": int((cut & ~known).sum()),
    }
    return read_only(np.where(used, value, 0.0)), counts
