"""The position axis: even cells, an exact inverse, labels that do not touch."""

import numpy as np
import pytest

from brace_diag.plots.scale import position_ticks, to_positions, to_units
from brace_diag.settings import cell_edges


def test_units_at_the_worked_points() -> None:
    assert to_units([0, 3, 7, 8, 16, 32, 8192]).tolist() == [0, 3, 7, 8, 12, 16, 48]


def test_every_cell_is_about_one_unit_wide() -> None:
    widths = np.diff(to_units(cell_edges(65536)))
    # A quarter of an octave cut evenly in positions spans 4 log2(8/7) .. 4 log2(5/4) units.
    assert widths.min() >= 4 * np.log2(8 / 7) - 1e-12
    assert widths.max() <= 4 * np.log2(5 / 4) + 1e-12
    # Four cells make an octave of exactly four units.
    assert widths[8:12].sum() == pytest.approx(4.0, abs=1e-12)


def test_inverse() -> None:
    t = np.concatenate([np.linspace(-1, 8, 50), np.geomspace(8, 1e6, 50)])
    # Two transcendental functions, each within a few units in the last place.
    np.testing.assert_allclose(to_positions(to_units(t)), t, rtol=1e-13, atol=1e-15)
    assert (np.diff(to_units(t)[:50]) > 0).all()


@pytest.mark.parametrize("last", [1, 2, 5, 64, 100, 8192, 2**20])
@pytest.mark.parametrize(("inches", "points"), [(2.4, 6.0), (5.8, 7.0)])
def test_labels_stand_apart_and_no_power_is_lost(last: int, inches: float, points: float) -> None:
    major, minor = position_ticks(last, inches, points)
    expected = [0, *(2**i for i in range(25) if 2**i <= last)]
    assert sorted(major + minor) == expected
    assert 0 in major
    place = to_units(major) * inches / float(to_units(last))
    half = np.array([0.636 * len(str(t)) * points / 72 / 2 for t in major])
    assert (place[1:] - half[1:] > place[:-1] + half[:-1]).all()


def test_wide_axes_label_every_octave() -> None:
    major, _ = position_ticks(64, 5.8, 7.0)
    assert major == [0, 1, 2, 4, 8, 16, 32, 64]
