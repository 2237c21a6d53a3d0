"""Builders of `Rollouts`: from Arrow columns, padded arrays, or one list per rollout.

All three decode their input into the same logged columns and share `assemble`, where the data
contract is checked. Rules that need a choice:

- The length of a row is that of its lists; a list that is null is missing, not empty. A row whose
  lists are all null has no token; it counts in `n_null_rows` and not in `n_empty`.
- A row whose policy mask is null keeps all of its tokens; a null inside a mask is False.
- Empty rollouts are False in `has_w`, `has_values` and `has_reward`, so that they touch nothing.
- Versions below 0 are unknown. In a log with `versions` and no `behavior_version`, the latter is
  the version of the first policy token that has one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag import rollouts_kernels as kernels
from brace_diag.hashing import hash_ids, null_ids, stable_hash
from brace_diag.quality import DataQuality
from brace_diag.rollouts import UNKNOWN, Rollouts
from brace_diag.rollouts_clean import clean_logprobs, clean_values
from brace_diag.rollouts_columns import (
    NO_TOKEN_ID,
    TOKEN_FLOATS,
    ListColumn,
    list_column,
    read_only,
)
from brace_diag.rollouts_columns import scalar_column as scalar_column_of
from brace_diag.rollouts_layout import Layout, layout_of, pack
from brace_diag.rollouts_rewards import bootstrap_of, rewards_of
from brace_diag.rollouts_schema import COLUMNS

# Counts of log-probs that do not keep a rollout out of w statistics.
_HARMLESS = ("mu_positive", "pi_positive", "pi_zero")


@dataclass(slots=True)
class LoggedRows:
    """Decoded columns of one batch of rows, before any rule is applied.

    Attributes:
        rows: int64 (n_rows,), number of each row among all rows that are read of the run.
        file_rows: int64 (n_rows,), number of each row in its file, for errors.
        lists, scalars: columns by canonical name.
        ids: id columns by canonical name, as logged.
        where: words that name the source in errors.
        wide: store token columns as float64; None: only if any of them is float64.
    """

    rows: npt.NDArray[np.int64]
    file_rows: npt.NDArray[np.int64]
    lists: dict[str, ListColumn] = field(default_factory=dict)
    scalars: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    ids: dict[str, Any] = field(default_factory=dict)
    where: str = ""
    wide: bool | None = None


def from_arrow(
    table: Any,
    *,
    where: str = "",
    first_row: int = 0,
    file_rows: npt.NDArray[np.int64] | None = None,
    wide: bool | None = None,
) -> Rollouts:
    """`Rollouts` of an Arrow table or record batch with canonical column names.

    Float lists without nulls, fills or masked tokens are not copied: the arrays of the result are
    views of the Arrow buffers. Columns with other names are ignored.

    Args:
        table: pyarrow Table or RecordBatch.
        where: words that name the source in errors ("run.parquet").
        first_row: number of the first row among all rows that are read of the run.
        file_rows: int64 (n_rows,), number of each row in its file, for errors; default: from 0.
        wide: store token columns as float64; default: float32 unless one of them is wider.

    Raises: SchemaError if a column has a wrong type, or the lists of a row differ in length.
    """
    counted = np.arange(table.num_rows, dtype=np.int64)
    logged = LoggedRows(
        rows=counted + first_row,
        file_rows=counted if file_rows is None else file_rows,
        where=where,
        wide=wide,
    )
    for name in table.schema.names:
        if name in COLUMNS:
            _decode(logged, name, table.column(name))
    return assemble(logged)


def _decode(logged: LoggedRows, name: str, array: Any) -> None:
    """Put one Arrow column where it belongs."""
    column = COLUMNS[name]
    if column.is_list:
        logged.lists[name] = list_column(array, name, logged.where)
    elif column.kind == "id":
        logged.ids[name] = array
    else:
        logged.scalars[name] = scalar_column_of(array, name, logged.where)


def assemble(logged: LoggedRows) -> Rollouts:
    """The data contract, checked once: masks, lengths, missing numbers, rewards, clusters."""
    # In the order of the contract, so that an error names the columns in that order.
    lists = {name: logged.lists[name] for name in COLUMNS if name in logged.lists}
    n_rows = len(logged.rows)
    layout = layout_of(lists, n_rows, logged.where, logged.file_rows)
    tokens = _token_floats(lists, layout, logged.wide)
    mu, pi, counts = clean_logprobs(
        tokens.get("mu_logprobs"), tokens.get("pi_logprobs"), layout.offsets
    )
    values, values_missing = clean_values(tokens.get("values"))
    rewards = rewards_of(lists.get("rewards"), logged.scalars.get("reward"), layout)
    bootstrap, bootstrap_counts = bootstrap_of(logged.scalars, layout)
    full = np.diff(layout.offsets) > 0
    unusable = {name: n for name, n in counts.items() if name not in _HARMLESS}
    has_w = _judged(kernels.rows_with_w, (mu, pi), layout, unusable)
    has_values = _judged(kernels.rows_finite, (values,), layout, {"v": values_missing})
    versions = _versions(lists, logged.scalars, layout)
    counts |= rewards.counts | bootstrap_counts | _row_counts(lists, layout)
    counts |= {
        "values_missing": values_missing,
        "rollouts_without_w": 0 if mu is None or pi is None else int((full & ~has_w).sum()),
        "rollouts_without_values": 0 if values is None else int((full & ~has_values).sum()),
        "prompts_missing": _missing_prompts(logged.ids.get("prompt_id"), full),
        "versions_odd": versions.odd,
    }
    rollout_id = logged.ids.get("rollout_id")
    return Rollouts(
        offsets=read_only(layout.offsets),
        rewards=rewards.rewards,
        dense=rewards.dense,
        mu_logprobs=mu,
        pi_logprobs=pi,
        values=values,
        bootstrap=bootstrap,
        prompt=read_only(hash_ids(logged.ids.get("prompt_id"), logged.rows)),
        has_w=read_only(has_w),
        has_values=read_only(has_values),
        has_reward=rewards.has_reward,
        quality=DataQuality(**counts),
        row=read_only(logged.rows),
        step=_optional(logged.scalars.get("step")),
        trainer_version=_optional(versions.trainer),
        behavior_version=_optional(versions.behavior),
        versions=versions.tokens,
        truncated=_optional(logged.scalars.get("truncated")),
        entropy=tokens.get("entropy"),
        prox_logprobs=tokens.get("prox_logprobs"),
        loss_mask=_packed(lists, "loss_mask", layout, True, np.bool_),
        token_ids=_packed(lists, "token_ids", layout, NO_TOKEN_ID, np.int64),
        rollout_id=None if rollout_id is None else read_only(stable_hash(rollout_id)),
        token_index=read_only(layout.places) if len(layout.places) or layout.n_masked else None,
    )


def _token_floats(
    lists: dict[str, ListColumn], layout: Layout, wide: bool | None
) -> dict[str, npt.NDArray[np.floating[Any]]]:
    """Float columns packed, all of one width, so that compiled code meets one type."""
    present = {name: lists[name] for name in TOKEN_FLOATS if name in lists}
    if wide is None:
        wide = any(column.flat.dtype == np.float64 for column in present.values())
    dtype = np.float64 if wide else np.float32
    return {name: pack(column, layout, np.nan, dtype) for name, column in present.items()}


def _packed(
    lists: dict[str, ListColumn], name: str, layout: Layout, fill: Any, dtype: Any
) -> npt.NDArray[Any] | None:
    return pack(lists[name], layout, fill, dtype) if name in lists else None


def _judged(
    judge: Any, arrays: tuple[Any, ...], layout: Layout, unusual: dict[str, int]
) -> npt.NDArray[np.bool_]:
    """Rows that `judge` finds complete; not asked where nothing unusual was counted."""
    if any(array is None for array in arrays):
        return np.zeros(len(layout.offsets) - 1, dtype=np.bool_)
    if not any(unusual.values()):
        return np.diff(layout.offsets) > 0
    rows: npt.NDArray[np.bool_] = judge(*arrays, layout.offsets)
    return rows


def _row_counts(lists: dict[str, ListColumn], layout: Layout) -> dict[str, int]:
    full = np.diff(layout.offsets) > 0
    null = np.zeros(len(full), dtype=np.bool_)
    if "mu_logprobs" in lists:
        null = ~lists["mu_logprobs"].row_validity()
    return {
        "n_rows": len(full),
        "n_rollouts": int(full.sum()),
        "n_tokens": layout.n_tokens,
        "n_empty": int((~full & ~(null & (layout.logged == 0))).sum()),
        "n_null_rows": int(null.sum()),
        "n_tokens_masked": layout.n_masked,
    }


def _missing_prompts(ids: Any, full: npt.NDArray[np.bool_]) -> int:
    return int(full.sum()) if ids is None else int((full & null_ids(ids)).sum())


@dataclass(slots=True)
class _Versions:
    trainer: npt.NDArray[np.int64] | None
    behavior: npt.NDArray[np.int64] | None
    tokens: npt.NDArray[np.int64] | None
    odd: int


def _versions(
    lists: dict[str, ListColumn], scalars: dict[str, npt.NDArray[Any]], layout: Layout
) -> _Versions:
    """Versions with everything negative as UNKNOWN, and how many rollouts contradict themselves."""
    n_rows = len(layout.offsets) - 1
    trainer = _known(scalars.get("trainer_version"))
    behavior = _known(scalars.get("behavior_version"))
    tokens = _known(_packed(lists, "versions", layout, UNKNOWN, np.int64))
    if tokens is not None and behavior is None:
        behavior = kernels.first_known(tokens, layout.offsets, UNKNOWN)
    if behavior is None:
        return _Versions(trainer, None, None, 0)
    odd = kernels.rows_version_odd(
        np.zeros(0, dtype=np.int64) if tokens is None else tokens,
        layout.offsets,
        np.full(n_rows, UNKNOWN) if trainer is None else trainer,
        behavior,
        tokens is not None,
    )
    packed = None if tokens is None else read_only(tokens)
    return _Versions(trainer, behavior, packed, int(odd.sum()))


def _known(versions: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64] | None:
    return None if versions is None else np.where(versions < 0, UNKNOWN, versions)


def _optional(array: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
    return None if array is None else read_only(array)
