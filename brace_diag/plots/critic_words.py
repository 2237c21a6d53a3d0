"""The words on the critic's figures: the finding, what it rests on, what to beware of."""

from __future__ import annotations

from brace_diag.plots.critic_data import TargetData
from brace_diag.plots.words import NO_BREAK, decimals, elide, percent, plain
from brace_diag.results import Estimate
from brace_diag.results_critic import CriticFit
from brace_diag.settings import GateThresholds


def with_half_width(estimate: Estimate) -> str:
    """0.714 ± 0.103: both to the two leading digits of the interval's half-width."""
    if estimate.value is None:
        return "none"
    if estimate.ci_low is None or estimate.ci_high is None:
        return f"{estimate.value:.3g}".replace("-", "−")
    half = (estimate.ci_high - estimate.ci_low) / 2.0
    digits = decimals(half)
    text = f"{round(estimate.value, digits) + 0.0:.{digits}f} ± {half:.{digits}f}"
    return text.replace("-", "−").replace(" ", NO_BREAK)


def calibration_finding(result: CriticFit) -> str:
    """Whether the returns follow the critic's values."""
    if result.invalid is not None:
        return "This critic cannot be judged"
    slope, ev = result.fit.slope, result.fit.explained_variance
    if slope.value is None:
        return f"No calibration: {plain(slope.reason or 'none could be measured')}"
    tail = f"slope {with_half_width(slope)}, EV {with_half_width(ev)}"
    if slope.ci_low is None or slope.ci_high is None or slope.ci_low <= 1.0 <= slope.ci_high:
        return f"No miscalibration of the critic's slope can be told: {tail}"
    side = "more" if slope.value < 1.0 else "less"
    return f"The critic's values differ {side} than the returns after them: {tail}"


def target_finding(result: CriticFit, data: TargetData) -> str:
    """How far the critic is from its targets."""
    if data.reason is not None:
        return f"Nothing to draw: {plain(data.reason)}"
    if data.label is None:
        return "Target against critic: how far each target would move the critic"
    return f"Target against critic by staleness: {plain(data.label)}"


def critic_basis(result: CriticFit) -> str:
    """Source, counts and discount: what the figure rests on."""
    over = result.fit.mean_error
    parts = [
        plain(elide(result.source)),
        f"{over.n_tokens:,} policy tokens",
        f"{over.n_rollouts:,} rollouts",
        f"{over.n_clusters:,} clusters of prompts",
        f"γ = {result.settings.gamma:g}",
        f"± {percent(result.settings.level)}",
    ]
    return " · ".join([parts[0], *(part.replace(" ", NO_BREAK) for part in parts[1:])])


def critic_cautions(result: CriticFit) -> list[str]:
    """Sentences without which a figure of the critic misleads."""
    found = [] if result.invalid is None else [plain(result.invalid)]
    n, least = result.fit.mean_error.n_clusters, GateThresholds().min_clusters
    if 0 < n < least:
        found.append(f"{n} clusters of prompts: intervals are rough below {least}.")
    return found


def frame_cautions(data: TargetData) -> list[str]:
    """What the frame of target against critic does not show."""
    found = []
    beyond = max((panel.share_outside for panel in data.panels), default=0.0)
    if beyond >= 0.0005:
        found.append(f"Up to {100 * beyond:.1f}{NO_BREAK}% of a panel's tokens lie off the frame.")
    if data.n_left_out:
        total = data.n_left_out + len(data.panels)
        what = "targets" if data.label is None else "levels of staleness"
        found.append(f"{len(data.panels)} of {total} {what} are drawn.")
    return found
