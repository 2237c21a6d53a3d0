"""A critic for logs without one: the mean return of the prompt's other rollouts, as in GRPO."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag.engines.runs import RunLike, as_run
from brace_diag.errors import SchemaError
from brace_diag.estimators.sibling_index import SiblingIndex
from brace_diag.readers.columns import ColumnUse
from brace_diag.readers.index import RunIndex
from brace_diag.rollouts import Rollouts

WORDS = "the mean return of the prompt's other rollouts"


@dataclass(slots=True)
class GroupMeanRun:
    """A run whose values are, at every token, the mean total return of the rollout's siblings.

    Siblings are the other rollouts of the prompt in the step. A rollout without one has no value.
    What a run calls its critic is then the baseline of group methods: its gap b says how far that
    baseline is off for the current policy.

    Attributes:
        run: what is read; its own values, if it has any, are not.
    """

    run: RunLike
    own_index: RunIndex = field(init=False)
    others_mean: npt.NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self.own_index = self.run.index()
        siblings = SiblingIndex.build(
            self.own_index.prompt, self.own_index.step, self.own_index.total_reward
        )
        if not siblings.has_siblings:
            raise SchemaError(
                f"{self.run.source}: no prompt has two rollouts in a step, so there is no group "
                "mean; does the log have a prompt_id?"
            )
        self.others_mean = siblings.others_mean

    @property
    def source(self) -> str:
        return self.run.source

    @property
    def columns(self) -> dict[str, Any]:
        return dict(self.run.columns) | {"values": WORDS}

    @property
    def uses(self) -> dict[str, ColumnUse]:
        """How each column came about, the values by this."""
        return dict(getattr(self.run, "uses", {})) | {
            "values": ColumnUse("values", WORDS, "float64", "computed", 1)
        }

    @property
    def unused(self) -> tuple[str, ...]:
        return tuple(getattr(self.run, "unused", ()))

    def index(self) -> RunIndex:
        return self.own_index

    def rollouts(self, needed: Any = None) -> Iterator[Rollouts]:
        asked = None if needed is None else frozenset(needed) - {"values"}
        for batch in self.run.rollouts(asked):
            yield self._with_values(batch)

    def _with_values(self, batch: Rollouts) -> Rollouts:
        mean = self.others_mean[batch.row]
        known = np.isfinite(mean) & (batch.lengths > 0)
        values = np.repeat(np.where(known, mean, np.nan), batch.lengths)
        return replace(batch, values=values, has_values=known)


def with_group_mean(run: RunLike | Iterable[Rollouts]) -> GroupMeanRun:
    """The same run with the leave-one-out group mean for a critic; every question can be asked.

    Raises: SchemaError where no prompt has two rollouts in a step.
    """
    return GroupMeanRun(as_run(run))
