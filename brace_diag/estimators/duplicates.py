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


@njit(cache=True, nogil=True)
def _hash_rows(offsets, bits, start):  # type: ignore[no-untyped-def]
    """FNV-like 64-bit hash of each rollout's bit patterns, continued from `start`."""
    out = start.copy()
    for i in range(len(offsets) - 1):
        h = out[i]
        for t in range(offsets[i], offsets[i + 1]):
            h = (h ^ np.uint64(bits[t])) * np.uint64(0x9E3779B97F4A7C15)
            h ^= h >> np.uint64(29)
        out[i] = h
    return out


@njit(cache=True, nogil=True)
def _row_sums(offsets, x):  # type: ignore[no-untyped-def]
    out = np.zeros(len(offsets) - 1)
    for i in range(len(offsets) - 1):
        total = 0.0
        for t in range(offsets[i], offsets[i + 1]):
            total += np.float64(x[t])
        out[i] = total
    return out


def content_hash(batch: Rollouts) -> npt.NDArray[np.uint64]:
    """Hash of prompt, length and log-probs of every rollout, (n_rollouts,)."""
    h = batch.prompt ^ batch.lengths.astype(np.uint64)
    for column in (batch.mu_logprobs, batch.pi_logprobs):
        if column is not None:
            bits: Any = column.view(f"u{column.dtype.itemsize}")
            h = _hash_rows(batch.offsets, bits, h)
    return h


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
        hashes = content_hash(batch)
        mu = batch.mu_logprobs
        chance = None if mu is None else _row_sums(batch.offsets, mu)
        lengths = batch.lengths
        for i, content in enumerate(hashes.tolist()):
            if lengths[i] == 0:
                continue
            ident = -1 if batch.rollout_id is None else int(batch.rollout_id[i])
            keep[i] = not self._repeats(content, ident, chance is None or not chance[i] > CHANCE)
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
