"""Curves of the importance products: log-products by window length, |log w| by place."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from brace_diag.estimators import importance_bins as bins
from brace_diag.estimators import importance_estimates as ie
from brace_diag.estimators import importance_kernels as k
from brace_diag.estimators.importance_context import Context
from brace_diag.estimators.importance_state import ImportanceState
from brace_diag.estimators.intervals import or_none
from brace_diag.results import Cell, Companion, Curve
from brace_diag.results_importance import ImportanceSettings
from brace_diag.settings import cell_edges
from brace_diag.sums import t_quantile

Array = npt.NDArray[np.float64]


def product_curve(context: Context, state: ImportanceState, windows: ie.Windows, cap: int) -> Curve:
    """Observed and forecast log-products by window length."""
    cells = []
    suffix = "" if cap == k.CHOSEN else "_uncapped"
    method = "windows that tile each rollout, " + ("no cap" if suffix else context.method)
    m, sigma, long_run, squared = (context.own.value(f"{n}{suffix}") for n in ie.PER_CAP)
    tau = max(squared, 0.0) if math.isfinite(squared) else 0.0
    missing = context.missing("m")
    for level in range(len(windows.counts)):
        n = 2**level
        count = int(windows.counts[level])
        column = windows.column(level, cap, 0)
        spreads = {
            "naive": math.sqrt(n) * sigma,
            "hac": math.sqrt(n) * long_run,
            "prompt": math.sqrt(n * long_run**2 + n**2 * tau),
        }
        counts = state.window_counts[0 if cap == k.CHOSEN else 1, level]
        beside: dict[str, Companion] = {
            "n_windows": count,
            "observed_sd": context.over(
                windows.jack, column + 1, n * count, f"sd, {method}", missing=missing
            ),
            **_observed_range(counts, context.settings, n),
            "forecast_mean": or_none(n * m),
            **{f"spread_{name}": or_none(spread) for name, spread in spreads.items()},
            **_coverage(counts, context.settings, n, m, spreads),
        }
        beside["mean_product"] = context.over(
            windows.jack, column + 2, n * count, f"E[C], {method}"
        )
        if missing is not None:
            beside |= {
                name: None
                for name in beside
                if name not in ("n_windows", "observed_sd", "mean_product")
            }
        mean = context.over(windows.jack, column, n * count, method, missing=missing)
        cells.append(Cell(n, n, mean, beside))
    return Curve("window", tuple(cells))


def _observed_range(
    counts: npt.NDArray[np.int64], settings: ImportanceSettings, n: int
) -> dict[str, Companion]:
    """The central part of the windows at the level."""
    shift = n * settings.log_discount
    ends = (0.5 - settings.level / 2, 0.5 + settings.level / 2)
    names = ("quantile_low", "quantile_high")
    if counts.sum() < ie.MIN_WINDOWS:
        return dict.fromkeys(names)
    return {
        name: or_none(bins.quantile(counts, p) + shift) for name, p in zip(names, ends, strict=True)
    }


def _coverage(
    counts: npt.NDArray[np.int64],
    settings: ImportanceSettings,
    n: int,
    m: float,
    spreads: dict[str, float],
) -> dict[str, Companion]:
    """Share of the windows inside n m ± z spread; None with few windows."""
    # t with 10^9 degrees of freedom is the normal law.
    z = float(t_quantile(0.5 + settings.level / 2, 1e9))
    centre = n * (m - settings.log_discount)
    return {
        f"coverage_{name}": None
        if counts.sum() < ie.MIN_WINDOWS
        else or_none(bins.within(counts, centre - z * spread, centre + z * spread))
        for name, spread in spreads.items()
    }


def place_curve(context: Context, sums: Array, axis: str) -> Curve:
    """Mean |log w| and share of |log w| > 5 along the response."""
    jack = ie.places(sums)
    edges = cell_edges(2**40)
    tokens = sums[:, :, 0].sum(axis=0)
    cells = []
    for cell in np.flatnonzero(tokens > 0.5).tolist():
        n = round(float(tokens[cell]))
        share = context.over(jack, 2 * cell + 1, n, f"share of |log w| > {k.EXTREME:g}")
        mean = context.over(
            jack, 2 * cell, n, "mean |log w|", missing=context.missing("mean_abs_log_w")
        )
        cells.append(
            Cell(int(edges[cell]), int(edges[cell + 1]) - 1, mean, {"extreme_share": share})
        )
    return Curve(axis, tuple(cells))
