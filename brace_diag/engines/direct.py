"""Direct evidence on the gap: fresh rollouts from pi, and rollouts of staleness 0 in the log."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from brace_diag.engines.reading import Reading
from brace_diag.engines.runs import RunLike
from brace_diag.estimators.direct_gap import Returns, direct_gap
from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.estimators.slope_targets import target_of
from brace_diag.results import DirectGap, Estimate
from brace_diag.rollouts import UNKNOWN, Rollouts
from brace_diag.targets.recursion import recursion

Array = npt.NDArray[np.float64]


class RowReturns:
    """The return at the first token of every row of a reading, NaN where it has none."""

    def __init__(self, reading: Reading, gamma: float) -> None:
        """Of the rows to come."""
        self.reading, self.gamma = reading, gamma
        self.value: Array = np.full(reading.index.n_rows, np.nan)

    def add(self, batch: Rollouts, info: RolloutInfo, threads: int) -> None:
        """A batch; copies of a rollout are left out."""
        known = np.flatnonzero(info.counted & batch.has_reward & (batch.lengths > 0))
        if len(known) == 0:
            return
        returns = target_of(batch, recursion("mc", gamma=self.gamma), threads)
        self.value[batch.row[known]] = returns[batch.offsets[:-1][known]]

    def returns(self, *, by_step: bool) -> Returns:
        """What is known, paired by prompt, or by prompt and step."""
        known = np.isfinite(self.value)
        index = self.reading.index
        key = self.reading.siblings.key if by_step else index.prompt
        whole = self.reading.quality.prompts_missing == 0
        return Returns(key, index.prompt, self.value, whole).where(known)


def fresh_returns(
    run: RunLike | Iterable[Rollouts] | None, gamma: float, threads: int
) -> RowReturns | None:
    """Returns of rollouts that pi drew, None without any.

    Raises: SchemaError where they hold no return, or no policy token.
    """
    if run is None:
        return None
    reading = Reading.open(run, "fresh rollouts")
    rows = RowReturns(reading, gamma)
    for batch, info in reading.batches():
        rows.add(batch, info, threads)
    return rows


def collector(reading: Reading, fresh: RowReturns | None, gamma: float) -> RowReturns | None:
    """What gathers the log's own returns; None where nothing is there to hold them against."""
    if fresh is None and not has_both_ages(reading):
        return None
    return RowReturns(reading, gamma)


def has_both_ages(reading: Reading) -> bool:
    """Whether the log holds rollouts of staleness 0 beside older ones, and tells the step."""
    age = reading.index.staleness
    if age is None or reading.index.step is None:
        return False
    known = age[age != UNKNOWN]
    return bool((known == 0).any() and (known > 0).any())


def direct_evidence(
    logged: RowReturns, fresh: RowReturns | None, wdr: Estimate, level: float
) -> tuple[DirectGap, ...]:
    """Every direct estimate that the rollouts give, fresh ones first."""
    found = []
    if fresh is not None:
        mine, theirs = logged.returns(by_step=False), fresh.returns(by_step=False)
        found.append(direct_gap("fresh", theirs, mine, wdr, level))
    age = logged.reading.index.staleness
    if has_both_ages(logged.reading) and age is not None:
        own = logged.returns(by_step=True)
        age = age[np.isfinite(logged.value)]
        young, old = own.where(age == 0), own.where((age > 0) & (age != UNKNOWN))
        if len(np.intersect1d(young.key, old.key)) > 1:
            # Unpaired they would tell which prompts were fast, not what staleness did.
            found.append(direct_gap("staleness_0", young, old, wdr, level))
    return tuple(one for one in found if one is not None)
