"""Does the trainer's loss mask keep the token that the terminal reward sits on?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from brace_diag.rollouts import Rollouts
from brace_diag.rollouts_kernels import row_sums


@dataclass(slots=True)
class LossMaskCounts:
    """Counts of what a logged loss mask leaves out; they add up over batches.

    Attributes:
        n_tokens, n_kept: policy tokens of rollouts with a loss mask, and those it keeps.
        n_rollouts: rollouts with a known return that is not 0 and at least one kept token.
        n_cut: of those, rollouts whose last policy token it leaves out: the terminal reward enters
            no loss there, only what the critic passes back does.
    """

    n_tokens: int = 0
    n_kept: int = 0
    n_rollouts: int = 0
    n_cut: int = 0

    def update(self, batch: Rollouts, counted: npt.NDArray[np.bool_]) -> None:
        """Add a batch; `counted` (n_rollouts,) leaves copies out."""
        if batch.loss_mask is None or batch.dense:
            return
        kept = row_sums(batch.loss_mask.astype(np.float64), batch.offsets)
        alive = counted & (batch.lengths > 0)
        self.n_tokens += int(batch.lengths[alive].sum())
        self.n_kept += int(kept[alive].sum())
        # A rollout that is left out as a whole was rejected on purpose; nothing was cut from it.
        paid = alive & (kept > 0) & batch.has_reward & (np.nan_to_num(batch.rewards) != 0.0)
        last = batch.offsets[1:][paid] - 1
        self.n_rollouts += int(paid.sum())
        self.n_cut += int((~batch.loss_mask[last]).sum())

    @property
    def told(self) -> bool:
        """Whether the log has a loss mask and terminal rewards."""
        return self.n_tokens > 0

    @property
    def share_cut(self) -> float:
        """Share of paid rollouts whose reward token is left out; 0 where there is none."""
        return self.n_cut / self.n_rollouts if self.n_rollouts else 0.0
