"""Every check of an audit: what was found, its interval, what it was held against and why there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from brace_diag.engines.evidence import Evidence, GapEvidence
from brace_diag.estimators.ratio_rules import MEAN_WEIGHT_TOLERANCE, U_TOLERANCE
from brace_diag.results import Check, DirectGap, Estimate, Status
from brace_diag.results_audit import AuditCheck
from brace_diag.settings import GateThresholds
from brace_diag.verdicts.fitness import MOST, Fault, is_miscalibrated
from brace_diag.verdicts.judge import bounds_of
from brace_diag.verdicts.rule import Bounds, within_prompts

GATES = GateThresholds()
STUDY = "error rates on exactly solved token MDPs"
IDENTITY = "E_mu[w] = 1 for any importance ratio"
TWO_TESTS = "two one-sided tests at 95 %; margin in units of s_A"
CUT_REWARD = 0.01
APART = 3.0


def all_checks(
    evidence: Evidence, faults: Sequence[Fault], margin: float
) -> tuple[AuditCheck, ...]:
    """The data checks first, then what limits the estimate, then the rule's own questions."""
    found = [
        *_faults_alone(faults, evidence.checks),
        *(_from_inspection(check, evidence, faults) for check in evidence.checks),
        *_loss_mask(evidence),
        *_critic_fit(evidence),
        *_noise_floor(evidence),
        *(_direct(one) for one in evidence.direct),
    ]
    if evidence.whole is not None and evidence.whole.gap.mean_abs_log_w != 0.0:
        found += gap_checks(evidence.whole, margin)
    return tuple(found)


def _faults_alone(faults: Sequence[Fault], checks: Iterable[Check]) -> list[AuditCheck]:
    """Faults that no check of `inspect` reports."""
    told = {check.id for check in checks}
    return [
        AuditCheck(fault.check, "fail", fault.reason, fault.next)
        for fault in faults
        if fault.check not in told
    ]


def _from_inspection(check: Check, evidence: Evidence, faults: Sequence[Fault]) -> AuditCheck:
    """A check of the log with its number, raised to `fail` where it decides the verdict."""
    value, ci, threshold, source = _numbers(check.id, evidence)
    fault = next((fault for fault in faults if fault.check == check.id), None)
    status: Status = check.status if fault is None else "fail"
    if fault is None and check.status == "fail":
        status = "warn"
    return AuditCheck(
        id=check.id,
        status=status,
        message=check.message if fault is None else fault.reason,
        next=check.next if fault is None else fault.next,
        value=value,
        ci=ci,
        threshold=threshold,
        source=source,
    )


Numbers = tuple[
    float | int | str | None, tuple[float, float] | None, float | None, str | None
]  # value, interval, threshold, source


def _numbers(name: str, evidence: Evidence) -> Numbers:
    """What a data check counted and was held against."""
    q, probe = evidence.quality, evidence.signs.probe
    if name == "mean_weight" and evidence.weights is not None:
        w = evidence.weights.figures.mean_weight
        return w.value, _ends(w), MEAN_WEIGHT_TOLERANCE, f"{IDENTITY}; off by more than this"
    if name == "pi_copied" and probe.n_compared:
        return probe.n_equal / probe.n_compared, None, 0.99, "share of bit-identical log-probs"
    if name == "critic_range" and evidence.signs.values.n_values:
        values = evidence.signs.values
        share = values.n_outside / values.n_values
        return share, None, MOST, "share of values that no return of the log reaches"
    counts: dict[str, tuple[float | int | str | None, str]] = {
        "alignment": (probe.best_lag() or 0, "shift at which pi fits mu best"),
        "fills": (q.mu_filled + q.pi_filled, "fill values"),
        "impossible_samples": (q.mu_impossible, "sampled tokens that mu cannot draw"),
        "missing_logprobs": (q.mu_missing + q.pi_missing, "missing log-probs"),
        "duplicates": (q.n_duplicates, "rows that repeat an earlier one"),
        "empty_rows": (q.n_empty, "rows without a policy token"),
        "rewards": (q.rewards_missing, "rollouts without a return"),
        "rewards_folded": (q.rewards_folded, "rewards on non-policy tokens"),
        "versions": (q.versions_odd, "rollouts with odd versions"),
        "truncation": (q.truncated_without_bootstrap, "truncated without a bootstrap"),
        "clusters": (evidence.n_prompts, "prompts"),
    }
    if name not in counts:
        return None, None, None, None
    value, what = counts[name]
    limit = 20.0 if name == "clusters" else 0.0
    return value, None, limit, what


def _ends(estimate: Estimate) -> tuple[float, float] | None:
    if estimate.ci_low is None or estimate.ci_high is None:
        return None
    return estimate.ci_low, estimate.ci_high


def _direct(one: DirectGap) -> AuditCheck:
    """The gap from returns alone, beside the one by weights."""
    name = "fresh_rollouts" if one.kind == "fresh" else "staleness_0"
    source = "difference to the gap by weights, in standard errors"
    if one.b.value is None:
        return AuditCheck(name, "note", f"no direct estimate: {one.b.reason}", source=source)
    where = f"on {one.n_prompts:,} prompts" if one.n_prompts else "without a common prompt"
    message = (
        f"{one.n_drawn:,} rollouts of pi {where} give b = {one.b.value:+.3g}"
        + ("" if one.b.se is None else f" (SE {one.b.se:.2g})")
        + ("" if one.z is None else f", {one.z:+.1f} standard errors from the gap by weights")
    )
    apart = one.z is not None and abs(one.z) > APART
    return AuditCheck(
        name,
        "warn" if apart and one.b.reliable else "ok" if one.b.reliable else "note",
        message if one.b.reliable else f"{message}; {one.b.reason}",
        "check that both are of the same policy and verifier" if apart else None,
        value=one.b.value,
        ci=_ends(one.b),
        threshold=APART,
        source=source,
    )


def _loss_mask(evidence: Evidence) -> list[AuditCheck]:
    loss = evidence.loss
    if not loss.told:
        return []
    kept = f"the loss mask keeps {100 * loss.n_kept / loss.n_tokens:.1f} % of the policy tokens"
    if loss.share_cut > CUT_REWARD:
        return [
            AuditCheck(
                "loss_mask",
                "warn",
                f"{kept} and leaves out the last one in {loss.n_cut} of {loss.n_rollouts} rewarded "
                "rollouts: the terminal reward enters no loss there",
                "let the mask end with the last token that the policy sampled, or move the reward "
                "to the last token that it keeps",
                value=loss.share_cut,
                threshold=CUT_REWARD,
                source="share of rewarded rollouts whose reward token is masked",
            )
        ]
    return [
        AuditCheck(
            "loss_mask", "ok", kept + "; rewards are kept", None, loss.share_cut, None, CUT_REWARD,
            "share of rewarded rollouts whose reward token is masked",
        )
    ]  # fmt: skip


def _critic_fit(evidence: Evidence) -> list[AuditCheck]:
    ev = evidence.explained_variance
    if ev is None:
        return [
            AuditCheck(
                "explained_variance",
                "note",
                "the log has no critic values: V is 0, returns are centred by the prompt's other "
                "rollouts, and nothing is said of the critic itself",
                "log the critic's value of the state before each token",
            )
        ]
    source = "a constant at the mean return has 0"
    if ev.value is None:
        return [AuditCheck("explained_variance", "note", f"explained variance: {ev.reason}")]
    low = ev.value < 0.0
    message = f"the critic explains {100 * ev.value:.1f} % of the variance of the returns"
    if low:
        message += ": worse than their mean"
    return [
        AuditCheck(
            "explained_variance",
            "warn" if low else "ok",
            message,
            "the gap holds for any critic, with wider intervals; look at brace-diag critic"
            if low
            else None,
            ev.value,
            _ends(ev),
            0.0,
            source,
        )
    ]


def _noise_floor(evidence: Evidence) -> list[AuditCheck]:
    if evidence.weights is None:
        return []
    floor, stale = evidence.weights.noise_floor, evidence.weights.stale_abs_log_w
    if floor.value is None:
        return []
    if stale.value is None:
        message = (
            f"mean |log w| is {floor.value:.2g} where staleness is 0, and the log holds no stale "
            "rollouts"
        )
        return [AuditCheck("noise_floor", "note", message, None, floor.value, _ends(floor))]
    close = floor.value > 0.5 * stale.value
    return [
        AuditCheck(
            "noise_floor",
            "warn" if close else "ok",
            f"mean |log w| is {floor.value:.2g} where staleness is 0 (the noise of the engines) "
            f"and {stale.value:.2g} on stale rollouts",
            "most of the movement of pi/mu is noise between engines: compare their precision and "
            "kernels before reading staleness from it"
            if close
            else None,
            floor.value,
            _ends(floor),
            0.5 * stale.value,
            "half of the mean |log w| of stale rollouts",
        )
    ]


def gap_checks(evidence: GapEvidence, margin: float) -> list[AuditCheck]:
    """The questions of the rule, in its order."""
    x = bounds_of(evidence, margin)
    return [
        _control(evidence),
        _variance(evidence, x),
        *_saturation(evidence),
        *_margin(evidence, x),
        _spread(evidence, x, margin),
    ]


def _control(evidence: GapEvidence) -> AuditCheck:
    u = evidence.gap.u_control
    off = is_miscalibrated(evidence.gap)
    value = "cannot be measured" if u.value is None else f"is {u.value:+.3f}"
    message = f"the mean sum of pi/mu - 1 per rollout {value}; an importance ratio has 0"
    if off:
        message += ": miscalibrated; products and the spread over prompts are not believed"
    return AuditCheck(
        "control",
        "warn" if off else "ok",
        message,
        "mu is not quite the sampler (noise, precision, a slightly cut support): compare the two "
        "engines' log-probs of one batch"
        if off
        else None,
        u.value,
        _ends(u),
        U_TOLERANCE,
        f"{IDENTITY}; off by more than this and 3 standard errors",
    )


def _variance(evidence: GapEvidence, x: Bounds) -> AuditCheck:
    status: Status = {"good": "ok", "fair": "ok", "direction": "warn", "refused": "fail"}.get(
        x.gate, "note"
    )  # type: ignore[assignment]
    words = {
        "good": "every estimator holds",
        "fair": "wdr holds",
        "direction": "only the sign of the gap can be read",
        "refused": "nothing that is logged tells the gap",
        "unknown": "it cannot be measured",
    }[x.gate]
    size = "" if x.v is None else f" is {x.v:.3g}"
    return AuditCheck(
        "log_product_variance",
        status,
        f"the within-prompt variance of the log product{size}: {words}",
        "draw fresh rollouts from pi, or log at a lower staleness"
        if status in ("warn", "fail")
        else None,
        x.v,
        None,
        GATES.refuse if x.gate == "refused" else GATES.limit,
        f"coverage of the interval on exactly solved token MDPs: sound up to {GATES.limit:g}, "
        f"refused above {GATES.refuse:g}",
    )


def _saturation(evidence: GapEvidence) -> list[AuditCheck]:
    z = evidence.gap.saturation_z.value
    if z is None:
        return []
    off = abs(z) > 1.96
    return [
        AuditCheck(
            "saturation",
            "note" if off else "ok",
            f"wdr(tau={GATES.tau_bracket:g}) and first_order differ by {z:+.1f} standard errors"
            + ("; wdr may be a few per cent high" if off else ""),
            None,
            z,
            None,
            1.96,
            "paired z-test at 5 %",
        )
    ]


def _margin(evidence: GapEvidence, x: Bounds) -> list[AuditCheck]:
    """|b| against the margin, from both sides, and whether the interval is narrow enough."""
    status: Status
    what: str | None
    b = evidence.gap.batch.b_hat
    if x.d is None or x.low is None or x.high is None or x.half is None or x.b is None:
        why = b.reason or "the returns do not vary within a prompt: there is no margin"
        text = f"b cannot be held against a margin: {why}"
        return [AuditCheck("margin", "warn", text, "see the next step of the verdict")]
    if x.low > x.d:
        where, status, what = "beyond", "fail", "train the critic on corrected targets"
    elif x.high < x.d:
        where, status, what = "within", "ok", None
    else:
        where, status, what = "on either side of", "warn", "see the next step of the verdict"
    return [
        AuditCheck(
            "precision",
            "ok" if x.half < x.d else "warn",
            f"the one-sided half-width of b is {x.half:.3g}; it has to be below the margin "
            f"{x.d:.3g}",
            None if x.half < x.d else "log more rollouts, or draw fresh ones from pi",
            x.half,
            None,
            x.d,
            TWO_TESTS,
        ),
        AuditCheck(
            "margin",
            status,
            f"b is {x.b:+.3g}; |b| lies between {max(x.low, 0.0):.3g} and {x.high:.3g}, {where} "
            f"the margin {x.d:.3g}",
            what,
            x.b,
            _ends(b),
            x.d,
            TWO_TESTS,
        ),
    ]


def _spread(evidence: GapEvidence, x: Bounds, margin: float) -> AuditCheck:
    m = evidence.prompt_mean_square
    source = f"square of the margin {margin:g} s_A"
    if x.d is None or m.value is None or x.spread_low is None:
        why = "w is miscalibrated" if is_miscalibrated(evidence.gap) else m.reason
        return AuditCheck(
            "spread_over_prompts", "note", f"the gaps of single prompts are not judged: {why}"
        )
    beyond = within_prompts(x) is False
    return AuditCheck(
        "spread_over_prompts",
        "warn" if beyond else "ok",
        f"E_p[b_p^2] is {m.value:.2g}, at least {x.spread_low:.2g} with 95 % confidence; the "
        f"margin squared is {x.d**2:.2g}"
        + (": single prompts have gaps beyond the margin" if beyond else ""),
        "look at the prompts one by one: bias --per-rollout" if beyond else None,
        m.value,
        _ends(m),
        x.d**2,
        source,
    )
