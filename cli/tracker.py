"""Results to a tracker, where one was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brace_diag.errors import InputError
from brace_diag.number_words import counted

from .terminal import say

if TYPE_CHECKING:
    from brace_diag.results_audit import Audit
    from brace_diag.results_trend import Trend


def check_tracker(log_to: str | None, *, by_step: bool) -> None:
    """Refuse a tracker before anything is computed for it; it is opened once there is a result."""
    if log_to is None:
        return
    if not by_step:
        raise InputError("--log-to logs every trainer step; add --by step")
    from brace_diag.sinks.open import check_sink

    check_sink(log_to)


def log_result(log_to: str | None, result: Trend | Audit, *, quiet: bool) -> None:
    """Every step of a result to the tracker."""
    if log_to is None:
        return
    from brace_diag.sinks.metrics import metrics_of
    from brace_diag.sinks.open import log_metrics, open_sink

    metrics = metrics_of(result)
    sink = open_sink(log_to)
    where = sink.where
    n = log_metrics(sink, metrics)
    say(f"logged {counted(n, 'step')}: {where}", quiet=quiet)
