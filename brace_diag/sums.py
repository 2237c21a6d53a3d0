"""Additive state of every estimator, and the delete-one-group jackknife over it.

A state is float64 sums over (group, cell, feature); a group is a hash class of prompts. Sums of
shards add up, so clusters may be split over files, processes and machines. An estimate is a smooth
function of the sums; its covariance is the delete-one-group jackknife,

    cov = (g - 1)/g Σ_j (θ₍ⱼ₎ - θ̄)(θ₍ⱼ₎ - θ̄)ᵀ,   θ₍ⱼ₎ = θ(total - group j),

over the g non-empty groups (Efron & Stein 1981; for clusters: Cameron, Gelbach & Miller 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError
from brace_diag.settings import N_GROUPS

Array = npt.NDArray[np.float64]


@dataclass(slots=True)
class GroupSums:
    """Sums over (group, cell, feature) that grow along the cells and add up.

    Attributes:
        n_features: width of the last axis.
        array: float64 (N_GROUPS, n_cells, n_features).
    """

    n_features: int
    array: Array = field(default_factory=lambda: np.zeros((0, 0, 0)))

    def __post_init__(self) -> None:
        if self.array.size == 0:
            self.array = np.zeros((N_GROUPS, 0, self.n_features))

    @property
    def n_cells(self) -> int:
        return int(self.array.shape[1])

    def grow(self, n_cells: int) -> None:
        """Make room for at least `n_cells` cells; new ones are 0."""
        if n_cells > self.n_cells:
            grown = np.zeros((N_GROUPS, n_cells, self.n_features))
            grown[:, : self.n_cells] = self.array
            self.array = grown

    def merge(self, other: GroupSums) -> None:
        """Add another shard's sums in place."""
        if other.n_features != self.n_features:
            raise InputError(
                f"sums with {other.n_features} features cannot be added to {self.n_features}"
            )
        self.grow(other.n_cells)
        self.array[:, : other.n_cells] += other.array


def leave_one_out(sums: Array, groups: npt.NDArray[np.int64]) -> Array:
    """Total, then total minus each of `groups`: (1 + len(groups), ...) from (N_GROUPS, ...)."""
    total = sums.sum(axis=0)
    return np.concatenate([total[None], total[None] - sums[groups]])


@dataclass(frozen=True, slots=True)
class Jackknife:
    """A statistic on the total and on every total-minus-group.

    Attributes:
        value: (n_outputs,) on the total.
        deviations: (n_groups, n_outputs) of the replicates from their mean; 0 where the group has
            no part in the output or is the only one.
        n_groups: (n_outputs,) non-empty groups of each output.
        groups: (n_groups,) which group each row of deviations leaves out, where that is kept.
    """

    value: Array
    deviations: Array
    n_groups: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int64] | None = None

    @property
    def covariance(self) -> Array:
        """Joint covariance of the outputs, (n_outputs, n_outputs)."""
        scale = np.sqrt(np.maximum(self.n_groups - 1, 0) / np.maximum(self.n_groups, 1))
        scaled = self.deviations * scale
        return np.asarray(scaled.T @ scaled)

    @property
    def se(self) -> Array:
        """Standard errors, (n_outputs,); NaN with fewer than 2 groups."""
        shrink = np.maximum(self.n_groups - 1, 0) / np.maximum(self.n_groups, 1)
        se = np.sqrt(shrink * np.sum(self.deviations**2, axis=0))
        return np.where(self.n_groups >= 2, se, np.nan)

    def contrast(self, weights: Array) -> Jackknife:
        """The linear combination Σ_j weights_j θ_j, weights (n_outputs,), as one output."""
        used = np.flatnonzero(weights)
        w = weights[used]
        n_groups = int(self.n_groups[used].min(initial=N_GROUPS))
        return Jackknife(
            np.array([self.value[used] @ w]),
            (self.deviations[:, used] @ w)[:, None],
            np.array([n_groups], np.int64),
            self.groups,
        )

    def by_group(self) -> Array:
        """Deviations scaled to the standard error, (N_GROUPS, n_outputs): se² = Σ_g of squares.

        Statistics of two logs over the same prompts subtract group by group, so that what both
        owe to a prompt cancels.
        """
        assert self.groups is not None
        out = np.zeros((N_GROUPS, self.deviations.shape[1]))
        shrink = np.maximum(self.n_groups - 1, 0) / np.maximum(self.n_groups, 1)
        out[self.groups] = self.deviations * np.sqrt(shrink)
        return out


def jackknife(
    function: Callable[..., Array],
    *sums: Array,
    present: npt.NDArray[np.bool_],
) -> Jackknife:
    """Delete-one-group jackknife of one vectorised smooth function of sums.

    Args:
        function: maps arrays with a leading replicate axis, one for each of `sums`, to
            (n_replicates, n_outputs).
        sums: arrays with the groups on their first axis.
        present: (N_GROUPS, n_outputs) or (N_GROUPS,): whether the group has data for the output.
    """
    anywhere = present if present.ndim == 1 else present.any(axis=1)
    groups = np.flatnonzero(anywhere)
    with np.errstate(all="ignore"):  # a replicate may have nothing left to divide by
        theta = function(*(leave_one_out(s, groups) for s in sums))
    return from_replicates(theta, present[groups], groups)


def from_replicates(
    theta: Array, present: npt.NDArray[np.bool_], groups: npt.NDArray[np.int64] | None = None
) -> Jackknife:
    """Jackknife of replicates that are already there.

    Args:
        theta: (1 + n_groups, n_outputs), on the total and without each group.
        present: (n_groups, n_outputs) or (n_groups,): whether the group has data for the output.
        groups: (n_groups,) which group each replicate leaves out.
    """
    value, replicates = theta[0], theta[1:]
    has = np.broadcast_to(present if present.ndim == 2 else present[:, None], replicates.shape)
    n_groups = has.sum(axis=0)
    kept = np.where(has, replicates, 0.0)
    mean = kept.sum(axis=0) / np.maximum(n_groups, 1)
    deviations = np.where(has & (n_groups >= 2), replicates - mean, 0.0)
    return Jackknife(value, deviations, n_groups.astype(np.int64), groups)


def t_quantile(probability: float, n_groups: npt.ArrayLike) -> Array:
    """Quantile of Student's t with n_groups - 1 degrees of freedom; NaN below 2 groups."""
    from scipy.special import stdtrit

    df = np.asarray(n_groups, dtype=np.float64) - 1.0
    return np.where(df >= 1, stdtrit(np.maximum(df, 1.0), probability), np.nan)


def sup_t_critical(
    jack: Jackknife, level: float, rng: np.random.Generator, draws: int = 20_000
) -> float | None:
    """Critical value c so that estimate ± c se holds over all outputs at once at `level`.

    The maximum of |t| over outputs is simulated from the outputs' joint jackknife law: Gaussian
    draws with the correlation of the groups' deviations over an independent chi of the
    smallest degrees of freedom (Montiel Olea & Plagborg-Møller 2019). None when no output has a
    standard error.
    """
    usable = (jack.n_groups >= 2) & np.isfinite(jack.value) & (np.nan_to_num(jack.se) > 0)
    if not usable.any():
        return None
    dev = jack.deviations[:, usable]
    unit = dev / np.sqrt(np.sum(dev**2, axis=0))
    if len(unit) > unit.shape[1]:
        # A smaller square root of the same correlation matrix draws the same law cheaper.
        values, vectors = np.linalg.eigh(unit.T @ unit)
        unit = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    df = float(jack.n_groups[usable].min() - 1)
    largest = np.empty(draws)
    chi = np.sqrt(rng.chisquare(df, size=draws) / df)
    for start in range(0, draws, 2_000):
        stop = min(start + 2_000, draws)
        normal = rng.standard_normal((stop - start, len(unit)))
        largest[start:stop] = np.abs(normal @ unit).max(axis=1)
    return float(np.quantile(largest / chi, level))


@dataclass(slots=True)
class Histogram:
    """Counts and sums between fixed edges, with two open outer bins; adds up exactly.

    Attributes:
        edges: (n_edges,) strictly increasing.
        counts: int64 (n_edges + 1,); bin i holds edges[i-1] <= x < edges[i].
        n_nan: values that are not numbers.
    """

    edges: Array
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    n_nan: int = 0

    def __post_init__(self) -> None:
        if len(self.counts) == 0:
            self.counts = np.zeros(len(self.edges) + 1, np.int64)

    def add(self, values: npt.NDArray[np.floating[Any]]) -> None:
        bad = np.isnan(values)
        self.n_nan += int(bad.sum())
        bins = np.searchsorted(self.edges, values[~bad], side="right")
        self.counts += np.bincount(bins, minlength=len(self.counts))

    def merge(self, other: Histogram) -> None:
        if not np.array_equal(self.edges, other.edges):
            raise InputError("histograms with different edges cannot be added")
        self.counts += other.counts
        self.n_nan += other.n_nan

    def quantile(self, probability: float) -> float:
        """Quantile by linear interpolation inside its bin; an outer bin gives its edge."""
        total = int(self.counts.sum())
        if total == 0:
            return float("nan")
        target = probability * total
        cumulative = np.cumsum(self.counts)
        b = int(np.searchsorted(cumulative, target))
        if b == 0 or b >= len(self.edges):
            return float(self.edges[min(b, len(self.edges) - 1)])
        before = cumulative[b - 1]
        share = (target - before) / max(self.counts[b], 1)
        return float(self.edges[b - 1] + share * (self.edges[b] - self.edges[b - 1]))
