"""Intervals, gates and reasons: how a jackknifed number becomes an `Estimate`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from brace_diag.results import Estimate, Gate
from brace_diag.settings import GateThresholds
from brace_diag.sums import Jackknife, t_quantile

Array = npt.NDArray[np.float64]
Baseline = Literal["critic", "group"]
GATES = GateThresholds()


def gate_of(v: float) -> Gate:
    """Trust level of a within-prompt variance of the log product."""
    if not math.isfinite(v):
        return "unknown"
    if v <= GATES.good:
        return "good"
    if v <= GATES.limit:
        return "fair"
    return "direction" if v <= GATES.refuse else "refused"


def probe_size(n_clusters: int) -> int:
    """Fresh rollouts whose direct estimate resolves the margin: 2 (t_.95 / margin)².

    A probe's standard error is √2 s_A/√n; n makes t_.95 of them equal .1 s_A.
    """
    quantile = float(t_quantile(0.95, max(n_clusters, 2)))
    return math.ceil(2.0 * (quantile / GATES.margin) ** 2)


@dataclass(slots=True)
class IntervalMaker:
    """Turns jackknife outputs into `Estimate`s at one level."""

    level: float

    def estimate(
        self,
        jack: Jackknife,
        j: int,
        *,
        n_tokens: int,
        n_rollouts: int,
        method: str,
        gate: Gate | None = None,
        v: float = float("nan"),
        missing: str | None = None,
    ) -> Estimate:
        value, se, n = float(jack.value[j]), float(jack.se[j]), int(jack.n_groups[j])
        quantile = float(t_quantile(0.5 + self.level / 2, n))
        reason = missing or _why_null(value, n)
        if gate == "refused" and reason is None:
            reason = (
                f"within-prompt variance of the log product is {v:.3g}, above {GATES.refuse:g}: "
                f"fresh rollouts from pi are needed (about {probe_size(n)})"
            )
        if reason is not None and (n >= 2 or missing or not math.isfinite(value)):
            value = se = quantile = float("nan")
        reliable = reason is None and n >= GATES.min_clusters and gate != "direction"
        if reason is None and not reliable:
            reason = _why_unreliable(n, gate, v)
        low, high = value - quantile * se, value + quantile * se
        return Estimate(
            or_none(value),
            or_none(se),
            or_none(low),
            or_none(high),
            self.level,
            n_tokens,
            n_rollouts,
            n,
            method,
            reliable,
            reason,
        )


def _why_null(value: float, n: int) -> str | None:
    if n == 0 or math.isnan(value):
        return "no rollout with all that this needs"
    if math.isinf(value):
        return "the products overflow float64"
    return None if n >= 2 else "one prompt only: no standard error"


def _why_unreliable(n: int, gate: Gate | None, v: float) -> str:
    if gate == "direction":
        return (
            f"within-prompt variance of the log product is {v:.3g}, above {GATES.limit:g}: "
            "only the direction can be trusted"
        )
    return f"{n} clusters of prompts, fewer than {GATES.min_clusters}: the interval is rough"


def or_none(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None


def absolute(estimate: Estimate) -> Estimate:
    """|x| with the interval that x's interval maps to; never below 0."""
    if estimate.value is None:
        return estimate
    low, high = estimate.ci_low, estimate.ci_high
    if low is None or high is None:
        return replace(estimate, value=abs(estimate.value))
    straddles = low <= 0.0 <= high
    ends = (abs(low), abs(high))
    return replace(
        estimate,
        value=abs(estimate.value),
        ci_low=0.0 if straddles else min(ends),
        ci_high=max(ends),
    )


def unit(size: int, *at: int) -> Array:
    vector = np.zeros(size)
    vector[list(at)] = 1.0
    return vector


@dataclass(frozen=True, slots=True)
class GapContext:
    maker: IntervalMaker
    baseline: Baseline
    has_values: bool
    lone: bool
    gate: Gate
    v: float

    @property
    def method(self) -> str:
        base = {
            "critic": "critic baseline",
            "group": "critic and group baseline" if self.has_values else "group baseline",
        }[self.baseline]
        alone = ", total variance in the gate (one rollout a prompt)" if self.lone else ""
        return f"wdr(tau={GATES.tau:g}), {base}{alone}"
