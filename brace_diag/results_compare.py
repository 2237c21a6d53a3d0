"""What compare measures: the same figures of two runs, and their differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brace_diag.quality import DataQuality
from brace_diag.results import Estimate
from brace_diag.results_trend import FigureSettings

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of both runs.

    Attributes:
        name: of `SERIES`, or `gap`.
        low, high: positions of a cell of the gap, both inclusive; None for a figure of the run.
        a, b: the figure of each run.
        difference: b - a with its standard error, from what both owe to the same prompts.
        p_value: of no difference, two-sided; p_holm: adjusted for all figures (or all cells) that
            were tested, after Holm; None where there is no test.
    """

    name: str
    low: int | None
    high: int | None
    a: Estimate
    b: Estimate
    difference: Estimate
    p_value: float | None
    p_holm: float | None

    def to_dict(self) -> dict[str, Any]:
        own: dict[str, Any] = {"name": self.name}
        if self.low is not None:
            own = {"low": self.low, "high": self.high}
        return own | {
            "a": self.a.to_dict(),
            "b": self.b.to_dict(),
            "difference": self.difference.to_dict(),
            "p_value": self.p_value,
            "p_holm": self.p_holm,
        }


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs.

    Attributes:
        source, quality: what was read, and what it held.
        n_prompts: distinct prompts.
        invalid: why no figure of its gap can be believed, or None.
        notes: sentences that a reader must see.
    """

    source: str
    quality: DataQuality
    n_prompts: int
    invalid: str | None
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "quality": self.quality.to_dict(),
            "n_prompts": self.n_prompts,
            "invalid": self.invalid,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """How run b differs from run a.

    Attributes:
        settings: what was asked for.
        a, b: the two runs.
        n_shared_prompts: prompts that both have.
        paired: whether standard errors use what both owe to the same prompts.
        figures: of the runs as wholes, by the names of `SERIES`.
        cells: the gap by position, where both runs have one.
        notes: sentences that a reader must see.
    """

    settings: FigureSettings
    a: Side
    b: Side
    n_shared_prompts: int
    paired: bool
    figures: tuple[Difference, ...]
    cells: tuple[Difference, ...]
    notes: tuple[str, ...]

    def figure(self, name: str) -> Difference:
        """One of `SERIES`. Raises: KeyError."""
        return {own.name: own for own in self.figures}[name]

    def to_dict(self) -> dict[str, Any]:
        """The `results` block of the JSON document."""
        return {
            "a": self.a.to_dict(),
            "b": self.b.to_dict(),
            "n_shared_prompts": self.n_shared_prompts,
            "paired": self.paired,
            "figures": [own.to_dict() for own in self.figures],
            "cells": [own.to_dict() for own in self.cells],
        }

    def to_frame(self) -> pl.DataFrame:
        """One row per figure, then one per cell of the gap."""
        import polars as pl

        rows = [
            {
                "name": own.name,
                "low": own.low,
                "high": own.high,
                "a": own.a.value,
                "b": own.b.value,
                "difference": own.difference.value,
                "se": own.difference.se,
                "ci_low": own.difference.ci_low,
                "ci_high": own.difference.ci_high,
                "p_value": own.p_value,
                "p_holm": own.p_holm,
            }
            for own in (*self.figures, *self.cells)
        ]
        return pl.DataFrame(rows, infer_schema_length=None)
