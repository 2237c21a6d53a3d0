"""What each result says, in plain sentences: for people who do not know the figures yet."""

from __future__ import annotations

from brace_diag.number_words import counted, interval, number, share, short
from brace_diag.results import Estimate, ValueGap
from brace_diag.results_critic import CriticFit
from brace_diag.results_importance import ImportanceProducts
from brace_diag.results_slope import RewardSlope
from brace_diag.results_sweep import Sweep
from brace_diag.results_trend import KEYS, Trend


def with_ends(own: Estimate, *, sign: bool = False) -> str:
    """A number and its interval: +0.031 (95 % interval +0.007 to +0.056)."""
    text = number(own.value, own.se, sign=sign)
    if own.ci_low is None or own.ci_high is None:
        return text
    low, high = (number(end, own.se, sign=sign) for end in (own.ci_low, own.ci_high))
    return f"{text} ({100 * own.level:g} % interval {low} to {high})"


def gap_sentence(gap: ValueGap) -> str:
    """Whether, and in which direction, the two policies' values differ at the first token."""
    b = gap.batch.b_hat
    if gap.invalid is not None:
        return f"This log cannot tell the gap: {gap.invalid}."
    if b.value is None:
        return f"No gap at the first token: {b.reason}."
    if b.ci_low is None or b.ci_high is None:
        ends = f"no interval: {b.reason}"
    else:
        ends = f"{100 * b.level:g}% interval {interval(b.ci_low, b.ci_high, b.se, sign=True)}"
    value = f"b = {number(b.value, b.se, sign=True)} ({ends})"
    if b.ci_low is None or b.ci_high is None or b.ci_low <= 0.0 <= b.ci_high:
        return f"At the first token no gap between pi and mu can be told from 0: {value}."
    more, low = ("more", "low") if b.value > 0.0 else ("less", "high")
    size = " by that much" if gap.gate in ("good", "fair") else "; read the sign, not the size"
    return (
        f"From the first token pi earns {more} than mu: {value}. "
        f"A critic fitted to this log is too {low} there{size}."
    )


def trend_sentence(found: Trend) -> str:
    """Since when the gap lies beyond the margin, and whether it moves."""
    key, margin = found.settings.by, f"{found.settings.margin:g} s_A"
    if found.invalid is not None:
        return f"This log cannot tell the gap: {found.invalid}."
    many = KEYS[key]
    if found.first_beyond is None:
        text = f"The gap is not seen beyond the margin ({margin}) at any of {found.n_judged} {many}"
    else:
        text = (
            f"The gap first lies beyond the margin ({margin}) at {key} {found.first_beyond}, and "
            f"does at {found.n_beyond} of {found.n_judged} {many}"
        )
    test = found.tests["b_hat"]
    if test.p_value is None:
        return f"{text}."
    slope = with_ends(test.slope, sign=True)
    told = "moves" if test.p_value < 1.0 - found.settings.level else "has no trend that can be told"
    return f"{text}. It {told}: {slope} per {key}, p = {test.p_value:.2g}."


def slope_sentence(found: RewardSlope) -> str:
    """How much of the return is left in each target, over all tokens."""
    if found.invalid is not None:
        return f"This log cannot tell what the corrections do: {found.invalid}."
    parts = [
        f"{share(own.overall.return_weight.value)} in {label}"
        for label, own in found.slopes.items()
        if own.overall.return_weight.value is not None
    ]
    if not parts:
        return "No rollout has all that a slope needs."
    return (
        "Of a change of the realised return, so much reaches the value target of a token on "
        f"average: {', '.join(parts)}."
    )


def weights_sentence(found: ImportanceProducts) -> str:
    """How fast the products fall, and what is left of the sample."""
    if found.invalid is not None:
        return f"The weights cannot be believed: {found.invalid}."
    own = found.figures
    if own.m.value is None:
        return f"No mean log-weight: {own.m.reason}."
    text = (
        f"Capped at {found.settings.c_bar:g}, a token's log-weight is "
        f"{number(own.m.value, own.m.se, sign=True)} on average"
    )
    horizon = own.usable_horizon.value
    if horizon is not None:
        text += f", so that after about {horizon:,.0f} tokens 1 % of a product is left"
    if own.ess_rollout.value is not None:
        text += f". Reweighted to pi, the rollouts count as {share(own.ess_rollout.value)} of them"
    return f"{text}."


def critic_sentence(found: CriticFit) -> str:
    """How well the critic predicts the returns of the log."""
    if found.invalid is not None:
        return f"The critic cannot be judged: {found.invalid}."
    ev, slope = found.fit.explained_variance, found.fit.slope
    if ev.value is None:
        return f"The critic's fit cannot be told: {ev.reason}."
    text = f"The critic explains {share(ev.value)} of the variance of the returns of this log"
    if slope.value is not None:
        text += (
            f"; where its value is higher by 1, the mean return is higher by {short(slope.value)}"
        )
    return f"{text}. Both speak of mu, the policy that wrote the log."


def sweep_sentence(found: Sweep) -> str:
    """The recommended settings and why, or why there are none."""
    own = found.recommendation
    if own is None:
        return f"No settings to recommend: {found.no_recommendation or 'no setting has a share'}."
    return f"Train the critic on {own.label}: {own.reason}."


def data_sentence(n_rollouts: int, n_tokens: int, n_prompts: int) -> str:
    """What was read."""
    return (
        f"{counted(n_rollouts, 'rollout')} with {counted(n_tokens, 'policy token')}, in "
        f"{counted(n_prompts, 'cluster')} of prompts"
    )
