"""A small `ValueGap` whose every number is known, and ways to vary it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from brace_diag.quality import DataQuality
from brace_diag.results import BATCH_NAMES, BatchFigures, Cell, Curve, Estimate, ValueGap
from brace_diag.settings import GapSettings

GapFactory = Callable[..., ValueGap]


def an_estimate(value: float | None, se: float | None = None, **changes: Any) -> Estimate:
    half = None if se is None or value is None else 2.0 * se
    made = Estimate(
        value=value,
        se=se,
        ci_low=None if half is None or value is None else value - half,
        ci_high=None if half is None or value is None else value + half,
        level=0.95,
        n_tokens=4096,
        n_rollouts=1234,
        n_clusters=32,
        method="by hand",
        reliable=value is not None,
        reason=None if value is not None else "made to be missing",
    )
    return replace(made, **changes)


def a_cell(low: int, high: int, b: float | None, gate: str = "good") -> Cell:
    return Cell(
        low,
        high,
        an_estimate(b, 0.0123),
        {
            "first_order": an_estimate(0.041, 0.011),
            "doubly_robust": an_estimate(0.029, 0.031),
            "within_var_log_product": 0.42,
            "gate": gate,
            "ess_fraction": 0.83,
            "pareto_k": None,
            "pareto_k_limit": 0.67,
            "mean_log_product": -0.2,
        },
    )


def a_gap(**changes: Any) -> ValueGap:
    figures = dict.fromkeys(BATCH_NAMES, an_estimate(0.25, 0.02))
    figures["b_hat"] = an_estimate(0.0313, 0.0123)
    made = ValueGap(
        source="run.parquet",
        settings=GapSettings(),
        quality=DataQuality(n_rows=1300, n_rollouts=1234, n_tokens=4096, n_empty=66),
        batch=BatchFigures(**figures),
        gap=Curve("position", (a_cell(0, 0, 0.0313), a_cell(1, 1023, -0.002, "direction"))),
        critic_bias=Curve(
            "position",
            (Cell(0, 0, an_estimate(-0.05, 0.02)), Cell(1, 1023, an_estimate(0.01, 0.02))),
        ),
        saturation_z=an_estimate(-0.8),
        mean_weight=an_estimate(1.0005, 0.001),
        u_control=an_estimate(0.01, 0.02),
        gate="good",
        whitening={
            "prompt_second_moment": None,
            "share_over_prompts": 0.45,
            "share_over_positions": None,
        },
        probe_rollouts=550,
        by=(),
        notes=("the first note", "the second note"),
    )
    return replace(made, **changes)


@pytest.fixture
def gap_of() -> GapFactory:
    """`gap_of(field=value)`: the known gap with some fields changed."""
    return a_gap


@pytest.fixture
def estimate_of() -> Callable[..., Estimate]:
    """`estimate_of(value, se, field=value)`: an estimate whose interval is two errors wide."""
    return an_estimate
