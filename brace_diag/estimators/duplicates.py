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
from numba import njit, prange

from brace_diag.rollouts import Rollouts

CHANCE = math.log(1e-6)
"""Log-probability under mu below which a second equal draw is taken for a copy."""


PRIME = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True)
def _step(h, word):  # type: ignore[no-untyped-def]
    h = (h ^ np.uint64(word)) * PRIME
    return h ^ (h >> np.uint64(29))


@njit(cache=True, nogil=True, parallel=True, fastmath={"reassoc", "nsz"})
def _digest(offsets, mu, pi, mu_bits, pi_bits, out, chance):  # type: ignore[no-untyped-def]
    """Continue `out` with each rollout's bit patterns; put the log-probability under mu in chance.

    Two columns and two lanes of each keep the multiplier busy; lanes are folded at the end.
    """
    for i in prange(len(offsets) - 1):
        first, last = np.uint64(offsets[i]), np.uint64(offsets[i + 1])
        a = out[i]
        b, c, d = a ^ PRIME, a + PRIME, ~a
        whole = first + (last - first) // np.uint64(2) * np.uint64(2)
        for t in range(first, whole, np.uint64(2)):
            a, b = _step(a, mu_bits[t]), _step(b, pi_bits[t])
            c, d = _step(c, mu_bits[t + 1]), _step(d, pi_bits[t + 1])
        for t in range(whole, last):
            a, b = _step(a, mu_bits[t]), _step(b, pi_bits[t])
        out[i] = _step(_step(_step(a, b), c), d)
        total = 0.0
        for t in range(first, last):
            total += np.float64(mu[t])
        chance[i] = total


def content_digest(batch: Rollouts) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64]]:
    """Hash of prompt, length and log-probs of every rollout, and Σ log mu; (n_rollouts,) each."""
    digest = batch.prompt ^ batch.lengths.astype(np.uint64)
    chance = np.full(batch.n_rollouts, -np.inf)
    mu = batch.mu_logprobs
    pi = mu if batch.pi_logprobs is None else batch.pi_logprobs
    if mu is not None and pi is not None:
        bits: Any = mu.view(f"u{mu.dtype.itemsize}")
        _digest(batch.offsets, mu, pi, bits, pi.view(f"u{pi.dtype.itemsize}"), digest, chance)
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
