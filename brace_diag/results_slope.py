"""Result of the reward slope: how much of the reward reaches each value target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brace_diag.quality import DataQuality
from brace_diag.results import Curve, Estimate
from brace_diag.settings import SlopeSettings, TargetSpec

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class Trend:
    """A line of the slope on log2(h + 1) over octaves of remaining horizon.

    Attributes:
        slope: change of beta per doubling of h + 1; 0 where every horizon learns alike.
        intercept: beta that the line has at h = 0.
        misfit: p-value of the slopes lying on a line; small: they do not. None where there is no
            test.
    """

    slope: Estimate
    intercept: Estimate
    misfit: float | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "slope": self.slope.to_dict(),
            "intercept": self.intercept.to_dict(),
            "misfit": self.misfit,
        }


@dataclass(frozen=True, slots=True)
class OverallSlope:
    """The same figures over all horizons at once; slopes from deviations within each cell."""

    within: Estimate
    pooled: Estimate
    return_weight: Estimate

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name).to_dict() for name in OVERALL_NAMES}


OVERALL_NAMES = ("within", "pooled", "return_weight")


@dataclass(frozen=True, slots=True)
class TargetSlopes:
    """One target: curves over remaining horizon h, 0 at the last policy token.

    Attributes:
        spec: the target.
        within: slope of target - V on G - V, both less their means over the prompt's rollouts.
        pooled: the same slope with one intercept for all prompts; beside each cell
            `target_on_return`, the slope of the target itself on G, and its floor
            `critic_on_return`, the slope of V on G.
        return_weight: mean of γ^h C, C the product of the trace's c over the target's window.
        kappa_log10_median: median of log10 κ, κ = ∂ target / ∂ R; beside each cell `mean` of κ,
            `p05` and `p95` of log10 κ, and `zero_share`, the share of tokens with κ = 0.
        overall: over all horizons.
        trend: lines through `within` and `pooled`, by those names.
    """

    spec: TargetSpec
    within: Curve
    pooled: Curve
    return_weight: Curve
    kappa_log10_median: Curve
    overall: OverallSlope
    trend: Mapping[str, Trend]

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name).to_dict() for name in CURVE_NAMES} | {
            "overall": self.overall.to_dict(),
            "trend": {name: line.to_dict() for name, line in self.trend.items()},
        }


CURVE_NAMES = ("within", "pooled", "return_weight", "kappa_log10_median")


@dataclass(frozen=True, slots=True)
class KeyedSlope:
    """Overall figures of one step or one staleness, by label of the target."""

    key: int
    overall: Mapping[str, OverallSlope]

    def to_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "overall": {label: figures.to_dict() for label, figures in self.overall.items()},
        }


@dataclass(frozen=True, slots=True)
class RewardSlope:
    """How much of the reward reaches each value target, by remaining horizon.

    Attributes:
        source: what was read, in words.
        settings, quality: what was asked for and what the log held.
        slopes: by label of the target, in the order asked for.
        lengths: least and largest number of policy tokens of a rollout used, None without one.
        invalid: why no figure that rests on ratios can be believed, None where the log is sound.
        by: keyed figures, in order of the key.
        notes: sentences that a reader must see.
    """

    source: str
    settings: SlopeSettings
    quality: DataQuality
    slopes: Mapping[str, TargetSlopes]
    lengths: tuple[int, int] | None
    invalid: str | None
    by: tuple[KeyedSlope, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The `results` block of the JSON document."""
        results: dict[str, Any] = {
            "slopes": {label: slopes.to_dict() for label, slopes in self.slopes.items()},
            "lengths": None if self.lengths is None else list(self.lengths),
            "invalid": self.invalid,
        }
        if self.settings.by is not None:
            results["by"] = {"key": self.settings.by, "entries": [k.to_dict() for k in self.by]}
        return results

    def to_frame(self) -> pl.DataFrame:
        """One row per target and cell of horizon: slopes, return weight and κ."""
        import polars as pl

        rows = []
        for label, slopes in self.slopes.items():
            curves = [getattr(slopes, name).cells for name in CURVE_NAMES]
            for cells in zip(*curves, strict=True):
                row: dict[str, Any] = {"target": label, "low": cells[0].low, "high": cells[0].high}
                for name, cell in zip(CURVE_NAMES, cells, strict=True):
                    row[name] = cell.estimate.value
                    if name != "kappa_log10_median":
                        row |= {
                            f"{name}_{end}": getattr(cell.estimate, end)
                            for end in ("se", "ci_low", "ci_high")
                        }
                kappa = cells[-1].companions
                row |= {f"kappa_log10_{name}": kappa[name] for name in ("p05", "p95")}
                mean = kappa["mean"]
                row["kappa_mean"] = mean.value if isinstance(mean, Estimate) else None
                row["kappa_zero_share"] = kappa["zero_share"]
                row["n_tokens"] = cells[1].estimate.n_tokens
                row["n_rollouts"] = cells[1].estimate.n_rollouts
                rows.append(row)
        return pl.DataFrame(rows, infer_schema_length=None)
