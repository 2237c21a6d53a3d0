"""What the figure draws are the result's numbers, and the frame follows wdr."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from brace_diag.plots import gap_data, y_limits
from brace_diag.plots.gap_data import lonely, outside, runs, stairs
from brace_diag.results import Cell, Estimate


def column(cells: Any, name: str) -> Any:
    values = [getattr(cell.estimate, name) for cell in cells]
    return np.array([np.nan if v is None else v for v in values])


def test_arrays_are_the_numbers_of_the_result(make_gap: Any) -> None:
    result = make_gap(64)
    cells, data = result.gap.cells, gap_data(result)
    np.testing.assert_array_equal(data.value, column(cells, "value"))
    np.testing.assert_array_equal(data.ci_low, column(cells, "ci_low"))
    np.testing.assert_array_equal(data.ci_high, column(cells, "ci_high"))
    np.testing.assert_array_equal(data.n_rollouts, column(cells, "n_rollouts"))
    np.testing.assert_array_equal(data.low, [cell.low for cell in cells])
    np.testing.assert_array_equal(data.end, [cell.high + 1 for cell in cells])
    np.testing.assert_array_equal(data.x, data.low)
    for name in ("first_order", "doubly_robust"):
        np.testing.assert_array_equal(
            getattr(data, name), [cell.companions[name].value for cell in cells]
        )
    np.testing.assert_array_equal(
        data.v, [cell.companions["within_var_log_product"] for cell in cells]
    )
    assert list(data.gates) == [cell.companions["gate"] for cell in cells]
    assert data.margin == pytest.approx(0.1 * 0.47, rel=1e-15)
    assert data.reason is None


def test_simultaneous_band_is_the_critical_value_times_se(make_gap: Any) -> None:
    result = make_gap(64, simultaneous=3.0)
    data, se = gap_data(result), column(result.gap.cells, "se")
    # One multiplication and one addition in either order of rounding.
    np.testing.assert_allclose(data.sim_high - data.value, 3.0 * se, rtol=1e-12)
    np.testing.assert_allclose(data.value - data.sim_low, 3.0 * se, rtol=1e-12)


def test_without_a_critical_value_there_is_no_simultaneous_band(make_gap: Any) -> None:
    data = gap_data(make_gap(64, simultaneous=None))
    assert np.isnan(data.sim_low).all() and np.isnan(data.sim_high).all()
    assert np.isfinite(data.ci_low).all()


def test_refused_cells_are_nan_and_known_to_be_refused(make_gap: Any) -> None:
    data = gap_data(make_gap(8192, v_first=12.0))
    refused = data.at_gate("refused")
    assert refused.any() and not refused.all()
    np.testing.assert_array_equal(data.known, ~refused)
    assert data.gates_met == ("good", "fair", "direction", "refused")


def test_horizon_cells_stand_at_their_largest_horizon(make_gap: Any) -> None:
    data = gap_data(make_gap(64, axis="horizon"))
    np.testing.assert_array_equal(data.x, data.end - 1)


def test_relative_cells_touch_in_shares(make_gap: Any) -> None:
    cells = tuple(
        replace(cell, low=i / 20, high=(i + 1) / 20)
        for i, cell in enumerate(make_gap(64).gap.cells[:20])
    )
    data = gap_data(make_gap(cells=cells, axis="relative"))
    assert len(data.x) == 20
    np.testing.assert_array_equal(data.end, [(i + 1) / 20 for i in range(20)])


def test_a_hole_between_cells_breaks_the_line(make_gap: Any) -> None:
    cells = make_gap(64).gap.cells
    kept = cells[:5] + cells[9:]
    data = gap_data(make_gap(cells=kept))
    assert len(data.x) == len(kept) + 1
    assert np.isnan(data.value[5]) and data.gates[5] is None
    assert (data.low[5], data.end[5]) == (cells[5].low, cells[9].low)
    np.testing.assert_array_equal(data.end[:-1], data.low[1:])


def test_no_cells_and_only_null_cells_say_why(make_gap: Any) -> None:
    assert gap_data(make_gap(cells=())).reason == "no rollout with all that this needs"
    null = gap_data(make_gap(8, v_first=2000.0))
    assert null.reason is not None and "fresh rollouts" in null.reason
    assert not null.known.any()


def test_a_cell_without_gate_is_unknown(make_gap: Any, make_estimate: Any) -> None:
    data = gap_data(make_gap(cells=(Cell(0, 0, make_estimate(0.1, 0.02)),)))
    assert data.gates == ("unknown",)
    assert np.isnan(data.v).all() and np.isnan(data.first_order).all()


def test_margin_needs_a_spread(make_gap: Any) -> None:
    assert gap_data(make_gap(spread=None)).margin is None
    assert gap_data(make_gap(spread=0.0)).margin is None


@pytest.mark.parametrize("length", [1, 7, 64, 8192])
def test_frame_holds_wdr_its_bands_and_zero(make_gap: Any, length: int) -> None:
    data = gap_data(make_gap(length, rollouts=4096))
    low, high = y_limits(data)
    assert low < 0.0 < high
    width = data.sim_high - data.sim_low
    tame = data.known & (width <= 3.0 * np.nanmedian(width))
    assert (data.sim_low[tame] > low).all() and (data.sim_high[tame] < high).all()
    assert (data.ci_low[tame] > low).all() and (data.ci_high[tame] < high).all()


def test_an_exploding_bracket_does_not_widen_the_frame(make_gap: Any) -> None:
    data = gap_data(make_gap(512, v_first=9.5))
    low, high = y_limits(data)
    wild = replace(data, doubly_robust=data.doubly_robust * 1e6)
    wild_low, wild_high = y_limits(wild)
    # Without the bracket the frame can only shrink; with it by STRETCH of the range at most.
    assert wild_high - wild_low <= 1.3 * 1.3 * (high - low)
    assert wild_high < np.nanmax(wild.doubly_robust) / 1e3


def test_a_tail_of_few_rollouts_does_not_set_the_frame(make_gap: Any) -> None:
    data = gap_data(make_gap(64))
    frame = y_limits(data)
    se = data.sim_high - data.value
    se[-1] *= 100.0
    wide = replace(data, sim_low=data.value - se, sim_high=data.value + se)
    assert y_limits(wide)[1] <= frame[1]


def test_a_gap_of_exactly_zero_has_a_frame(make_gap: Any, make_estimate: Any) -> None:
    data = gap_data(make_gap(cells=(Cell(0, 0, make_estimate(0.0, 0.0)),), spread=None))
    low, high = y_limits(data)
    assert low < 0.0 < high


def test_an_estimate_without_interval_is_drawn(make_gap: Any) -> None:
    one = Estimate(0.2, None, None, None, 0.95, 10, 4, 1, "wdr", False, "one prompt only")
    data = gap_data(make_gap(cells=(Cell(0, 0, one), Cell(1, 1, one))))
    low, high = y_limits(data)
    assert low < 0.0 < 0.2 < high
    assert np.isnan(data.ci_low).all()


def test_runs_and_outside() -> None:
    assert runs(np.array([True, True, False, True])) == [(0, 2), (3, 4)]
    assert runs(np.array([False])) == []
    series = np.array([5.0, 5.0, 5.0, 0.0, np.nan, -9.0])
    assert outside(series, (-1.0, 1.0)) == [(1, 1), (5, -1)]


def test_lonely() -> None:
    known = np.array([True, False, True, True, False, True])
    assert lonely(known).tolist() == [True, False, False, False, False, True]


def test_stairs(make_gap: Any) -> None:
    data = gap_data(make_gap(12))
    x, n = stairs(data, data.n_rollouts)
    assert x.tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 10, 10, 12]
    np.testing.assert_array_equal(n[::2], data.n_rollouts)
    np.testing.assert_array_equal(n[1::2], data.n_rollouts)
