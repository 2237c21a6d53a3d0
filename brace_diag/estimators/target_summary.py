"""How value targets of one log differ: additive sums, and estimates from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from brace_diag.estimators.gap_cells import FAST
from brace_diag.estimators.intervals import IntervalMaker
from brace_diag.estimators.siblings import add_to_groups
from brace_diag.results import Estimate
from brace_diag.rollouts import Floats, Rollouts
from brace_diag.sums import GroupSums, Jackknife, jackknife

Array = npt.NDArray[np.float64]

RANGE_SLACK = 1e-6
"""Rounding of float32 does not count as outside the range; relative."""


# Loops that sum hold no stores and may be reordered; the order then hangs on their length alone.
@njit(cache=True, nogil=True, fastmath=FAST)
def _sum(x):  # type: ignore[no-untyped-def]
    total = 0.0
    for t in range(len(x)):
        total += x[t]
    return total


@njit(cache=True, nogil=True, fastmath=FAST)
def _product(x, y):  # type: ignore[no-untyped-def]
    total = 0.0
    for t in range(len(x)):
        total += x[t] * y[t]
    return total


@njit(cache=True, nogil=True, fastmath=FAST)
def _distance(x, y):  # type: ignore[no-untyped-def]
    total = 0.0
    for t in range(len(x)):
        total += abs(x[t] - y[t])
    return total


@njit(cache=True, nogil=True)
def _outside(x, low, high):  # type: ignore[no-untyped-def]
    n = 0
    for t in range(len(x)):
        n += (x[t] < low) | (x[t] > high)
    return n


@njit(cache=True, nogil=True)
def _centred(columns, values, has_values, first, pivot, z):  # type: ignore[no-untyped-def]
    """Columns minus the pivot into z, all 0 at tokens where one is not finite; how many are left.

    0 stands for the pivot, which adds nothing to any sum and lies inside every range.
    """
    n_columns = len(columns)
    width, length = z.shape
    for c in range(n_columns):
        x = columns[c, first : first + length]
        for t in range(length):
            z[c, t] = np.float64(x[t]) - pivot
    if has_values:
        x = values[first : first + length]
        for t in range(length):
            z[n_columns, t] = np.float64(x[t]) - pivot
    n = length
    for t in range(length):
        whole = True
        for c in range(width):
            whole &= np.isfinite(z[c, t])
        if not whole:
            n -= 1
            z[:, t] = 0.0
    return n


@njit(cache=True, nogil=True, parallel=True)
def _rows(  # type: ignore[no-untyped-def]
    offsets, columns, n_targets, values, has_values, use, pivot, low, high, rows
):
    """Features of every rollout (see `TargetSums`) over the tokens where all columns are finite."""
    width = len(columns) + (1 if has_values else 0)
    for i in prange(len(offsets) - 1):
        length = offsets[i + 1] - offsets[i]
        if not use[i] or length == 0:
            continue
        row, z = rows[i], np.empty((width, length))
        row[0] = _centred(columns, values, has_values, offsets[i], pivot, z)
        row[1] = 1.0 if row[0] > 0.0 else 0.0
        at = 2 + width
        for c in range(width):
            row[2 + c] = _sum(z[c])
            for d in range(c + 1):
                row[at] = _product(z[c], z[d])
                at += 1
        for c in range(n_targets):
            if has_values:
                row[at + c] = _distance(z[c], z[width - 1])
            row[at + n_targets + c] = _outside(z[c], low - pivot, high - pivot)


@dataclass(slots=True)
class TargetSums:
    """Sums over the tokens where every target, the return and the critic are known.

    The columns x of a token are its targets, its return to go and, where the log has it, its
    critic value. Features: tokens; rollouts with any; Σ(x_c - pivot); Σ(x_c - pivot)(x_d - pivot)
    for d <= c; Σ|target - V|; targets outside the range of returns.

    Attributes:
        n_targets: targets compared.
        has_values: whether critic values are among the columns.
        low, high: range of returns that the log shows; their middle is the pivot, which keeps
            variances from cancelling.
    """

    n_targets: int
    has_values: bool
    low: float
    high: float
    sums: GroupSums = field(init=False)

    def __post_init__(self) -> None:
        width, n = self.width, self.n_targets
        self.sums = GroupSums(2 + width + width * (width + 1) // 2 + 2 * n)
        self.sums.grow(1)

    @property
    def width(self) -> int:
        """Columns compared."""
        return self.n_targets + 1 + self.has_values

    @property
    def pivot(self) -> float:
        return 0.5 * (self.low + self.high)

    def update(self, batch: Rollouts, columns: Floats, counted: npt.NDArray[np.bool_]) -> None:
        """Add a batch.

        Args: columns: (n_targets + 1, n_tokens), the targets and then the return to go; NaN is
            missing. counted: bool (n_rollouts,), False for rows that repeat an earlier one.
        """
        rows = np.zeros((batch.n_rollouts, self.sums.n_features))
        slack = RANGE_SLACK * max(abs(self.low), abs(self.high), 1e-12)
        _rows(
            batch.offsets,
            columns,
            self.n_targets,
            columns[0] if batch.values is None else batch.values,
            self.has_values,
            counted,
            self.pivot,
            self.low - slack,
            self.high + slack,
            rows,
        )
        add_to_groups(rows, batch.group, self.sums.array[:, 0])

    def merge(self, other: TargetSums) -> None:
        """Add another shard's sums in place."""
        self.sums.merge(other.sums)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Estimates over the compared tokens, by column: targets, then the return, then the critic.

    Attributes:
        mean, variance: one per column.
        minus_return: mean of each column minus the mean return.
        correlation: (row, column) -> estimate, for row > column.
        distance: mean |target - V| per target, None without a critic.
        outside: share outside the range of returns per target, None where returns do not vary.
        n_tokens: compared tokens.
    """

    mean: tuple[Estimate, ...]
    variance: tuple[Estimate, ...]
    minus_return: tuple[Estimate, ...]
    correlation: dict[tuple[int, int], Estimate]
    distance: tuple[Estimate, ...] | None
    outside: tuple[Estimate, ...] | None
    n_tokens: int


def compare(sums: TargetSums, level: float) -> Comparison:
    """All figures with their intervals, clustered by prompt: one jackknife of one function."""
    array = sums.sums.array[:, 0]
    present = array[:, 0] > 0
    width, n = sums.width, sums.n_targets
    if present.any():
        jack = jackknife(lambda s: _figures(s, sums), array, present=present)
    else:
        size = 3 * width + width * (width - 1) // 2 + 2 * n
        jack = Jackknife(np.full(size, np.nan), np.zeros((0, size)), np.zeros(size, np.int64))
    n_tokens, n_rollouts = int(array[:, 0].sum()), int(array[:, 1].sum())
    maker = IntervalMaker(level)

    def estimates(first: int, count: int, method: str) -> tuple[Estimate, ...]:
        return tuple(
            maker.estimate(
                jack, j, n_tokens=n_tokens, n_rollouts=n_rollouts, method=method,
                missing=_why_missing(jack, j, n_tokens),
            )
            for j in range(first, first + count)
        )  # fmt: skip

    pairs = [(c, d) for c in range(width) for d in range(c)]
    at = 3 * width
    correlation = estimates(at, len(pairs), "over tokens where both are known")
    at += len(pairs)
    return Comparison(
        mean=estimates(0, width, "mean over tokens"),
        variance=estimates(width, width, "over tokens, within and between prompts"),
        minus_return=estimates(2 * width, width, "mean over tokens, paired"),
        correlation=dict(zip(pairs, correlation, strict=True)),
        distance=estimates(at, n, "mean over tokens") if sums.has_values else None,
        outside=estimates(at + n, n, "share of tokens") if sums.high > sums.low else None,
        n_tokens=n_tokens,
    )


def _figures(s: Array, sums: TargetSums) -> Array:
    """Every figure from sums (n_replicates, n_features), (n_replicates, n_outputs)."""
    width, n = sums.width, sums.n_targets
    tokens = s[:, :1]
    mean = s[:, 2 : 2 + width] / tokens
    rows = [(c, d) for c in range(width) for d in range(c + 1)]
    at = 2 + width + len(rows)
    products = dict(zip(rows, (s[:, 2 + width : at] / tokens).T, strict=True))
    variance = np.stack(
        [np.maximum(products[c, c] - mean[:, c] ** 2, 0.0) for c in range(width)], axis=1
    )
    # What rounding leaves of a variance that is 0.
    spread = np.where(variance > 1e-12 * (mean**2 + variance), variance, 0.0)
    correlation = [
        (products[c, d] - mean[:, c] * mean[:, d]) / np.sqrt(spread[:, c] * spread[:, d])
        for c, d in rows
        if d < c
    ]
    rest = s[:, at : at + 2 * n] / tokens
    shifted = mean - mean[:, n : n + 1]
    return np.concatenate(
        [mean + sums.pivot, spread, shifted, np.stack(correlation, axis=1), rest], axis=1
    )


def _why_missing(jack: Jackknife, j: int, n_tokens: int) -> str | None:
    if n_tokens == 0:
        return "no token where every target, the return and the critic are known"
    return None if np.isfinite(jack.value[j]) else "zero variance"


def correlations_of(
    labels: Sequence[str], comparison: Comparison
) -> dict[str, dict[str, Estimate]]:
    """Correlations of every column with every other, by the columns' labels, in their order."""
    return {
        mine: {
            other: comparison.correlation[max(c, d), min(c, d)]
            for d, other in enumerate(labels)
            if d != c
        }
        for c, mine in enumerate(labels)
    }
