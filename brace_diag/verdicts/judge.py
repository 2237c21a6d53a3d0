"""The rule applied to evidence, and its answer in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from brace_diag.engines.evidence import GapEvidence
from brace_diag.results import DirectGap, Estimate
from brace_diag.results_audit import Judgement, Verdict
from brace_diag.settings import GateThresholds
from brace_diag.verdicts.fitness import Fault, is_miscalibrated
from brace_diag.verdicts.rule import (
    ONE_SIDED,
    Bounds,
    bounds,
    one_sided,
    probe_rollouts,
    rollouts_needed,
    verdict,
    within_prompts,
)

GATES = GateThresholds()
NOTHING = Estimate(None, None, None, None, 0.95, 0, 0, 0, "wdr", False, "not measured")


def bounds_of(evidence: GapEvidence, margin: float) -> Bounds:
    """What the rule holds against each other, of a set of rollouts."""
    gap = evidence.gap
    return bounds(
        gap.batch.b_hat,
        gap.batch.return_sd,
        evidence.prompt_mean_square,
        gap.within_variance,
        gap.gate,
        margin,
        miscalibrated=is_miscalibrated(gap),
    )


def judge(
    evidence: GapEvidence | None,
    margin: float,
    fault: Fault | None,
    *,
    direct: Sequence[DirectGap] = (),
) -> Judgement:
    """The verdict on a set of rollouts, with its reason and what to do.

    Where the weights leave it open, the rule is asked of the first direct estimate that can be
    relied on.

    Args:
        evidence: of the gap, None where the log holds none.
        margin: in units of s_A.
        fault: why the log cannot be judged, None where it can.
        direct: estimates from returns alone.
    """
    if evidence is None or fault is not None:
        told = fault or Fault("gap", "the gap cannot be measured", "see the checks")
        return _judgement("invalid", told.reason, told.next, evidence, margin, None)
    if evidence.gap.mean_abs_log_w == 0.0:
        return _judgement("no_staleness", NO_STALENESS, NO_STALENESS_NEXT, evidence, margin, None)
    x = bounds_of(evidence, margin)
    b = evidence.gap.batch.b_hat
    found = verdict(x)
    probe = probe_rollouts(b.n_clusters, margin)
    needed = rollouts_needed(x, b.n_rollouts) if found == "inconclusive" else None
    if found == "needs_probe":
        needed = probe
    reason = _REASONS[found](x, margin)
    if is_miscalibrated(evidence.gap):
        reason += (
            f"; marked: the mean sum of pi/mu - 1 per rollout is "
            f"{evidence.gap.u_control.value:+.3f}, not 0, so the spread over prompts "
            "was not asked, and needs_correction asks for 99 %"
        )
    weighed = _judgement(
        found, reason, _next(found, x, margin, needed, b.n_rollouts), evidence, margin, needed
    )
    usable = next((one for one in direct if one.b.reliable), None)
    if found not in ("needs_probe", "inconclusive") or usable is None or x.d is None:
        return weighed
    return _by_returns(weighed, usable, x, margin)


KINDS = {
    "fresh": "fresh rollouts from pi",
    "staleness_0": "rollouts of staleness 0",
}


def _by_returns(told: Judgement, direct: DirectGap, x: Bounds, margin: float) -> Judgement:
    """The judgement by weights, settled by returns where those settle it."""
    half = one_sided(direct.b)
    y = replace(
        x, b=direct.b.value, half=half, guard=half, guard_level=ONE_SIDED, spread=None,
        spread_half=None, v=None, gate="unknown",
    )  # fmt: skip
    found = verdict(y)
    who = f"{direct.n_drawn:,} {KINDS[direct.kind]} on {direct.n_prompts:,} prompts"
    if found in ("negligible", "needs_correction"):
        return replace(
            told,
            verdict=found,
            reason=f"by {who}: {_REASONS[found](y, margin)}; the weights alone leave it open: "
            f"{told.reason}",
            next=_next(found, y, margin, None, 0),
            rollouts_needed=None,
        )
    ends = "" if direct.b.se is None else f" (SE {direct.b.se:.2g})"
    return replace(
        told,
        reason=f"{told.reason}; {who} give b = {direct.b.value:+.3g}{ends} and do not decide it "
        "either",
    )


NO_STALENESS = (
    "no staleness logged: pi equals mu on every token, so the gap is 0 by construction; nothing "
    "was tested"
)
NO_STALENESS_NEXT = (
    "if training is asynchronous, recompute pi_logprobs with the policy being updated; if it is "
    "not, there is nothing to correct"
)


def _judgement(
    found: Verdict,
    reason: str,
    what: str | None,
    evidence: GapEvidence | None,
    margin: float,
    needed: int | None,
) -> Judgement:
    if evidence is None:
        return Judgement(found, reason, what, NOTHING, None, NOTHING, "unknown", None, None)
    gap = evidence.gap
    s_a = gap.batch.return_sd.value
    return Judgement(
        verdict=found,
        reason=reason,
        next=what,
        b_hat=gap.batch.b_hat,
        margin=None if s_a is None else margin * s_a,
        prompt_mean_square=evidence.prompt_mean_square,
        gate=gap.gate,
        within_var_log_product=gap.within_variance,
        rollouts_needed=needed,
    )


def _size(x: Bounds, margin: float) -> str:
    return f"the margin {x.d:.3g} ({margin:g} s_A)"


def _negligible(x: Bounds, margin: float) -> str:
    # Only a gap with both bounds is negligible.
    assert x.b is not None and x.high is not None and x.d is not None
    text = (
        f"the gap at the first token is {x.b:+.3g}, and with 95 % confidence |b| is below "
        f"{x.high:.3g}, within {_size(x, margin)}"
    )
    if x.spread is None:
        return text + "; whether single prompts lie beyond it could not be asked"
    return text


def _needs_correction(x: Bounds, margin: float) -> str:
    assert x.b is not None and x.low is not None
    more, low = ("more", "low") if x.b > 0 else ("less", "high")
    sure = f"{100 * x.guard_level:g} %"
    return (
        f"pi earns {abs(x.b):.3g} {more} than mu, and with {sure} confidence |b| is above "
        f"{x.low:.3g}, beyond {_size(x, margin)}: a critic fitted to this log is too {low}"
    )


def _needs_probe(x: Bounds, margin: float) -> str:
    if x.gate == "refused":
        return (
            f"the within-prompt variance of the log product is {x.v:.3g}, above "
            f"{GATES.refuse:g}: the log is too stale for any estimate from it"
        )
    if x.v is not None and x.v > GATES.limit:
        assert x.b is not None
        told = x.half is not None and abs(x.b) > x.half
        sign = f"pi earns {'more' if x.b > 0 else 'less'} than mu" if told else "not even the sign"
        return (
            f"the within-prompt variance of the log product is {x.v:.3g}, above {GATES.limit:g}: "
            f"the size of the gap cannot be read from this log; {sign}"
            f"{' (its sign can)' if told else ' of b is told, its interval holds 0'}"
        )
    return (
        f"the interval of b is too wide: its one-sided half-width {x.half:.3g} is as large as "
        f"{_size(x, margin)}"
    )


def _inconclusive(x: Bounds, margin: float) -> str:
    if x.d is None:
        return "the returns do not vary within a prompt: there is no s_A to measure a margin by"
    if x.b is None or x.low is None or x.high is None:
        return "the gap at the first token has no standard error"
    if x.high < x.d and within_prompts(x) is False:
        assert x.spread is not None
        return (
            f"the mean gap {x.b:+.3g} lies within {_size(x, margin)}, but the prompts' own gaps do "
            f"not: their root mean square is {x.spread**0.5:.3g}; gains on some prompts hide "
            "losses on others"
        )
    return (
        f"|b| lies between {max(x.low, 0.0):.3g} and {x.high:.3g} with 95 % confidence on either "
        f"side, and {_size(x, margin)} lies between them"
    )


_REASONS = {
    "negligible": _negligible,
    "needs_correction": _needs_correction,
    "needs_probe": _needs_probe,
    "inconclusive": _inconclusive,
}


def _next(found: Verdict, x: Bounds, margin: float, needed: int | None, n: int) -> str | None:
    if found == "negligible":
        return None
    if found == "needs_correction":
        return "train the critic on corrected targets: brace-diag targets computes them"
    if found == "needs_probe":
        fresh = f"draw about {needed:,} fresh rollouts from pi on these prompts"
        if x.gate != "refused" and not (x.v is not None and x.v > GATES.limit):
            more = rollouts_needed(x, n)
            if more is not None:
                return f"{fresh}, or log about {more:,} rollouts like these (now {n:,})"
        return fresh
    if x.d is None:
        return "log several rollouts of a prompt that do not all earn the same"
    if needed is None and x.high is not None and x.high < x.d:
        return "look at the gap by prompt (bias --per-rollout) and group prompts by what changed"
    if needed is None:
        return f"b lies at the margin: a margin other than {margin:g} s_A decides, more data do not"
    return f"log about {needed:,} rollouts like these (now {n:,})"
