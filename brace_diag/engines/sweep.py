"""Which target settings would recover the gap: one pass over a run for the whole grid."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from brace_diag.engines.reading import Reading
from brace_diag.engines.runs import Progress, RunLike
from brace_diag.estimators.gap_notes import believed_gap, gap_notes
from brace_diag.estimators.gap_state import GapState
from brace_diag.estimators.sweep_choice import recommend, why_none
from brace_diag.estimators.sweep_estimates import sweep_points, told_apart
from brace_diag.estimators.sweep_state import SweepState
from brace_diag.estimators.value_gap import estimate_gap
from brace_diag.results_sweep import Sweep, SweepSettings
from brace_diag.rollouts import Rollouts
from brace_diag.settings import GapSettings


def sweep(
    run: RunLike | Iterable[Rollouts],
    settings: SweepSettings | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> Sweep:
    """What brace targets over a grid of k, rho_bar, c_bar would do on this log, and which to take.

    Each point tells the share of the gap b that a critic fitted to its end on such targets
    recovers (1: all of it), how far that may be off because the window ends (`residual_bound`),
    the weight of the realised return in one fit (`pull`), and its price: the variance of
    target - V against the Monte-Carlo return's. Shares hold where the gate is good or fair.

    Args:
        run: an opened run, or `Rollouts` (a list is read twice, so not a generator).
        settings: the grid; `changes` override single fields, e.g. `k=(64, 256)`.
        threads: threads of the sums; all cores by default. The result does not depend on it.
        progress: called with rows done and rows in all.

    Raises:
        SchemaError: a needed column is missing (both log-probs, values), or there is no policy
            token.
        InputError: a setting out of its range.
    """
    chosen = replace(settings or SweepSettings(), **changes)
    reading = Reading.open(run, "a sweep", ("mu_logprobs", "pi_logprobs", "values"))
    state = SweepState(chosen)
    gap_state = GapState("position", chosen.gamma, all_starts=True, spread=False)
    n_threads = threads or os.cpu_count() or 1
    for batch, info in reading.batches(progress):
        state.update(batch, info, threads=n_threads)
        gap_state.update(batch, info, threads=n_threads)
    return _result(chosen, reading, state, gap_state)


def _result(
    settings: SweepSettings, reading: Reading, state: SweepState, gap_state: GapState
) -> Sweep:
    asked = GapSettings(gamma=settings.gamma, level=settings.level)
    gap = estimate_gap(gap_state, asked, has_values=True, allow_group=reading.may_group)
    notes = gap_notes(asked, reading.quality, gap, reading.signs)
    gap, invalid = believed_gap(gap, reading.signs)
    b = gap.batch.b_hat
    none = invalid or why_none(b, gap.gate, told_apart(b))
    points = sweep_points(state, gap) if state.n_rollouts else ()
    return Sweep(
        source=reading.run.source,
        settings=settings,
        quality=reading.quality,
        b_hat=b,
        gate=gap.gate,
        longest=state.longest,
        points=points,
        recommendation=None if none else recommend(points),
        no_recommendation=none,
        invalid=invalid,
        notes=notes,
    )
