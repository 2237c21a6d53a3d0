"""Which settings of a corrected target would recover how much of the gap, at which price."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brace_diag.errors import InputError
from brace_diag.quality import DataQuality
from brace_diag.results import Estimate, Gate
from brace_diag.settings import TargetSpec

if TYPE_CHECKING:
    import polars as pl

PAPER_DEFAULT = (100.0, 1.2, 1.1)
"""k, rho_bar, c_bar of the paper's training runs."""


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """The grid of a sweep.

    Attributes:
        k: windows in tokens, whole numbers from 1, or inf for the whole rest of the response.
        rho_bar, c_bar: caps, above 0 and finite; only pairs with c_bar <= rho_bar are asked.
        gamma: discount per policy token, in (0, 1]; lam: decay of the trace, in [0, 1].
        level: of the intervals, in (0, 1).
    """

    k: tuple[float, ...] = (16.0, 64.0, 100.0, 256.0, math.inf)
    rho_bar: tuple[float, ...] = (1.0, 1.2, 2.0)
    c_bar: tuple[float, ...] = (1.0, 1.1, 1.2, 2.0)
    gamma: float = 1.0
    lam: float = 1.0
    level: float = 0.95

    def __post_init__(self) -> None:
        for name in ("k", "rho_bar", "c_bar"):
            values = tuple(sorted({float(x) for x in getattr(self, name)}))
            object.__setattr__(self, name, values)
            if not values:
                raise InputError(f"{name} is empty; a sweep needs at least one")
        for k in self.k:
            if not (k == math.inf or (k >= 1 and k == int(k))):
                raise InputError(f"k is {k:g}; a sweep takes whole numbers from 1, and inf")
        for name in ("rho_bar", "c_bar"):
            for cap in getattr(self, name):
                if not 0 < cap < math.inf:
                    raise InputError(f"{name} is {cap:g}; in a sweep it must be above 0 and finite")
        if min(self.c_bar) > max(self.rho_bar):
            raise InputError(
                f"every c_bar ({min(self.c_bar):g} and up) is above every rho_bar (up to "
                f"{max(self.rho_bar):g}); a sweep asks c_bar <= rho_bar, as the target does"
            )
        if not 0.0 < self.gamma <= 1.0:
            raise InputError(f"gamma is {self.gamma:g}; it must be above 0 and at most 1")
        if not 0.0 <= self.lam <= 1.0:
            raise InputError(f"lam is {self.lam:g}; it must lie between 0 and 1")
        if not 0.0 < self.level < 1.0:
            raise InputError(f"level is {self.level}; it must lie strictly between 0 and 1")

    @property
    def caps(self) -> tuple[tuple[float, float], ...]:
        """Pairs (rho_bar, c_bar) of the grid with c_bar <= rho_bar, and the paper's."""
        own = {(rho, c) for rho in self.rho_bar for c in self.c_bar if c <= rho}
        return tuple(sorted(own | {PAPER_DEFAULT[1:]}))

    @property
    def windows(self) -> tuple[float, ...]:
        """Values of k, the paper's among them."""
        return tuple(sorted({*self.k, PAPER_DEFAULT[0]}))

    def asked(self, k: float, rho_bar: float, c_bar: float) -> bool:
        """Whether a point is of the grid, or the paper's own."""
        if (k, rho_bar, c_bar) == PAPER_DEFAULT:
            return True
        return k in self.k and rho_bar in self.rho_bar and c_bar in self.c_bar

    def to_dict(self) -> dict[str, Any]:
        return {
            "k": [_k(k) for k in self.k],
            "rho_bar": list(self.rho_bar),
            "c_bar": list(self.c_bar),
            "gamma": self.gamma,
            "lam": self.lam,
            "level": self.level,
        }


@dataclass(frozen=True, slots=True)
class SweepSetting:
    """One point of the grid: a brace target and what the log says it would do.

    Attributes:
        k, rho_bar, c_bar: the target's parameters; k is inf for the whole rest.
        share: share of the gap at the first token that the fixed point recovers; 1 is all of it.
        residual_bound: γ^k times the largest |b| at positions from k on, in the unit of the
            return; 0 where no response is so long, None where it cannot be told.
        pull: E[γ^j C_{0:j}], j the end of the window: the weight that one fit puts on the return
            that was realised. What is left leans on the critic's own values.
        variance_ratio: variance of target - V over tokens, against that of the return - V.
        clip_share_rho, clip_share_c: share of tokens whose w lies above the cap.
        distance: mean |target - V| over tokens.
    """

    k: float
    rho_bar: float
    c_bar: float
    share: Estimate
    residual_bound: float | None
    pull: Estimate
    variance_ratio: Estimate
    clip_share_rho: Estimate
    clip_share_c: Estimate
    distance: Estimate

    @property
    def label(self) -> str:
        """The target as it is typed, e.g. `brace:k=100,rho_bar=1.2,c_bar=1.1`."""
        return TargetSpec.of("brace", k=self.k, rho_bar=self.rho_bar, c_bar=self.c_bar).label

    def to_dict(self) -> dict[str, Any]:
        return {
            "target": self.label,
            "k": _k(self.k),
            "rho_bar": self.rho_bar,
            "c_bar": self.c_bar,
            "share": self.share.to_dict(),
            "residual_bound": self.residual_bound,
            "pull": self.pull.to_dict(),
            "variance_ratio": self.variance_ratio.to_dict(),
            "clip_share_rho": self.clip_share_rho.to_dict(),
            "clip_share_c": self.clip_share_c.to_dict(),
            "distance": self.distance.to_dict(),
        }


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
            "target": self.label,
            "reason": self.reason,
            "chosen": self.chosen.to_dict(),
            "paper_default": self.paper_default.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Sweep:
    """What each setting of a grid would do, from one pass over a run.

    Attributes:
        source, settings, quality: what was read, what was asked for, what the log held.
        b_hat: gap at the first token, in the unit of the return.
        gate: trust in it.
        longest: policy tokens of the longest rollout: larger windows are all the same.
        points: every setting, by rho_bar, c_bar and k; the paper's default among them.
        recommendation: None where the log tells no share; `no_recommendation` says why.
        invalid: why no number here measures staleness, or None.
        notes: sentences that a reader must see.
    """

    source: str
    settings: SweepSettings
    quality: DataQuality
    b_hat: Estimate
    gate: Gate
    longest: int
    points: tuple[SweepSetting, ...]
    recommendation: Recommendation | None
    no_recommendation: str | None
    invalid: str | None
    notes: tuple[str, ...]

    def at(self, k: float, rho_bar: float, c_bar: float) -> SweepSetting:
        """One point. Raises: InputError where it is not of the grid."""
        for point in self.points:
            if (point.k, point.rho_bar, point.c_bar) == (k, rho_bar, c_bar):
                return point
        raise InputError(f"k={k:g}, rho_bar={rho_bar:g}, c_bar={c_bar:g} is not of the grid")

    def column_of(self, point: SweepSetting) -> float:
        """The window that a point counts as: inf for each that holds the longest response."""
        return point.k if point.k < self.longest else math.inf

    @property
    def doubt(self) -> str | None:
        """Why shares cannot be relied on; None where all can."""
        return next((point.share.reason for point in self.points if point.share.reason), None)

    def to_dict(self) -> dict[str, Any]:
        """The `results` block of the JSON document."""
        found = self.recommendation
        return {
            "b_hat": self.b_hat.to_dict(),
            "gate": self.gate,
            "longest": self.longest,
            "points": [point.to_dict() for point in self.points],
            "recommendation": None if found is None else found.to_dict(),
            "no_recommendation": self.no_recommendation,
            "invalid": self.invalid,
        }

    def to_frame(self) -> pl.DataFrame:
        """One row per setting: parameters, every figure and the ends of its interval."""
        import polars as pl

        return pl.DataFrame([_row(point) for point in self.points], infer_schema_length=None)


_FIGURES: Sequence[str] = (
    "share",
    "pull",
    "variance_ratio",
    "clip_share_rho",
    "clip_share_c",
    "distance",
)


def _row(point: SweepSetting) -> dict[str, Any]:
    row: dict[str, Any] = {
        "target": point.label,
        "k": point.k,
        "rho_bar": point.rho_bar,
        "c_bar": point.c_bar,
        "residual_bound": point.residual_bound,
    }
    for name in _FIGURES:
        own: Estimate = getattr(point, name)
        row |= {name: own.value, f"{name}_low": own.ci_low, f"{name}_high": own.ci_high}
    return row


def _k(k: float) -> int | None:
    """JSON has no infinity: null is the whole rest of the response."""
    return int(k) if math.isfinite(k) else None
