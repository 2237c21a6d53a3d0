"""Staleness: how many versions behind the trainer a token's sampler was; unknown is never 0.

    staleness of a token = trainer version - version that sampled it

A rollout has that of its first and of its last policy token, and their difference, the span: above
0 the sampler's weights changed while the response was being written. Versions below 0 mark tokens
that no policy sampled (prompts); they are unknown here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from numba import njit

from brace_diag.errors import SchemaError
from brace_diag.rollouts import UNKNOWN, Rollouts
from brace_diag.settings import StalenessKind

Ints = npt.NDArray[np.int64]


@njit(cache=True, nogil=True)
def _last_known(versions, offsets, unknown, out):  # type: ignore[no-untyped-def]
    """Last version of each row that is known, else `unknown`, into out (n_rollouts,)."""
    for i in range(len(out)):
        out[i] = unknown
        for t in range(offsets[i], offsets[i + 1]):
            if versions[t] >= 0:
                out[i] = versions[t]


def _behind(trainer: Ints | None, versions: Ints | None) -> Ints | None:
    """Trainer version - version, `UNKNOWN` where either is; None where a column is missing."""
    if trainer is None or versions is None:
        return None
    known = (trainer != UNKNOWN) & (versions != UNKNOWN)
    # UNKNOWN is replaced before the subtraction, which would overflow.
    return np.where(known, np.where(known, trainer, 0) - np.where(known, versions, 0), UNKNOWN)


def token_staleness(batch: Rollouts) -> Ints | None:
    """Staleness of every policy token, (n_tokens,); `UNKNOWN` where not logged, None if nowhere.

    Without versions per token each has its rollout's behaviour version.
    """
    if batch.versions is None:
        whole = batch.staleness
        return None if whole is None else np.repeat(whole, batch.lengths)
    if batch.trainer_version is None:
        return None
    return _behind(np.repeat(batch.trainer_version, batch.lengths), batch.versions)


def rollout_staleness(batch: Rollouts, kind: StalenessKind) -> Ints | None:
    """Staleness of the first or last policy token, (n_rollouts,); None where it is not logged.

    `first` is the rollout's behaviour version where one is logged, else its first known token's;
    `last` is the last known token's and needs versions per token.
    """
    if kind == "first":
        return batch.staleness
    if batch.versions is None:
        return None
    last = np.empty(batch.n_rollouts, np.int64)
    _last_known(batch.versions, batch.offsets, UNKNOWN, last)
    return _behind(batch.trainer_version, last)


def version_span(batch: Rollouts) -> Ints | None:
    """Versions that passed while each rollout was sampled, (n_rollouts,): last token - first.

    `UNKNOWN` for rollouts without a known version; None without versions per token, where nobody
    can tell. Negative where versions decrease.
    """
    if batch.versions is None:
        return None
    last = np.empty(batch.n_rollouts, np.int64)
    first = np.empty(batch.n_rollouts, np.int64)
    _last_known(batch.versions, batch.offsets, UNKNOWN, last)
    _last_known(batch.versions[::-1], (batch.n_tokens - batch.offsets)[::-1], UNKNOWN, first)
    return _behind(last, first[::-1])


def last_staleness(batches: Iterable[Rollouts]) -> Ints:
    """Staleness of the last token of every row of a run, in reading order.

    Raises: SchemaError where no row tells it.
    """
    parts: list[Ints] = []
    told = False
    for batch in batches:
        part = rollout_staleness(batch, "last")
        told |= part is not None
        parts.append(np.full(batch.n_rollouts, UNKNOWN) if part is None else part)
    if not told:
        raise SchemaError(
            "staleness of the last token needs trainer_version and per-token versions; the log "
            "has none. Staleness of the first token needs only behavior_version: --staleness first"
        )
    return np.concatenate(parts)


@dataclass(slots=True)
class StalenessSums:
    """How often each staleness occurs, exactly; counts add up over shards.

    Attributes:
        tokens: policy tokens by staleness; first, last, span: rollouts by that of theirs.
            `UNKNOWN` is a key like any other; a figure that the log never tells has no key.
    """

    tokens: Counter[int] = field(default_factory=Counter)
    first: Counter[int] = field(default_factory=Counter)
    last: Counter[int] = field(default_factory=Counter)
    span: Counter[int] = field(default_factory=Counter)

    def update(self, batch: Rollouts, counted: npt.NDArray[np.bool_]) -> None:
        """Add the rollouts of a batch that are `counted` and have a policy token."""
        use = counted & (batch.lengths > 0)
        _count(self.tokens, token_staleness(batch), np.repeat(use, batch.lengths))
        _count(self.first, rollout_staleness(batch, "first"), use)
        _count(self.last, rollout_staleness(batch, "last"), use)
        _count(self.span, version_span(batch), use)

    def merge(self, other: StalenessSums) -> None:
        """Add another shard's counts in place."""
        for name in ("tokens", "first", "last", "span"):
            getattr(self, name).update(getattr(other, name))


def _count(counter: Counter[int], staleness: Ints | None, use: npt.NDArray[np.bool_]) -> None:
    values = np.full(int(use.sum()), UNKNOWN) if staleness is None else staleness[use]
    if len(values) == 0:
        return
    # Neighbours are mostly equal: runs are counted, so that nothing long is sorted.
    starts = np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1])
    runs = np.diff(np.append(starts, len(values)))
    found, which = np.unique(values[starts], return_inverse=True)
    n = np.zeros(len(found), np.int64)
    np.add.at(n, which, runs)
    counter.update(dict(zip(found.tolist(), n.tolist(), strict=True)))


@dataclass(frozen=True, slots=True)
class Spread:
    """A count of staleness in five numbers; None where nothing is known.

    Attributes:
        low, median, high, mean: of what is known; the median is a value that occurs or the mean of
            two neighbours.
        unknown: share that the log does not tell, of all.
        positive: share above 0 of what is known.
    """

    low: int | None
    median: float | None
    high: int | None
    mean: float | None
    unknown: float | None
    positive: float | None


def spread(counter: Counter[int]) -> Spread:
    """The spread of what is known."""
    total = sum(counter.values())
    unknown = counter[UNKNOWN] / total if total else None
    values = np.array(sorted(v for v in counter if v != UNKNOWN), np.int64)
    if len(values) == 0:
        return Spread(None, None, None, None, unknown, None)
    n = np.array([counter[v] for v in values.tolist()], np.int64)
    ends = np.cumsum(n)
    middle = [int(values[np.searchsorted(ends, rank, side="right")]) for rank in _middle(ends[-1])]
    return Spread(
        low=int(values[0]),
        median=sum(middle) / 2,
        high=int(values[-1]),
        mean=float(values @ n) / int(ends[-1]),
        unknown=unknown,
        positive=float(n[values > 0].sum()) / int(ends[-1]),
    )


def _middle(n: int) -> tuple[int, int]:
    return (int(n) - 1) // 2, int(n) // 2


def staleness_words(kind: StalenessKind, tells_spans: bool) -> str:
    """Which staleness the key is, for a reader."""
    if kind == "last":
        return "staleness is that of each rollout's last policy token"
    if tells_spans:
        return (
            "staleness is that of each rollout's first policy token; "
            "--staleness last takes the last one's"
        )
    return "staleness is that of the version logged for each rollout"
