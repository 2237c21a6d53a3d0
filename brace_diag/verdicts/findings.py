"""Ask a log every question that a report shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from brace_diag.engines.critic_fit import critic_fit
from brace_diag.engines.importance import importance_products
from brace_diag.engines.local import value_gap
from brace_diag.engines.reward_slope import reward_slope
from brace_diag.engines.runs import Progress, RunLike, as_run
from brace_diag.engines.sweep import sweep
from brace_diag.engines.trend import trend
from brace_diag.errors import SchemaError
from brace_diag.results_report import Findings
from brace_diag.results_sweep import SweepSettings
from brace_diag.results_trend import Trend
from brace_diag.rollouts import Rollouts
from brace_diag.settings import AuditSettings
from brace_diag.verdicts.audit import audit, with_advice

QUESTIONS = ("gap", "trend", "by_staleness", "slope", "weights", "critic", "sweep")


def gather_findings(
    run: RunLike | Iterable[Rollouts],
    settings: AuditSettings | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> Findings:
    """Audit a run and ask it everything else: a pass for each question.

    Args:
        run: an opened run, or `Rollouts` (a list is read again for every question).
        settings: gamma, level, baseline and margin for all; `changes` override single fields.
        threads: threads of the sums; all cores by default.
        progress: called with rows done and rows in all, over all passes.

    Raises:
        SchemaError: no return is logged.
        InputError: a setting out of its range.
    """
    chosen = replace(settings or AuditSettings(), **changes)
    source = as_run(run)
    passes = _Passes(progress, 1 + len(QUESTIONS))
    common: dict[str, Any] = {"threads": threads}
    shared: dict[str, Any] = {"gamma": chosen.gamma, "level": chosen.level}
    judged = audit(source, chosen, advice=False, progress=passes.next(), **common)
    ask: dict[str, Callable[[], Any]] = {
        "gap": lambda: value_gap(
            source, chosen.gap(), by=None, progress=passes.next(), **common
        ),
        "trend": lambda: _several(
            trend(source, **shared, baseline=chosen.baseline, margin=chosen.margin,
                  progress=passes.next(), **common)
        ),
        "by_staleness": lambda: _several(
            trend(source, **shared, by="staleness", baseline=chosen.baseline,
                  margin=chosen.margin, progress=passes.next(), **common)
        ),
        "slope": lambda: reward_slope(source, **shared, progress=passes.next(), **common),
        "weights": lambda: importance_products(
            source, **shared, progress=passes.next(), **common
        ),
        "critic": lambda: critic_fit(source, **shared, progress=passes.next(), **common),
        "sweep": lambda: sweep(
            source, SweepSettings(**shared), progress=passes.next(), **common
        ),
    }  # fmt: skip
    found: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name in QUESTIONS:
        try:
            found[name] = ask[name]()
        except SchemaError as error:
            # The first line says what is missing; the rest, how to rename columns on a shell.
            found[name], missing[name] = None, str(error).split("\n", 1)[0]
    return Findings(audit=with_advice(judged, found["sweep"]), missing=missing, **found)


class _Passes:
    """One progress over several passes."""

    def __init__(self, progress: Progress | None, n: int) -> None:
        self.progress, self.n, self.done = progress, n, -1

    def next(self) -> Progress | None:
        """The progress of the next pass."""
        report = self.progress
        if report is None:
            return None
        self.done += 1
        before, n = self.done, self.n
        return lambda done, total: report(before * (total or 0) + done, n * (total or 0))


def _several(found: Trend) -> Trend:
    """A trend of one key says nothing that the whole does not."""
    if len(found.points) < 2:
        what = "levels of staleness" if found.settings.by == "staleness" else "trainer steps"
        raise SchemaError(f"{found.source}: a trend needs two {what}; the log has fewer")
    return found
