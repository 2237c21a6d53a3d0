"""The words on the figure of reward slopes."""

from __future__ import annotations

import math

from brace_diag.plots.words import NO_BREAK, elide, plain
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
    """How much of the return is left in each target at the longest horizon."""
    if result.invalid is not None:
        return "This log cannot tell what the corrections do"
    weighted = [s for s in result.slopes.values() if s.spec.reads_weights]
    shown = [(s, w) for s in weighted or result.slopes.values() if (w := _last(s)) is not None]
    if not shown:
        return "No rollout has all that a slope needs"
    cell = shown[0][0].return_weight.cells[-1]
    to_go = f"{int(cell.low):,} or more tokens to go" if cell.low else "no token to go"
    names = [NAMES[s.spec.name] for s, _ in shown]
    parts = [f"{_percent(w)} in {_name(s.spec, names)}" for s, w in shown[:NAMED]]
    more = " (and others)" if len(shown) > NAMED else ""
    return f"With {to_go}, the return's weight is {', '.join(parts)}{more}"


def _name(spec: TargetSpec, names: list[str]) -> str:
    """A short name, with the parameter that tells it from another target of that name."""
    name = NAMES[spec.name]
    if names.count(name) == 1:
        return name
    own = {"vtrace": ("n", "c_bar"), "capped": ("k", "c_bar"), "brace": ("k", "c_bar")}
    keys = [k for k in own.get(spec.name, ("lam",)) if not math.isinf(getattr(spec, k))]
    given = ", ".join(f"{SYMBOLS[k]} = {getattr(spec, k):g}".replace(" ", NO_BREAK) for k in keys)
    return f"{name} ({given})" if given else name


def _last(slopes: TargetSlopes) -> float | None:
    cells = slopes.return_weight.cells
    return cells[-1].estimate.value if cells else None


def _percent(value: float) -> str:
    shown = f"{100 * value:.0f}" if value >= 0.1 or value == 0.0 else f"{100 * value:.2g}"
    return f"{shown}{NO_BREAK}%"


def slopes_basis(result: RewardSlope) -> str:
    """Source and counts: what the figure rests on."""
    overall = next(iter(result.slopes.values())).overall.pooled
    counts = [
        f"{overall.n_rollouts:,} rollouts",
        f"{overall.n_tokens:,} tokens",
        f"{overall.n_clusters:,} prompts (clusters)",
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
        found.append(f"{slope.n_clusters} prompts (clusters): intervals are rough below {least}.")
    if result.lengths is not None and result.lengths[0] < result.lengths[1]:
        found.append(
            f"Lengths vary ({result.lengths[0]:,} to {result.lengths[1]:,} tokens): a horizon "
            "picks tokens by how long their response turned out; this describes the log."
        )
    return found
