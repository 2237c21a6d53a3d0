"""What the figure of a gap draws, as arrays: pure functions of the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from brace_diag.results import Cell, Estimate, Gate, ValueGap
from brace_diag.settings import GateThresholds

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

MARGIN = GateThresholds().margin
"""Half-width of the margin of equivalence in units of s_A, the sd of the return in a prompt."""
STRETCH = 0.3
"""Share of the frame by which a bracket just outside may widen it."""
WIDE = 3.0
"""A cell whose band is this many times wider than the median does not set the frame."""
GATE_ORDER: tuple[Gate, ...] = ("good", "fair", "direction", "refused", "unknown")


@dataclass(frozen=True, slots=True)
class GapData:
    """Arrays over the cells of a gap, (n_cells,), NaN where a number does not exist.

    Attributes:
        axis: position, horizon or relative.
        level: level of the intervals.
        low, end: first index of each cell and the index after its last (shares on `relative`).
        x: index that the estimate is for: the earliest in the response that the cell holds.
        value: b by wdr, in units of the return.
        ci_low, ci_high: pointwise interval.
        sim_low, sim_high: simultaneous sup-t band over all cells, NaN where there is none.
        first_order, doubly_robust: the two ends of the bracket.
        v: within-prompt variance of the log product.
        n_rollouts: rollouts alive.
        gates: trust, cell by cell; None for a cell that no rollout reaches.
        margin: .1 s_A, None where s_A does not exist.
        reason: why there is no estimate at all, None where there is one.
    """

    axis: str
    level: float
    low: Array
    end: Array
    x: Array
    value: Array
    ci_low: Array
    ci_high: Array
    sim_low: Array
    sim_high: Array
    first_order: Array
    doubly_robust: Array
    v: Array
    n_rollouts: Array
    gates: tuple[Gate | None, ...]
    margin: float | None
    reason: str | None

    @property
    def known(self) -> Mask:
        """Cells with an estimate, (n_cells,)."""
        return np.isfinite(self.value)

    def at_gate(self, gate: Gate) -> Mask:
        """Cells at one gate, (n_cells,)."""
        return np.array([g == gate for g in self.gates], np.bool_)

    @property
    def gates_met(self) -> tuple[Gate, ...]:
        """The gates that occur, in order of trust."""
        return tuple(g for g in GATE_ORDER if g in self.gates)


def gap_data(result: ValueGap) -> GapData:
    """The arrays of a gap's figure; a stretch that no cell covers becomes a NaN cell."""
    axis = result.gap.axis
    cells = _covered(result.gap.cells, 0.0 if axis == "relative" else 1.0)
    low = _column(cells, lambda c: c.low)
    high = _column(cells, lambda c: c.high)
    value = _column(cells, lambda c: c.estimate.value)
    half = _column(cells, lambda c: c.estimate.se) * number(result.gap.simultaneous)
    return GapData(
        axis=axis,
        level=result.settings.level,
        low=low,
        end=high if axis == "relative" else high + 1.0,
        # A cell of remaining horizons starts, in the order of the response, with its largest.
        x=high if axis == "horizon" else low,
        value=value,
        ci_low=_column(cells, lambda c: c.estimate.ci_low),
        ci_high=_column(cells, lambda c: c.estimate.ci_high),
        sim_low=value - half,
        sim_high=value + half,
        first_order=_column(cells, lambda c: _companion(c, "first_order")),
        doubly_robust=_column(cells, lambda c: _companion(c, "doubly_robust")),
        v=_column(cells, lambda c: _companion(c, "within_var_log_product")),
        n_rollouts=_column(cells, lambda c: float(c.estimate.n_rollouts)),
        gates=tuple(_gate(c) for c in cells),
        margin=margin_of(result.batch.return_sd),
        reason=_reason(result.gap.cells),
    )


def y_limits(data: GapData) -> tuple[float, float]:
    """Frame of the main panel, from wdr, its bands and 0; the bracket widens it a little at most.

    A cell whose band is more than `WIDE` times the median is cut, so that a tail with few rollouts
    does not flatten the rest; the first cell is always whole.
    """
    known = data.known
    if not known.any():
        reach = 1.5 * (data.margin or 1.0)
        return -reach, reach
    low = np.fmin.reduce([data.value, data.ci_low, data.sim_low])
    high = np.fmax.reduce([data.value, data.ci_high, data.sim_high])
    inside = known & ((high - low) <= WIDE * np.median((high - low)[known]))
    inside[np.flatnonzero(known)[0]] = True
    bottom, top = min(float(low[inside].min()), 0.0), max(float(high[inside].max()), 0.0)
    reach = STRETCH * (top - bottom)
    bracket = np.concatenate([data.first_order, data.doubly_robust])
    near = bracket[(bracket >= bottom - reach) & (bracket <= top + reach)]
    bottom, top = min([bottom, *near.tolist()]), max([top, *near.tolist()])
    return padded(bottom, top, data.margin, rug=bool((~known).any()))


def padded(bottom: float, top: float, margin: float | None, *, rug: bool) -> tuple[float, float]:
    """Room around a range that holds 0: for the margin where it is near, for the row of crosses."""
    if margin is not None and margin <= 2.0 * max(top, -bottom):
        bottom, top = min(bottom, -margin), max(top, margin)
    span = top - bottom
    if span == 0.0:
        span = bottom_span = 2.0 * (margin or 1.0)
        bottom, top = -bottom_span / 2, bottom_span / 2
    return bottom - (0.14 if rug else 0.06) * span, top + 0.06 * span


def runs(mask: Mask) -> list[tuple[int, int]]:
    """Stretches of True as (first, one after last)."""
    steps = np.diff(np.concatenate([[0], mask.astype(np.int8), [0]]))
    return list(
        zip(np.flatnonzero(steps == 1).tolist(), np.flatnonzero(steps == -1).tolist(), strict=True)
    )


def outside(series: Array, limits: tuple[float, float]) -> list[tuple[int, int]]:
    """Where a line leaves the frame: (cell in the middle of the stretch, +1 above or -1 below)."""
    found = []
    for sign, beyond in ((1, series > limits[1]), (-1, series < limits[0])):
        found += [((first + last - 1) // 2, sign) for first, last in runs(beyond)]
    return found


def lonely(known: Mask) -> Mask:
    """Cells with an estimate and no neighbour that has one: a band cannot show their interval."""
    padded_ = np.concatenate([[False], known, [False]])
    alone: Mask = known & ~padded_[:-2] & ~padded_[2:]
    return alone


def stairs(data: GapData, series: Array) -> tuple[Array, Array]:
    """A cell-wise constant series as the corners of its stairs, (2 n_cells,) each."""
    return np.column_stack([data.low, data.end]).ravel(), np.repeat(series, 2)


def margin_of(return_sd: Estimate) -> float | None:
    """.1 s_A, None where s_A does not exist or is 0."""
    return MARGIN * return_sd.value if return_sd.value else None


def number(value: float | None) -> float:
    """A number that may be missing as a float, NaN where it is."""
    return float("nan") if value is None else float(value)


def _column(cells: Sequence[Cell], read: Callable[[Cell], float | None]) -> Array:
    return np.array([number(read(cell)) for cell in cells], np.float64)


def _companion(cell: Cell, name: str) -> float | None:
    found = cell.companions.get(name)
    if isinstance(found, Estimate):
        return found.value
    return float(found) if isinstance(found, float | int) else None


def _gate(cell: Cell) -> Gate | None:
    if cell.estimate.n_rollouts == 0:
        return None
    found = cell.companions.get("gate")
    return next((gate for gate in GATE_ORDER if gate == found), "unknown")


def _covered(cells: Sequence[Cell], step: float) -> list[Cell]:
    """The cells, with an empty one over every stretch between two that do not touch."""
    out: list[Cell] = []
    for cell in cells:
        if out and cell.low - (out[-1].high + step) > 1e-9:
            method, level = cell.estimate.method, cell.estimate.level
            empty = Estimate(None, None, None, None, level, 0, 0, 0, method, False, "no rollout")
            out.append(Cell(out[-1].high + step, cell.low - step, empty))
        out.append(cell)
    return out


def _reason(cells: Sequence[Cell]) -> str | None:
    if not cells:
        return "no rollout with all that this needs"
    if any(cell.estimate.value is not None for cell in cells):
        return None
    return cells[0].estimate.reason or "no cell has an estimate"
