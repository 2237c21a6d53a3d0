"""`Rollouts`: packed policy tokens; the only shape of a log that estimators and targets see.

The data contract is checked once, where a `Rollouts` is built (see `rollouts_build`): off-policy
tokens are gone, missing numbers are NaN, rewards sit on policy tokens, every exception is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag.quality import DataQuality

Floats = npt.NDArray[np.floating[Any]]
UNKNOWN = np.iinfo(np.int64).min
"""Step, trainer or behaviour version that the log does not tell; never 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Rollouts:
    """A batch of rollouts, tokens packed end to end in log order.

    Rollout i owns tokens offsets[i] .. offsets[i+1]-1; tokens the policy did not sample are not
    there. Empty rollouts (no policy token) are kept with zero length, so rows stay aligned.

    Attributes:
        offsets: int64 (n_rollouts + 1,), first 0, as Arrow lists and `cu_seqlens` have it.
        rewards: float64, (n_rollouts,) terminal rewards, or (n_tokens,) if `dense`. NaN = missing.
        dense: whether `rewards` is per token.
        mu_logprobs: (n_tokens,) log mu(a_t|s_t) as sampled, or None. NaN = missing or a fill;
            -inf = a sample that mu cannot draw.
        pi_logprobs: (n_tokens,) log pi(a_t|s_t), or None. NaN = missing; -inf = weight 0.
        values: (n_tokens,) critic V(s_t), the state before token t, or None. NaN = missing.
        bootstrap: float64 (n_rollouts,), V after the last policy token; 0 where terminated.
        prompt: uint64 (n_rollouts,) stable hash of the prompt id, the cluster of every interval.
        has_w: bool (n_rollouts,), every log w of the rollout is a number or -inf.
        has_values: bool (n_rollouts,), every value of the rollout is finite.
        has_reward: bool (n_rollouts,), the return is known. Empty rollouts are False in all three;
            a terminal reward that they carry stays in `rewards`.
        quality: counts of what was met on the way.
        row: int64 (n_rollouts,), number of the row among all rows that are read of the run, in
            reading order from 0 (a filter on steps is applied before numbering).
        step: int64 (n_rollouts,) trainer step, `UNKNOWN` where not logged; or None.
        trainer_version, behavior_version: int64 (n_rollouts,), likewise. Where only `versions`
            are logged, `behavior_version` is that of the first policy token.
        versions: int64 (n_tokens,) policy version that sampled each token, or None.
        truncated: bool (n_rollouts,), or None if not logged.
        entropy, prox_logprobs: (n_tokens,) or None.
        loss_mask: bool (n_tokens,) or None.
        token_ids: int64 (n_tokens,) or None.
        rollout_id: uint64 (n_rollouts,) stable hash of the rollout id, or None.
        token_index: int64 (n_tokens,), place of each policy token within its row's own lists, or
            None where every token is a policy token.

    Arrays are read-only: those read from Arrow lists are views of its buffers.
    """

    offsets: npt.NDArray[np.int64]
    rewards: npt.NDArray[np.float64]
    dense: bool
    mu_logprobs: Floats | None
    pi_logprobs: Floats | None
    values: Floats | None
    bootstrap: npt.NDArray[np.float64]
    prompt: npt.NDArray[np.uint64]
    has_w: npt.NDArray[np.bool_]
    has_values: npt.NDArray[np.bool_]
    has_reward: npt.NDArray[np.bool_]
    quality: DataQuality
    row: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64] | None = None
    trainer_version: npt.NDArray[np.int64] | None = None
    behavior_version: npt.NDArray[np.int64] | None = None
    versions: npt.NDArray[np.int64] | None = None
    truncated: npt.NDArray[np.bool_] | None = None
    entropy: Floats | None = None
    prox_logprobs: Floats | None = None
    loss_mask: npt.NDArray[np.bool_] | None = None
    token_ids: npt.NDArray[np.int64] | None = None
    rollout_id: npt.NDArray[np.uint64] | None = None
    token_index: npt.NDArray[np.int64] | None = None

    @property
    def n_rollouts(self) -> int:
        """Rows of the batch, empty ones included."""
        return len(self.offsets) - 1

    @property
    def n_tokens(self) -> int:
        """Policy tokens of the batch."""
        return int(self.offsets[-1])

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Policy tokens of each rollout, (n_rollouts,)."""
        return np.diff(self.offsets)

    @property
    def group(self) -> npt.NDArray[np.int64]:
        """Hash group of each rollout's prompt, (n_rollouts,), in 0 .. N_GROUPS-1."""
        from brace_diag.settings import N_GROUPS

        return (self.prompt % np.uint64(N_GROUPS)).astype(np.int64)

    @property
    def staleness(self) -> npt.NDArray[np.int64] | None:
        """Trainer version - behaviour version, (n_rollouts,); `UNKNOWN` or None as those two."""
        if self.trainer_version is None or self.behavior_version is None:
            return None
        known = (self.trainer_version != UNKNOWN) & (self.behavior_version != UNKNOWN)
        # UNKNOWN is replaced before the subtraction, which would overflow.
        trainer = np.where(known, self.trainer_version, 0)
        behavior = np.where(known, self.behavior_version, 0)
        return np.where(known, trainer - behavior, UNKNOWN)

    @property
    def total_reward(self) -> npt.NDArray[np.float64]:
        """Undiscounted sum of each rollout's rewards, (n_rollouts,); NaN unless `has_reward`."""
        if not self.dense:
            return np.where(self.has_reward, self.rewards, np.nan)
        from brace_diag.rollouts_kernels import row_sums

        return np.where(self.has_reward, row_sums(self.rewards, self.offsets), np.nan)

    @classmethod
    def from_arrow(
        cls,
        table: Any,
        *,
        where: str = "",
        first_row: int = 0,
        file_rows: npt.NDArray[np.int64] | None = None,
        wide: bool | None = None,
    ) -> Rollouts:
        """Build from an Arrow table or record batch; see `rollouts_build.from_arrow`."""
        from brace_diag.rollouts_build import from_arrow

        return from_arrow(table, where=where, first_row=first_row, file_rows=file_rows, wide=wide)

    @classmethod
    def from_padded(cls, *, first_row: int = 0, **columns: Any) -> Rollouts:
        """Build from (n_rollouts, width) arrays; see `rollouts_from_arrays.from_padded`."""
        from brace_diag.rollouts_from_arrays import from_padded

        return from_padded(columns, first_row)

    @classmethod
    def from_lists(cls, *, first_row: int = 0, **columns: Any) -> Rollouts:
        """Build from one list per rollout; see `rollouts_from_arrays.from_lists`."""
        from brace_diag.rollouts_from_arrays import from_lists

        return from_lists(columns, first_row)
