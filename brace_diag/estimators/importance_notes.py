"""Is w an importance ratio, and what must the reader of the products be told?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from brace_diag.estimators.importance import PRODUCTS, ImportanceEstimates
from brace_diag.estimators.intervals import GATES
from brace_diag.estimators.log_checks import LogSigns
from brace_diag.estimators.ratio_rules import control_off_zero, mean_off_one
from brace_diag.quality import DataQuality
from brace_diag.results import Curve, Estimate
from brace_diag.results_importance import (
    ImportanceSettings,
    KeyedWeights,
    RatioCheck,
    Verdict,
    WeightFigures,
)

if TYPE_CHECKING:
    from brace_diag.results import Cell

MOSTLY = 0.9
"""Share of tokens with w < 1 at which a mean below 1 looks like a cut support."""
POORLY_COVERED = 0.8


def ratio_check(own: ImportanceEstimates, signs: LogSigns) -> RatioCheck:
    """The verdict on w, and the likely cause where it is no importance ratio.

    |mean w - 1| > .01 and significant: `engine_mismatch`; |U| > 3 SE and > .05: `miscalibrated`.
    """
    verdict, cause = _verdict(own, signs)
    return RatioCheck(verdict, cause, own.peaked, own.other, own.share_below_one)


def _verdict(own: ImportanceEstimates, signs: LogSigns) -> tuple[Verdict, str | None]:
    lag = signs.probe.best_lag()
    figures = own.figures
    w, u = figures.mean_weight, figures.u_control
    if lag is not None:
        return "misaligned", (
            f"MISALIGNED lag={lag:+d}: pi fits mu shifted by {lag:+d} token far better than "
            "unshifted; the columns are not of the same tokens"
        )
    if signs.probe.copied() and signs.n_stale:
        return "copied", (
            "pi copied: it is bit-identical to mu on more than 99 % of the tokens while "
            f"{signs.n_stale} rollouts are stale; copied, not recomputed"
        )
    if figures.mean_abs_log_w.value == 0.0:
        return "no_staleness", None
    if w.value is None or w.ci_low is None or w.ci_high is None:
        return "unknown", w.reason
    if mean_off_one(w.value, w.ci_low, w.ci_high):
        return "engine_mismatch", _cause(own, signs)
    if control_off_zero(u.value, u.se):
        return "miscalibrated", _small_cause(own, signs)
    return "importance_ratio", None


def _cause(own: ImportanceEstimates, signs: LogSigns) -> str:
    """What usually moves the mean of pi/mu by more than .01."""
    grid = signs.probe.grid()
    if grid is not None:
        return f"log-probs lie on the {grid} grid: rounding moves pi/mu by more than the drift"
    value = own.figures.mean_weight.value or 1.0
    below = own.share_below_one.value or 0.0
    peaked, other = own.peaked.value, own.other.value
    if value < 1.0 and below >= MOSTLY:
        return (
            f"w < 1 on {100 * below:.0f} % of the tokens: the support of mu is cut (top-p, top-k) "
            "and renormalised while pi is not"
        )
    if value > 1.0 and peaked is not None and other is not None and peaked > max(1.0, other):
        return (
            f"w is above 1 where mu is peaked (mean {peaked:.3f} at mu >= 1/2, {other:.3f} below): "
            "temperature or raw log-probs differ between sampler and trainer; dividing log-probs "
            "by T does not mend it"
        )
    if value < 1.0:
        return (
            "pi gives the sampled tokens less probability than mu on average: temperature, a cut "
            "support, shifted routing or columns of different tokens"
        )
    return (
        "temperature, raw log-probs, shifted routing or noise differ between sampler and "
        "trainer, or the columns are of different tokens"
    )


def _small_cause(own: ImportanceEstimates, signs: LogSigns) -> str:
    grid = signs.probe.grid()
    if grid is not None:
        return f"log-probs lie on the {grid} grid: rounding adds up over a rollout"
    if (own.figures.u_control.value or 0.0) > 0.0:
        return (
            "noise in the log-probs (noise of sd s gives E[w] = exp(s^2/2)), or a small difference "
            "between the engines"
        )
    return "a support slightly cut, or a small difference between the engines"


def believed_keys(by: tuple[KeyedWeights, ...], ratio: RatioCheck) -> tuple[KeyedWeights, ...]:
    """Figures of keys, marked as those of the whole log are."""
    names = unbelieved(ratio.verdict)
    reason = ratio.verdict.replace("_", " ")
    return tuple(replace(one, figures=mark_figures(one.figures, reason, names)) for one in by)


def unbelieved(verdict: Verdict) -> frozenset[str]:
    """Figures that a verdict takes the trust from."""
    if verdict in ("importance_ratio", "unknown", "no_staleness"):
        return frozenset()
    if verdict == "miscalibrated":
        return PRODUCTS
    return frozenset(WeightFigures.__dataclass_fields__) - {"mean_weight", "u_control"}


def believed(own: ImportanceEstimates, ratio: RatioCheck) -> tuple[ImportanceEstimates, str | None]:
    """The estimates, marked unreliable where w is no ratio, and why no figure can be believed."""
    if ratio.verdict == "no_staleness":
        return own, (
            "no staleness logged: pi equals mu on every token, so every weight is 1 by "
            "construction; this is no evidence that there is no staleness"
        )
    if ratio.verdict in ("importance_ratio", "unknown"):
        return own, None
    reason = ratio.verdict.replace("_", " ")
    if ratio.verdict == "miscalibrated":
        return _all_marked(own, reason, PRODUCTS), None
    w = own.figures.mean_weight
    told = {
        "engine_mismatch": f"engine mismatch: mean pi/mu is {w.value:.4f}, not 1, so mu is not the "
        f"sampler that drew these tokens; {ratio.cause}"
    }
    return _all_marked(own, reason, unbelieved(ratio.verdict)), told.get(ratio.verdict, ratio.cause)


def mark_figures(figures: WeightFigures, reason: str, names: frozenset[str]) -> WeightFigures:
    """The same numbers, the named ones unreliable with the reason."""
    return replace(figures, **{name: marked(getattr(figures, name), reason) for name in names})


def _all_marked(
    own: ImportanceEstimates, reason: str, names: frozenset[str]
) -> ImportanceEstimates:
    def mark_cell(cell: Cell) -> Cell:
        beside = {
            name: marked(value, reason) if isinstance(value, Estimate) else value
            for name, value in cell.companions.items()
        }
        return replace(cell, estimate=marked(cell.estimate, reason), companions=beside)

    def mark_curve(curve: Curve) -> Curve:
        return replace(curve, cells=tuple(mark_cell(cell) for cell in curve.cells))

    return replace(
        own,
        figures=mark_figures(own.figures, reason, names),
        log_products=mark_curve(own.log_products),
        log_products_uncapped=mark_curve(own.log_products_uncapped),
        half_life=marked(own.half_life, reason),
        half_life_one=marked(own.half_life_one, reason),
        half_life_rule=marked(own.half_life_rule, reason),
    )


def marked(estimate: Estimate, reason: str) -> Estimate:
    """The same number, unreliable with the reason."""
    return estimate if estimate.value is None else replace(estimate, reliable=False, reason=reason)


def importance_notes(
    settings: ImportanceSettings,
    quality: DataQuality,
    own: ImportanceEstimates,
    ratio: RatioCheck,
    signs: LogSigns,
    invalid: str | None,
) -> tuple[str, ...]:
    """Sentences in order of weight: what invalidates, what limits, what was set aside."""
    notes = [] if invalid is None else [invalid]
    u = own.figures.u_control
    if ratio.verdict == "miscalibrated":
        notes.append(
            f"miscalibrated: the mean sum of (pi/mu - 1) per rollout is {u.value:+.3f}, more than "
            f"3 standard errors from 0; {ratio.cause}; no figure of a product is to be believed"
        )
    if own.tails.concentrated is not None:
        notes.append(own.tails.concentrated)
    if own.n_zero:
        notes.append(
            f"pi cannot draw {own.n_zero} of the sampled tokens (log-prob -inf): every product "
            "over one of them is 0, and no mean of log w exists"
        )
    grid = signs.probe.grid()
    if grid is not None:
        notes.append(
            f"mu log-probs lie on the {grid} grid: differences between pi and mu below its spacing "
            "(2^-5 for |log-prob| in [4, 8) in bfloat16) are rounding, not drift"
        )
    return (*notes, *_limits(settings, own), *_data(quality))


def _limits(settings: ImportanceSettings, own: ImportanceEstimates) -> list[str]:
    notes = []
    figures = own.figures
    m = figures.m
    if m.ci_low is not None and m.ci_low > 0.0:
        notes.append("m is above 0, which an exact ratio cannot give: see mean_weight")
    k, limit = own.pareto_k, own.pareto_k_limit
    if k is not None and k > limit:
        notes.append(
            f"k-hat of the rollouts' weights is {k:.2f}, above {limit:.2f}: no mean over whole "
            "rollouts of uncapped weights can be trusted"
        )
    notes += _forecast(own.log_products)
    excess, floor = own.excess_abs_log_w, own.noise_floor
    if excess.ci_low is not None and floor.value and excess.ci_low <= 0.0:
        notes.append(
            f"|log w| of stale rollouts is not above the noise floor of {floor.value:.3g} seen at "
            "staleness 0: what looks like drift may be the difference of two engines"
        )
    if own.varying_lengths:
        notes.append(
            "windows longer than the shortest rollout come from longer rollouts only; their law "
            "is that of the rollouts that got so far"
        )
    if 0 < m.n_clusters < GATES.min_clusters:
        notes.append(
            f"{m.n_clusters} clusters of prompts: intervals are rough below {GATES.min_clusters}"
        )
    return notes


def _forecast(curve: Curve) -> list[str]:
    """Where sqrt(n) sigma misleads while the spread with tau does not."""
    for cell in reversed(curve.cells):
        naive, prompt = (cell.companions.get(f"coverage_{x}") for x in ("naive", "prompt"))
        if isinstance(naive, float) and isinstance(prompt, float):
            if naive < POORLY_COVERED <= prompt:
                return [
                    f"n m +- z sqrt(n) sigma holds {100 * naive:.0f} % of the log-products of "
                    f"{int(cell.low)} tokens, with the spread between prompts {100 * prompt:.0f} %:"
                    " prompts (and steps) differ in their drift, which grows as n, not as sqrt(n)"
                ]
            return []
    return []


def _data(quality: DataQuality) -> list[str]:
    notes = []
    if quality.prompts_missing:
        notes.append(
            f"{quality.prompts_missing} rollouts have no prompt id and count as clusters of their "
            "own; if they share prompts, every interval is too narrow and tau_prompt too small"
        )
    if quality.n_duplicates:
        notes.append(f"{quality.n_duplicates} rows repeat an earlier row and are used once")
    if quality.rollouts_without_w:
        notes.append(
            f"{quality.rollouts_without_w} of {quality.n_rollouts} rollouts are left out: a "
            "log-prob is missing, impossible or a fill value"
        )
    return notes
