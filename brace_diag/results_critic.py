"""Results of the critic's fit: frozen objects that plots, reports and the command line read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError
from brace_diag.quality import DataQuality
from brace_diag.results import Curve, Estimate
from brace_diag.settings import By, StalenessKind, TargetSpec

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class CriticSettings:
    """What `critic_fit` is asked for.

    Attributes:
        targets: value targets that the critic is compared with.
        gamma: discount per policy token of the returns, in (0, 1].
        level: level of the intervals, in (0, 1).
        by: key of the keyed estimates, or None.
        staleness: which token's version makes the key `staleness`.
    """

    targets: tuple[TargetSpec, ...]
    gamma: float = 1.0
    level: float = 0.95
    by: By | None = None
    staleness: StalenessKind = "first"

    def __post_init__(self) -> None:
        if not 0.0 < self.gamma <= 1.0:
            raise InputError(f"gamma is {self.gamma}; it must be above 0 and at most 1")
        if not 0.0 < self.level < 1.0:
            raise InputError(f"level is {self.level}; it must lie strictly between 0 and 1")
        for name, allowed in (
            ("by", (None, "step", "staleness")),
            ("staleness", ("first", "last")),
        ):
            value = getattr(self, name)
            if value not in allowed:
                choices = ", ".join(str(a) for a in allowed if a is not None)
                raise InputError(f"{name} is {value!r}; allowed: {choices}")

    def to_dict(self) -> dict[str, Any]:
        return {
            "targets": [spec.label for spec in self.targets],
            "gamma": self.gamma,
            "level": self.level,
            "by": self.by,
            "staleness": self.staleness,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Density:
    """Tokens by critic value and target, between fixed edges.

    Attributes:
        edges: (n_edges,) the same for both axes; the outermost bins are open.
        critic, target: (n,) bin of each pair that occurs; bin i holds edges[i-1] <= x < edges[i].
        count: int64 (n,) its tokens.
    """

    edges: npt.NDArray[np.float64]
    critic: npt.NDArray[np.int64]
    target: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]

    def to_dict(self) -> dict[str, Any]:
        return {
            "edges": self.edges.tolist(),
            "critic_bin": self.critic.tolist(),
            "target_bin": self.target.tolist(),
            "count": self.count.tolist(),
        }


@dataclass(frozen=True, slots=True)
class TargetFit:
    """The critic against one target.

    Attributes:
        distance: mean |target - V| over tokens; difference: mean target - V.
        by_position: distance by position, each cell with its `difference`; None for a key.
        density: tokens by critic value and target; None where it is not kept.
    """

    distance: Estimate
    difference: Estimate
    by_position: Curve | None
    density: Density | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "distance": self.distance.to_dict(),
            "difference": self.difference.to_dict(),
            "by_position": None if self.by_position is None else self.by_position.to_dict(),
            "density": None if self.density is None else self.density.to_dict(),
        }


FIT_NAMES = ("explained_variance", "slope", "intercept", "mean_error", "share_outside")


@dataclass(frozen=True, slots=True)
class FitFigures:
    """How the critic fits the returns, over tokens.

    Attributes:
        explained_variance: EV = 1 - Var(G - V) / Var(G).
        slope, intercept: of G on V by least squares; 1 and 0 for a calibrated critic.
        mean_error: mean V - G; above 0 the critic is too high for mu.
        share_outside: share of values outside the reachable range of returns.
    """

    explained_variance: Estimate
    slope: Estimate
    intercept: Estimate
    mean_error: Estimate
    share_outside: Estimate

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name).to_dict() for name in FIT_NAMES}


@dataclass(frozen=True, slots=True)
class KeyedFit:
    """The fit of one step or one staleness."""

    key: int
    fit: FitFigures
    targets: Mapping[str, TargetFit]

    def to_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "fit": self.fit.to_dict(),
            "targets": {label: target.to_dict() for label, target in self.targets.items()},
        }


@dataclass(frozen=True, slots=True)
class ValueExtent:
    """Returns that the log shows reachable, and the values that the critic gives.

    Attributes:
        return_low, return_high: smallest and largest return to go; None where none is known.
        value_low, value_high: smallest and largest critic value; None where none was judged.
    """

    return_low: float | None
    return_high: float | None
    value_low: float | None
    value_high: float | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "return_low": self.return_low,
            "return_high": self.return_high,
            "value_low": self.value_low,
            "value_high": self.value_high,
        }


@dataclass(frozen=True, slots=True)
class CriticFit:
    """How well the critic fits the returns it saw, and how far it is from its targets.

    Returns are mu's: the critic is judged against V^mu. Its staleness is `value_gap`'s question.

    Attributes:
        source: what was read, in words.
        settings, quality: what was asked for and what the log held.
        fit: explained variance, calibration line, mean error, share outside the range.
        explained_variance: EV by position.
        calibration: mean return by bins of the critic's value (axis `critic`: low <= V < high),
            each cell with `mean_critic` and `share` of tokens.
        extent: range of returns and of values.
        targets: by label, in the order asked for.
        invalid: why the critic cannot be judged at all, None where it can.
        by: keyed fits, in order of the key.
        notes: sentences that a reader must see.
    """

    source: str
    settings: CriticSettings
    quality: DataQuality
    fit: FitFigures
    explained_variance: Curve
    calibration: Curve
    extent: ValueExtent
    targets: Mapping[str, TargetFit]
    invalid: str | None
    by: tuple[KeyedFit, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The `results` block of the JSON document."""
        results: dict[str, Any] = {
            "fit": self.fit.to_dict(),
            "explained_variance": self.explained_variance.to_dict(),
            "calibration": self.calibration.to_dict(),
            "extent": self.extent.to_dict(),
            "targets": {label: target.to_dict() for label, target in self.targets.items()},
            "invalid": self.invalid,
        }
        if self.settings.by is not None:
            results["by"] = {"key": self.settings.by, "entries": [k.to_dict() for k in self.by]}
        return results

    def to_frame(self) -> pl.DataFrame:
        """One row per position cell: EV and the distance to every target, with their errors."""
        import polars as pl

        rows = []
        for i, cell in enumerate(self.explained_variance.cells):
            row: dict[str, Any] = {"low": cell.low, "high": cell.high}
            row |= {"n_tokens": cell.estimate.n_tokens, "n_rollouts": cell.estimate.n_rollouts}
            row |= _value_and_se("explained_variance", cell.estimate)
            for label, target in self.targets.items():
                if target.by_position is not None:
                    row |= _value_and_se(label, target.by_position.cells[i].estimate)
            rows.append(row)
        return pl.DataFrame(rows, infer_schema_length=None)


def _value_and_se(name: str, estimate: Estimate) -> dict[str, float | None]:
    return {name: estimate.value, f"{name}_se": estimate.se}


def finite(value: float) -> float | None:
    """A number, or None where it is none."""
    return float(value) if math.isfinite(value) else None
