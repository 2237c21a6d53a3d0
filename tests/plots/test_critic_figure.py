"""The critic's figures: what they draw is what the result holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.figure import Figure

from brace_diag.errors import InputError
from brace_diag.plots import (
    SINGLE_COLUMN,
    calibration_data,
    calibration_figure,
    save_figure,
    target_data,
    target_figure,
)
from brace_diag.quality import DataQuality
from brace_diag.results import Cell, Curve, Estimate
from brace_diag.results_critic import (
    CriticFit,
    CriticSettings,
    Density,
    FitFigures,
    KeyedFit,
    TargetFit,
    ValueExtent,
)
from brace_diag.settings import parse_targets

EDGES = np.array([-4.0, -1.0, 0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 5.0])


def estimate(value: float | None, half: float = 0.1, **changes: Any) -> Estimate:
    known = value is not None
    made = Estimate(
        value, half / 2 if known else None, value - half if known else None,
        value + half if known else None, 0.95, 4000, 100, 32, "by hand", known,
        None if known else "made to be missing",
    )  # fmt: skip
    return replace(made, **changes)


def density(pairs: dict[tuple[int, int], int]) -> Density:
    critic, target = np.array(list(pairs)).T
    return Density(EDGES, critic, target, np.array(list(pairs.values())))


def target_fit(distance: float, pairs: dict[tuple[int, int], int] | None) -> TargetFit:
    return TargetFit(
        estimate(distance, 0.01), estimate(0.0), None, None if pairs is None else density(pairs)
    )


def result(by: dict[int, TargetFit] | None = None, **changes: Any) -> CriticFit:
    cells = tuple(
        Cell(low, low + 0.25, estimate(low + 0.2, reliable=low > 0), {
            "mean_critic": low + 0.1, "share": 0.1 + 0.1 * low,
        })
        for low in (0.0, 0.25, 0.5, 0.75)
    )  # fmt: skip
    fit = FitFigures(
        estimate(0.4), estimate(0.7), estimate(0.05), estimate(0.02), estimate(0.0, 0.0)
    )
    targets = {
        "mc": target_fit(0.3, {(3, 3): 900, (4, 6): 100}),
        "brace:k=3,rho_bar=1.2,c_bar=1.1": target_fit(0.1, {(3, 4): 800, (5, 3): 200}),
    }
    specs = parse_targets(list(targets))
    entries = tuple(
        KeyedFit(key, fit, {label: own for label in targets}) for key, own in (by or {}).items()
    )
    made = CriticFit(
        source="run.parquet", settings=CriticSettings(specs, by="staleness" if by else None),
        quality=DataQuality(), fit=fit, explained_variance=Curve("position", ()),
        calibration=Curve("critic", cells), extent=ValueExtent(0.0, 0.99, 0.0, 1.0),
        targets=targets, invalid=None, by=entries, notes=(),
    )  # fmt: skip
    return replace(made, **changes)


def words(figure: Figure) -> str:
    texts = [text.get_text() for text in figure.texts]
    texts += [text.get_text() for axes in figure.axes for text in axes.texts]
    return " ".join(texts).replace("\N{NO-BREAK SPACE}", " ")


def line(axes: Axes, label: str) -> Any:
    (found,) = [artist for artist in axes.lines if artist.get_label() == label]
    return found


def test_calibration_draws_means_intervals_diagonal_and_line() -> None:
    figure = calibration_figure(result())
    main, strip = figure.axes
    np.testing.assert_allclose(line(main, "reliable").get_xdata(), [0.35, 0.6, 0.85])
    np.testing.assert_allclose(line(main, "reliable").get_ydata(), [0.45, 0.7, 0.95])
    np.testing.assert_allclose(line(main, "unreliable").get_ydata(), [0.2])
    assert line(main, "unreliable").get_markerfacecolor() == "white"
    (bars,) = [c for c in main.collections if c.get_label() == "interval"]
    assert isinstance(bars, LineCollection)
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    np.testing.assert_allclose(ends, [[v - 0.1, v + 0.1] for v in (0.2, 0.45, 0.7, 0.95)])
    diagonal = line(main, "diagonal")
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    fitted = line(main, "fit")
    np.testing.assert_allclose(fitted.get_ydata(), 0.05 + 0.7 * fitted.get_xdata())
    heights = [bar.get_height() for bar in strip.patches if bar.get_width() == 0.25]
    np.testing.assert_allclose(heights, np.array([0.1, 0.125, 0.15, 0.175]) / 0.25)
    assert main.get_xlim() == strip.get_xlim()
    assert "differ more than the returns after them: slope 0.70 ± 0.10" in words(figure)


@pytest.mark.parametrize(
    ("slope", "said"), [(0.95, "No miscalibration"), (1.4, "differ less"), (0.5, "differ more")]
)
def test_the_title_is_the_finding(slope: float, said: str) -> None:
    fit = replace(result().fit, slope=estimate(slope))
    assert said in words(calibration_figure(result(fit=fit)))


def test_a_target_has_its_panel_and_its_distance() -> None:
    given = result()
    data = target_data(given)
    assert [panel.name for panel in data.panels] == list(given.targets)
    assert data.label is None and data.n_left_out == 0
    # The frame holds the range of returns and nearly all tokens: the bins from 0 to 1.
    np.testing.assert_array_equal(data.edges, [0.0, 0.25, 0.5, 0.75, 1.0])
    wanted = np.full((4, 4), np.nan)
    wanted[0, 0], wanted[1, 3] = 0.9 * 16, 0.1 * 16
    np.testing.assert_allclose(data.panels[0].density, wanted)
    figure = target_figure(given)
    meshes = [c for axes in figure.axes for c in axes.collections if isinstance(c, QuadMesh)]
    drawn = [mesh for mesh in meshes if mesh.get_label() == "density"]
    for mesh, panel in zip(drawn, data.panels, strict=True):
        shown = np.ma.filled(mesh.get_array(), np.nan).reshape(4, 4)
        np.testing.assert_allclose(shown, panel.density.T)
    assert len({mesh.norm.vmin for mesh in drawn}) == 1, "one scale of colours for all panels"
    for part in ("|target − V| 0.300 ± 0.010", "|target − V| 0.100 ± 0.010", "c_bar=1.1"):
        assert part in words(figure)


def test_what_lies_off_the_frame_is_counted_and_said() -> None:
    far = {"mc": target_fit(0.3, {(3, 3): 99_950, (4, 8): 50, (0, 3): 50})}
    given = result(targets=far, settings=CriticSettings(parse_targets(["mc"])))
    (panel,) = target_data(given).panels
    assert panel.share_outside == pytest.approx(100 / 100_050)
    assert np.nansum(panel.density) / 16 == pytest.approx(99_950 / 100_050)
    assert "Up to 0.1 % of a panel's tokens lie off the frame." in words(target_figure(given))


def test_a_frame_far_wider_than_the_returns_still_shows_thin_rows() -> None:
    """Returns 0 and 1 under a critic from -300 to 300: bins are joined, tokens are all there."""
    fine = np.concatenate([[-300.0, -100.0, -10.0], np.linspace(0, 1, 41), [10.0, 100.0, 300.0]])
    wild = Density(fine, np.array([1, 46]), np.array([4, 43]), np.array([500, 500]))
    given = result(
        targets={"mc": TargetFit(estimate(100.0), estimate(0.0), None, wild)},
        settings=CriticSettings(parse_targets(["mc"])),
    )
    data = target_data(given)
    (panel,) = data.panels
    assert np.diff(data.edges).min() >= (data.edges[-1] - data.edges[0]) / 120 * (1 - 1e-6)
    width = np.diff(data.edges)
    assert np.nansum(panel.density * np.outer(width, width)) == pytest.approx(1.0)


def test_by_staleness_a_level_has_its_panel() -> None:
    levels = {k: target_fit(0.1 + k / 100, {(3, 3): 10 + k}) for k in (0, 2, 5)}
    data = target_data(result(by=levels))
    assert [panel.name for panel in data.panels] == ["staleness 0", "staleness 2", "staleness 5"]
    assert [panel.n_tokens for panel in data.panels] == [10, 12, 15]
    assert data.label == "brace:k=3,rho_bar=1.2,c_bar=1.1"
    assert target_data(result(by=levels), "mc").label == "mc"
    many = target_data(result(by={k: target_fit(0.1, {(3, 3): 5}) for k in range(11)}))
    assert [panel.name for panel in many.panels] == [f"staleness {k}" for k in (0, 2, 4, 6, 8, 10)]
    assert "6 of 11 levels of staleness are drawn." in words(
        target_figure(result(by={k: target_fit(0.1, {(3, 3): 5}) for k in range(11)}))
    )
    with pytest.raises(InputError, match="the result has: mc, brace"):
        target_data(result(), "gae")


def test_nothing_to_draw_is_said() -> None:
    empty = result(
        calibration=Curve("critic", ()),
        targets={"mc": target_fit(0.1, None)},
        settings=CriticSettings(parse_targets(["mc"])),
        fit=FitFigures(*[estimate(None)] * 5),
    )
    assert calibration_data(empty).reason == "made to be missing"
    assert "No calibration: made to be missing" in words(calibration_figure(empty))
    assert "Nothing to draw" in words(target_figure(empty))


def test_a_broken_critic_is_the_title() -> None:
    broken = result(invalid="CRITIC_INVALID: by hand")
    for figure in (calibration_figure(broken), target_figure(broken)):
        assert "CRITIC_INVALID: by hand" in words(figure)


@pytest.mark.parametrize("size", [None, SINGLE_COLUMN, (10.0, 4.0)])
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_figures_are_written_with_every_word_inside(tmp_path: Path, size: Any, suffix: str) -> None:
    options = {} if size is None else {"size": size}
    for make in (calibration_figure, target_figure):
        figure = make(result(), **options)
        save_figure(figure, tmp_path / f"figure.{suffix}")
        assert (tmp_path / f"figure.{suffix}").stat().st_size > 1000
        drawing: Any = figure.canvas
        width, height = figure.get_size_inches() * figure.dpi
        for text in figure.texts:
            box = text.get_window_extent(drawing.get_renderer())
            assert box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height
