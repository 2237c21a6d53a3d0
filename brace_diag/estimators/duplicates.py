"""Rows that repeat an earlier row: counted, and used once.

Two rows with the same prompt and the same log-probs token by token are the same sample when they
carry the same rollout id, or when the sequence is so improbable under mu that a second independent
draw cannot explain it. Short or nearly deterministic responses do repeat by chance; dropping those
would bias every mean towards rare responses, so they are kept and counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from brace_diag.rollouts import Rollouts

CHANCE = math.log(1e-6)
"""Log-probability under mu below which a second equal draw is taken for a copy."""


PRIME = np.uint64(0x9E3779B97F4A7C15)
SAMPLED = 64
"""Tokens of a rollout whose bits enter its digest one by one, evenly spaced; all, if no more."""


@njit(cache=True, nogil=True)
def _step(h, word):  # type: ignore[no-untyped-def]
    h = (h ^ np.uint64(word)) * PRIME
    return h ^ (h >> np.uint64(29))


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def _row_sum(x, first, last):  # type: ignore[no-untyped-def]
    total = 0.0
    for t in range(np.uint64(first), np.uint64(last)):
        total += np.float64(x[t])
    return total


@njit(cache=True, nogil=True)
def _sums(offsets, x, out):  # type: ignore[no-untyped-def]
    for i in range(len(out)):
        out[i] = _row_sum(x, offsets[i], offsets[i + 1])


@njit(cache=True, nogil=True)
def _digest(offsets, bits, sum_bits, out):  # type: ignore[no-untyped-def]
    """Continue `out` with the bits of sampled tokens and of the sum over all tokens of each row."""
    for i in range(len(out)):
        first, length = offsets[i], offsets[i + 1] - offsets[i]
        n = min(length, SAMPLED)
        h = _step(out[i], sum_bits[i])
        for j in range(n):
            h = _step(h, bits[first + (j * (length - 1)) // max(n - 1, 1)])
        out[i] = h


def content_digest(batch: Rollouts) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64]]:
    """Hash of prompt, length and log-probs of every rollout, and Σ log mu; (n_rollouts,) each.

    Of each log-prob column the float64 sum over all tokens and the bits of up to 64 tokens, from
    the first to the last, are hashed: equal rows have equal digests, and rows that differ anywhere
    but for a rearrangement between sampled tokens have different sums.
    """
    digest = batch.prompt ^ batch.lengths.astype(np.uint64)
    chance = np.full(batch.n_rollouts, -np.inf)
    for column in (batch.pi_logprobs, batch.mu_logprobs):
        if column is not None:
            chance = np.empty(batch.n_rollouts)
            _sums(batch.offsets, column, chance)
            bits: Any = column.view(f"u{column.dtype.itemsize}")
            _digest(batch.offsets, bits, chance.view(np.uint64), digest)
    return digest, chance


@dataclass(slots=True)
class DuplicateFilter:
    """Remembers the rollouts of a run, batch by batch, and marks the repeats."""

    contents: set[int] = field(default_factory=set)
    samples: set[tuple[int, int]] = field(default_factory=set)
    n_duplicates: int = 0
    n_repeats_kept: int = 0

    def first_seen(self, batch: Rollouts) -> npt.NDArray[np.bool_]:
        """True for each rollout that is not a copy of an earlier one, (n_rollouts,)."""
        keep = np.ones(batch.n_rollouts, np.bool_)
        digest, chance = content_digest(batch)
        improbable = (~(chance > CHANCE)).tolist()
        idents = [-1] * len(keep) if batch.rollout_id is None else batch.rollout_id.tolist()
        filled = (batch.lengths > 0).tolist()
        for i, content in enumerate(digest.tolist()):
            if filled[i]:
                keep[i] = not self._repeats(content, idents[i], improbable[i])
        return keep

    def _repeats(self, content: int, ident: int, improbable: bool) -> bool:
        equal = content in self.contents
        named = ident != -1 and (content, ident) in self.samples
        self.contents.add(content)
        if not improbable and ident != -1:
            # Only probable sequences need the id to be told apart later.
            self.samples.add((content, ident))
        if named or (equal and improbable):
            self.n_duplicates += 1
            return True
        self.n_repeats_kept += equal
        return False
