"""The figure of a sweep carries the result's numbers, whole and without overlap."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from brace_diag.errors import InputError
from brace_diag.plots import (
    DOUBLE_COLUMN,
    SINGLE_COLUMN,
    save_figure,
    sweep_data,
    sweep_figure,
)
from brace_diag.plots.sweep_data import share_limits
from brace_diag.quality import DataQuality
from brace_diag.results import Estimate
from brace_diag.results_sweep import (
    PAPER_DEFAULT,
    Recommendation,
    Sweep,
    SweepSetting,
    SweepSettings,
)

Fits = Callable[[Figure], None]


def estimate(value: float | None, se: float | None = 0.02, **changes: Any) -> Estimate:
    low = high = None
    if value is not None and se is not None:
        low, high = value - 2 * se, value + 2 * se
    made = Estimate(value, se, low, high, 0.95, 999, 512, 32, "by formula", value is not None)
    reason = None if value is not None else "made to be missing"
    return replace(made, **({"reason": reason} | changes))


def point(k: float, rho_bar: float, c_bar: float, longest: int, **changes: Any) -> SweepSetting:
    part = min(k / longest, 1.0) if longest else 0.0
    made = SweepSetting(
        k=k,
        rho_bar=rho_bar,
        c_bar=c_bar,
        share=estimate(part * min(0.5 + 0.5 * (rho_bar - 1.0), 1.0)),
        residual_bound=0.1 * (1 - part),
        pull=estimate(0.5),
        variance_ratio=estimate(0.3 * c_bar**4 * (1.3 - 0.4 * part)),
        clip_share_rho=estimate(0.01),
        clip_share_c=estimate(0.1),
        distance=estimate(0.2),
    )
    return replace(made, **changes)


def make(longest: int = 512, *, advised: bool = True, **changes: Any) -> Sweep:
    settings = SweepSettings()
    points = tuple(
        point(k, rho_bar, c_bar, longest)
        for rho_bar, c_bar in settings.caps
        for k in settings.windows
    )
    by = {(p.k, p.rho_bar, p.c_bar): p for p in points}
    chosen = by[(math.inf, 2.0, 1.0)]
    own = Recommendation(chosen.label, "least variance", chosen, by[PAPER_DEFAULT])
    made = Sweep(
        source="run.parquet",
        settings=settings,
        quality=DataQuality(n_rows=512),
        b_hat=estimate(0.12),
        gate="good",
        longest=longest,
        points=points,
        recommendation=own if advised else None,
        no_recommendation=None if advised else "the gap is not told apart from 0",
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


def test_lines_and_intervals_are_the_results_numbers() -> None:
    result = make()
    share, variance = sweep_figure(result).axes
    windows = (16, 64, 100, 256, math.inf)
    for rho_bar, c_bar in result.settings.caps:
        own = [result.at(k, rho_bar, c_bar) for k in windows]
        label = f"rho_bar={rho_bar:g}, c_bar={c_bar:g}"
        np.testing.assert_array_equal(line(share, label).get_ydata(), [p.share.value for p in own])
        np.testing.assert_array_equal(
            line(variance, label).get_ydata(), [p.variance_ratio.value for p in own]
        )
    segments = [s[:, 1].tolist() for bars in share.collections for s in bars.get_segments()]
    for p in result.points:
        assert [p.share.ci_low, p.share.ci_high] in segments


def test_windows_beyond_the_longest_response_are_one_column() -> None:
    assert sweep_data(make(90)).windows == (16, 64, math.inf)
    labels = [t.get_text() for t in sweep_figure(make(90)).axes[1].get_xticklabels()]
    assert labels == ["16", "64", "whole response"]


def test_rings_stand_on_the_recommended_setting_and_the_paper_s() -> None:
    result = make()
    share, variance = sweep_figure(result).axes
    assert result.recommendation is not None
    for axes, name in ((share, "share"), (variance, "variance_ratio")):
        for label, own in (
            ("recommended", result.recommendation.chosen),
            ("paper's default", result.recommendation.paper_default),
        ):
            assert line(axes, label).get_ydata()[0] == getattr(own, name).value
    alone = sweep_figure(make(advised=False)).axes[0]
    assert [a.get_label() for a in alone.lines if "recommended" in str(a.get_label())] == []


def test_the_title_is_the_finding() -> None:
    said = words(sweep_figure(make()))
    assert "Correcting over the whole response with ρ̄ = 2, c̄ = 1 recovers 100% of the gap" in said
    assert "cannot be told from 0" in words(sweep_figure(make(advised=False)))
    invalid = make(advised=False, invalid="MISALIGNED lag=+1: $x")
    assert "This log cannot tell what a corrected target would recover" in words(
        sweep_figure(invalid)
    )


def test_shares_that_cannot_be_relied_on_are_marked() -> None:
    unsure = estimate(0.4, 0.3, reason="only the direction can be trusted")
    points = tuple(replace(p, share=unsure) for p in make().points)
    text = "not to be relied on: only the direction can be trusted."
    assert text in words(sweep_figure(make(points=points)))
    assert text not in words(sweep_figure(make()))


def test_a_wild_interval_does_not_flatten_the_rest() -> None:
    wild = tuple(replace(p, share=estimate(0.5, 40.0)) for p in make().points)
    low, high = share_limits(sweep_data(make(points=wild)))
    assert (low, high) == pytest.approx((-0.25 - 0.07, 1.5 + 0.07))
    assert share_limits(sweep_data(make()))[0] == pytest.approx(-0.04, abs=0.03)


def test_no_point_at_all_is_explained() -> None:
    figure = sweep_figure(make(advised=False, points=(), longest=0))
    assert len(figure.axes) == 1
    assert "No rollout has all that a sweep needs" in words(figure) + "".join(
        t.get_text() for t in figure.axes[0].texts
    )


@pytest.mark.parametrize("size", [DOUBLE_COLUMN, SINGLE_COLUMN, (10.0, 6.0)])
@pytest.mark.parametrize("longest", [90, 4096])
def test_nothing_overlaps_or_leaves_the_page(
    size: tuple[float, float], longest: int, fits: Fits
) -> None:
    figure = sweep_figure(make(longest), size=size)
    fits(figure)


def test_a_figure_too_small_is_refused_and_files_are_the_same(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="too small"):
        sweep_figure(make(), size=(2.0, 2.0))
    for name in ("a.svg", "b.svg"):
        save_figure(sweep_figure(make()), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
