"""What the figure of reward slopes draws, as arrays: pure functions of the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from brace_diag.plots.gap_data import number
from brace_diag.results import Cell, Curve
from brace_diag.results_slope import RewardSlope
from brace_diag.settings import TargetSpec

Array = npt.NDArray[np.float64]

REACH = (-0.5, 1.6)
"""The frame follows intervals no further than this, so that a wild target leaves the rest legible;
lines are always inside it unless they leave `FARTHEST`."""
FARTHEST = (-2.0, 3.0)


@dataclass(frozen=True, slots=True)
class Line:
    """A curve with its interval, (n_cells,), NaN where a number does not exist."""

    value: Array
    low: Array
    high: Array


@dataclass(frozen=True, slots=True)
class SlopeLine:
    """Everything that is drawn of one target."""

    spec: TargetSpec
    within: Line
    pooled: Line
    return_weight: Line

    @property
    def lines(self) -> tuple[Line, Line, Line]:
        return self.within, self.pooled, self.return_weight


@dataclass(frozen=True, slots=True)
class SlopesData:
    """Arrays over the cells of remaining horizon, (n_cells,).

    Attributes:
        level: level of the intervals.
        low, end: first horizon of each cell and the one after its last.
        x: middle of each cell.
        n_rollouts: rollouts with a token in the cell.
        targets: in the order asked for.
    """

    level: float
    low: Array
    end: Array
    x: Array
    n_rollouts: Array
    targets: tuple[SlopeLine, ...]


def slopes_data(result: RewardSlope) -> SlopesData:
    """The arrays of the figure."""
    first = next(iter(result.slopes.values()))
    cells = first.pooled.cells
    low = _column(cells, [c.low for c in cells])
    end = _column(cells, [c.high + 1.0 for c in cells])
    if result.lengths is not None and len(end):
        # The last cell holds no token beyond the longest rollout.
        end[-1] = min(end[-1], result.lengths[1])
    return SlopesData(
        level=result.settings.level,
        low=low,
        end=end,
        x=(low + end - 1.0) / 2.0,
        n_rollouts=_column(cells, [float(c.estimate.n_rollouts) for c in cells]),
        targets=tuple(
            SlopeLine(s.spec, _line(s.within), _line(s.pooled), _line(s.return_weight))
            for s in result.slopes.values()
        ),
    )


def frame(data: SlopesData, lines: Sequence[Line]) -> tuple[float, float]:
    """Limits of a panel: 0 and 1, all lines, and their intervals as far as `REACH`."""
    bottom, top = 0.0, 1.0
    for line in lines:
        known = np.isfinite(line.value)
        if known.any():
            value = np.clip(line.value[known], *FARTHEST)
            low = np.fmax(line.low[known], REACH[0])
            high = np.fmin(line.high[known], REACH[1])
            bottom = min(bottom, float(value.min()), float(np.nanmin([0.0, *low])))
            top = max(top, float(value.max()), float(np.nanmax([1.0, *high])))
    room = 0.04 * (top - bottom)
    return bottom - room, top + room


def _line(curve: Curve) -> Line:
    estimates = [c.estimate for c in curve.cells]
    return Line(
        _column(curve.cells, [number(e.value) for e in estimates]),
        _column(curve.cells, [number(e.ci_low) for e in estimates]),
        _column(curve.cells, [number(e.ci_high) for e in estimates]),
    )


def _column(cells: Sequence[Cell], values: Sequence[float]) -> Array:
    return np.array(values, np.float64).reshape(len(cells))
