"""Reasons why a log cannot be judged, in order of weight; each with what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from brace_diag.engines.evidence import Evidence
from brace_diag.estimators.ratio_rules import control_off_zero, mean_off_one
from brace_diag.estimators.value_gap import GapEstimates
from brace_diag.quality import DataQuality

LEFT_OUT_BY_FILLS = 0.05
"""Share of rollouts lost to fill values from which the rest is no random part of the log."""
MOST = 0.5
CONTRADICTION = 4.0
"""Standard errors between weights and fresh returns beyond which both cannot be right."""
POLICIES = ("mu_logprobs", "pi_logprobs")


@dataclass(frozen=True, slots=True)
class Fault:
    """Why nothing can be judged.

    Attributes:
        check: id of the check that found it; reason, next: sentences.
    """

    check: str
    reason: str
    next: str


def faults(evidence: Evidence) -> list[Fault]:
    """Every fault of the whole log; empty where it is fit to be judged."""
    return [
        *_columns(evidence),
        *_tokens(evidence),
        *_alignment(evidence),
        *_copied(evidence),
        *_fills(evidence.quality),
        *_left_out(evidence.quality),
        *_mismatch(evidence),
        *_critic(evidence),
        *_prompts(evidence),
        *_contradiction(evidence),
    ]


def _contradiction(evidence: Evidence) -> list[Fault]:
    """Rollouts of pi that earn what the weights say pi cannot earn."""
    gap = evidence.whole
    for one in evidence.direct:
        if one.kind != "fresh" or not one.b.reliable or gap is None:
            continue
        if gap.gap.gate not in ("good", "fair") or one.z is None or abs(one.z) <= CONTRADICTION:
            continue
        assert one.b.value is not None and gap.gap.batch.b_hat.value is not None
        return [
            Fault(
                "direct",
                f"fresh rollouts give a gap of {one.b.value:+.3g}, the weights "
                f"{gap.gap.batch.b_hat.value:+.3g}: {abs(one.z):.1f} standard errors apart",
                "check that pi_logprobs are those of the policy that drew the fresh rollouts, with "
                "the same sampling settings and the same verifier",
            )
        ]
    return []


def own_fault(gap: GapEstimates) -> Fault | None:
    """What makes one step unfit although the log as a whole is not."""
    w, b = gap.mean_weight, gap.batch.b_hat
    if mean_off_one(w.value, w.ci_low, w.ci_high):
        reason = f"mean pi/mu is {w.value:.4f}, not 1: mu is not the sampler of this step"
        return Fault("mean_weight", reason, "compare sampler and trainer at this step")
    if b.n_clusters < 2:
        return Fault("prompts", "fewer than 2 prompts: no standard error", "log more prompts")
    return None


def is_miscalibrated(gap: GapEstimates) -> bool:
    """Whether Σ(w - 1) is off 0 although the mean of w is near enough to 1."""
    u, w = gap.u_control, gap.mean_weight
    return control_off_zero(u.value, u.se) and not mean_off_one(w.value, w.ci_low, w.ci_high)


def _columns(evidence: Evidence) -> list[Fault]:
    missing = [name for name in POLICIES if name not in evidence.columns]
    if not missing:
        return []
    can = (
        "the critic's fit, gae and mc targets and staleness"
        if ("values" in evidence.columns)
        else "returns and staleness"
    )
    what = "recompute them with the policy being updated, before its first step on the batch"
    if "mu_logprobs" in missing:
        what = "log the sampler's own log-probs of the sampled tokens"
    return [
        Fault(
            "columns",
            f"the log has no {' and no '.join(missing)}, so pi/mu and with it the gap V^pi - V^mu "
            f"cannot be measured; {can} still can",
            f"{what}; a column under another name: --map {missing[0]}=NAME",
        )
    ]


def _tokens(evidence: Evidence) -> list[Fault]:
    if evidence.quality.n_tokens:
        return []
    rows = evidence.quality.n_rows
    return [
        Fault(
            "tokens",
            f"no policy token in {rows} rows",
            "check policy_mask and the log-prob columns",
        )
    ]


def _alignment(evidence: Evidence) -> list[Fault]:
    lag = evidence.signs.probe.best_lag()
    if lag is None:
        return []
    return [
        Fault(
            "alignment",
            f"MISALIGNED lag={lag:+d}: pi fits mu shifted by {lag:+d} token far better than "
            "unshifted, so the columns are not of the same tokens",
            "log both policies' log-prob of the same sampled token at the same index",
        )
    ]


def _copied(evidence: Evidence) -> list[Fault]:
    signs = evidence.signs
    if not (signs.probe.copied() and signs.n_stale):
        return []
    return [
        Fault(
            "pi_copied",
            f"pi is bit-identical to mu on more than 99 % of the tokens while {signs.n_stale} "
            "rollouts are stale: copied, not recomputed, so a gap of 0 is no evidence",
            "recompute pi_logprobs with the policy being updated before logging",
        )
    ]


def _fills(q: DataQuality) -> list[Fault]:
    n = q.mu_filled + q.pi_filled
    if n == 0 or q.rollouts_without_w <= LEFT_OUT_BY_FILLS * q.n_rollouts:
        return []
    return [
        Fault(
            "fills",
            f"{n} log-probs are fill values (-9999, 1.0, trailing exact zeros) and "
            f"{q.rollouts_without_w} of {q.n_rollouts} rollouts are lost with them; what is left "
            "is no random part of the log",
            "log the sampler's log-prob for these tokens, or take them off policy_mask if the "
            "policy did not sample them",
        )
    ]


def _left_out(q: DataQuality) -> list[Fault]:
    if q.n_rollouts == 0 or q.rollouts_without_w <= MOST * q.n_rollouts or _fills(q):
        return []
    return [
        Fault(
            "coverage",
            f"{q.rollouts_without_w} of {q.n_rollouts} rollouts lack a log-prob; the rest speaks "
            "for itself only",
            "log mu_logprobs and pi_logprobs on every token that the policy sampled",
        )
    ]


def _mismatch(evidence: Evidence) -> list[Fault]:
    ratio, weights = evidence.ratio, evidence.weights
    if ratio is None or weights is None or ratio.verdict != "engine_mismatch":
        return []
    return [
        Fault(
            "mean_weight",
            f"engine mismatch: mean pi/mu over tokens is {weights.figures.mean_weight.value:.4f}, "
            f"not 1, so mu is not the sampler that drew these tokens; likely cause: {ratio.cause}",
            "log mu as it sampled, and pi with the same temperature, top-p, top-k and precision",
        )
    ]


def _critic(evidence: Evidence) -> list[Fault]:
    values, q = evidence.signs.values, evidence.quality
    what = "mend the critic, or the logging of its values, first"
    if "values" not in evidence.columns:
        return []
    if values.broken:
        reason = f"CRITIC_INVALID: {values.words()}: broken or uninitialised, not stale"
        return [Fault("critic_range", reason, what)]
    if q.n_rollouts and q.rollouts_without_values > MOST * q.n_rollouts:
        reason = (
            f"CRITIC_INVALID: {q.rollouts_without_values} of {q.n_rollouts} rollouts have a value "
            "that is no number"
        )
        return [Fault("critic_range", reason, what)]
    return []


def _prompts(evidence: Evidence) -> list[Fault]:
    if evidence.whole is None:
        return []
    n = evidence.whole.gap.batch.b_hat.n_clusters
    if n >= 2:
        return []
    q = evidence.quality
    if q.rewards_missing == q.n_rollouts:
        reason = "no return is known: every reward is missing"
        return [Fault("prompts", reason, "log the reward of every rollout")]
    known = "no rollout has all that the gap needs" if n == 0 else "the log has one prompt"
    return [
        Fault(
            "prompts",
            f"{known}: without a second prompt there is no standard error, and nothing to judge by",
            "log rollouts of more prompts (64 or more for a firm verdict), with their prompt_id",
        )
    ]
