"""What an engine needs of a log, and rollouts in memory that give it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from brace_diag.readers.index import RunIndex, index_of, joined
from brace_diag.rollouts import Rollouts

Progress = Callable[[int, int | None], None]
"""Called with rows done and rows in all."""


@runtime_checkable
class RunLike(Protocol):
    """What the engine needs of a run."""

    @property
    def source(self) -> str: ...

    @property
    def columns(self) -> Any: ...

    def rollouts(self, needed: Any = None) -> Iterator[Rollouts]: ...

    def index(self) -> RunIndex: ...


@dataclass(frozen=True, slots=True)
class MemoryRun:
    """Rollouts that are already in memory, as a run."""

    batches: tuple[Rollouts, ...]

    @property
    def source(self) -> str:
        return "rollouts in memory"

    @property
    def columns(self) -> dict[str, str]:
        names = ("mu_logprobs", "pi_logprobs", "values", "versions")
        present = [n for n in names if all(getattr(b, n) is not None for b in self.batches)]
        if any(b.dense for b in self.batches):
            present.append("rewards")
        if any(b.bootstrap.any() for b in self.batches):
            present.append("bootstrap_value")
        return {n: n for n in (*present, "reward")}

    def rollouts(self, needed: Any = None) -> Iterator[Rollouts]:
        first = 0
        for batch in self.batches:
            yield replace(batch, row=np.arange(first, first + batch.n_rollouts, dtype=np.int64))
            first += batch.n_rollouts

    def index(self) -> RunIndex:
        return joined(index_of(batch) for batch in self.batches)


def as_run(run: RunLike | Iterable[Rollouts]) -> RunLike:
    """A run as it is; one `Rollouts` or several as a run in memory."""
    if isinstance(run, Rollouts):
        return MemoryRun((run,))
    if isinstance(run, RunLike):
        return run
    return MemoryRun(tuple(run))
