"""The ordered rule: from the gap at the first token to one of six verdicts.

With b the wdr gap at position 0, d = .1 s_A the margin, q = t_.95 one-sided, v the within-prompt
variance of the log product, and M = E_p[b_p²], in this order:

    invalid           the log cannot be judged as it is
    no_staleness      pi equals mu on every token
    needs_probe       v > 10
    negligible        |b| + q SE < d  and  M - q SE(M) < d²
    needs_correction  |b| - q SE > d
    needs_probe       v > 4  or  q SE >= d
    inconclusive      otherwise

Both one-sided statements about |b| hold at 95 % (two one-sided tests, Schuirmann 1987). Where the
control Σ(w - 1) is off, w holds more than staleness, and the tails of b are heavier than its
standard error says: needs_correction then asks for 99 % (1 false one in 200 logs of pure noise with
sd .05 at 95 %). Not asked:
whether b differs from 0, which every log that is long enough says of a gap that does no harm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from brace_diag.estimators.intervals import probe_size
from brace_diag.results import Estimate, Gate
from brace_diag.results_audit import Verdict
from brace_diag.settings import GateThresholds
from brace_diag.sums import t_quantile

GATES = GateThresholds()
ONE_SIDED = 0.95
ONE_SIDED_MISCALIBRATED = 0.99
FAR = 1000.0
"""More than so many times the rollouts at hand decides nothing in practice."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the rule holds against each other.

    Attributes:
        b: the gap; d: the margin, None where the returns do not vary within a prompt.
        half: q SE(b); None without a standard error.
        guard: what |b| must exceed the margin by for needs_correction: q SE(b) at guard_level,
            which is .99 where the control is off.
        spread, spread_half: M and q SE(M), None where M does not exist or is blocked.
        v, gate: variance of the log product, and the trust that it leaves.
    """

    b: float | None
    d: float | None
    half: float | None
    guard: float | None
    guard_level: float
    spread: float | None
    spread_half: float | None
    v: float | None
    gate: Gate

    @property
    def low(self) -> float | None:
        return None if self.b is None or self.guard is None else abs(self.b) - self.guard

    @property
    def high(self) -> float | None:
        return None if self.b is None or self.half is None else abs(self.b) + self.half

    @property
    def spread_low(self) -> float | None:
        if self.spread is None or self.spread_half is None:
            return None
        return self.spread - self.spread_half


def bounds(
    b: Estimate,
    return_sd: Estimate,
    prompt_mean_square: Estimate,
    v: float | None,
    gate: Gate,
    margin: float,
    *,
    miscalibrated: bool,
) -> Bounds:
    """One-sided bounds of the estimates; a spread that rests on a miscalibrated w is left out."""
    s_a = return_sd.value
    d = margin * s_a if s_a is not None and s_a > 0.0 else None
    spread = None if miscalibrated else prompt_mean_square.value
    guard_level = ONE_SIDED_MISCALIBRATED if miscalibrated else ONE_SIDED
    return Bounds(
        b=b.value,
        d=d,
        half=one_sided(b),
        guard=one_sided(b, guard_level),
        guard_level=guard_level,
        spread=spread,
        spread_half=None if spread is None else one_sided(prompt_mean_square),
        v=v,
        gate=gate,
    )


def one_sided(estimate: Estimate, level: float = ONE_SIDED) -> float | None:
    """t of a one-sided level times the standard error, None without one."""
    if estimate.se is None or estimate.n_clusters < 2:
        return None
    return float(t_quantile(level, estimate.n_clusters)) * estimate.se


def verdict(x: Bounds) -> Verdict:
    """The verdict on a log that is fit to be judged and in which pi differs from mu."""
    if x.gate == "refused":
        return "needs_probe"
    if x.d is None or x.low is None or x.high is None or x.half is None:
        return "inconclusive"
    if x.high < x.d and within_prompts(x) is not False:
        return "negligible"
    if x.low > x.d:
        return "needs_correction"
    wide = x.v is not None and x.v > GATES.limit
    return "needs_probe" if wide or x.half >= x.d else "inconclusive"


def within_prompts(x: Bounds) -> bool | None:
    """Whether the prompts' own gaps are not shown to lie beyond the margin; None if unknown."""
    if x.d is None or x.spread_low is None:
        return None
    return x.spread_low < x.d**2


def rollouts_needed(x: Bounds, n_rollouts: int) -> int | None:
    """Rollouts like these whose bounds would leave the undecided zone if b stayed where it is.

    A standard error falls as 1/√n, so n (q SE / | |b| - d |)² bring the bound of |b| to the
    margin. None where that is more than a thousand times the rollouts at hand, and where the mean
    gap lies within the margin but the prompts' own gaps seem not to: more of the same would show
    that the better, and never make it negligible.
    """
    if x.b is None or x.d is None or x.half is None or n_rollouts == 0:
        return None
    if abs(x.b) < x.d and x.spread is not None and x.spread >= x.d**2:
        return None
    distance = abs(abs(x.b) - x.d)
    factor = (x.half / distance) ** 2 if distance > 0.0 else math.inf
    return math.ceil(n_rollouts * factor) if factor <= FAR else None


def probe_rollouts(n_clusters: int, margin: float) -> int:
    """Fresh rollouts from pi, spread over prompts as the log's, that resolve the margin.

    A probe has SE = √2 s_A/√n; n makes t_.95 SE equal to the margin.
    """
    return math.ceil(probe_size(n_clusters) * (GATES.margin / margin) ** 2)
