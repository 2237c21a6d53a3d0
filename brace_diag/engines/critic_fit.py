"""How well the critic fits: one pass over a run, without needing pi."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from brace_diag.engines.keyed import keyed
from brace_diag.engines.reading import Reading, require
from brace_diag.engines.runs import Progress, RunLike, as_run
from brace_diag.estimators.critic_calibration import calibration_curve
from brace_diag.estimators.critic_fit import (
    density,
    fit_of,
    keyed_fit,
    position_curves,
    value_extent,
    whole_figures,
)
from brace_diag.estimators.critic_frame import Frame, returns_extent
from brace_diag.estimators.critic_notes import critic_notes, invalidating
from brace_diag.estimators.critic_state import CriticState, critic_info
from brace_diag.estimators.intervals import IntervalMaker
from brace_diag.estimators.value_range import returns_range
from brace_diag.results_critic import CriticFit, CriticSettings, KeyedFit, TargetFit
from brace_diag.rollouts import UNKNOWN, Rollouts
from brace_diag.settings import By, StalenessKind, TargetSpec, parse_targets

# What the returns to go of a log are made of.
RETURNS = frozenset({"reward", "rewards", "policy_mask", "truncated", "bootstrap_value"})


def critic_fit(
    run: RunLike | Iterable[Rollouts],
    targets: Sequence[str | TargetSpec] | None = None,
    *,
    gamma: float = 1.0,
    level: float = 0.95,
    by: By | None = None,
    staleness: StalenessKind = "first",
    threads: int | None = None,
    progress: Progress | None = None,
) -> CriticFit:
    """How well the critic V fits the returns G that it saw, and how far it is from its targets.

    EV = 1 - Var(G - V) / Var(G) over policy tokens, the slope and intercept of G on V, the mean
    return by the critic's value, the share of values that no return can reach, and mean
    |target - V| by position and by key. Intervals are by cluster = prompt. Returns are mu's, so
    that all of it is about V^mu: whether the critic is stale is `value_gap`'s question.

    Args:
        run: an opened run, or `Rollouts` (a list is read several times, so not a generator).
        targets: targets to compare with, as `TargetSpec` or typed (`brace:k=20`). By default mc,
            and brace where the log has pi_logprobs.
        gamma: discount per policy token of the returns, and of targets that name none.
        level: level of the intervals.
        by: also one fit per `step` or per `staleness`.
        staleness: with by="staleness", that of a rollout's first or last policy token.
        threads: threads of the sums; all cores by default. The result does not depend on it.
        progress: called with rows done and rows in all.

    Raises:
        SchemaError: the log has no values, or no pi_logprobs where a target is made of ratios, or
            no rollout holds a policy token.
    """
    source = as_run(run)
    has_pi = "pi_logprobs" in source.columns
    chosen = usual_targets(source.columns) if targets is None else targets
    settings = CriticSettings(parse_targets(chosen, gamma=gamma), gamma, level, by, staleness)
    wants = _columns(source, settings.targets)
    reading = Reading.open(source, "the critic's fit", ("values",), wants)
    frame = frame_of(reading, gamma)
    n_targets = len(settings.targets)
    state = CriticState(frame, n_targets)
    keys = reading.keys(by, staleness)
    apart = keyed(
        keys,
        # A picture of every step would not fit in memory, and nobody could look at it.
        lambda: CriticState(frame, n_targets, False, False, by == "staleness"),
        lambda key, own: keyed_fit(key, own, settings.targets, level),
    )
    n_threads = threads or os.cpu_count() or 1
    for batch, info in reading.batches(progress):
        own = critic_info(batch, info, settings.targets)
        state.update(batch, own, threads=n_threads)
        if apart is not None:
            apart.update(batch, own, n_threads)
    undated = 0 if keys is None else int((keys == UNKNOWN).sum())
    entries = () if apart is None else apart.results()
    return _result(settings, reading, state, entries, has_pi, undated)


def usual_targets(columns: Collection[str]) -> tuple[str, ...]:
    """Targets to compare a critic with where none is asked for: those that the log can tell."""
    return ("mc", "brace") if "pi_logprobs" in columns else ("mc",)


def _columns(source: RunLike, specs: Sequence[TargetSpec]) -> tuple[str, ...]:
    """What the targets read beyond the values; refused by name where the log lacks it."""
    weighted = [spec for spec in specs if spec.reads_weights]
    for spec in weighted:
        require(source, f"the target {spec.label}", ("mu_logprobs", "pi_logprobs"))
    return ("pi_logprobs",) if weighted else ()


def frame_of(reading: Reading, gamma: float) -> Frame:
    """The range of returns: told by the index where a return is the reward, else by a pass."""
    total = reading.index.total_reward
    run = reading.run
    plain = not {"rewards", "bootstrap_value"} & set(run.columns)
    if gamma == 1.0 and plain:
        low, high = returns_range(total)
    else:
        low, high = returns_extent(run.rollouts(RETURNS), gamma)
    known = total[np.isfinite(total)]
    return Frame(low, high, float(known.mean()) if len(known) else 0.0, gamma)


def _result(
    settings: CriticSettings,
    reading: Reading,
    state: CriticState,
    by: tuple[KeyedFit, ...],
    has_pi: bool,
    undated: int,
) -> CriticFit:
    figures = whole_figures(IntervalMaker(settings.level), state)
    fit = fit_of(figures, state.frame.constant)
    explained, curves = position_curves(state, settings.targets, settings.level)
    targets = {
        spec.label: TargetFit(
            figures.target(0, k, 0),
            figures.target(0, k, 1),
            curves[spec.label],
            density(state, k),
        )
        for k, spec in enumerate(settings.targets)
    }
    known = bool(np.isfinite(reading.index.total_reward).any())
    extent = value_extent(state, known)
    notes = critic_notes(fit, extent, targets, reading.quality, has_pi=has_pi, undated=undated)
    return CriticFit(
        source=reading.run.source,
        settings=settings,
        quality=reading.quality,
        fit=fit,
        explained_variance=explained,
        calibration=calibration_curve(state, settings.level),
        extent=extent,
        targets=targets,
        invalid=invalidating(fit, extent),
        by=by,
        notes=(*notes, *reading.key_notes(settings.by, settings.staleness)),
    )
