"""The words on the figure of reward slopes."""

from __future__ import annotations

import math

from brace_diag.plots.words import NO_BREAK, elide, plain
from brace_diag.results import Cell
from brace_diag.results_slope import RewardSlope, TargetSlopes
from brace_diag.settings import GateThresholds, TargetSpec

NAMES = {
    "mc": "Monte-Carlo return",
    "gae": "GAE",
    "vtrace": "V-trace",
    "capped": "capped",
    "brace": "BRACE",
}
SYMBOLS = {"k": "k", "n": "n", "rho_bar": "ρ̄", "c_bar": "c̄", "gamma": "γ", "lam": "λ"}
NAMED = 3
"""Targets that the title names at most."""


def target_words(spec: TargetSpec) -> str:
    """A target with its window and caps: BRACE, k = 100, ρ̄ = 1.2, c̄ = 1.1."""
    _, _, parameters = spec.label.partition(":")
    parts = [NAMES[spec.name]]
    for pair in parameters.split(",") if parameters else ():
        key, _, value = pair.partition("=")
        parts.append(f"{SYMBOLS[key]} = {value.replace('inf', '∞')}".replace(" ", NO_BREAK))
    return ", ".join(parts)


def finding(result: RewardSlope) -> str:
    """How much of the return is left in each target at the longest horizon that can be told."""
    if result.invalid is not None:
        return "This log cannot tell what the corrections do"
    listed = list(result.slopes.values())
    shown = [s for s in listed if s.spec.reads_weights] or listed
    at = _longest(shown[0])
    if at is None:
        return "No rollout has all that a slope needs"
    cell = shown[0].return_weight.cells[at]
    names = [NAMES[s.spec.name] for s in shown]
    parts = [f"{_share(s.return_weight.cells[at])} in {_name(s.spec, names)}" for s in shown]
    more = " (and others)" if len(shown) > NAMED else ""
    return f"With {_to_go(cell)} to go, the return's weight is {', '.join(parts[:NAMED])}{more}"


def _longest(slopes: TargetSlopes) -> int | None:
    """The last cell with a reliable return weight, or else the last with any."""
    estimates = [cell.estimate for cell in slopes.return_weight.cells]
    for good in (True, False):
        found = [
            i for i, e in enumerate(estimates) if e.value is not None and (e.reliable or not good)
        ]
        if found:
            return found[-1]
    return None


def _to_go(cell: Cell) -> str:
    low, high = int(cell.low), int(cell.high)
    if low == high:
        return f"{low:,} token{'' if low == 1 else 's'}"
    return f"{low:,}–{high:,} tokens"


def _share(cell: Cell) -> str:
    """A weight as a percentage."""
    value = cell.estimate.value
    if value is None:
        return "unknown"
    if 0.0 < value < 0.001:
        return f"<{NO_BREAK}0.1{NO_BREAK}%"
    shown = f"{100 * value:.0f}" if value >= 0.1 or value == 0.0 else f"{100 * value:.2g}"
    return f"{shown}{NO_BREAK}%"


def _name(spec: TargetSpec, names: list[str]) -> str:
    """A short name, with the parameters that tell it from another target of that name."""
    name = NAMES[spec.name]
    if names.count(name) == 1:
        return name
    own = {"vtrace": ("n", "c_bar"), "capped": ("k", "c_bar"), "brace": ("k", "c_bar")}
    given = [
        f"{SYMBOLS[key]} = {value:g}".replace("inf", "∞").replace(" ", NO_BREAK)
        for key in own.get(spec.name, ("lam",))
        if (value := getattr(spec, key)) != math.inf or key != "n"
    ]
    return f"{name} ({', '.join(given)})"


def slopes_basis(result: RewardSlope) -> str:
    """Source and counts: what the figure rests on."""
    overall = next(iter(result.slopes.values())).overall.pooled
    counts = [
        f"{overall.n_rollouts:,} rollouts",
        f"{overall.n_tokens:,} tokens",
        f"{overall.n_clusters:,} clusters of prompts",
    ]
    return " · ".join([plain(elide(result.source)), *(c.replace(" ", NO_BREAK) for c in counts)])


def cautions(result: RewardSlope) -> list[str]:
    """Sentences without which the figure misleads."""
    found = [] if result.invalid is None else [plain(result.invalid)]
    overall = next(iter(result.slopes.values())).overall
    slope = overall.pooled
    least = GateThresholds().min_clusters
    if slope.reason is not None and slope.n_clusters >= least:
        found.append(f"Slopes: {plain(slope.reason)}.")
    if overall.within.value is None and slope.value is not None and overall.within.reason:
        found.append(f"No slope within prompts: {plain(overall.within.reason)}.")
    if 0 < slope.n_clusters < least:
        found.append(f"{slope.n_clusters} clusters of prompts: intervals are rough below {least}.")
    if result.lengths is not None and result.lengths[0] < result.lengths[1]:
        found.append(
            f"Lengths vary ({result.lengths[0]:,} to {result.lengths[1]:,} tokens): a horizon "
            "picks tokens by how long their response turned out; this describes the log."
        )
    return found
