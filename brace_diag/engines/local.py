"""One machine: read a run batch by batch, add every estimator's sums, close them into results."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from brace_diag.engines.direct import (
    collector,
    direct_evidence,
    fresh_returns,
)
from brace_diag.engines.keyed import keyed
from brace_diag.engines.reading import Reading
from brace_diag.engines.runs import Progress, RunLike
from brace_diag.estimators.gap_notes import believed_gap, gap_notes
from brace_diag.estimators.gap_state import GapState
from brace_diag.estimators.intervals import probe_size
from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.estimators.value_gap import estimate_gap, estimate_key
from brace_diag.results import KeyedGap, ValueGap
from brace_diag.rollouts import Rollouts
from brace_diag.settings import GapSettings

Watch = Callable[[Rollouts, RolloutInfo], None]
"""Called with every batch of a pass, and with what is known of its rollouts."""


def value_gap(
    run: RunLike | Iterable[Rollouts],
    settings: GapSettings | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
    fresh: RunLike | Iterable[Rollouts] | None = None,
    **changes: Any,
) -> ValueGap:
    """Gap b(t) = V^pi - V^mu by position, batch figures of eq 7 and the critic's bias.

    The estimator is `wdr`: b(t) = mean over rollouts alive at t of Σ_{l>=t} γ^(l-t) h_l u_l A_l,
    u = w - 1, A = G - V less its mean over rollouts, h_l = min(C_{t:l}, 2) over its mean over all
    rollouts that reached t (C frozen where a response has ended, so that a change of length under
    pi is not divided away). Intervals are by cluster = prompt. b has the unit of the return;
    positive: pi is better than mu.

    Args:
        run: an opened run, or `Rollouts` (a list is read twice, so not a generator).
        settings: what to estimate; `changes` override single fields, e.g. `by="step"`.
        threads: threads of the sums; all cores by default. The result does not depend on it.
        progress: called with rows done and rows in all.
        fresh: rollouts of the same prompts drawn by pi: direct evidence beside wdr. Rollouts of
            staleness 0 in the log give the same where they share a prompt and step with older ones.
        watch: called with every batch and what is known of its rollouts, e.g. `RolloutTable.add`.

    Raises:
        SchemaError: a needed column is missing, or no rollout holds a policy token.
    """
    chosen = replace(settings or GapSettings(), **changes)
    reading = Reading.open(run, "the value gap", ("mu_logprobs", "pi_logprobs"), ("values",))
    states = _states(chosen)
    by = keyed(
        reading.keys(chosen.by, chosen.staleness),
        lambda: GapState("position", chosen.gamma, chosen.by_positions, spread=False),
        lambda key, state: estimate_key(key, state, chosen, reading.has_values, reading.may_group),
    )
    n_threads = threads or os.cpu_count() or 1
    drawn = fresh_returns(fresh, chosen.gamma, n_threads)
    rows = collector(reading, drawn, chosen.gamma)
    for batch, info in reading.batches(progress):
        if rows is not None:
            rows.add(batch, info, n_threads)
        for state in states:
            state.update(batch, info, threads=n_threads)
        if by is not None:
            by.update(batch, info, n_threads)
        if watch is not None:
            watch(batch, info)
    found = _result(chosen, reading, states, () if by is None else by.results())
    if rows is None:
        return found
    return replace(found, direct=direct_evidence(rows, drawn, found.batch.b_hat, chosen.level))


def _states(settings: GapSettings) -> list[GapState]:
    """The state on the asked axis, and one at position 0 where the axis is another."""
    asked = GapState(settings.axis, settings.gamma, True)
    if settings.axis == "position":
        return [asked]
    return [asked, GapState("position", settings.gamma, False)]


def _result(
    settings: GapSettings, reading: Reading, states: list[GapState], by: tuple[KeyedGap, ...]
) -> ValueGap:
    main = estimate_gap(
        states[0],
        settings,
        position_state=states[1] if len(states) > 1 else None,
        has_values=reading.has_values,
        allow_group=reading.may_group,
    )
    notes = gap_notes(settings, reading.quality, main, reading.signs)
    main, invalid = believed_gap(main, reading.signs)
    return ValueGap(
        source=reading.run.source,
        settings=settings,
        quality=reading.quality,
        batch=main.batch,
        gap=main.gap,
        critic_bias=main.critic_bias,
        saturation_z=main.saturation_z,
        mean_weight=main.mean_weight,
        u_control=main.u_control,
        gate=main.gate,
        whitening=main.whitening,
        probe_rollouts=probe_size(main.batch.b_hat.n_clusters),
        invalid=invalid,
        by=by,
        notes=(*notes, *reading.key_notes(settings.by, settings.staleness)),
    )
