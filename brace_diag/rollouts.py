"""`Rollouts`: packed policy tokens of many rollouts; the only shape that estimators and targets see.

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
        has_reward: bool (n_rollouts,), the return is known.
        quality: counts of what was met on the way.
        row: int64 (n_rollouts,), index of the row in the whole run, in reading order.
        step: int64 (n_rollouts,) trainer step, `UNKNOWN` where not logged; or None.
        trainer_version, behavior_version: int64 (n_rollouts,), likewise.
        versions: int64 (n_tokens,) policy version that sampled each token, or None.
        truncated: bool (n_rollouts,), or None if not logged.
        entropy, prox_logprobs: (n_tokens,) or None.
        loss_mask: bool (n_tokens,) or None.
        token_ids: int64 (n_tokens,) or None.
        rollout_id: uint64 (n_rollouts,) stable hash of the rollout id, or None.
        token_index: int64 (n_tokens,), place of each policy token within its row's own lists, or
            None where every token is a policy token.
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
