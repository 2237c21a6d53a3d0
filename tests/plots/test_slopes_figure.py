"""The figure of reward slopes carries the result's numbers, whole and without overlap."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.stats import t as student

from brace_diag.errors import InputError
from brace_diag.plots import (
    DOUBLE_COLUMN,
    SINGLE_COLUMN,
    save_figure,
    slope_figure,
    slopes_data,
)
from brace_diag.plots.slopes_data import FARTHEST, REACH, frame
from brace_diag.plots.slopes_words import target_words
from brace_diag.quality import DataQuality
from brace_diag.results import Cell, Curve, Estimate
from brace_diag.results_slope import OverallSlope, RewardSlope, TargetSlopes
from brace_diag.settings import SlopeSettings, TargetSpec, cell_edges, parse_targets

TYPED = ("gae", "vtrace", "brace", "brace:k=20,c_bar=1")
Make = Callable[..., RewardSlope]

Fits = Callable[[Figure], None]


def estimate(value: float | None, se: float | None, rollouts: int, **changes: Any) -> Estimate:
    low = high = None
    if value is not None and se is not None:
        half = float(student.ppf(0.975, 31)) * se
        low, high = value - half, value + half
    made = Estimate(
        value, se, low, high, 0.95, 20 * rollouts, rollouts, 32, "by formula", value is not None
    )
    return replace(made, reason=None if value is not None else "made to be missing", **changes)


def curve(length: int, decay: float, floor: float, rollouts: int, gaps: Sequence[int]) -> Curve:
    edges = cell_edges(length)
    cells = []
    for c, (low, end) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        value = floor + (1.0 - floor) * math.exp(-decay * low)
        own = estimate(None, None, rollouts) if c in gaps else estimate(value, 0.02, rollouts)
        cells.append(Cell(low, end - 1, own))
    return Curve("horizon", tuple(cells), 2.8)


def make(
    typed: Sequence[str] = TYPED,
    length: int = 512,
    *,
    gaps: Sequence[int] = (),
    lengths: tuple[int, int] | None = None,
    clusters: int = 32,
    invalid: str | None = None,
) -> RewardSlope:
    """Slopes that decay exponentially in h, each target at its own rate."""
    specs = parse_targets(typed)
    slopes = {}
    for i, spec in enumerate(specs):
        one = estimate(0.8, 0.01, 512, n_clusters=clusters)
        slopes[spec.label] = TargetSlopes(
            spec=spec,
            within=curve(length, 0.004 * i, 0.1, 512, gaps),
            pooled=curve(length, 0.004 * i, 0.3, 512, ()),
            return_weight=curve(length, 0.004 * i, 0.0, 512, ()),
            kappa_log10_median=curve(length, 0.0, 0.0, 512, ()),
            overall=OverallSlope(one, one, one),
            trend={},
        )
    return RewardSlope(
        source="run.parquet",
        settings=SlopeSettings(specs),
        quality=DataQuality(n_rows=512),
        slopes=slopes,
        lengths=lengths or (length, length),
        invalid=invalid,
        by=(),
        notes=(),
    )


def line(axes: Axes, label: str) -> Line2D:
    (found,) = [artist for artist in axes.lines if artist.get_label() == label]
    return found


def words(figure: Figure) -> str:
    joined = " ".join(text.get_text() for text in figure.texts)
    return joined.replace("\N{NO-BREAK SPACE}", " ")


def legend_texts(figure: Figure) -> list[str]:
    return [
        text.get_text().replace("\N{NO-BREAK SPACE}", " ")
        for legend in figure.legends
        for text in legend.get_texts()
    ]


def test_lines_are_the_results_numbers() -> None:
    result = make(gaps=(3, 4))
    beta, weight, _ = slope_figure(result).axes
    for label, slopes in result.slopes.items():
        for axes, name, own in (
            (beta, "within", slopes.within),
            (beta, "pooled", slopes.pooled),
            (weight, "weight", slopes.return_weight),
        ):
            drawn = line(axes, f"{label} {name}")
            wanted = [np.nan if c.estimate.value is None else c.estimate.value for c in own.cells]
            np.testing.assert_array_equal(drawn.get_ydata(), wanted)
            middle = [(c.low + c.high) / 2.0 for c in own.cells]
            np.testing.assert_array_equal(drawn.get_xdata(), middle)


def test_intervals_are_always_drawn() -> None:
    result = make(gaps=(0, 2))
    beta, weight, _ = slope_figure(result).axes
    for label, slopes in result.slopes.items():
        for axes, name, own in (
            (beta, "within", slopes.within),
            (beta, "pooled", slopes.pooled),
            (weight, "weight", slopes.return_weight),
        ):
            (band,) = [c for c in axes.collections if c.get_label() == f"{label} {name} interval"]
            corners = {tuple(v) for path in band.get_paths() for v in path.vertices.tolist()}
            known = [c for c in own.cells if c.estimate.ci_low is not None]
            # Cell 1 stands alone between two gaps: its interval is a bar.
            alone = [c for c in known if name == "within" and c.low == 1]
            for cell in known:
                x = (cell.low + cell.high) / 2.0
                ends = {(x, cell.estimate.ci_low), (x, cell.estimate.ci_high)}
                assert cell in alone or ends <= corners
            for cell in alone:
                wanted = f"{label} {name} interval alone"
                (bar,) = [c for c in axes.collections if c.get_label() == wanted]
                assert bar.get_segments()[0][:, 1].tolist() == [
                    cell.estimate.ci_low,
                    cell.estimate.ci_high,
                ]


def test_the_last_cell_ends_with_the_longest_rollout() -> None:
    data = slopes_data(make(length=500))
    assert data.low[-1] == 448
    assert data.end[-1] == 500
    assert data.x[-1] == 473.5


def test_windows_and_caps_stand_on_the_figure() -> None:
    texts = legend_texts(slope_figure(make()))
    assert texts[:4] == [
        "GAE",
        "V-trace, ρ̄ = 1, c̄ = 1",
        "BRACE, k = 100, ρ̄ = 1.2, c̄ = 1.1",
        "BRACE, k = 20, ρ̄ = 1.2, c̄ = 1",
    ]
    assert "95 % interval, each cell alone" in texts
    words_of = target_words(TargetSpec.parse("vtrace:n=64,c_bar=inf,gamma=.9,lam=.8"))
    assert words_of.replace("\N{NO-BREAK SPACE}", " ") == (
        "V-trace, n = 64, ρ̄ = 1, c̄ = ∞, γ = 0.9, λ = 0.8"
    )


def test_the_title_says_how_much_is_left() -> None:
    said = words(slope_figure(make(["gae", "vtrace", "brace:k=20"])))
    assert "With 448–511 tokens to go, the return's weight is 17 % in V-trace, 2.8 % in" in said
    several = words(slope_figure(make()))
    assert "BRACE (k = 100, c̄ = 1.1)" in several and "BRACE (k = 20, c̄ = 1)" in several
    assert "GAE" in words(slope_figure(make(["gae"])))


def test_targets_are_told_apart_without_colour() -> None:
    typed = [f"brace:k={k}" for k in range(1, 19)]
    beta = slope_figure(make(typed, 64), size=(8.0, 9.0)).axes[0]
    looks = set()
    for label in make(typed, 64).slopes:
        drawn = line(beta, f"{label} within")
        looks.add((drawn.get_marker(), drawn.get_linestyle(), str(drawn._dash_pattern)))  # type: ignore[attr-defined]
    assert len(looks) == 18


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lengths": (5, 512)}, "Lengths vary (5 to 512 tokens)"),
        ({"clusters": 7}, "7 clusters of prompts: intervals are rough below 10."),
        ({"invalid": "MISALIGNED lag=+1: $x"}, "This log cannot tell what the corrections do"),
    ],
)
def test_what_misleads_is_said(changes: dict[str, Any], said: str) -> None:
    assert said in words(slope_figure(make(**changes)))
    assert said not in words(slope_figure(make()))


def test_a_wild_interval_does_not_flatten_the_rest() -> None:
    result = make(["gae", "vtrace:c_bar=inf"], 64)
    wild = result.slopes["vtrace:rho_bar=1,c_bar=inf"]
    cells = tuple(replace(c, estimate=estimate(0.9, 40.0, 512)) for c in wild.within.cells)
    slopes = dict(result.slopes) | {wild.spec.label: replace(wild, within=Curve("horizon", cells))}
    data = slopes_data(replace(result, slopes=slopes))
    low, high = frame(data, [t.within for t in data.targets])
    assert low == pytest.approx(REACH[0] - 0.04 * (REACH[1] - REACH[0]))
    assert high == pytest.approx(REACH[1] + 0.04 * (REACH[1] - REACH[0]))
    far = replace(data.targets[1].within, value=np.full(len(data.x), 50.0))
    assert frame(data, [far])[1] < FARTHEST[1] * 1.1


def test_no_cell_at_all_is_explained() -> None:
    result = make(["brace"], 64)
    (label,) = result.slopes
    none = Curve("horizon", ())
    empty = replace(
        result.slopes[label], within=none, pooled=none, return_weight=none, kappa_log10_median=none
    )
    figure = slope_figure(replace(result, slopes={label: empty}, lengths=None))
    assert len(figure.axes) == 1
    assert "No rollout has all that a slope needs" in words(figure)


@pytest.mark.parametrize("size", [DOUBLE_COLUMN, SINGLE_COLUMN, (10.0, 6.0)])
@pytest.mark.parametrize("typed", [TYPED, ("vtrace",), (*TYPED, "mc", "capped:k=7", "gae:lam=.9")])
def test_nothing_overlaps_or_leaves_the_page(
    size: tuple[float, float], typed: Any, fits: Fits
) -> None:
    figure = slope_figure(make(typed, 4096, lengths=(5, 4096)), size=size)
    fits(figure)
    heights = [axes.get_window_extent().height / figure.dpi for axes in figure.axes]
    assert min(heights) > 0.35


def test_a_figure_too_small_is_refused_and_files_are_the_same(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="too small"):
        slope_figure(make(), size=(2.0, 2.0))
    for name in ("a.svg", "b.svg"):
        save_figure(slope_figure(make()), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
