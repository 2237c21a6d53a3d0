"""What the reader of a critic's fit must be told: every condition under which it misleads."""

from __future__ import annotations

from brace_diag.quality import DataQuality
from brace_diag.results_critic import FitFigures, TargetFit, ValueExtent
from brace_diag.settings import GateThresholds

BROKEN_SHARE = 0.5
"""A critic with more of its values than this outside the range of returns is no critic."""


def invalidating(fit: FitFigures, extent: ValueExtent) -> str | None:
    """Why the critic cannot be judged at all, or None."""
    share = fit.share_outside.value
    if share is None or share <= BROKEN_SHARE:
        return None
    return f"CRITIC_INVALID: {_range_words(share, extent)}: broken or uninitialised, not stale"


def critic_notes(
    fit: FitFigures,
    extent: ValueExtent,
    targets: dict[str, TargetFit],
    quality: DataQuality,
    *,
    has_pi: bool,
    undated: int,
) -> tuple[str, ...]:
    """Sentences in order of weight.

    Args: undated: rollouts without a known key, where keyed estimates were asked for.
    """
    invalid = invalidating(fit, extent)
    return (
        *([invalid] if invalid is not None else _outside(fit, extent)),
        *_explained(fit),
        *_without_pi(has_pi),
        *_clusters(fit),
        *_targets(fit, targets),
        *_data(quality, undated),
    )


def _range_words(share: float, extent: ValueExtent) -> str:
    return (
        f"{_percent(share)} of the critic's values lie outside the returns' range "
        f"[{extent.return_low:g}, {extent.return_high:g}] "
        f"(values from {extent.value_low:.3g} to {extent.value_high:.3g})"
    )


def _percent(share: float) -> str:
    """A share in per cent; a small one with the digit that keeps it from reading as none."""
    percent = 100.0 * share
    if 0.0 < percent < 1.0:
        return f"{percent:.1g} %"
    return f"{percent:.0f} %"


def _outside(fit: FitFigures, extent: ValueExtent) -> list[str]:
    share = fit.share_outside.value
    return [_range_words(share, extent)] if share else []


def _explained(fit: FitFigures) -> list[str]:
    ev = fit.explained_variance
    if ev.value is None:
        return [f"no explained variance: {ev.reason}"]
    if ev.value >= 0.0:
        return []
    sure = "" if ev.ci_high is not None and ev.ci_high < 0.0 else ", though not surely"
    return [
        f"explained variance is below 0{sure}: the mean return would predict better than the "
        "critic does"
    ]


def _without_pi(has_pi: bool) -> list[str]:
    if has_pi:
        return []
    return [
        "the log has no pi_logprobs: the critic is judged against mu's returns (V^mu) and mc or "
        "gae targets alone; vtrace, capped and brace targets, the gap b and beta need pi"
    ]


def _clusters(fit: FitFigures) -> list[str]:
    n, least = fit.mean_error.n_clusters, GateThresholds().min_clusters
    if 0 < n < least:
        return [f"{n} clusters of prompts: intervals are rough below {least}"]
    return []


def _targets(fit: FitFigures, targets: dict[str, TargetFit]) -> list[str]:
    whole = fit.mean_error.n_rollouts
    return [
        f"target {label}: {whole - target.distance.n_rollouts} of {whole} rollouts are left out, "
        "a log-prob that it reads is missing, impossible or a fill value"
        for label, target in targets.items()
        if target.distance.n_rollouts < whole
    ]


def _data(quality: DataQuality, undated: int) -> list[str]:
    notes = []
    if quality.rollouts_without_values:
        notes.append(
            f"{quality.rollouts_without_values} of {quality.n_rollouts} rollouts are left out: "
            f"{quality.values_missing} critic values are missing (null, NaN or infinite); a critic "
            "that gives NaN is broken"
        )
    if quality.prompts_missing:
        notes.append(
            f"{quality.prompts_missing} rollouts have no prompt id and count as clusters of "
            "their own; if they share prompts, every interval is too narrow"
        )
    if quality.n_duplicates:
        notes.append(f"{quality.n_duplicates} rows repeat an earlier row and are used once")
    if quality.truncated_without_bootstrap:
        notes.append(
            f"{quality.truncated_without_bootstrap} truncated rollouts have no bootstrap value: "
            "0 was used"
        )
    if quality.rewards_missing:
        notes.append(f"{quality.rewards_missing} rollouts have no reward and are left out")
    if quality.versions_odd:
        notes.append(
            f"{quality.versions_odd} rollouts have a version above the trainer's, or decreasing"
        )
    if undated:
        notes.append(f"{undated} rollouts have no known key and are in the whole only")
    return notes
