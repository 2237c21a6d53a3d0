"""What the reader of a gap must be told: every condition under which a number misleads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brace_diag.estimators.log_checks import LogProbe
from brace_diag.quality import DataQuality
from brace_diag.settings import GapSettings, GateThresholds

if TYPE_CHECKING:
    from brace_diag.estimators.value_gap import GapEstimates

GATES = GateThresholds()
MEAN_WEIGHT_TOLERANCE = 0.01
U_TOLERANCE = 0.05


def gap_notes(
    settings: GapSettings,
    quality: DataQuality,
    main: GapEstimates,
    probe: LogProbe,
    stale_share: float | None,
) -> tuple[str, ...]:
    """Sentences in order of weight: first what invalidates, then what limits, then what was done."""
    return (
        *_invalidating(main, probe, stale_share),
        *_limits(settings, main),
        *_data(quality),
        *_choices(settings, main),
    )


def _invalidating(main: GapEstimates, probe: LogProbe, stale_share: float | None) -> list[str]:
    notes = []
    lag = probe.best_lag()
    if lag is not None:
        notes.append(
            f"MISALIGNED lag={lag:+d}: pi fits mu shifted by {lag:+d} token far better than unshifted; "
            "the two columns are not of the same tokens, and no figure below means anything"
        )
    if main.mean_abs_log_w == 0.0:
        notes.append(
            "no staleness logged: pi equals mu on every token, so the gap is 0 by construction; "
            "this is no evidence that there is none"
        )
    if probe.copied() and stale_share:
        notes.append(
            f"pi is bit-identical to mu while {100 * stale_share:.0f} % of the rollouts are stale: "
            "copied, not recomputed; a gap of 0 is no evidence"
        )
    notes += _ratio_notes(main)
    return notes


def _ratio_notes(main: GapEstimates) -> list[str]:
    """E_mu[w] = 1 holds for any importance ratio; its failure is not staleness."""
    notes = []
    w = main.mean_weight
    if w.value is not None and w.ci_low is not None and w.ci_high is not None:
        off = abs(w.value - 1.0) > MEAN_WEIGHT_TOLERANCE
        if off and not w.ci_low <= 1.0 <= w.ci_high:
            notes.append(
                f"engine mismatch: mean pi/mu is {w.value:.4f}, not 1, so mu is not the sampler that drew "
                "these tokens (temperature, top-p/top-k, routing); the gap below is withheld from judgement"
            )
    u = main.u_control
    if u.value is not None and u.se is not None and not notes:
        if abs(u.value) > 3.0 * u.se and abs(u.value) > U_TOLERANCE:
            notes.append(
                f"miscalibrated: mean sum of (pi/mu - 1) per rollout is {u.value:+.3f}, more than 3 standard "
                "errors from 0; wdr centres this away, doubly_robust and prompt spread do not"
            )
    return notes


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
            f"saturation: wdr(tau={GATES.tau_bracket:g}) and first_order differ (z = {z:+.1f}); pi has moved "
            "far along the value, first_order overshoots and wdr may be a few per cent high"
        )
    if settings.axis != "position":
        notes.append(
            f"--axis {settings.axis} conditions on the realised length, which is the future: where lengths "
            "vary, each cell is biased; read the gap by position"
        )
    if 0 < b.n_clusters < GATES.min_clusters:
        notes.append(f"{b.n_clusters} clusters of prompts: intervals are rough below {GATES.min_clusters}")
    return notes


def _data(quality: DataQuality) -> list[str]:
    notes = []
    if quality.prompts_missing:
        notes.append(
            f"{quality.prompts_missing} rollouts have no prompt id and count as clusters of their own; "
            "if they share prompts, every interval is too narrow"
        )
    if quality.n_duplicates:
        notes.append(f"{quality.n_duplicates} rows repeat an earlier row and are used once")
    if quality.rollouts_without_w:
        notes.append(
            f"{quality.rollouts_without_w} of {quality.n_rollouts} rollouts are left out of the gap: "
            "a log-prob is missing, impossible or a fill value"
        )
    if quality.rollouts_without_values:
        notes.append(f"{quality.rollouts_without_values} rollouts are left out: a critic value is missing")
    if quality.truncated_without_bootstrap:
        notes.append(
            f"{quality.truncated_without_bootstrap} truncated rollouts have no bootstrap value: 0 was used"
        )
    if quality.rewards_on_empty:
        notes.append(
            f"{quality.rewards_on_empty} rows without a policy token carry a reward; E_mu[R] leaves them out"
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
