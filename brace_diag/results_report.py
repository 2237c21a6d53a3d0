"""Everything that a report shows of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from brace_diag.results import ValueGap
from brace_diag.results_audit import Audit
from brace_diag.results_critic import CriticFit
from brace_diag.results_importance import ImportanceProducts
from brace_diag.results_slope import RewardSlope
from brace_diag.results_sweep import Sweep
from brace_diag.results_trend import Trend


@dataclass(frozen=True, slots=True)
class Findings:
    """The answers to every question that a log can be asked; None where it cannot answer.

    Attributes:
        audit: the verdict and its checks.
        gap, trend, by_staleness, slope, weights, critic, sweep: as the functions of those
            questions return them.
        missing: why an answer is None, by its name here.
    """

    audit: Audit
    gap: ValueGap | None
    trend: Trend | None
    by_staleness: Trend | None
    slope: RewardSlope | None
    weights: ImportanceProducts | None
    critic: CriticFit | None
    sweep: Sweep | None
    missing: Mapping[str, str]
