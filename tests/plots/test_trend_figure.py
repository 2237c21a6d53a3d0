"""The figure of a trend carries the result's numbers, whole and without overlap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from brace_diag.errors import InputError
from brace_diag.plots import save_figure, trend_figure
from brace_diag.plots.trend import TALL, WEIGHTS
from brace_diag.quality import DataQuality
from brace_diag.results import Estimate, Gate
from brace_diag.results_trend import SERIES, Trend, TrendPoint, TrendSettings, TrendTest

Fits = Callable[[Figure], None]


def estimate(value: float | None, se: float = 0.01) -> Estimate:
    low = None if value is None else value - 2 * se
    high = None if value is None else value + 2 * se
    reason = None if value is not None else "made to be missing"
    return Estimate(value, se, low, high, 0.95, 999, 512, 32, "by formula", not reason, reason)


def point(i: int, n: int, **missing: Any) -> TrendPoint:
    values = {
        "b_hat": 0.1 * i / n, "g_pi": -0.02, "g_mu": 0.01, "reward_mu": 0.4, "m": -0.01,
        "reward_pi": 0.4 + 0.1 * i / n, "critic_mean": 0.41,
        "explained_variance": 0.5 - 0.3 * i / n,
        "ess_rollout": 0.9 - 0.8 * i / n, "kept_rho_bar": 0.9, "kept_c_bar": 0.8,
    }  # fmt: skip
    gates: tuple[Gate, ...] = ("good", "fair", "direction")
    return TrendPoint(
        key=10 * i,
        figures={name: estimate(missing.get(name, values[name])) for name in SERIES},
        margin=0.03 + 0.001 * i,
        beyond=values["b_hat"] - 0.02 > 0.03 + 0.001 * i,
        gate=gates[i % 3],
        within_var_log_product=1.0,
    )


def make(n: int = 9, *, missing: dict[str, Any] | None = None, **changes: Any) -> Trend:
    points = tuple(point(i, n, **(missing or {})) for i in range(n))
    beyond = [p.key for p in points if p.beyond]
    test = TrendTest(estimate(0.001), 0.012, 4, n)
    made = Trend(
        source="run.parquet",
        settings=TrendSettings(),
        quality=DataQuality(n_rows=512),
        points=points,
        tests=dict.fromkeys(SERIES, test),
        first_beyond=next(iter(beyond), None),
        n_beyond=len(beyond),
        n_judged=n,
        invalid=None,
        notes=(),
    )
    return replace(made, **changes)


def line(axes: Axes, label: str) -> Line2D:
    (found,) = [artist for artist in axes.lines if artist.get_label() == label]
    return found


def words(figure: Figure) -> str:
    joined = " ".join(text.get_text() for text in figure.texts)
    return joined.replace("\N{NO-BREAK SPACE}", " ")


def test_lines_are_the_results_numbers() -> None:
    result = make()
    gap, returns, fit, weights = trend_figure(result).axes
    for axes, names in (
        (returns, ("reward_mu", "reward_pi", "critic_mean")),
        (fit, ("explained_variance",)),
        (weights, tuple(WEIGHTS)),
    ):
        for name in names:
            wanted = [p.figures[name].value for p in result.points]
            np.testing.assert_array_equal(line(axes, name).get_ydata(), wanted)
    wanted = [p.figures["b_hat"].value for p in result.points]
    np.testing.assert_array_equal(line(gap, "b").get_ydata(), wanted)
    ringed = [p.key for p in result.points if p.beyond]
    assert line(gap, "beyond").get_xdata().tolist() == ringed  # type: ignore[union-attr]


def test_the_margin_is_each_key_s_own_and_inside_the_frame() -> None:
    gap = trend_figure(make()).axes[0]
    (band,) = [c for c in gap.collections if c.get_label() == "margin"]
    corners = np.concatenate([path.vertices[:, 1] for path in band.get_paths()])  # type: ignore[arg-type]
    for p in make().points:
        assert np.isclose(corners, p.margin or 0.0).any()
    low, high = gap.get_ylim()
    assert low < -0.038 and high > 0.1


def test_the_title_is_the_finding() -> None:
    said = words(trend_figure(make()))
    assert "The gap first lies beyond the margin of 0.1 $s_A$ at step 50 (4 of 9 steps)" in said
    assert "trend of b: p = 0.012 (HAC)" in said
    none = make(first_beyond=None, n_beyond=0)
    assert "is not seen beyond the margin of 0.1 $s_A$ at any of 9 steps" in words(
        trend_figure(none)
    )
    invalid = words(trend_figure(make(invalid="MISALIGNED lag=+1: $x")))
    assert "This log cannot tell the gap" in invalid and "MISALIGNED" in invalid
    assert "cannot be told at any step" in words(trend_figure(make(n_judged=0)))


def test_what_the_log_does_not_tell_has_no_panel() -> None:
    lacking = {name: None for name in ("explained_variance", *WEIGHTS)}
    assert len(trend_figure(make(missing=lacking)).axes) == 2
    assert len(trend_figure(make(missing={"explained_variance": None})).axes) == 3


@pytest.mark.parametrize("n", [1, 2, 9, 400])
@pytest.mark.parametrize("size", [TALL, (3.5, 6.5), (10.0, 6.0)])
def test_nothing_overlaps_or_leaves_the_page(size: tuple[float, float], n: int, fits: Fits) -> None:
    figure = trend_figure(make(n), size=size)
    fits(figure)


def test_a_figure_too_small_is_refused_and_files_are_the_same(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="too small"):
        trend_figure(make(), size=(2.0, 2.0))
    for name in ("a.svg", "b.svg"):
        save_figure(trend_figure(make()), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
