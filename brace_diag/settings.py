"""Frozen settings: what was asked for, and every threshold with its source."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError

Axis = Literal["position", "horizon", "relative"]
By = Literal["step", "staleness"]
Baseline = Literal["auto", "critic", "group"]

N_GROUPS = 512
"""Hash groups of prompts: the clusters of the delete-one-group jackknife."""

EXACT_BELOW = 8
PER_OCTAVE = 4


def cell_edges(length: int) -> npt.NDArray[np.int64]:
    """First index of every log-spaced cell that is needed for indices 0 .. length-1.

    Cells are single indices below 8, then four to the octave: 0, 1, .., 7, 8, 10, 12, 14, 16, 20,
    24, 28, 32, ... The last entry is the first edge at or beyond `length` (exclusive end).

    Returns: int64 array (n_cells + 1,), strictly increasing, first entry 0.
    """
    edges = list(range(EXACT_BELOW))
    octave = EXACT_BELOW
    while edges[-1] < length:
        edges.extend(octave + octave * q // PER_OCTAVE for q in range(PER_OCTAVE))
        octave *= 2
    n_cells = next(i for i, edge in enumerate(edges) if edge >= length)
    return np.asarray(edges[: n_cells + 1], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class GateThresholds:
    """Within-prompt variance of S_t = sum of log w from t on: what may be said at each level.

    Measured on exactly solved token MDPs (coverage of the 95 % interval by level of the variance):
    at most 1 every estimator holds; at most 4 `wdr` does (.93-.97); 4-10 only the direction is
    reliable; beyond 10 nothing logged is safe and fresh rollouts are needed. tau caps the state
    weight of wdr, tau_bracket that of its wider companion; `margin` is the gap below which it does
    no harm, in units of s_A, the within-prompt sd of the return.
    """

    good: float = 1.0
    limit: float = 4.0
    refuse: float = 10.0
    tau: float = 2.0
    tau_bracket: float = 5.0
    min_clusters: int = 10
    margin: float = 0.1


@dataclass(frozen=True, slots=True)
class GapSettings:
    """What `value_gap` is asked for.

    Attributes:
        gamma: discount per policy token, in (0, 1].
        level: level of the intervals, in (0, 1).
        baseline: `critic` centres returns by the critic alone, `group` also by the returns of the
            prompt's other rollouts, `auto` takes the one with the smaller standard error.
        by: key of the keyed estimates, or None.
        by_positions: keep the gap by position for every key, not only position 0.
        axis: `position` (unbiased) or `horizon`, `relative` (biased when lengths vary; noted).
        group_shift: a in the shift a (mean return of the prompt's others - V at the first token).
    """

    gamma: float = 1.0
    level: float = 0.95
    baseline: Baseline = "auto"
    by: By | None = None
    by_positions: bool = False
    axis: Axis = "position"
    group_shift: float = 0.8

    def __post_init__(self) -> None:
        if not 0.0 < self.gamma <= 1.0:
            raise InputError(f"gamma is {self.gamma}; it must be above 0 and at most 1")
        if not 0.0 < self.level < 1.0:
            raise InputError(f"level is {self.level}; it must lie strictly between 0 and 1")
        _one_of("baseline", self.baseline, ("auto", "critic", "group"))
        _one_of("by", self.by, (None, "step", "staleness"))
        _one_of("axis", self.axis, ("position", "horizon", "relative"))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


TargetName = Literal["mc", "gae", "vtrace", "capped", "brace"]


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One value target with its parameters; `n`: V-trace window, `k`: correction window."""

    name: TargetName = "brace"
    k: float = 100
    n: float = math.inf
    rho_bar: float = 1.2
    c_bar: float = 1.1
    gamma: float = 1.0
    lam: float = 1.0


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        choices = ", ".join("none" if a is None else str(a) for a in allowed)
        raise InputError(f"{name} is {value!r}; allowed: {choices}")
