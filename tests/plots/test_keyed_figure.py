"""The figure by step or by staleness: the batch figures of every key, and what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure

from brace_diag.errors import InputError
from brace_diag.plots import SINGLE_COLUMN, keyed_data, keyed_figure
from brace_diag.plots.keyed_data import b_limits


def words(figure: Figure) -> str:
    joined = " ".join(text.get_text() for text in figure.texts)
    return joined.replace("\N{NO-BREAK SPACE}", " ")


def line(axes: Axes, label: str) -> Any:
    (found,) = [artist for artist in axes.lines if artist.get_label() == label]
    return found


def numbers(values: list[float | None]) -> list[float]:
    return [np.nan if v is None else v for v in values]


def test_panels_hold_the_batch_figures(make_gap: Any, make_by: Any) -> None:
    by = make_by(range(60, 240, 20), null_at=(3,))
    result = make_gap(16, key="step", by=by)
    upper, lower = keyed_figure(result).axes
    gaps = numbers([entry.batch.b_hat.value for entry in by])
    np.testing.assert_array_equal(line(upper, "b").get_xdata(), range(60, 240, 20))
    np.testing.assert_array_equal(line(upper, "b").get_ydata(), gaps)
    for name in ("reward_mu", "reward_pi", "critic_mean"):
        expected = numbers([getattr(entry.batch, name).value for entry in by])
        np.testing.assert_array_equal(line(lower, name).get_ydata(), expected)
    assert upper.get_xlim() == lower.get_xlim()
    assert lower.get_xlabel() == "trainer step"


def test_every_interval_is_drawn(make_gap: Any, make_by: Any) -> None:
    by = make_by(range(17), null_at=(0, 5))
    figure = keyed_figure(make_gap(16, key="staleness", by=by))
    (bars,) = [c for c in figure.axes[0].collections if c.get_label() == "interval"]
    assert isinstance(bars, LineCollection)
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    known = [entry.batch.b_hat for entry in by if entry.batch.b_hat.value is not None]
    assert len(known) == 15
    assert ends == [[b.ci_low, b.ci_high] for b in known]
    assert figure.axes[-1].get_xlabel() == "staleness, in versions behind the trainer"


def test_many_keys_get_a_band_and_lonely_ones_a_bar(make_gap: Any, make_by: Any) -> None:
    by = make_by(range(200), null_at=(10, 12))
    axes = keyed_figure(make_gap(16, key="step", by=by)).axes[0]
    drawn = [c for c in axes.collections if c.get_label() == "interval"]
    (shaded,) = [c for c in drawn if isinstance(c, PolyCollection)]
    (bars,) = [c for c in drawn if isinstance(c, LineCollection)]
    corners = {tuple(v) for path in shaded.get_paths() for v in path.vertices.tolist()}
    b = by[100].batch.b_hat
    assert {(100.0, b.ci_low), (100.0, b.ci_high)} <= corners
    assert [segment[0, 0] for segment in bars.get_segments()] == [11.0]


def test_gates_and_missing_keys(make_gap: Any, make_by: Any) -> None:
    by = make_by(range(9), null_at=(3,))
    result = make_gap(16, key="step", by=by)
    figure = keyed_figure(result)
    for gate in ("good", "fair", "direction"):
        expected = [e.key for e in by if e.gate == gate and e.batch.b_hat.value is not None]
        assert expected
        np.testing.assert_array_equal(line(figure.axes[0], gate).get_xdata(), expected)
    np.testing.assert_array_equal(line(figure.axes[0], "refused, none").get_xdata(), [3])
    assert keyed_data(result).gates_met == ("good", "fair", "direction", "refused")


def test_title_counts_the_keys_apart_from_zero(make_gap: Any, make_by: Any) -> None:
    by = make_by(range(9), null_at=(3,))
    gaps = [e.batch.b_hat for e in by if e.batch.b_hat.value is not None]
    apart = sum(b.ci_low > 0 or b.ci_high < 0 for b in gaps)
    assert 0 < apart < 8
    figure = keyed_figure(make_gap(16, key="step", by=by))
    assert f"differs from 0 at {apart} of 8 steps (95 %, each alone)" in words(figure)
    one = keyed_figure(make_gap(16, key="staleness", by=make_by(range(16, 17))))
    assert "at the only level of staleness" in words(one)


def test_without_a_critic_its_line_is_empty(make_gap: Any, make_by: Any) -> None:
    figure = keyed_figure(make_gap(16, key="step", by=make_by(range(9), critic=False)))
    assert np.isnan(line(figure.axes[1], "critic_mean").get_ydata()).all()
    texts = [t.get_text() for legend in figure.legends for t in legend.get_texts()]
    assert not any("critic" in text for text in texts)
    low, high = figure.axes[1].get_ylim()
    assert np.isfinite([low, high]).all() and low < high


def test_all_refused_or_no_key_says_why(make_gap: Any, make_by: Any) -> None:
    refused = keyed_figure(make_gap(16, key="step", by=make_by(range(3), null_at=(0, 1, 2))))
    (reason,) = [t for t in refused.axes[0].texts if t.get_label() == "reason"]
    assert "refused: fresh rollouts needed" in reason.get_text().replace("\n", " ")
    empty = keyed_figure(make_gap(16, key="staleness"), size=SINGLE_COLUMN)
    (reason,) = [t for t in empty.axes[0].texts if t.get_label() == "reason"]
    assert reason.get_text().replace("\n", " ") == "The log tells no staleness for any rollout"


def test_without_a_key_it_is_refused(make_gap: Any) -> None:
    with pytest.raises(InputError, match=r'value_gap\(run, by="step"\)'):
        keyed_figure(make_gap(16))


def test_frame_holds_the_intervals(make_gap: Any, make_by: Any) -> None:
    data = keyed_data(make_gap(16, key="step", by=make_by(range(9))))
    low, high = b_limits(data)
    assert low < 0.0 < high
    assert (data.b.low > low).all() and (data.b.high < high).all()


@pytest.mark.parametrize("size", [(7.0, 5.0), SINGLE_COLUMN])
def test_nothing_leaves_the_page(make_gap: Any, make_by: Any, size: tuple[float, float]) -> None:
    figure = keyed_figure(make_gap(16, key="step", by=make_by(range(9), null_at=(3,))), size=size)
    box, page = figure.get_tightbbox(figure.canvas.get_renderer()), figure.bbox_inches  # type: ignore[attr-defined]
    # A hundredth of an inch for the rounding of extents to pixels.
    assert box.x0 >= -0.01 and box.y0 >= -0.01
    assert box.x1 <= page.x1 + 0.01 and box.y1 <= page.y1 + 0.01
