"""What the reader of a reward slope must be told: every condition under which a number misleads."""

from __future__ import annotations

from collections.abc import Mapping

from brace_diag.estimators.log_checks import LogSigns
from brace_diag.estimators.slope_state import SlopeState
from brace_diag.quality import DataQuality
from brace_diag.results_slope import TargetSlopes
from brace_diag.settings import GateThresholds, SlopeSettings

MIN_CLUSTERS = GateThresholds().min_clusters


def slope_notes(
    settings: SlopeSettings,
    quality: DataQuality,
    state: SlopeState,
    slopes: Mapping[str, TargetSlopes],
    signs: LogSigns,
    has_siblings: bool,
) -> tuple[str, ...]:
    """Sentences in order of weight: what invalidates, what limits, what was left out."""
    weighted = any(spec.reads_weights for spec in settings.targets)
    return (
        *invalidating(settings, signs),
        *_no_staleness(settings, state),
        *_critic(signs),
        *_reward(state),
        *_windows(settings, state),
        *_lengths(state),
        *_siblings(has_siblings),
        *_clusters(slopes),
        *_data(quality, weighted),
    )


def invalidating(settings: SlopeSettings, signs: LogSigns) -> list[str]:
    """Why no figure that rests on ratios can be believed; empty where the log is sound."""
    if not any(spec.reads_weights for spec in settings.targets):
        return []
    lag = signs.probe.best_lag()
    if lag is not None:
        return [
            f"MISALIGNED lag={lag:+d}: pi fits mu shifted by {lag:+d} token far better than "
            "unshifted; the columns are not of the same tokens, and no target that reads ratios "
            "means anything"
        ]
    if signs.probe.copied() and signs.n_stale:
        return [
            "pi copied: it is bit-identical to mu on more than 99 % of the tokens while "
            f"{signs.n_stale} rollouts are stale; copied, not recomputed, so the return weights "
            "are no evidence"
        ]
    return []


def _no_staleness(settings: SlopeSettings, state: SlopeState) -> list[str]:
    if state.n_moved or not any(spec.reads_weights for spec in settings.targets):
        return []
    return [
        "no staleness logged: pi equals mu on every token; what is lost here is lost to windows "
        "and to caps below 1 alone, and stale rollouts would lose more"
    ]


def _critic(signs: LogSigns) -> list[str]:
    if not signs.values.broken:
        return []
    return [
        f"CRITIC_INVALID: {signs.values.words()}: broken or uninitialised; slopes on G - V say "
        "little (return weights and kappa do not read the critic)"
    ]


def _reward(state: SlopeState) -> list[str]:
    low, high = state.reward
    if low != high:
        return []
    return [
        f"zero variance of the reward: it is {low:g} in every rollout, so the slopes tell how "
        "targets follow the critic, not the reward; return weights and kappa hold"
    ]


def _windows(settings: SlopeSettings, state: SlopeState) -> list[str]:
    longest = state.length[1]
    return [
        f"{spec.label}: targets with {spec.n:g} or more tokens after them end before the reward, "
        "so their kappa is exactly 0 (zero_share)"
        for spec in settings.targets
        if spec.name == "vtrace" and spec.n < longest
    ]


def _lengths(state: SlopeState) -> list[str]:
    low, high = state.length
    if low >= high:
        return []
    return [
        f"lengths vary ({low:.0f} to {high:.0f} tokens): a cell of remaining horizon gathers "
        "tokens by how long their response turned out, which is the future; slopes and return "
        "weights by horizon describe this log, but a value gap binned this way is biased: measure "
        "that by position (brace-diag bias)"
    ]


def _siblings(has_siblings: bool) -> list[str]:
    if has_siblings:
        return []
    return [
        "each prompt has one rollout in a step: there is no slope within prompts; the pooled one "
        "also holds what differs between prompts"
    ]


def _clusters(slopes: Mapping[str, TargetSlopes]) -> list[str]:
    n = max((s.overall.pooled.n_clusters for s in slopes.values()), default=0)
    if not 0 < n < MIN_CLUSTERS:
        return []
    return [f"{n} clusters of prompts: intervals are rough below {MIN_CLUSTERS}"]


def _data(quality: DataQuality, weighted: bool) -> list[str]:
    notes = []
    if quality.prompts_missing:
        notes.append(
            f"{quality.prompts_missing} rollouts have no prompt id and count as clusters of their "
            "own; if they share prompts, every interval is too narrow"
        )
    if quality.n_duplicates:
        notes.append(f"{quality.n_duplicates} rows repeat an earlier row and are used once")
    if weighted and quality.rollouts_without_w:
        notes.append(
            f"{quality.rollouts_without_w} of {quality.n_rollouts} rollouts are left out, for all "
            "targets alike: a log-prob in their windows is missing, impossible or a fill value"
        )
    for count, why in (
        (quality.rollouts_without_values, "a critic value is missing"),
        (quality.rewards_missing, "the reward is missing"),
    ):
        if count:
            notes.append(f"{count} of {quality.n_rollouts} rollouts are left out: {why}")
    if quality.truncated_without_bootstrap:
        notes.append(
            f"{quality.truncated_without_bootstrap} truncated rollouts have no bootstrap value: "
            "0 was used"
        )
    return notes
