"""The words on the figures of the importance products."""

from __future__ import annotations

import numpy as np

from brace_diag.plots.products_data import PlaceData, ProductsData, TailsData
from brace_diag.plots.words import NO_BREAK, elide, plain, signed
from brace_diag.results import Estimate
from brace_diag.results_importance import ImportanceProducts
from brace_diag.settings import GateThresholds

CANNOT_TELL = "This log cannot tell how the weights behave"
MODEST = 0.05
"""By how much a coverage may miss its level before the title says so."""


def products_finding(result: ImportanceProducts, data: ProductsData) -> str:
    """Whether the naive forecast holds at the longest window, and how long the product lasts."""
    if result.invalid is not None:
        return CANNOT_TELL
    judged = np.flatnonzero(np.isfinite(data.coverage["naive"]))
    if data.reason is not None or not len(judged):
        return "No forecast of log-products can be judged on this log"
    at = int(judged[-1])
    naive, prompt = (data.coverage[name][at] for name in ("naive", "prompt"))
    n = f"{int(data.n[at]):,}"
    held = f"{shares(prompt)} of the log-products of {n} tokens"
    if naive >= data.level - MODEST:
        return f"√n σ forecasts log-products well: it holds {shares(naive)} of them at {n} tokens"
    return f"With the spread between prompts the forecast holds {held}, √n σ alone {shares(naive)}"


def tails_finding(result: ImportanceProducts, data: TailsData) -> str:
    """How much lies beyond the caps, and how far the tails go."""
    if result.invalid is not None:
        return CANNOT_TELL
    if data.reason is not None:
        return f"No tails to draw: {data.reason}"
    tails = result.tails
    assert tails.lowest is not None and tails.highest is not None
    low = signed(tails.lowest) if np.isfinite(tails.lowest) else "−∞"
    ends = f"log w runs from {low} to {signed(tails.highest)}"
    clipped = [f"{shares(e.value)} above {name}̄" for name, _, e in data.caps if e.value is not None]
    return f"{ends}; {' and '.join(clipped)}" if clipped else ends


def place_finding(result: ImportanceProducts, start: PlaceData, end: PlaceData) -> str:
    """What carries the extremes, or where |log w| is largest."""
    if result.tails.concentrated is not None:
        return result.tails.concentrated
    if not np.isfinite(start.mean).any():
        return "No |log w| to draw on this log"
    if result.invalid is not None:
        return CANNOT_TELL
    return _place_of_most(start)


def _place_of_most(data: PlaceData) -> str:
    """Where |log w| is largest, if the intervals of the largest and the smallest lie apart."""
    if not np.nanmax(data.mean) > 0.0:
        return "|log w| is 0 at every position"
    most, least = int(np.nanargmax(data.mean)), int(np.nanargmin(data.mean))
    if not data.mean_low[most] > data.mean_high[least]:
        middle = float(np.nanmedian(data.mean))
        return f"|log w| is alike at all positions as far as can be told, about {middle:.2g}"
    return (
        f"|log w| goes from {data.mean[least]:.2g} at position {int(data.x[least]):,} to "
        f"{data.mean[most]:.2g} at position {int(data.x[most]):,}"
    )


def basis(result: ImportanceProducts) -> str:
    """Source, counts and caps: what the figure rests on."""
    w, s = result.figures.mean_weight, result.settings
    parts = [
        f"{w.n_rollouts:,} rollouts",
        f"{w.n_tokens:,} tokens",
        f"{w.n_clusters:,} clusters of prompts",
        f"c̄ = {cap(s.c_bar)}, ρ̄ = {cap(s.rho_bar)}, γ = {s.gamma:g}, λ = {s.lam:g}",
    ]
    return " · ".join([plain(elide(result.source)), *(p.replace(" ", NO_BREAK) for p in parts)])


def cautions(result: ImportanceProducts, *, told: bool = True) -> list[str]:
    """Sentences without which a figure misleads; told: also what a single token id carries."""
    found = []
    if result.invalid is not None:
        found.append(plain(result.invalid))
    if result.ratio.verdict == "miscalibrated":
        u = result.figures.u_control.value or 0.0
        found.append(
            f"Miscalibrated: the mean sum of (w − 1) per rollout is {signed(u)}, not 0; no figure "
            "of a product is to be believed."
        )
    if result.tails.concentrated is not None and told:
        found.append(f"{result.tails.concentrated}.")
    n, least = result.figures.mean_weight.n_clusters, GateThresholds().min_clusters
    if 0 < n < least:
        found.append(f"{n} clusters of prompts: intervals are rough below {least}.")
    return found


def numbers(result: ImportanceProducts) -> str:
    """m, the spreads, half-life and usable horizon in one line."""
    f = result.figures
    parts = [
        f"m = {short(f.m)}",
        f"σ = {short(f.sigma)}",
        f"s$_{{HAC}}$ = {short(f.sigma_hac)}",
        f"τ = {short(f.tau_prompt)}",
    ]
    if result.half_life.value is not None:
        parts.append(f"E[C] = ½ at {short(result.half_life)} tokens")
    if f.usable_horizon.value is not None:
        parts.append(f"exp(nm) = {result.settings.eps:g} at {short(f.usable_horizon)} tokens")
    return ", ".join(part.replace(" ", NO_BREAK) for part in parts)


def short(estimate: Estimate) -> str:
    """Three significant digits with a true minus; whole from 1,000 on."""
    if estimate.value is None:
        return "none"
    large = abs(estimate.value) >= 1000.0
    return f"{estimate.value:{',.0f' if large else '.3g'}}".replace("-", "−")


def shares(value: float | None) -> str:
    """A share in per cent: whole, or two digits of a small one."""
    if value is None or not np.isfinite(value):
        return "none"
    shown = f"{100 * value:.0f}" if value >= 0.1 or value == 0.0 else f"{100 * value:.2g}"
    return f"{shown}{NO_BREAK}%"


def cap(value: float) -> str:
    return "∞" if np.isinf(value) else f"{value:g}"
