"""The result of writing value targets into a log: what was written, and how the targets differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brace_diag.quality import DataQuality
from brace_diag.results import Estimate
from brace_diag.settings import TargetSpec

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class TargetFigures:
    """One target of a log.

    Estimates are over the policy tokens at which every target of the log, the return and the
    critic are known, rows that repeat an earlier one left out, so that targets can be compared.

    Attributes:
        spec: the target.
        columns: names of its columns by kind: target, advantage, log10_kappa.
        mean, variance: over tokens.
        minus_return: mean of target - return to go, paired.
        distance: mean |target - V|, None where the log has no critic.
        outside: share of tokens whose target no return of the log reaches, or None where all
            returns are one.
        correlation: with the other targets by label, with `return`, and with `values`.
        null_share: share of policy tokens whose target is null.
        nulls: entries of the column that are null, by reason: off_mask, log_prob, value, reward,
            overflow.
    """

    spec: TargetSpec
    columns: Mapping[str, str]
    mean: Estimate
    variance: Estimate
    minus_return: Estimate
    distance: Estimate | None
    outside: Estimate | None
    correlation: Mapping[str, Estimate]
    null_share: float
    nulls: Mapping[str, int]

    @property
    def label(self) -> str:
        return self.spec.label

    def to_dict(self) -> dict[str, Any]:
        return {
            "columns": dict(self.columns),
            "mean": self.mean.to_dict(),
            "variance": self.variance.to_dict(),
            "minus_return": self.minus_return.to_dict(),
            "distance_to_values": None if self.distance is None else self.distance.to_dict(),
            "outside_share": None if self.outside is None else self.outside.to_dict(),
            "correlation": {name: e.to_dict() for name, e in self.correlation.items()},
            "null_share": self.null_share,
            "nulls": dict(self.nulls),
        }


@dataclass(frozen=True, slots=True)
class TargetsWritten:
    """A log with targets, written.

    Attributes:
        source: what was read, in words; path: the file that was written.
        device: where the targets were computed, cpu or cuda.
        quality: what was read, and what was set aside.
        targets: in the order asked for.
        return_mean, return_variance: of the return to go, over the same tokens.
        values_mean, values_variance: of the critic, None where the log has none.
        return_range: smallest and largest total reward of the log; None where none is known.
        gamma: discount of the return.
        n_rows: rows written.
        n_compared: tokens that the estimates are over.
        level: of the intervals.
        notes: what a reader must know, a sentence each.
    """

    source: str
    path: str
    device: str
    quality: DataQuality
    targets: tuple[TargetFigures, ...]
    return_mean: Estimate
    return_variance: Estimate
    values_mean: Estimate | None
    values_variance: Estimate | None
    return_range: tuple[float, float] | None
    gamma: float
    n_rows: int
    n_compared: int
    level: float
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        values = None
        if self.values_mean is not None and self.values_variance is not None:
            values = _pair(self.values_mean, self.values_variance)
        return {
            "path": self.path,
            "device": self.device,
            "n_rows": self.n_rows,
            "n_compared": self.n_compared,
            "targets": {figures.label: figures.to_dict() for figures in self.targets},
            "return": _pair(self.return_mean, self.return_variance),
            "values": values,
            "return_range": None if self.return_range is None else list(self.return_range),
        }

    def to_frame(self) -> pl.DataFrame:
        """One row per target: label, column, estimates with standard errors, nulls."""
        import polars as pl

        rows = []
        for figures in self.targets:
            row: dict[str, Any] = {"target": figures.label, "column": figures.columns["target"]}
            for name in ("mean", "variance", "minus_return", "distance", "outside"):
                estimate: Estimate | None = getattr(figures, name)
                row[name] = None if estimate is None else estimate.value
                row[f"{name}_se"] = None if estimate is None else estimate.se
            row |= {f"correlation_{n}": e.value for n, e in figures.correlation.items()}
            rows.append(row | {"null_share": figures.null_share})
        return pl.DataFrame(rows, infer_schema_length=None)


def _pair(mean: Estimate, variance: Estimate) -> dict[str, Any]:
    return {"mean": mean.to_dict(), "variance": variance.to_dict()}
