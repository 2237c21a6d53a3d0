"""What the figures of the importance products draw, as arrays: pure functions of the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from brace_diag.plots.gap_data import number
from brace_diag.results import Cell, Curve, Estimate
from brace_diag.results_importance import ImportanceProducts
from brace_diag.settings import GateThresholds

Array = npt.NDArray[np.float64]

SPREADS = ("naive", "hac", "prompt")
EXTREME = 5.0
"""|log w| beyond which a token counts as extreme."""


@dataclass(frozen=True, slots=True)
class ProductsData:
    """Arrays over window lengths, (n_lengths,), NaN where a number does not exist.

    Attributes:
        n: window length in tokens.
        mean, mean_low, mean_high: mean log-product of the windows and its interval, where clusters
            are enough for one.
        low, high: the central part of the windows.
        observed_sd, sd_low, sd_high: standard deviation of the windows' log-products and its
            interval.
        forecast: n m.
        spread, coverage: naive, hac, prompt -> forecast spread, and share of windows inside
            n m ± z spread.
        z: normal quantile of the level; level: of everything.
        n_windows: windows of each length.
        reason: why there is nothing to draw, None where there is.
    """

    n: Array
    mean: Array
    mean_low: Array
    mean_high: Array
    low: Array
    high: Array
    observed_sd: Array
    sd_low: Array
    sd_high: Array
    forecast: Array
    spread: dict[str, Array]
    coverage: dict[str, Array]
    z: float
    level: float
    n_windows: Array
    reason: str | None


def products_data(result: ImportanceProducts) -> ProductsData:
    """The arrays of the figure of log-products."""
    from scipy.special import ndtri

    cells = result.log_products.cells
    level = result.settings.level
    known = any(cell.estimate.value is not None for cell in cells)
    reason = None if known else (cells[0].estimate.reason if cells else "no rollout with weights")
    return ProductsData(
        n=_column(cells, lambda cell: cell.low),
        mean=_column(cells, lambda cell: cell.estimate.value),
        mean_low=_column(cells, lambda cell: _end(cell, "ci_low")),
        mean_high=_column(cells, lambda cell: _end(cell, "ci_high")),
        low=companion(cells, "quantile_low"),
        high=companion(cells, "quantile_high"),
        observed_sd=companion(cells, "observed_sd"),
        sd_low=companion(cells, "observed_sd", "ci_low"),
        sd_high=companion(cells, "observed_sd", "ci_high"),
        forecast=companion(cells, "forecast_mean"),
        spread={name: companion(cells, f"spread_{name}") for name in SPREADS},
        coverage={name: companion(cells, f"coverage_{name}") for name in SPREADS},
        z=float(ndtri(0.5 + level / 2)),
        level=level,
        n_windows=companion(cells, "n_windows"),
        reason=reason,
    )


@dataclass(frozen=True, slots=True)
class TailsData:
    """Both tails of log w.

    Attributes:
        x: |log w|; above, below: share of tokens with log w >= x, and with log w <= -x; all cut to
            the part that is seen.
        caps: name, log of the cap, share of tokens beyond it with its interval.
        floor: mean |log w| of fresh rollouts, None where it is not known.
        n_tokens: tokens in all.
        reason: why there is nothing to draw, None where there is.
    """

    x: Array
    above: Array
    below: Array
    caps: tuple[tuple[str, float, Estimate], ...]
    floor: Estimate
    n_tokens: int
    reason: str | None


def tails_data(result: ImportanceProducts) -> TailsData:
    """The arrays of the figure of tails."""
    tails = result.tails
    x = np.array(tails.magnitude)
    above, below = np.array(tails.above), np.array(tails.below)
    n = result.figures.mean_weight.n_tokens
    beyond = above + below
    # From where nearly all are still beyond, to where the last one is.
    first = int(np.sum(beyond >= min(0.98, beyond[0] * 0.98))) - 1 if n else 0
    last = int(np.sum(beyond > 0.0)) + 1
    shown = slice(max(first, 0), min(last, len(x)))
    s, f = result.settings, result.figures
    caps = tuple(
        (name, float(np.log(cap)), share)
        for name, cap, share in (("c", s.c_bar, f.clip_c_bar), ("ρ", s.rho_bar, f.clip_rho_bar))
        if 1.0 < cap < np.inf
    )
    moved = n > 0 and bool(beyond[0] > 0.0)
    reason = None if moved else "every weight is 1" if n else "no rollout with weights"
    return TailsData(x[shown], above[shown], below[shown], caps, result.noise_floor, n, reason)


@dataclass(frozen=True, slots=True)
class PlaceData:
    """|log w| along one axis: arrays over its cells, (n_cells,).

    Attributes:
        x: first index of each cell; end: index after its last.
        mean, mean_low, mean_high: mean |log w| and its interval.
        share, share_low, share_high: share of |log w| > 5 and its interval.
        n_tokens: tokens of each cell.
    """

    x: Array
    end: Array
    mean: Array
    mean_low: Array
    mean_high: Array
    share: Array
    share_low: Array
    share_high: Array
    n_tokens: Array


def place_data(curve: Curve) -> PlaceData:
    """The arrays of one line of the figure by position."""
    cells = curve.cells

    return PlaceData(
        x=_column(cells, lambda cell: cell.low),
        end=_column(cells, lambda cell: cell.high + 1.0),
        mean=_column(cells, lambda cell: cell.estimate.value),
        mean_low=_column(cells, lambda cell: cell.estimate.ci_low),
        mean_high=_column(cells, lambda cell: cell.estimate.ci_high),
        share=companion(cells, "extreme_share", "value"),
        share_low=companion(cells, "extreme_share", "ci_low"),
        share_high=companion(cells, "extreme_share", "ci_high"),
        n_tokens=_column(cells, lambda cell: float(cell.estimate.n_tokens)),
    )


def _end(cell: Cell, field: str) -> float | None:
    """An end of the mean's interval; a few clusters give one that would only stretch the frame."""
    enough = cell.estimate.n_clusters >= GateThresholds().min_clusters
    value: float | None = getattr(cell.estimate, field) if enough else None
    return value


def companion(cells: Sequence[Cell], name: str, field: str = "value") -> Array:
    """A number beside every cell, or a field of an estimate there; NaN where there is none."""

    def read(cell: Cell) -> float | None:
        found = cell.companions.get(name)
        if isinstance(found, Estimate):
            value: float | None = getattr(found, field)
            return value
        return float(found) if isinstance(found, float | int) else None

    return _column(cells, read)


def _column(cells: Sequence[Cell], read: Callable[[Cell], float | None]) -> Array:
    return np.array([number(read(cell)) for cell in cells], np.float64)
