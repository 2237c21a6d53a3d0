"""The drawn artists carry the result's numbers, and nothing overlaps or falls off the page."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from brace_diag.errors import InputError
from brace_diag.plots import DOUBLE_COLUMN, SINGLE_COLUMN, gap_data, gap_figure, y_limits


def line(axes: Axes, label: str) -> Line2D:
    (found,) = [artist for artist in axes.lines if artist.get_label() == label]
    return found


def labels(axes: Axes) -> list[str]:
    return [str(artist.get_label()) for artist in axes.lines]


def band(axes: Axes, label: str) -> PolyCollection:
    (found,) = [c for c in axes.collections if c.get_label() == label]
    assert isinstance(found, PolyCollection)
    return found


def legend_texts(figure: Figure) -> list[str]:
    return [
        text.get_text().replace("\N{NO-BREAK SPACE}", " ")
        for legend in figure.legends
        for text in legend.get_texts()
    ]


def words(figure: Figure) -> str:
    joined = " ".join(text.get_text() for text in figure.texts)
    return joined.replace("\N{NO-BREAK SPACE}", " ")


def test_lines_are_the_results_numbers(make_gap: Any) -> None:
    result = make_gap(64)
    data, main = gap_data(result), gap_figure(result).axes[0]
    for label, series in (
        ("wdr", data.value),
        ("first_order", data.first_order),
        ("doubly_robust", data.doubly_robust),
    ):
        np.testing.assert_array_equal(line(main, label).get_xdata(), data.x)
        np.testing.assert_array_equal(line(main, label).get_ydata(), series)


def test_bands_are_the_intervals(make_gap: Any) -> None:
    result = make_gap(64)
    data, main = gap_data(result), gap_figure(result).axes[0]
    for label, low, high in (
        ("pointwise", data.ci_low, data.ci_high),
        ("simultaneous", data.sim_low, data.sim_high),
    ):
        corners = {tuple(v) for v in band(main, label).get_paths()[0].vertices.tolist()}
        expected = {*zip(data.x, low, strict=True), *zip(data.x, high, strict=True)}
        assert expected <= corners


def test_points_are_marked_by_their_gate(make_gap: Any) -> None:
    result = make_gap(512, v_first=9.5)
    data, main = gap_data(result), gap_figure(result).axes[0]
    shapes = set()
    for gate in ("good", "fair", "direction"):
        points = line(main, gate)
        np.testing.assert_array_equal(points.get_xdata(), data.x[data.at_gate(gate)])
        np.testing.assert_array_equal(points.get_ydata(), data.value[data.at_gate(gate)])
        shapes.add(points.get_marker())
    assert len(shapes) == 3
    assert not {"refused", "unknown"} & set(labels(main))


def test_cells_without_estimate_leave_a_gap_and_stand_at_the_foot(make_gap: Any) -> None:
    result = make_gap(8192, v_first=12.0)
    data, main = gap_data(result), gap_figure(result).axes[0]
    refused = data.at_gate("refused")
    assert np.isnan(np.asarray(line(main, "wdr").get_ydata())[refused]).all()
    foot = line(main, "refused, none")
    np.testing.assert_array_equal(foot.get_xdata(), data.x[refused])
    heights = foot.get_transform().transform(np.column_stack([data.x[refused], foot.get_ydata()]))
    box = main.get_window_extent()
    assert ((heights[:, 1] > box.y0) & (heights[:, 1] < box.y0 + 0.1 * box.height)).all()


def test_a_cell_between_two_missing_ones_keeps_its_interval(make_gap: Any) -> None:
    result = make_gap(1)
    data, main = gap_data(result), gap_figure(result).axes[0]
    bars = {c.get_label(): c for c in main.collections if isinstance(c, LineCollection)}
    for label, low, high in (
        ("pointwise alone", data.ci_low, data.ci_high),
        ("simultaneous alone", data.sim_low, data.sim_high),
    ):
        (segment,) = bars[label].get_segments()
        np.testing.assert_array_equal(segment, [[0.0, low[0]], [0.0, high[0]]])


def test_frame_margin_and_zero(make_gap: Any) -> None:
    result = make_gap(64)
    main = gap_figure(result).axes[0]
    assert main.get_ylim() == y_limits(gap_data(result))
    edges = [artist.get_ydata()[0] for artist in main.lines if artist.get_label() == "margin edge"]
    np.testing.assert_allclose(edges, [-0.047, 0.047], rtol=1e-12)
    assert line(main, "zero").get_ydata()[0] == 0.0


def test_what_leaves_the_frame_is_said(make_gap: Any) -> None:
    result = make_gap(512, v_first=9.5, wild=1.0)
    figure = gap_figure(result)
    top = figure.axes[0].get_ylim()[1]
    far = float(np.nanmax(gap_data(result).doubly_robust))
    assert far > top
    assert line(figure.axes[0], "doubly_robust leaves").get_marker() == "^"
    assert f"doubly robust (▲ to +{far:.2f})" in legend_texts(figure)
    calm = gap_figure(make_gap(512, v_first=0.5))
    assert "doubly_robust leaves" not in labels(calm.axes[0])


def test_legend_lists_what_occurs(make_gap: Any) -> None:
    assert legend_texts(gap_figure(make_gap(64))) == [
        "b by wdr",
        "95 % pointwise",
        "95 % simultaneous (sup-t)",
        "first order",
        "doubly robust",
        "margin ±0.1 $s_A$ = ±0.047",
        "good (v ≤ 1)",
        "fair (v ≤ 4)",
    ]
    refused = legend_texts(gap_figure(make_gap(8, v_first=2000.0)))
    assert refused == ["refused (v > 10), no estimate"]
    bare = legend_texts(gap_figure(make_gap(64, simultaneous=None, spread=None)))
    assert not any("sup-t" in text or "margin" in text for text in bare)


def test_axis_labels(make_gap: Any) -> None:
    for axis, label in (
        ("position", "policy token position t"),
        ("horizon", "remaining horizon T − 1 − t, in policy tokens"),
        ("relative", "relative position t / T"),
    ):
        figure = gap_figure(make_gap(16, axis=axis))
        assert figure.axes[-1].get_xlabel() == label
        assert r"$V^{\pi}$ − $V^{\mu}$" in figure.axes[0].get_ylabel()
        assert ("Biased where lengths vary" in words(figure)) is (axis != "position")


def test_strips_share_the_axis_and_hold_counts_and_variances(make_gap: Any) -> None:
    result = make_gap(64, v_first=5.0)
    data = gap_data(result)
    main, rollouts, variance = gap_figure(result).axes
    assert main.get_xlim() == rollouts.get_xlim() == variance.get_xlim()
    np.testing.assert_array_equal(
        np.asarray(line(rollouts, "rollouts").get_ydata())[::2], data.n_rollouts
    )
    assert variance.get_yscale() == "log"
    drawn = np.asarray(line(variance, "v").get_ydata())
    inside = data.v > variance.get_ylim()[0]
    np.testing.assert_array_equal(drawn[inside], data.v[inside])
    limits = [a.get_ydata()[0] for a in variance.lines if a.get_label() == "limit"]
    assert limits == [1.0, 4.0, 10.0]


def test_counts_over_decades_are_logarithmic(make_gap: Any) -> None:
    assert gap_figure(make_gap(64)).axes[1].get_yscale() == "linear"
    cells = make_gap(64).gap.cells
    last = replace(cells[-1], estimate=replace(cells[-1].estimate, n_rollouts=3))
    figure = gap_figure(make_gap(cells=(*cells[:-1], last)))
    assert figure.axes[1].get_yscale() == "log"
    assert figure.axes[1].get_ylim()[0] < 3 < 512 < figure.axes[1].get_ylim()[1]


def test_a_variance_of_zero_and_a_huge_one(make_gap: Any) -> None:
    variance = gap_figure(make_gap(8, v_first=2000.0)).axes[2]
    low, high = variance.get_ylim()
    assert high == 100.0
    drawn = np.asarray(line(variance, "v").get_ydata())
    assert (drawn >= low).all() and (drawn <= high).all()
    assert len(np.atleast_1d(line(variance, "v leaves").get_xdata())) > 0
    captions = [text.get_text() for text in variance.texts]
    assert any("▲ up to 2,000" in caption for caption in captions)


def test_no_estimate_at_all_is_an_annotated_axis(make_gap: Any) -> None:
    for result in (make_gap(8, v_first=2000.0), make_gap(cells=())):
        main = gap_figure(result).axes[0]
        (reason,) = [t for t in main.texts if t.get_label() == "reason"]
        assert reason.get_text().startswith("No estimate at any position")
    assert len(gap_figure(make_gap(cells=())).axes) == 1


def texts_of(figure: Figure) -> list[Any]:
    found = [*figure.texts]
    for axes in figure.axes:
        found += [axes.xaxis.label, axes.yaxis.label, *axes.texts]
        # Locators offer ticks beyond the frame, which are not drawn.
        low, high = axes.get_ylim()
        found += [t for t in axes.get_yticklabels() if low <= t.get_position()[1] <= high]
        if axes is figure.axes[-1]:
            found += axes.get_xticklabels()
    for legend in figure.legends:
        found += legend.get_texts()
    return [text for text in found if text.get_visible() and text.get_text()]


@pytest.mark.parametrize("size", [DOUBLE_COLUMN, SINGLE_COLUMN])
@pytest.mark.parametrize(
    "options",
    [
        {"length": 64},
        {"length": 8192, "v_first": 12.0, "wild": 1.0, "source": "/data/" + "deep/" * 40 + "x"},
        {"length": 256, "clusters": 4, "rollouts": 32, "axis": "horizon"},
        {"length": 1},
        {"length": 8, "v_first": 2000.0},
        {"length": 64, "top": -3000.0, "spread": 9000.0},
        {"cells": ()},
    ],
)
def test_no_text_overlaps_another_or_leaves_the_page(
    make_gap: Any, options: dict[str, Any], size: tuple[float, float]
) -> None:
    figure = gap_figure(make_gap(**options), size=size)
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    figure.draw_without_rendering()
    boxes = [(t.get_text(), t.get_window_extent(canvas.get_renderer())) for t in texts_of(figure)]
    page = figure.bbox
    for text, box in boxes:
        # Half a pixel for the rounding of extents to the pixel grid.
        assert box.x0 >= page.x0 - 0.5 and box.x1 <= page.x1 + 0.5, text
        assert box.y0 >= page.y0 - 0.5 and box.y1 <= page.y1 + 0.5, text
    for (one, a), (two, b) in combinations(boxes, 2):
        # Line boxes include empty ascent and descent, so that they may touch by 2 pixels of 100/in.
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        along = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert across <= 0.5 or along <= 2.0, (one, two)


def test_into_given_axes(make_gap: Any) -> None:
    figure = Figure()
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    result = make_gap(64)
    assert gap_figure(result, ax=axes) is figure
    assert figure.axes == [axes]
    np.testing.assert_array_equal(line(axes, "wdr").get_ydata(), gap_data(result).value)
    assert axes.get_xlabel() == "policy token position t"
    assert "first token" in axes.get_title(loc="left")
    assert axes.get_legend() is not None


def test_too_small_a_size_is_refused(make_gap: Any) -> None:
    with pytest.raises(InputError, match=r"2 x 2 inches is too small"):
        gap_figure(make_gap(8), size=(2.0, 2.0))


def test_the_users_settings_neither_leak_in_nor_change(make_gap: Any) -> None:
    with matplotlib.rc_context({"font.size": 30.0, "axes.facecolor": "black"}):
        figure = gap_figure(make_gap(64))
        assert matplotlib.rcParams["font.size"] == 30.0
        assert matplotlib.rcParams["axes.facecolor"] == "black"
    assert figure.axes[0].get_facecolor() == (1.0, 1.0, 1.0, 1.0)
    assert figure.axes[0].yaxis.label.get_size() == 8.5


def test_pyplot_is_never_loaded() -> None:
    code = "import brace_diag.plots, sys; print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"
