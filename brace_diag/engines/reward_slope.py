"""How much of the reward reaches each value target: one pass over a run for all targets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from brace_diag.engines.keyed import keyed
from brace_diag.engines.reading import Reading
from brace_diag.engines.runs import Progress, RunLike
from brace_diag.estimators.reward_slope import estimate_key, estimate_slopes
from brace_diag.estimators.slope_notes import invalidating, slope_notes
from brace_diag.estimators.slope_state import SlopeState
from brace_diag.estimators.slope_targets import with_targets
from brace_diag.results_slope import RewardSlope
from brace_diag.rollouts import Rollouts
from brace_diag.settings import By, SlopeSettings, StalenessKind, TargetSpec, parse_targets

DEFAULT_TARGETS = ("gae", "vtrace", "brace")


def reward_slope(
    run: RunLike | Iterable[Rollouts],
    targets: str | TargetSpec | Sequence[str | TargetSpec] = DEFAULT_TARGETS,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    level: float = 0.95,
    by: By | None = None,
    staleness: StalenessKind = "first",
    threads: int | None = None,
    progress: Progress | None = None,
) -> RewardSlope:
    """Reward slope β by remaining horizon h = T - 1 - t for any list of value targets (eq 15, 49).

    In a cell of h, β = Cov(X, Y) / Var(X) over its policy tokens, X = G_t - V_t, Y = target_t - V_t
    (1: the whole reward arrives, 0: none of it). `pooled` takes one intercept for all prompts,
    `within` demeans X and Y by prompt. Beside it stand the return weight E[γ^h C_t], C_t the
    product of the trace's c over the target's window, and κ_t = ∂ target_t / ∂ R, V fixed: its
    mean, and quantiles of log10 κ. Intervals are by cluster = prompt.

    Args:
        run: an opened run, or `Rollouts` (a list is read twice, so not a generator).
        targets: as `TargetSpec`, or as typed: `gae`, `vtrace:n=64,c_bar=1`, `brace:k=20`.
        gamma, lam: for targets that do not name their own.
        level: level of the intervals.
        by: also figures over all horizons for each step or staleness; staleness: of the first or
            the last policy token.
        threads: threads to use; all cores by default. The result does not depend on it.
        progress: called with rows done and rows in all.

    Raises:
        InputError: a target cannot be read, or a setting is out of range.
        SchemaError: a needed column is missing (values; the log-probs where a target reads
            ratios), or no rollout holds a policy token.
    """
    listed = [targets] if isinstance(targets, str | TargetSpec) else list(targets)
    specs = parse_targets(listed, gamma=gamma, lam=lam)
    settings = SlopeSettings(specs, level, by, staleness)
    weighted = [spec.label for spec in specs if spec.reads_weights]
    log_probs = ("mu_logprobs", "pi_logprobs") if weighted else ()
    question = f"the slope of {weighted[0]}" if weighted else "the reward slope"
    reading = Reading.open(run, question, ("values", *log_probs))
    state = SlopeState(specs)
    by_key = keyed(
        reading.keys(by, staleness),
        lambda: SlopeState(specs),
        lambda key, own: estimate_key(key, own, settings),
    )
    n_threads = threads or os.cpu_count() or 1
    for batch, info in reading.batches(progress):
        known = with_targets(batch, info, specs, n_threads)
        state.update(batch, known, threads=n_threads)
        if by_key is not None:
            by_key.update(batch, known, n_threads)
    invalid = next(iter(invalidating(settings, reading.signs)), None)
    slopes = estimate_slopes(state, settings, invalid)
    notes = slope_notes(
        settings, reading.quality, state, slopes, reading.signs, reading.siblings.has_siblings
    )
    return RewardSlope(
        source=reading.run.source,
        settings=settings,
        quality=reading.quality,
        slopes=slopes,
        lengths=(int(state.length[0]), int(state.length[1])) if state.length[1] > 0 else None,
        invalid=invalid,
        by=() if by_key is None else by_key.results(),
        notes=(*notes, *reading.key_notes(by, staleness)),
    )
