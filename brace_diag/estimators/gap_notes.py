"""What the reader of a gap must be told: every condition under which a number misleads."""

from __future__ import annotations

from brace_diag.estimators.log_checks import LogProbe, LogSigns
from brace_diag.estimators.ratio_rules import control_off_zero, mean_off_one
from brace_diag.estimators.value_gap import GapEstimates, distrusted
from brace_diag.quality import DataQuality
from brace_diag.settings import GapSettings, GateThresholds

GATES = GateThresholds()


def gap_notes(
    settings: GapSettings,
    quality: DataQuality,
    main: GapEstimates,
    signs: LogSigns,
) -> tuple[str, ...]:
    """Sentences in order of weight: first what invalidates, then what limits, then what was "
    "done."""
    return (
        *invalidating(main, signs),
        *no_staleness(main),
        *_control(main),
        *_limits(settings, main),
        *_critic(signs),
        *_precision(signs.probe),
        *_data(quality),
        *_choices(settings, main),
    )


def invalidating(main: GapEstimates, signs: LogSigns) -> list[str]:
    """Reasons to believe no figure that rests on w; empty where the log is sound."""
    notes = []
    lag = signs.probe.best_lag()
    if lag is not None:
        notes.append(
            f"MISALIGNED lag={lag:+d}: pi fits mu shifted by {lag:+d} token far better than "
            "unshifted; the columns are not of the same tokens and no figure of the gap means "
            "anything"
        )
    if signs.probe.copied() and signs.n_stale:
        notes.append(
            "pi copied: it is bit-identical to mu on more than 99 % of the tokens while "
            f"{signs.n_stale} rollouts are stale; copied, not recomputed, so a "
            "gap of 0 is no evidence"
        )
    w = main.mean_weight
    if mean_off_one(w.value, w.ci_low, w.ci_high) and lag is None:
        notes.append(
            f"engine mismatch: mean pi/mu is {w.value:.4f}, not 1, so mu is not the sampler that "
            "drew these tokens (temperature, top-p/top-k, routing, misaligned columns); whatever "
            "the gap shows, part of it is not staleness"
        )
    return notes


def believed_gap(main: GapEstimates, signs: LogSigns) -> tuple[GapEstimates, str | None]:
    """The estimates, marked where the log is not sound, and why no figure can be believed."""
    grave = invalidating(main, signs)
    if grave:
        return distrusted(main, grave[0].split(":")[0]), grave[0]
    return main, next(iter(no_staleness(main)), None)


def no_staleness(main: GapEstimates) -> list[str]:
    """A log whose weights are all 1 holds no evidence either way."""
    if main.mean_abs_log_w != 0.0:
        return []
    return [
        "no staleness logged: pi equals mu on every token, so the gap is 0 by construction; "
        "this is no evidence that there is none"
    ]


def _control(main: GapEstimates) -> list[str]:
    """E_mu[Σu] = 0 holds for any importance ratio; its failure is not staleness."""
    u, w = main.u_control, main.mean_weight
    if mean_off_one(w.value, w.ci_low, w.ci_high) or not control_off_zero(u.value, u.se):
        return []
    return [
        f"miscalibrated: the mean sum of (pi/mu - 1) per rollout is {u.value:+.3f}, more than 3 "
        "standard errors from 0; wdr centres this away, doubly_robust and the spread over prompts "
        "do not"
    ]


def _critic(signs: LogSigns) -> list[str]:
    if not signs.values.broken:
        return []
    return [
        f"CRITIC_INVALID: {signs.values.words()}: broken or uninitialised, not stale; its bias and "
        "g_pi, g_mu say nothing of staleness (b_hat holds for any critic, with wide intervals)"
    ]


def _precision(probe: LogProbe) -> list[str]:
    grid = probe.grid()
    if grid is None:
        return []
    return [
        f"mu log-probs lie on the {grid} grid: differences between pi and mu below its spacing "
        "(2^-5 for |log-prob| in [4, 8) in bfloat16) are rounding, not drift"
    ]


def _limits(settings: GapSettings, main: GapEstimates) -> list[str]:
    notes = []
    b = main.batch.b_hat
    if main.gate == "refused" and b.reason:
        notes.append(f"position 0: {b.reason}")
    if main.gate == "direction":
        notes.append(
            f"position 0: within-prompt variance of the log product is {main.within_variance:.3g}: "
            f"read the sign of b, not its size"
        )
    z = main.saturation_z.value
    if z is not None and abs(z) > 1.96:
        notes.append(
            f"saturation: wdr(tau={GATES.tau_bracket:g}) and first_order differ (z = {z:+.1f}); "
            "pi has moved "
            "far along the value, first_order overshoots and wdr may be a few per cent high"
        )
    if settings.axis != "position":
        notes.append(
            f"--axis {settings.axis} conditions on the realised length, which is the future: "
            "where lengths "
            "vary, each cell is biased; read the gap by position"
        )
    if 0 < b.n_clusters < GATES.min_clusters:
        notes.append(
            f"{b.n_clusters} clusters of prompts: intervals are rough below {GATES.min_clusters}"
        )
    return notes


def _data(quality: DataQuality) -> list[str]:
    notes = []
    if quality.prompts_missing:
        notes.append(
            f"{quality.prompts_missing} rollouts have no prompt id and count as clusters of "
            "their own; "
            "if they share prompts, every interval is too narrow"
        )
    if quality.n_duplicates:
        notes.append(f"{quality.n_duplicates} rows repeat an earlier row and are used once")
    if quality.rollouts_without_w:
        notes.append(
            f"{quality.rollouts_without_w} of {quality.n_rollouts} rollouts are left out of the "
            "gap: "
            "a log-prob is missing, impossible or a fill value"
        )
    if quality.rollouts_without_values:
        notes.append(
            f"{quality.rollouts_without_values} rollouts are left out: a critic value is missing"
        )
    if quality.truncated_without_bootstrap:
        notes.append(
            f"{quality.truncated_without_bootstrap} truncated rollouts have no bootstrap value: "
            "0 was used"
        )
    if quality.rewards_on_empty:
        notes.append(
            f"{quality.rewards_on_empty} rows without a policy token carry a reward; E_mu[R] "
            "leaves them out"
        )
    return notes


def _choices(settings: GapSettings, main: GapEstimates) -> list[str]:
    if main.baseline == "group":
        how = "lowers the standard error" if settings.baseline == "auto" else "was asked for"
        return [
            "the baseline also takes the returns of the prompt's other rollouts "
            f"(weight {settings.group_shift:g}): it {how}"
        ]
    return []
