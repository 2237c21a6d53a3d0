"""Counts of everything in a log that a result did not take at face value."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


def _counter(meaning: str) -> int:
    return field(default=0, metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True)
class DataQuality:
    """What was read, and what was set aside on the way; it travels with every result.

    All fields are counts, so qualities of shards add up: `a + b`. A rollout is a row with at least
    one policy token. Nothing is ever set aside without being counted here.
    """

    n_rows: int = _counter("rows read")
    n_rollouts: int = _counter("rows with at least one policy token")
    n_tokens: int = _counter("policy tokens")
    n_empty: int = _counter("rows without a policy token")
    n_tokens_masked: int = _counter("tokens off the policy mask (tool, observation, padding)")
    n_duplicates: int = _counter("rows that repeat an earlier row; each estimate uses it once")
    n_repeats_kept: int = _counter(
        "rows equal to an earlier one but probable enough to be independent draws; kept"
    )
    n_null_rows: int = _counter("rows whose mu log-probs are null (missing, not empty)")
    mu_missing: int = _counter("policy tokens whose mu log-prob is null, NaN or +inf")
    pi_missing: int = _counter("policy tokens whose pi log-prob is null, NaN or +inf")
    values_missing: int = _counter("policy tokens whose critic value is null, NaN or infinite")
    mu_impossible: int = _counter("policy tokens with mu log-prob -inf: a sample mu cannot draw")
    pi_zero: int = _counter("policy tokens with pi log-prob -inf: weight 0")
    mu_positive: int = _counter("policy tokens with a mu log-prob above 0")
    pi_positive: int = _counter("policy tokens with a pi log-prob above 0")
    mu_filled: int = _counter("policy tokens whose mu log-prob is a fill value; taken as missing")
    pi_filled: int = _counter("policy tokens whose pi log-prob is a fill value; taken as missing")
    rewards_missing: int = _counter("rollouts without a reward (null or NaN)")
    rewards_folded: int = _counter("rewards moved from a non-policy token to a policy token")
    rewards_conflict: int = _counter(
        "rollouts whose `reward` is not the sum of their `rewards`; the latter are used"
    )
    rewards_on_empty: int = _counter("rows without a policy token that carry a reward")
    n_truncated: int = _counter("rollouts cut before their end")
    truncated_without_bootstrap: int = _counter("truncated rollouts without a bootstrap; 0 used")
    rollouts_without_w: int = _counter("rollouts left out of w statistics: a log-prob is missing")
    rollouts_without_values: int = _counter(
        "rollouts left out of critic statistics: a value is missing"
    )
    prompts_missing: int = _counter("rollouts without a prompt id; each is its own cluster")
    versions_odd: int = _counter("rollouts with a version above the trainer's, or decreasing")

    def __add__(self, other: DataQuality) -> DataQuality:
        return DataQuality(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def to_dict(self) -> dict[str, Any]:
        """All counts by name, in the order in which they are declared."""
        return {f.name: int(getattr(self, f.name)) for f in fields(self)}

    def remarks(self) -> list[tuple[str, int, str]]:
        """The counts that a reader should know of: (name, count, meaning), zero counts left out."""
        plain = {"n_rows", "n_rollouts", "n_tokens"}
        return [
            (f.name, getattr(self, f.name), f.metadata["meaning"])
            for f in fields(self)
            if f.name not in plain and getattr(self, f.name)
        ]
