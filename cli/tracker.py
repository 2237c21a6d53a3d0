"""Results to a tracker, where one was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brace_diag.errors import InputError
from brace_diag.number_words import counted

from .terminal import say

if TYPE_CHECKING:
    from brace_diag.results_audit import Audit
    from brace_diag.results_trend import Trend
    from brace_diag.sinks.open import Sink


def open_tracker(log_to: str | None, *, by_step: bool) -> Sink | None:
    """The tracker, opened before anything is computed for it."""
    if log_to is None:
        return None
    if not by_step:
        raise InputError("--log-to logs every trainer step; add --by step")
    from brace_diag.sinks.open import open_sink

    return open_sink(log_to)


def log_result(sink: Sink | None, result: Trend | Audit, *, quiet: bool) -> None:
    """Every step of a result to the tracker."""
    if sink is None:
        return
    from brace_diag.sinks.metrics import metrics_of
    from brace_diag.sinks.open import log_metrics

    where = sink.where
    n = log_metrics(sink, metrics_of(result))
    say(f"logged {counted(n, 'step')}: {where}", quiet=quiet)
