"""From results to named numbers at steps: what a tracker is told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from brace_diag.errors import InputError
from brace_diag.results import Estimate
from brace_diag.results_audit import CANNOT_JUDGE, Audit, Judgement
from brace_diag.results_trend import Trend

PREFIX = "brace"


@dataclass(frozen=True, slots=True)
class Metrics:
    """Numbers of one trainer step.

    Attributes:
        step: where they stand on the step axis.
        values: by name, `brace/<result>/<field>`; what does not exist is not there.
    """

    step: int
    values: Mapping[str, float]


def metrics_of(result: Trend | Audit) -> tuple[Metrics, ...]:
    """Every number of a result by step, in order.

    Of an estimate: its value under its own name, `_low` and `_high` with the ends of the interval.
    A number that does not exist is left out, never 0. `brace/audit/needs_correction` and
    `cannot_judge` are 1 or 0.

    Raises: InputError where a result has no steps: a trend by staleness, an audit without
        `by="step"`.
    """
    if isinstance(result, Trend):
        return _trend(result)
    return _audit(result)


def _trend(result: Trend) -> tuple[Metrics, ...]:
    if result.settings.by != "step":
        raise InputError("a trend by staleness has no step to log it at; ask for by='step'")
    found = []
    for point in result.points:
        values: dict[str, float] = {}
        for name, own in point.figures.items():
            values |= _estimate(f"{PREFIX}/trend/{name}", own)
        values |= _numbers(
            f"{PREFIX}/trend",
            margin=point.margin,
            beyond=None if point.beyond is None else float(point.beyond),
            within_var_log_product=point.within_var_log_product,
            n_rollouts=float(point.figures["reward_mu"].n_rollouts),
        )
        found.append(Metrics(point.key, values))
    return tuple(found)


def _audit(result: Audit) -> tuple[Metrics, ...]:
    if result.settings.by != "step":
        raise InputError("an audit of a whole log has no step to log it at; ask for by='step'")
    return tuple(Metrics(step, _judgement(own)) for step, own in result.by.items())


def _judgement(own: Judgement) -> dict[str, float]:
    name = f"{PREFIX}/audit"
    values = _estimate(f"{name}/b_hat", own.b_hat)
    return values | _numbers(
        name,
        margin=own.margin,
        within_var_log_product=own.within_var_log_product,
        needs_correction=float(own.verdict == "needs_correction"),
        cannot_judge=float(own.verdict in CANNOT_JUDGE),
    )


def _estimate(name: str, own: Estimate) -> dict[str, float]:
    found = {name: own.value, f"{name}_low": own.ci_low, f"{name}_high": own.ci_high}
    return {key: x for key, x in found.items() if x is not None and math.isfinite(x)}


def _numbers(prefix: str, **values: float | None) -> dict[str, float]:
    return {
        f"{prefix}/{name}": x for name, x in values.items() if x is not None and math.isfinite(x)
    }
