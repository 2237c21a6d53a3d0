"""The checks that `inspect` draws from its sums: each says what it saw, and what to do about it."""

from __future__ import annotations

from brace_diag.estimators.inspection import InspectionSums
from brace_diag.estimators.ratio_rules import mean_off_one
from brace_diag.estimators.staleness import spread
from brace_diag.estimators.value_range import ValueRange
from brace_diag.quality import DataQuality
from brace_diag.results import Check
from brace_diag.rollouts import UNKNOWN

FEW_CLUSTERS = 20


def checks(sums: InspectionSums, values: ValueRange | None) -> tuple[Check, ...]:
    """All checks in order of weight; each says what it saw even when all is well."""
    q = sums.quality
    found = [
        *_alignment(sums),
        *_policy_copied(sums),
        *_fills(q),
        *_impossible(q),
        *_mean_weight(sums),
        *_critic(values),
        *_versions(sums, q),
        *_grid(sums, q),
        *_rows(q),
        *_clusters(sums, q),
    ]
    return tuple(found)


def _alignment(sums: InspectionSums) -> list[Check]:
    if sums.probe.n_compared == 0:
        return []
    lag = sums.probe.best_lag()
    if lag is None:
        return [Check("alignment", "ok", "pi fits mu best without a shift")]
    return [
        Check(
            "alignment",
            "fail",
            f"MISALIGNED lag={lag:+d}: pi_logprobs fits mu_logprobs shifted by {lag:+d} token far "
            "better than unshifted",
            "log both policies' log-prob of the same sampled token at the same index; "
            "a next-token shift in the trainer is the usual cause",
        )
    ]


def _policy_copied(sums: InspectionSums) -> list[Check]:
    if sums.probe.n_compared == 0:
        return []
    stale = sums.n_stale
    if sums.probe.copied() and stale:
        return [
            Check(
                "pi_copied",
                "fail",
                "pi is bit-identical to mu on "
                f"{100 * sums.probe.n_equal / sums.probe.n_compared:.1f} % "
                f"of tokens although {stale} rollouts are stale: copied, not recomputed; "
                "a gap of 0 is no evidence",
                "recompute pi_logprobs with the policy being updated before logging",
            )
        ]
    if sums.n_moved == 0:
        return [
            Check(
                "staleness",
                "note",
                "no staleness logged: pi equals mu on every token",
                "nothing to estimate here; check that pi was recomputed if training is "
                "asynchronous",
            )
        ]
    return [Check("pi_copied", "ok", "pi differs from mu")]


def _fills(q: DataQuality) -> list[Check]:
    n = q.mu_filled + q.pi_filled
    if n == 0:
        return [Check("fills", "ok", "no fill values among the log-probs")]
    return [
        Check(
            "fills",
            "warn",
            f"{q.mu_filled} mu and {q.pi_filled} pi log-probs are fill values (-9999, 1.0, "
            "trailing "
            "exact zeros); taken as missing",
            "log the sampler's log-prob for these tokens, or take them off policy_mask if the "
            "policy did not sample them",
        )
    ]


def _impossible(q: DataQuality) -> list[Check]:
    found = []
    if q.mu_impossible:
        found.append(
            Check(
                "impossible_samples",
                "warn",
                f"{q.mu_impossible} sampled tokens have mu log-prob -inf: mu cannot have drawn "
                "them",
                "their rollouts are left out of w statistics; check for forced tokens in "
                "policy_mask",
            )
        )
    if q.mu_missing or q.pi_missing:
        found.append(
            Check(
                "missing_logprobs",
                "warn",
                f"{q.mu_missing} mu and {q.pi_missing} pi log-probs are missing on policy tokens; "
                f"{q.rollouts_without_w} of {q.n_rollouts} rollouts are left out of w statistics",
                "null is not 0: log them, or mask the tokens if the policy did not sample them",
            )
        )
    return found


def _mean_weight(sums: InspectionSums) -> list[Check]:
    weight = sums.mean_weight()
    if weight is None:
        return []
    mean, low, high = weight
    if not low <= high:
        text = f"mean pi/mu over tokens is {mean:.4f}; one prompt gives no interval to judge it by"
        return [Check("mean_weight", "note", text)]
    words = f"mean pi/mu over tokens is {mean:.4f} (95 % {low:.4f} to {high:.4f})"
    if not mean_off_one(mean, low, high):
        return [Check("mean_weight", "ok", f"{words}; an importance ratio has mean 1")]
    cause = (
        "below 1: mu's support may be cut (top-p, top-k) while pi's is not"
        if mean < 1.0
        else "above 1: temperature or raw log-probs may differ between sampler and trainer; "
        "dividing log-probs by T does not mend it, since they no longer sum to 1"
    )
    return [
        Check(
            "mean_weight",
            "fail",
            f"log-prob definitions differ: {words}, not 1; {cause}",
            "log mu as it sampled (processed log-probs), and pi with the same processing",
        )
    ]


def _critic(values: ValueRange | None) -> list[Check]:
    if values is None or values.n_values == 0:
        return []
    if values.high <= values.low:
        return [Check("critic_range", "note", "all returns are equal: the critic cannot be judged")]
    if values.broken:
        return [
            Check(
                "critic_range",
                "fail",
                f"CRITIC_INVALID: {values.words()}: broken or uninitialised, not stale",
                "mend the critic (value head, normalisation, logging of its outputs) first",
            )
        ]
    return [Check("critic_range", "note" if values.n_outside else "ok", values.words())]


def _versions(sums: InspectionSums, q: DataQuality) -> list[Check]:
    """What of the versions contradicts itself, or is not told for some rollouts."""
    if q.versions_odd:
        return [
            Check(
                "versions",
                "warn",
                f"{q.versions_odd} of {q.n_rollouts} rollouts have a version above the trainer's, "
                "or versions that decrease along the response",
                "log trainer_version as it was when the rollout was consumed, and the version of "
                "the weights that sampled it; by staleness these rollouts stand where they say",
            )
        ]
    told = spread(sums.staleness.first)
    if told.low is None:
        return []
    n_unknown = sums.staleness.first[UNKNOWN]
    if n_unknown:
        return [
            Check(
                "versions",
                "note",
                f"staleness of {n_unknown} rollouts is unknown: a version is missing or negative; "
                "unknown is not 0, and they belong to no level of --by staleness",
            )
        ]
    return [Check("versions", "ok", "every rollout's staleness is told")]


def _grid(sums: InspectionSums, q: DataQuality) -> list[Check]:
    grid = sums.probe.grid()
    positive = q.mu_positive + q.pi_positive
    found = []
    if grid is not None:
        spacing = "2^-5 for |log-prob| in [4, 8)" if grid == "bfloat16" else "2^-8 in [4, 8)"
        found.append(
            Check(
                "precision",
                "warn",
                f"mu log-probs lie on the {grid} grid (spacing {spacing}): smaller differences "
                "between pi and mu are rounding, not drift",
                "log log-probs in float32",
            )
        )
    if positive:
        found.append(
            Check(
                "positive_logprobs",
                "note" if grid else "warn",
                f"{positive} log-probs are above 0 (mu {q.mu_positive}, pi {q.pi_positive})",
                None if grid else "a log-prob cannot be positive: check what the column holds",
            )
        )
    return found


def _rows(q: DataQuality) -> list[Check]:
    found = []
    if q.n_duplicates:
        found.append(
            Check(
                "duplicates",
                "warn",
                f"{q.n_duplicates} of {q.n_rows} rows repeat an earlier row; each is used once",
                "padding a batch with copies changes every mean: write rollouts once",
            )
        )
    if q.n_empty:
        text = f"{q.n_empty} rows have no policy token"
        if q.rewards_on_empty:
            text += f", {q.rewards_on_empty} of them with a reward; means leave them out"
        found.append(Check("empty_rows", "note", text))
    if q.rewards_missing:
        found.append(
            Check(
                "rewards", "warn", f"{q.rewards_missing} rollouts have no reward and are left out"
            )
        )
    if q.rewards_folded:
        found.append(
            Check(
                "rewards_folded",
                "note",
                f"{q.rewards_folded} rewards sat on non-policy tokens and were moved to policy "
                "tokens; "
                "the sums are kept",
            )
        )
    if q.truncated_without_bootstrap:
        found.append(
            Check(
                "truncation",
                "note",
                f"{q.truncated_without_bootstrap} of {q.n_truncated} truncated rollouts have no "
                "bootstrap_value; 0 is used",
            )
        )
    return found


def _clusters(sums: InspectionSums, q: DataQuality) -> list[Check]:
    if q.prompts_missing:
        return [
            Check(
                "clusters",
                "warn",
                f"{q.prompts_missing} rollouts have no prompt_id: each is its own cluster; if they "
                "share prompts, every interval is too narrow",
                "log prompt_id (any string or int that is the same for rollouts of one prompt)",
            )
        ]
    n = len(sums.prompts)
    if n < FEW_CLUSTERS:
        return [Check("clusters", "warn", f"{n} prompts: intervals are rough below {FEW_CLUSTERS}")]
    return [Check("clusters", "ok", f"{n} prompts")]
