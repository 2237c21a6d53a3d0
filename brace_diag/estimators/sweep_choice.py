"""Which point of a grid to train with, and why, in sentences."""

from __future__ import annotations

import math

from brace_diag.results import Estimate, Gate
from brace_diag.results_sweep import PAPER_DEFAULT, Recommendation, SweepSetting
from brace_diag.sums import t_quantile

ENOUGH = 0.9
"""A setting that recovers so much of the gap is as good as any: the rest lies within its error."""
SURE = 0.7
"""Least lower end of its one-sided 95 % interval: what is recovered must be known, not lucky."""
NEAR_BEST = 0.05
"""Where none recovers enough, those whose lower end is within so much of the highest are tried."""
LEAST_PULL = 0.05
"""Below it one fit keeps more than 95 % of the critic's own error: taken only without others."""
SAME_VARIANCE = 0.1
"""Variance ratios within 10 % of the least are the same for a choice."""


def recommend(points: tuple[SweepSetting, ...]) -> Recommendation | None:
    """The setting of least variance among those that recover the gap; None without a share.

    Of the points with share >= .9 and the lower end of its one-sided 95 % interval >= .7 (or, where
    there is none, those whose lower end is within .05 of the highest), those whose pull is at least
    .05 if there are any; of these the least variance ratio. Ratios within 10 % count as the same:
    there the share that is surest to be large decides (to the per cent), then the smaller window,
    then the smaller caps.
    """
    known = [p for p in points if p.share.se is not None and p.variance_ratio.value is not None]
    if not known:
        return None
    good = [p for p in known if _value(p.share) >= ENOUGH and _floor(p) >= SURE]
    enough = bool(good)
    if not enough:
        highest = max(map(_floor, known))
        good = [p for p in known if _floor(p) >= highest - NEAR_BEST]
    strong = [p for p in good if _value(p.pull) >= LEAST_PULL]
    passed_over = bool(strong) and len(strong) < len(good)
    good = strong or good
    least = min(_value(p.variance_ratio) for p in good)
    tied = [p for p in good if _value(p.variance_ratio) <= least * (1.0 + SAME_VARIANCE)]
    chosen = min(tied, key=lambda p: (-round(_floor(p), 2), p.k, p.c_bar, p.rho_bar))
    paper = next(p for p in points if (p.k, p.rho_bar, p.c_bar) == PAPER_DEFAULT)
    return Recommendation(chosen.label, _reason(chosen, paper, enough, passed_over), chosen, paper)


def why_none(b: Estimate, gate: Gate, apart: bool) -> str | None:
    """Why no setting can be recommended, or None where one can."""
    if b.value is None or gate == "refused":
        return b.reason or "the gap cannot be measured from this log"
    if b.se is None:
        return f"the gap at the first token is {b.value:+.3g}, without an interval: {b.reason}"
    if not apart:
        ends = "" if b.ci_low is None else f" ({b.ci_low:+.3g} .. {b.ci_high:+.3g})"
        return (
            f"the gap at the first token is {b.value:+.3g}{ends}: not told apart from 0, so there "
            "is nothing that a target could be seen to recover"
        )
    return None


def _floor(point: SweepSetting) -> float:
    """Lower end of the share's one-sided 95 % interval."""
    t = float(t_quantile(0.95, point.share.n_clusters))
    return _value(point.share) - t * (point.share.se or 0.0)


def _reason(chosen: SweepSetting, paper: SweepSetting, enough: bool, passed_over: bool) -> str:
    share, ratio, pull = (_value(x) for x in (chosen.share, chosen.variance_ratio, chosen.pull))
    se = chosen.share.se or 0.0
    among = f"of the settings that recover {ENOUGH:.0%} of the gap or more"
    if not enough:
        among = (
            f"no setting is seen to recover {ENOUGH:.0%} of the gap; of those whose share is "
            "surest to be large"
        )
    left_out = f" and pull at {LEAST_PULL:.0%} or more" if passed_over else ""
    text = (
        f"{among}{left_out}, it is among those of least variance ({ratio:.2g} of the return's); it "
        f"recovers {share:.0%} (± {se:.0%}), and one fit moves the critic {pull:.0%} of the way to "
        "the return"
    )
    if chosen is paper:
        text += "; it is the paper's default"
    else:
        text += (
            f"; the paper's default (k = 100, rho_bar = 1.2, c_bar = 1.1) recovers "
            f"{_value(paper.share):.0%} at {_value(paper.variance_ratio):.2g} of the variance"
        )
    return text if chosen.share.reason is None else f"{text}; marked: {chosen.share.reason}"


def _value(estimate: Estimate) -> float:
    return math.nan if estimate.value is None else estimate.value
