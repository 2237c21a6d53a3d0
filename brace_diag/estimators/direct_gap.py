"""The gap at the first token from returns alone: rollouts of pi beside those of mu.

    b = Σ_p n_p (F̄_p - L̄_p) / Σ_p n_p

over the prompts p that both have (a prompt in a step, for staleness 0), F̄_p the mean return of the
rollouts that pi drew, L̄_p and n_p mean and number of those that mu drew. No weight enters, so that
nothing that is wrong with pi_logprobs or with the products touches it. Without a common prompt the
difference of the two means stands in, marked: it may be one of the prompts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from brace_diag.estimators.intervals import IntervalMaker
from brace_diag.results import DirectGap, DirectKind, Estimate
from brace_diag.settings import N_GROUPS
from brace_diag.sums import jackknife

Array = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Returns:
    """Rollouts with a known return.

    Attributes:
        key: uint64 (n,), what is paired; prompt: uint64 (n,), the cluster; value: (n,).
        complete: whether every rollout has a prompt id.
    """

    key: Keys
    prompt: Keys
    value: Array
    complete: bool = True

    def where(self, mask: npt.NDArray[np.bool_]) -> Returns:
        """Some of them."""
        return Returns(self.key[mask], self.prompt[mask], self.value[mask], self.complete)


def direct_gap(
    kind: DirectKind, drawn: Returns, logged: Returns, wdr: Estimate, level: float
) -> DirectGap | None:
    """b from rollouts of pi (`drawn`) and of mu (`logged`); None where one of them is empty.

    Args:
        wdr: the estimate by weights, to hold it against; the two are taken as independent.
    """
    if len(drawn.value) == 0 or len(logged.value) == 0:
        return None
    shared = np.intersect1d(drawn.key, logged.key)
    paired = len(shared) > 1 and drawn.complete and logged.complete
    if paired:
        drawn = drawn.where(np.isin(drawn.key, shared))
        logged = logged.where(np.isin(logged.key, shared))
        sums, present = _paired_sums(shared, drawn, logged)
        method = "returns of pi less returns of mu, paired by prompt"
    else:
        sums, present = _plain_sums(drawn, logged)
        method = "mean return of pi less mean return of mu"
    jack = jackknife(_difference, sums, present=present)
    b = IntervalMaker(level).estimate(
        jack, 0, n_tokens=0, n_rollouts=len(drawn.value) + len(logged.value), method=method
    )
    if not paired and b.value is not None:
        reason = "no prompt is in both: the difference may be one of the prompts"
        b = replace(b, reliable=False, reason=reason)
    return DirectGap(
        kind=kind,
        b=b,
        n_prompts=len(np.unique(logged.prompt)) if paired else 0,
        n_drawn=len(drawn.value),
        n_logged=len(logged.value),
        z=_apart(b, wdr),
    )


def _paired_sums(
    shared: Keys, drawn: Returns, logged: Returns
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """(N_GROUPS, 4): Σ n (F̄ - L̄), Σ n, 0, 1 over the pairs of each group of prompts."""
    mean_drawn, _ = _means(shared, drawn)
    mean_logged, n = _means(shared, logged)
    first = np.unique(logged.key, return_index=True)[1]
    group = (logged.prompt[first] % np.uint64(N_GROUPS)).astype(np.int64)
    sums = np.zeros((N_GROUPS, 4))
    np.add.at(sums[:, 0], group, n * (mean_drawn - mean_logged))
    np.add.at(sums[:, 1], group, n)
    present = sums[:, 1] > 0.5
    sums[:, 3] = present
    return sums, present


def _plain_sums(drawn: Returns, logged: Returns) -> tuple[Array, npt.NDArray[np.bool_]]:
    """(N_GROUPS, 4): ΣF, number, ΣL, number."""
    sums = np.zeros((N_GROUPS, 4))
    for at, own in ((0, drawn), (2, logged)):
        group = (own.prompt % np.uint64(N_GROUPS)).astype(np.int64)
        np.add.at(sums[:, at], group, own.value)
        np.add.at(sums[:, at + 1], group, 1.0)
    return sums, (sums[:, 1] + sums[:, 3]) > 0.5


def _difference(sums: Array) -> Array:
    with np.errstate(all="ignore"):
        return (sums[:, 0] / sums[:, 1] - sums[:, 2] / sums[:, 3])[:, None]


def _means(shared: Keys, own: Returns) -> tuple[Array, Array]:
    """Mean return and number of rollouts of every key, in the order of `shared` (sorted)."""
    at = np.searchsorted(shared, own.key)
    n = np.bincount(at, minlength=len(shared)).astype(np.float64)
    return np.bincount(at, weights=own.value, minlength=len(shared)) / n, n


def _apart(direct: Estimate, wdr: Estimate) -> float | None:
    if direct.value is None or wdr.value is None or direct.se is None or wdr.se is None:
        return None
    se = math.hypot(direct.se, wdr.se)
    return (direct.value - wdr.value) / se if se > 0.0 else None
