"""Loops over tokens that build a `Rollouts`: compiled, without the GIL, float64 where they add.

Inputs come in two layouts. *Logged*: row i holds flat[starts[i] : starts[i] + lengths[i]], tokens
of every kind. *Packed*: row i holds x[offsets[i] : offsets[i + 1]], policy tokens only.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_BLOCK = 1 << 12
_jit = nb.njit(cache=True, nogil=True)


@_jit
def count_kept(mask: Bools, starts: Ints, lengths: Ints, valid: Bools) -> Ints:
    """Policy tokens of each row, (n_rows,). A row without a mask keeps all of its tokens."""
    kept = np.empty(len(starts), dtype=np.int64)
    for i in range(len(starts)):
        kept[i] = lengths[i]
        if valid[i]:
            kept[i] = np.sum(mask[starts[i] : starts[i] + lengths[i]])
    return kept


@_jit
def place_kept(mask: Bools, starts: Ints, lengths: Ints, valid: Bools, n_tokens: int) -> Ints:
    """Place within its row of each policy token, (n_tokens,)."""
    places = np.empty(n_tokens, dtype=np.int64)
    j = 0
    for i in range(len(starts)):
        for place in range(lengths[i]):
            if not valid[i] or mask[starts[i] + place]:
                places[j] = place
                j += 1
    return places


@_jit
def gather(
    flat: Any, starts: Ints, valid: Bools, offsets: Ints, places: Ints, fill: Any, out: Any
) -> None:
    """Pack the policy tokens of a logged column into `out`; `fill` where the row's list is null.

    `places` is empty where every token is a policy token.
    """
    for i in range(len(starts)):
        first, last = offsets[i], offsets[i + 1]
        if not valid[i]:
            out[first:last] = fill
        elif len(places) == 0:
            out[first:last] = flat[starts[i] : starts[i] + last - first]
        else:
            for j in range(first, last):
                out[j] = flat[starts[i] + places[j]]


@_jit
def all_within(x: Floats, low: Any, high: Any) -> bool:
    """Whether low < x <= high for every entry; never so for NaN."""
    for start in range(0, len(x), _BLOCK):
        within = np.uint8(1)  # without a branch inside a block, so that the loop becomes SIMD
        for value in x[start : start + _BLOCK]:
            within &= np.uint8((value > low) & (value <= high))
        if not within:
            return False
    return True


@_jit
def count_positive(x: Floats) -> int:
    """How many entries are above 0."""
    positive = 0
    for value in x:
        positive += value > x.dtype.type(0)
    return positive


@_jit
def count_nonfinite(x: Floats) -> int:
    """How many entries are NaN or infinite."""
    odd = 0
    for value in x:
        odd += not (abs(value) < np.inf)
    return odd


@_jit
def classify(x: Floats, low: Any) -> tuple[int, int, int, int, int]:
    """Counts of (NaN, +inf, -inf, fills, positive); a fill is exactly +1 or at most `low`."""
    one, zero, infinity = x.dtype.type(1), x.dtype.type(0), x.dtype.type(np.inf)
    nan, plus, minus, at_most_low, ones, above = 0, 0, 0, 0, 0, 0
    for value in x:  # sums of comparisons and no branch, so that the loop becomes SIMD
        nan += value != value
        plus += value == infinity
        minus += value == -infinity
        at_most_low += value <= low
        ones += value == one
        above += value > zero
    return nan, plus, minus, at_most_low - minus + ones, above - plus - ones


@_jit
def blank_fills(x: Floats, low: float) -> None:
    """Overwrite +inf and fills by NaN, in place."""
    for i in range(len(x)):
        value = x[i]
        if value == np.inf or value == 1.0 or (value <= low and value > -np.inf):
            x[i] = np.nan


@_jit
def zero_tails(x: Floats, other: Floats, offsets: Ints, ceiling: float) -> Ints:
    """Length of each row's trailing run of exact zeros where `other` is clearly not zero.

    Clearly: its mean over the run (NaN left out) is below `ceiling`. Runs shorter than 2 are 0.
    Returns: int64 (n_rollouts,).
    """
    runs = np.zeros(len(offsets) - 1, dtype=np.int64)
    for i in range(len(runs)):
        first = offsets[i + 1]
        while first > offsets[i] and x[first - 1] == 0:
            first -= 1
        total, known = 0.0, 0
        if offsets[i + 1] - first < 2:
            continue
        for j in range(first, offsets[i + 1]):
            if not np.isnan(other[j]):
                total += np.float64(other[j])
                known += 1
        if known > 0 and total < ceiling * known:
            runs[i] = offsets[i + 1] - first
    return runs


@_jit
def blank_tails(x: Floats, offsets: Ints, runs: Ints) -> None:
    """Overwrite the last runs[i] tokens of each row by NaN, in place."""
    for i in range(len(runs)):
        x[offsets[i + 1] - runs[i] : offsets[i + 1]] = np.nan


@_jit
def rows_with_w(mu: Floats, pi: Floats, offsets: Ints) -> Bools:
    """Rows whose every log w = pi - mu is a number or -inf, (n_rollouts,); empty rows are False."""
    good = np.empty(len(offsets) - 1, dtype=np.bool_)
    for i in range(len(good)):
        good[i] = offsets[i + 1] > offsets[i]
        for j in range(offsets[i], offsets[i + 1]):
            if not (abs(mu[j]) < np.inf and pi[j] < np.inf):
                good[i] = False
                break
    return good


@_jit
def rows_finite(x: Floats, offsets: Ints) -> Bools:
    """Rows whose every entry is finite, (n_rollouts,); empty rows are False."""
    good = np.empty(len(offsets) - 1, dtype=np.bool_)
    for i in range(len(good)):
        good[i] = offsets[i + 1] > offsets[i]
        for j in range(offsets[i], offsets[i + 1]):
            if not abs(x[j]) < np.inf:
                good[i] = False
                break
    return good


@_jit
def fold_rewards(
    flat: npt.NDArray[np.float64],
    starts: Ints,
    lengths: Ints,
    valid: Bools,
    offsets: Ints,
    places: Ints,
    out: npt.NDArray[np.float64],
) -> tuple[int, int]:
    """Pack rewards onto policy tokens; returns (rewards moved, empty rows with a reward).

    A reward on another token moves to the policy token before it in its row, or to the first if
    none is before. Off the policy tokens what is not finite is no reward. On them it is missing.
    """
    folded, lost = 0, 0
    for i in range(len(starts)):
        first, last = offsets[i], offsets[i + 1]
        if not valid[i]:
            out[first:last] = np.nan
            continue
        out[first:last] = 0.0
        j, moved = first, 0
        for place in range(lengths[i]):
            reward = flat[starts[i] + place]
            if j < last and (len(places) == 0 or places[j] == place):
                out[j] += reward if abs(reward) < np.inf else np.nan
                j += 1
            elif abs(reward) < np.inf and reward != 0.0:
                moved += 1
                if last > first:
                    out[max(j - 1, first)] += reward
        if last > first:
            folded += moved
        elif moved > 0:
            lost += 1
    return folded, lost


@_jit
def row_sums(x: npt.NDArray[np.float64], offsets: Ints) -> npt.NDArray[np.float64]:
    """Sum of each row, (n_rollouts,)."""
    sums = np.zeros(len(offsets) - 1)
    for i in range(len(sums)):
        for j in range(offsets[i], offsets[i + 1]):
            sums[i] += x[j]
    return sums


@_jit
def row_nonzero(flat: npt.NDArray[np.float64], starts: Ints, lengths: Ints, valid: Bools) -> Bools:
    """Rows of a logged column with any finite entry other than 0, (n_rows,)."""
    found = np.zeros(len(starts), dtype=np.bool_)
    for i in range(len(starts)):
        if valid[i]:
            for reward in flat[starts[i] : starts[i] + lengths[i]]:
                if abs(reward) < np.inf and reward != 0.0:
                    found[i] = True
                    break
    return found


@_jit
def rows_version_odd(
    versions: Ints, offsets: Ints, trainer: Ints, behavior: Ints, has_versions: bool
) -> Bools:
    """Rows with a version above the trainer's, or decreasing along tokens, (n_rollouts,).

    Unknown versions are negative, and are passed over.
    """
    odd = np.zeros(len(offsets) - 1, dtype=np.bool_)
    for i in range(len(odd)):
        if offsets[i + 1] == offsets[i]:
            continue
        odd[i] = trainer[i] >= 0 and behavior[i] > trainer[i]
        if not has_versions:
            continue
        newest = np.int64(-1)
        for j in range(offsets[i], offsets[i + 1]):
            if versions[j] < 0:
                continue
            if versions[j] < newest or (trainer[i] >= 0 and versions[j] > trainer[i]):
                odd[i] = True
                break
            newest = versions[j]
    return odd


@_jit
def first_known(versions: Ints, offsets: Ints, unknown: int) -> Ints:
    """First version of each row that is not negative, else `unknown`, (n_rollouts,)."""
    first = np.full(len(offsets) - 1, unknown, dtype=np.int64)
    for i in range(len(first)):
        for j in range(offsets[i], offsets[i + 1]):
            if versions[j] >= 0:
                first[i] = versions[j]
                break
    return first
