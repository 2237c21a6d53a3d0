"""Arrays of the critic's figures, from a `CriticFit` alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError
from brace_diag.plots.gap_data import number
from brace_diag.results import Cell
from brace_diag.results_critic import CriticFit, Density, TargetFit

Array = npt.NDArray[np.float64]
Limits = tuple[float, float]

MOST_PANELS = 6
KEPT = 0.998
"""Share of the tokens that the frame of target against critic holds on either axis."""
NARROWEST = 1 / 120
"""Width of a bin of the picture in units of its frame, at least."""


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationData:
    """Mean return by the critic's value.

    Attributes:
        low, high: (n,) ends of the bins; critic: mean value in each.
        value, ci_low, ci_high: (n,) mean return and its interval, NaN where there is none.
        share: (n,) of the tokens; reliable: whether the interval can be believed.
        x, y: limits of the axes.
        reason: why there is nothing to draw, or None.
    """

    low: Array
    high: Array
    critic: Array
    value: Array
    ci_low: Array
    ci_high: Array
    share: Array
    reliable: npt.NDArray[np.bool_]
    x: Limits
    y: Limits
    reason: str | None

    @property
    def density(self) -> Array:
        """Share of the tokens per unit of the critic's value; NaN for a bin without width."""
        width = self.high - self.low
        return np.where(width > 0, self.share / np.where(width > 0, width, 1.0), np.nan)


def calibration_data(result: CriticFit) -> CalibrationData:
    """The calibration curve as arrays."""
    cells = result.calibration.cells
    value, ci_low, ci_high = (
        np.array([number(getattr(cell.estimate, name)) for cell in cells])
        for name in ("value", "ci_low", "ci_high")
    )
    critic = _companion(cells, "mean_critic")
    reason = None if len(cells) else result.fit.mean_error.reason or "no value was judged"
    x = _around(critic)
    return CalibrationData(
        low=np.array([cell.low for cell in cells], np.float64),
        high=np.array([cell.high for cell in cells], np.float64),
        critic=critic,
        value=value,
        ci_low=ci_low,
        ci_high=ci_high,
        share=_companion(cells, "share"),
        reliable=np.array([cell.estimate.reliable for cell in cells], np.bool_),
        x=x,
        y=_around(np.concatenate([value, ci_low, ci_high, critic])),
        reason=reason,
    )


def _companion(cells: Sequence[Cell], name: str) -> Array:
    found = (cell.companions.get(name) for cell in cells)
    return np.array([x if isinstance(x, float) else np.nan for x in found], np.float64)


def _around(values: Array) -> Limits:
    """Limits with some room around the finite values."""
    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    room = 0.06 * (high - low) or 0.5
    return low - room, high + room


@dataclass(frozen=True, slots=True, eq=False)
class TargetPanel:
    """One picture of target against critic.

    Attributes:
        name: target, or key, that it shows; fit: its distances.
        density: (n_bins, n_bins) share of the panel's tokens per unit of critic and of target,
            first axis critic; NaN where there is no token.
        n_tokens: tokens of the panel; share_outside: of them, beyond the frame.
    """

    name: str
    fit: TargetFit
    density: Array
    n_tokens: int
    share_outside: float


@dataclass(frozen=True, slots=True, eq=False)
class TargetData:
    """Panels of target against critic in one frame.

    Attributes:
        label: the target, where panels are levels of staleness; else None.
        edges: (n_bins + 1,) of the bins of both axes that the frame holds.
        frame: ends of both axes.
        panels: at most `MOST_PANELS`; n_left_out: keys that have none.
        colours: smallest and largest density of a bin with a token.
        reason: why there is nothing to draw, or None.
    """

    label: str | None
    edges: Array
    frame: Limits
    panels: tuple[TargetPanel, ...]
    n_left_out: int
    colours: Limits
    reason: str | None


def target_data(result: CriticFit, target: str | None = None) -> TargetData:
    """Densities of target against critic: a panel per target, or per staleness for one target.

    Args: target: its label, by default the last of those asked for; only with by="staleness".

    Raises: InputError where the result has no such target.
    """
    label, shown, left_out = _shown(result, target)
    filled = [(name, fit, d) for name, fit in shown if (d := fit.density) and d.count.sum()]
    if not filled:
        empty = np.zeros(0)
        reason = shown[0][1].distance.reason if shown else "the log tells no staleness"
        return TargetData(label, empty, (0.0, 1.0), (), left_out, (1.0, 1.0), reason or "no token")
    edges = filled[0][2].edges
    ends = (result.extent.return_low, result.extent.return_high)
    first, last = _frame([d for _, _, d in filled], [e for e in ends if e is not None])
    starts = _visible(edges[first : last + 1])
    kept = edges[first : last + 1][[*starts, -1]]
    panels = tuple(_panel(name, fit, d, first + starts, kept) for name, fit, d in filled)
    positive = np.concatenate([p.density[np.isfinite(p.density)] for p in panels])
    colours = (float(positive.min()), float(positive.max())) if len(positive) else (1.0, 1.0)
    frame = (float(kept[0]), float(kept[-1]))
    return TargetData(label, kept, frame, panels, left_out, colours, None)


def _shown(
    result: CriticFit, target: str | None
) -> tuple[str | None, list[tuple[str, TargetFit]], int]:
    if target is not None and target not in result.targets:
        raise InputError(f"target is {target!r}; the result has: {', '.join(result.targets)}")
    if result.settings.by != "staleness":
        every = [(label, fit) for label, fit in result.targets.items() if target in (None, label)]
        return None, every[:MOST_PANELS], max(len(every) - MOST_PANELS, 0)
    label = target or list(result.targets)[-1]
    entries = result.by
    n = min(len(entries), MOST_PANELS)
    picked = [round(at) for at in np.linspace(0, len(entries) - 1, n).tolist()]
    shown = [(f"staleness {entries[i].key}", entries[i].targets[label]) for i in picked]
    return label, shown, len(entries) - len(shown)


def _frame(densities: Sequence[Density], returns: Sequence[float]) -> tuple[int, int]:
    """First and last edge of the smallest frame that holds the range and nearly every token."""
    edges = densities[0].edges
    counts = np.zeros(len(edges) + 1)
    for density in densities:
        for axis in (density.critic, density.target):
            counts += np.bincount(axis, density.count, len(counts))
    share = np.cumsum(counts) / counts.sum()
    # Bin b lies between edges b - 1 and b.
    first = int(np.searchsorted(share, (1.0 - KEPT) / 2, side="right")) - 1
    last = int(np.searchsorted(share, (1.0 + KEPT) / 2))
    for end in returns:
        b = int(np.searchsorted(edges, end, side="right"))
        first, last = min(first, b - 1), max(last, b)
    return max(first, 0), min(max(last, first + 1), len(edges) - 1)


def _visible(edges: Array) -> npt.NDArray[np.int64]:
    """First of the bins that are joined to one, so that none is narrower than the eye can see."""
    least = (edges[-1] - edges[0]) * NARROWEST
    starts = [0]
    for i in range(1, len(edges) - 1):
        # Rounding of equal bins does not join two that are just wide enough.
        if edges[i] - edges[starts[-1]] >= least * (1.0 - 1e-9):
            starts.append(i)
    if len(starts) > 1 and edges[-1] - edges[starts[-1]] < least * (1.0 - 1e-9):
        starts.pop()
    return np.array(starts, np.int64)


def _panel(
    name: str, fit: TargetFit, density: Density, starts: npt.NDArray[np.int64], kept: Array
) -> TargetPanel:
    """Args: starts: first edge of every bin of the picture; kept: their edges and the last."""
    n = len(starts)
    counts = np.zeros((n, n))
    # A fine bin b begins at edge b - 1; what begins at or beyond the last edge is off the frame.
    last = int(np.searchsorted(density.edges, kept[-1]))
    x, y = (
        np.where(bins - 1 < last, np.searchsorted(starts, bins - 1, side="right") - 1, -1)
        for bins in (density.critic, density.target)
    )
    inside = (x >= 0) & (y >= 0)
    np.add.at(counts, (x[inside], y[inside]), density.count[inside])
    total = int(density.count.sum())
    width = np.diff(kept)
    per_area = np.where(counts > 0, counts / total / np.outer(width, width), np.nan)
    return TargetPanel(name, fit, per_area, total, 1.0 - float(counts.sum()) / total)
