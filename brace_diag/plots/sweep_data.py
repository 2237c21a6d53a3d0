"""What the figure of a sweep draws, as arrays: pure functions of the result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from brace_diag.plots.gap_data import number
from brace_diag.results import Estimate
from brace_diag.results_sweep import PAPER_DEFAULT, Sweep, SweepSetting

Array = npt.NDArray[np.float64]
SHARES = (-0.25, 1.5)
"""The frame of shares reaches no further, whatever the intervals do."""


@dataclass(frozen=True, slots=True)
class SettingLine:
    """One pair of caps over the windows, arrays (n_windows,), NaN where there is no number.

    Attributes:
        rho_bar, c_bar: the caps.
        share, low, high: share of the gap with its interval.
        variance: Var(target - V) / Var(G - V).
    """

    rho_bar: float
    c_bar: float
    share: Array
    low: Array
    high: Array
    variance: Array


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a point stands: which line, which window."""

    line: int
    window: int


@dataclass(frozen=True, slots=True)
class SweepData:
    """Everything that the figure draws.

    Attributes:
        windows: k of each column, inf for all that hold the longest response.
        lines: by rho_bar and c_bar.
        chosen, paper: the recommended point and the paper's default; None where there is none.
    """

    windows: tuple[float, ...]
    lines: tuple[SettingLine, ...]
    chosen: Spot | None
    paper: Spot | None

    @property
    def rho_bars(self) -> tuple[float, ...]:
        return tuple(sorted({line.rho_bar for line in self.lines}))

    @property
    def c_bars(self) -> tuple[float, ...]:
        return tuple(sorted({line.c_bar for line in self.lines}))


def sweep_data(result: Sweep) -> SweepData:
    """Arrays of a sweep; windows that hold the longest response are one column."""
    windows = tuple(sorted({result.column_of(p) for p in result.points}))
    caps = sorted({(p.rho_bar, p.c_bar) for p in result.points})
    table = {(p.rho_bar, p.c_bar, result.column_of(p)): p for p in result.points}
    lines = tuple(
        _line(rho_bar, c_bar, [table.get((rho_bar, c_bar, k)) for k in windows])
        for rho_bar, c_bar in caps
    )

    def spot(point: SweepSetting | None) -> Spot | None:
        if point is None:
            return None
        at = caps.index((point.rho_bar, point.c_bar))
        return Spot(at, windows.index(result.column_of(point)))

    own = result.recommendation
    paper = [p for p in result.points if (p.k, p.rho_bar, p.c_bar) == PAPER_DEFAULT]
    return SweepData(
        windows, lines, spot(None if own is None else own.chosen), spot(next(iter(paper), None))
    )


def share_limits(data: SweepData) -> tuple[float, float]:
    """0 and 1 always inside; intervals as far as `SHARES`."""
    ends = [x for line in data.lines for x in (line.low, line.high, line.share)]
    known = np.concatenate(ends) if ends else np.zeros(0)
    known = known[np.isfinite(known)]
    low = float(np.clip(known.min(initial=0.0), SHARES[0], 0.0))
    high = float(np.clip(known.max(initial=1.0), 1.0, SHARES[1]))
    margin = 0.04 * (high - low)
    return low - margin, high + margin


def _line(rho_bar: float, c_bar: float, points: list[SweepSetting | None]) -> SettingLine:
    def column(name: str, end: str) -> Array:
        found = []
        for point in points:
            own: Estimate | None = None if point is None else getattr(point, name)
            found.append(number(None if own is None else getattr(own, end)))
        return np.array(found)

    return SettingLine(
        rho_bar=rho_bar,
        c_bar=c_bar,
        share=column("share", "value"),
        low=column("share", "ci_low"),
        high=column("share", "ci_high"),
        variance=column("variance_ratio", "value"),
    )
