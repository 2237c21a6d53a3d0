"""Replicates of a row: what the audit said, how far it was off, whether the interval covered."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from brace_diag import Rollouts, audit
from brace_diag.results_audit import VERDICTS
from brace_diag.tabular import exact_truth, sample_log

from .rows import Row

SEED = 20261206

FAMILIES = 5
"""Families a row is measured on, in turn: one draw of prompts, critic and drift is not the world.
Between families the exact gap of one row differs by a third, and so does the rule's power."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the replicates of a row gave.

    Attributes:
        row, n: the row and its replicates.
        ratios: exact gap at the first token over the spread s_A, one per family.
        v: mean estimated variance of S.
        verdicts: how often each was said.
        miscalibrated: replicates whose control was off 0.
        covered, intervals: 95 % intervals of b that held the exact gap, and those that there were.
        rmse: root mean square error of b / s_A over the replicates with an estimate, NaN without.
    """

    row: Row
    n: int
    ratios: tuple[float, ...]
    v: float
    verdicts: Counter[str]
    miscalibrated: int
    covered: int
    intervals: int
    rmse: float

    def share(self, verdict: str) -> float:
        """Share of the replicates with a verdict."""
        return self.verdicts[verdict] / self.n

    @property
    def ratio(self) -> float:
        """Mean of b / s_A over the families."""
        return float(np.mean(self.ratios))

    @property
    def coverage(self) -> float:
        """Share of the intervals that held the truth; NaN without one."""
        return self.covered / self.intervals if self.intervals else math.nan


def standard_error(share: float, n: int) -> float:
    """Monte-Carlo error of a share of n replicates."""
    return math.sqrt(max(share * (1.0 - share), 0.0) / n)


def measure(row: Row, index: int, replicates: int) -> Measured:
    """Simulate and audit a row; the same index and number give the same numbers."""
    rng = np.random.default_rng([SEED, index])
    n_families = min(FAMILIES, replicates)
    pools = [row.family.build(np.random.default_rng([SEED, f])) for f in range(n_families)]
    truths = [exact_truth(mdp) for mdp in pools]
    verdicts: Counter[str] = Counter(dict.fromkeys(VERDICTS, 0))
    errors, variances = [], []
    off = covered = 0
    for r in range(replicates):
        mdp, truth = pools[r % n_families], truths[r % n_families]
        log = sample_log(mdp, row.n_prompts, row.group_size, rng, pool=True, noise=row.noise)
        found = audit(Rollouts.from_arrow(log.to_table()), advice=False, threads=1)
        verdicts[found.verdict] += 1
        off += any(c.id == "control" and c.status == "warn" for c in found.checks)
        b, v = found.overall.b_hat, found.overall.within_var_log_product
        variances.append(math.nan if v is None else v)
        if b.value is not None and b.ci_low is not None and b.ci_high is not None:
            errors.append((b.value - truth.gap) / truth.s_within)
            # Rounding may leave an exact gap of 1e-17 where pi = mu and the interval is [0, 0].
            covered += b.ci_low - 1e-12 <= truth.gap <= b.ci_high + 1e-12
    return Measured(
        row=row,
        n=replicates,
        ratios=tuple(truth.gap / truth.s_within for truth in truths),
        v=float(np.mean(variances)),
        verdicts=verdicts,
        miscalibrated=off,
        covered=covered,
        intervals=len(errors),
        rmse=float(np.sqrt(np.mean(np.square(errors)))) if errors else math.nan,
    )


def broken_promises(found: Measured) -> list[str]:
    """Where a row is outside its limits by more than 3 Monte-Carlo errors of the limit."""
    told = []
    for verdict, low, high in found.row.limits:
        share = found.share(verdict)
        slack = 3.0 * max(standard_error(low, found.n), standard_error(high, found.n))
        if not low - slack <= share <= high + slack:
            told.append(
                f"{found.row.name}: {verdict} in {share:.3f} of {found.n} replicates, promised "
                f"{low:g} to {high:g}"
            )
    return told
