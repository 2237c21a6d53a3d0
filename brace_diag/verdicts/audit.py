"""Does this run's critic need correction? One pass, then the ordered rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from brace_diag.engines.evidence import Evidence, gather
from brace_diag.engines.runs import Progress, RunLike, as_run
from brace_diag.engines.sweep import sweep
from brace_diag.results_audit import Audit, AuditCheck, Judgement
from brace_diag.results_sweep import Sweep, SweepSettings
from brace_diag.rollouts import Rollouts
from brace_diag.settings import AuditSettings
from brace_diag.verdicts.checks import all_checks
from brace_diag.verdicts.fitness import Fault, faults, own_fault
from brace_diag.verdicts.judge import judge
from brace_diag.verdicts.rule import probe_rollouts


def audit(
    run: RunLike | Iterable[Rollouts],
    settings: AuditSettings | None = None,
    *,
    fresh: RunLike | Iterable[Rollouts] | None = None,
    advice: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> Audit:
    """Judge a run: is the gap V^pi - V^mu harmless, harmful, or not to be told from this log?

    With b the wdr gap at the first token, margin d = .1 s_A (s_A² the mean within-prompt variance
    of the return), q = t_.95 and v the within-prompt variance of the log product, in order:
    `invalid` (columns missing or misaligned, pi copied, fills, pi/mu no ratio, a broken critic,
    fewer than two prompts), `no_staleness` (pi = mu everywhere), `needs_probe` (v > 10),
    `negligible` (|b| + q SE < d, and the prompts' own gaps not shown beyond it),
    `needs_correction` (|b| - q SE > d), `needs_probe` (v > 4 or q SE >= d), else `inconclusive`.
    The verdict does not depend on how the log is cut into files or on the number of threads.

    Args:
        run: an opened run, or `Rollouts` (a list is read twice, so not a generator).
        settings: what to ask; `changes` override single fields, e.g. `by="step"`.
        fresh: rollouts of the same prompts drawn by pi. Where the weights cannot decide, the rule
            is asked of them; where the two contradict each other, the log is `invalid`.
        advice: whether needs_correction also sweeps target settings, in a second pass.
        threads: threads of the sums; all cores by default.
        progress: called with rows done and rows in all.

    Raises:
        SchemaError: no return is logged, or `by="step"` without a step column.
        InputError: a setting out of its range.
    """
    chosen = replace(settings or AuditSettings(), **changes)
    source = as_run(run)
    evidence = gather(
        source,
        chosen,
        threads=threads,
        progress=progress,
        fresh=None if fresh is None else as_run(fresh),
    )
    found = faults(evidence)
    overall = judge(
        evidence.whole, chosen.margin, found[0] if found else None, direct=evidence.direct
    )
    checks = all_checks(evidence, found, chosen.margin)
    n = overall.b_hat.n_clusters
    judged = Audit(
        source=evidence.source,
        settings=chosen,
        quality=evidence.quality,
        overall=overall,
        checks=checks,
        probe_rollouts=probe_rollouts(n, chosen.margin) if n >= 2 else None,
        by=_by_step(evidence, chosen, found),
        recommendation=None,
        direct=evidence.direct,
        notes=_notes(overall, checks),
    )
    if advice and judged.verdict == "needs_correction" and "values" in evidence.columns:
        grid = SweepSettings(gamma=chosen.gamma, level=chosen.level)
        return with_advice(judged, sweep(source, grid, threads=threads, progress=progress))
    return judged


def with_advice(judged: Audit, swept: Sweep | None) -> Audit:
    """The same audit; one that needs correction with the sweep's settings as the next step."""
    advised = None if swept is None else swept.recommendation
    if judged.verdict != "needs_correction" or advised is None:
        return judged
    told = f"train the critic on {advised.label}: brace-diag targets computes it"
    return replace(judged, overall=replace(judged.overall, next=told), recommendation=advised)


def _by_step(
    evidence: Evidence, settings: AuditSettings, found: Sequence[Fault]
) -> dict[int, Judgement]:
    """Every step's own judgement; a fault of the whole log is a fault of each."""
    return {
        key: judge(own, settings.margin, found[0] if found else own_fault(own.gap))
        for key, own in evidence.by.items()
    }


def _notes(overall: Judgement, checks: Sequence[AuditCheck]) -> tuple[str, ...]:
    """Sentences of the checks that failed or warned, less what the verdict says itself."""
    return tuple(
        check.message
        for check in checks
        if check.status in ("fail", "warn") and check.message != overall.reason
    )
