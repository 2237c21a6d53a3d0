"""Which settings of a corrected target would recover how much of the gap, at which price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from brace_diag.results import Estimate


@dataclass(frozen=True, slots=True)
class SweepSetting:
    """One point of the grid: a brace target and what the log says it would do.

    Attributes:
        k, rho_bar, c_bar: the target's parameters; inf where there is no cap.
        share: share of the gap at the first token that the fixed point recovers; 1 is all of it.
        residual_bound: γ^k times the largest |b| at positions from k on.
        pull: mean trace E[C] at the end of the window: weight of the critic's far values in a fit.
        variance_ratio: variance of target - V over that of the Monte-Carlo return - V.
        clip_share_rho, clip_share_c: share of tokens whose w lies above the cap.
        distance: mean |target - V| over tokens.
    """

    k: float
    rho_bar: float
    c_bar: float
    share: Estimate
    residual_bound: Estimate
    pull: Estimate
    variance_ratio: Estimate
    clip_share_rho: Estimate
    clip_share_c: Estimate
    distance: Estimate

    def to_dict(self) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The settings to train with, and why.

    Attributes:
        label: the target as it is typed, e.g. `brace:k=512,rho_bar=2,c_bar=1`.
        reason: why these, in a sentence or two with their numbers.
        chosen: what the log says of them.
        paper_default: the same for k = 100, rho_bar = 1.2, c_bar = 1.1.
    """

    label: str
    reason: str
    chosen: SweepSetting
    paper_default: SweepSetting

    def to_dict(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "reason": self.reason,
            "chosen": self.chosen.to_dict(),
            "paper_default": self.paper_default.to_dict(),
        }
