"""The difference of one statistic between two logs, and p-values adjusted for how many were asked.

With d_g the scaled leave-one-group-out deviations of a jackknife (se² = Σ_g d_g²), the difference
of two logs has se² = Σ_g (d_g^b - d_g^a)²: a prompt that is in both moves both, and what it moves
them by alike cancels. Prompts in one log alone add their own squares, so that logs without a common
prompt have se² = se_a² + se_b².
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from brace_diag.estimators.intervals import GATES, or_none
from brace_diag.results import Estimate
from brace_diag.results_compare import Difference
from brace_diag.sums import Jackknife, t_quantile


def difference(
    a: Estimate, b: Estimate, jack_a: Jackknife, jack_b: Jackknife, *, paired: bool
) -> tuple[Estimate, float | None]:
    """b - a and the p-value of no difference, t with the smaller number of groups less one.

    Args:
        a, b: both estimates; null where one of them is.
        jack_a, jack_b: their jackknifes, one output each.
        paired: whether groups of the same number are the same prompts.
    """
    method = "b - a, paired by prompt" if paired else "b - a, as independent logs"
    n = min(a.n_clusters, b.n_clusters)
    blank = Estimate(
        None, None, None, None, a.level, a.n_tokens + b.n_tokens, a.n_rollouts + b.n_rollouts, n,
        method, False, None,
    )  # fmt: skip
    for name, own in (("a", a), ("b", b)):
        if own.value is None:
            return replace(blank, reason=f"{name}: {own.reason}"), None
    assert a.value is not None and b.value is not None
    value = b.value - a.value
    if n < 2:
        return replace(blank, value=value, reason="one prompt only: no standard error"), None
    one, two = jack_a.by_group()[:, 0], jack_b.by_group()[:, 0]
    squares = (two - one) ** 2 if paired else one**2 + two**2
    se = math.sqrt(float(squares.sum()))
    half = float(t_quantile(0.5 + a.level / 2.0, n)) * se
    doubt = next((f"{k}: {x.reason}" for k, x in (("a", a), ("b", b)) if not x.reliable), None)
    if doubt is None and n < GATES.min_clusters:
        doubt = f"{n} clusters of prompts, fewer than {GATES.min_clusters}: the interval is rough"
    made = replace(
        blank, value=value, se=or_none(se), ci_low=or_none(value - half),
        ci_high=or_none(value + half), reliable=doubt is None, reason=doubt,
    )  # fmt: skip
    return made, p_value(value, se, n)


def p_value(value: float, se: float, n_groups: int) -> float | None:
    """Two-sided, Student's t with n_groups - 1 degrees of freedom; None without an error."""
    from scipy.special import stdtr

    if not se > 0.0 or n_groups < 2:
        return None
    return float(2.0 * stdtr(n_groups - 1, -abs(value) / se))


def with_holm(found: Sequence[Difference]) -> tuple[Difference, ...]:
    """The same with p-values adjusted for all that have one (Holm 1979, by statsmodels)."""
    from statsmodels.stats.multitest import multipletests

    tested = [i for i, own in enumerate(found) if own.p_value is not None]
    if not tested:
        return tuple(found)
    adjusted = multipletests(np.array([found[i].p_value for i in tested]), method="holm")[1]
    by = dict(zip(tested, adjusted.tolist(), strict=True))
    return tuple(replace(own, p_holm=by.get(i)) for i, own in enumerate(found))
