"""What the figure of a trend draws, as arrays: pure functions of the result."""

from __future__ import annotations

import numpy as np

from brace_diag.plots.keyed_data import KeyedData, Series, why_no_gap
from brace_diag.results_trend import Trend


def trend_data(result: Trend) -> KeyedData:
    """The arrays of the figure by key; the margin is each key's own and not among them."""
    return KeyedData(
        by=result.settings.by,
        level=result.settings.level,
        key=np.array([point.key for point in result.points], np.float64),
        b=trend_series(result, "b_hat"),
        reward_mu=trend_series(result, "reward_mu"),
        reward_pi=trend_series(result, "reward_pi"),
        critic_mean=trend_series(result, "critic_mean"),
        gates=tuple(point.gate for point in result.points),
        margin=None,
        reason=why_no_gap(result.settings.by, [point.figures["b_hat"] for point in result.points]),
    )


def trend_series(result: Trend, name: str) -> Series:
    """One figure of `SERIES` over the keys."""
    return Series.of(point.figures[name] for point in result.points)
