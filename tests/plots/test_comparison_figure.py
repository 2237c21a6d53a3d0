"""The figure of a comparison carries the result's numbers, whole and without overlap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from brace_diag.errors import InputError
from brace_diag.plots import DOUBLE_COLUMN, SINGLE_COLUMN, comparison_figure, save_figure
from brace_diag.quality import DataQuality
from brace_diag.results import Estimate
from brace_diag.results_compare import Comparison, Difference, Side
from brace_diag.results_trend import FigureSettings
from brace_diag.settings import cell_edges

Fits = Callable[[Figure], None]


def estimate(value: float | None, se: float = 0.01) -> Estimate:
    low = None if value is None else value - 2 * se
    high = None if value is None else value + 2 * se
    reason = None if value is not None else "made to be missing"
    return Estimate(value, se, low, high, 0.95, 999, 512, 32, "by formula", not reason, reason)


def make(length: int = 64, *, gap: float | None = 0.06, **changes: Any) -> Comparison:
    edges = cell_edges(length).tolist()
    cells = []
    for low, end in pairwise(edges):
        left = 1.0 - low / length
        p = 0.001 if low < length / 2 else 0.4
        cells.append(
            Difference("gap", low, end - 1, estimate(0.02 * left), estimate(0.08 * left),
                       estimate(0.06 * left), p, p)
        )  # fmt: skip
    side = Side("run.parquet", DataQuality(n_rows=512, n_rollouts=512), 64, None, ())
    whole = Difference("b_hat", None, None, estimate(0.02), estimate(0.08), estimate(gap), 0.1, 0.2)
    made = Comparison(
        settings=FigureSettings(),
        a=side,
        b=replace(side, source="x" * 90),
        n_shared_prompts=64,
        paired=True,
        figures=(whole,),
        cells=tuple(cells),
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
    gaps, difference = comparison_figure(result).axes
    middle = [((one.low or 0) + (one.high or 0)) / 2.0 for one in result.cells]
    for axes, label, read in (
        (gaps, "a", lambda one: one.a),
        (gaps, "b", lambda one: one.b),
        (difference, "difference", lambda one: one.difference),
    ):
        drawn = line(axes, label)
        np.testing.assert_array_equal(drawn.get_xdata(), middle)
        np.testing.assert_array_equal(drawn.get_ydata(), [read(one).value for one in result.cells])
    ringed = [m for m, one in zip(middle, result.cells, strict=True) if (one.p_holm or 1) < 0.05]
    np.testing.assert_array_equal(line(difference, "holm").get_xdata(), ringed)


def test_the_title_is_the_finding() -> None:
    assert "The gaps at the first token differ: b − a = +0.060 ± 0.02 (95 %)" in words(
        comparison_figure(make())
    )
    assert "are not told apart: b − a = +0.010" in words(comparison_figure(make(gap=0.01)))
    assert "cannot be compared" in words(comparison_figure(make(gap=None)))
    side = replace(make().b, invalid="MISALIGNED lag=+1: $x")
    said = words(comparison_figure(make(b=side)))
    assert "The gaps of these runs cannot be compared" in said and "b: MISALIGNED" in said
    assert "64 prompts in both, paired by prompt" in said


def test_no_cell_at_all_is_explained() -> None:
    figure = comparison_figure(make(gap=None, cells=()))
    assert len(figure.axes) == 1
    texts = words(figure) + " ".join(text.get_text() for text in figure.axes[0].texts)
    assert "No gap to compare: made to be missing" in texts


@pytest.mark.parametrize("size", [DOUBLE_COLUMN, SINGLE_COLUMN, (10.0, 6.0)])
@pytest.mark.parametrize("length", [1, 24, 4096])
def test_nothing_overlaps_or_leaves_the_page(
    size: tuple[float, float], length: int, fits: Fits
) -> None:
    figure = comparison_figure(make(length), size=size)
    fits(figure)


def test_a_figure_too_small_is_refused_and_files_are_the_same(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="too small"):
        comparison_figure(make(), size=(2.0, 2.0))
    for name in ("a.svg", "b.svg"):
        save_figure(comparison_figure(make()), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
