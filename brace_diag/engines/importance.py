"""The importance products of a run: read it once, add the sums, close them into a result."""

from __future__ import annotations

import os
from collections.abc import Iterable

from brace_diag.engines.keyed import keyed
from brace_diag.engines.reading import Reading
from brace_diag.engines.runs import Progress, RunLike
from brace_diag.estimators.importance import estimate_key, estimate_products
from brace_diag.estimators.importance_notes import (
    believed,
    believed_keys,
    importance_notes,
    ratio_check,
)
from brace_diag.estimators.importance_state import ImportanceState
from brace_diag.results_importance import ImportanceProducts, ImportanceSettings, KeyedWeights
from brace_diag.rollouts import Rollouts
from brace_diag.settings import By, StalenessKind


def importance_products(
    run: RunLike | Iterable[Rollouts],
    *,
    c_bar: float = 1.1,
    rho_bar: float = 1.2,
    gamma: float = 1.0,
    lam: float = 1.0,
    level: float = 0.95,
    by: By | None = None,
    staleness: StalenessKind = "first",
    eps: float = 0.01,
    lag: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> ImportanceProducts:
    """How fast the product of importance weights falls along a response, and how far it spreads.

    Per token m = log(γλ) + E log min(c_bar, w) and its sd sigma (eq 13), the long-run sd s_HAC and
    the sd tau between prompts; n tokens on, the log-product is forecast as

        n m ± z sqrt(n s_HAC² + n² tau²),

    and shown beside what the log holds. Also: whether w is an importance ratio (E_mu[w] = 1), KL,
    χ² and effective sample sizes, clipped shares, both tails of log w and what carries them.
    Intervals are by cluster = prompt. All logs are natural.

    Args:
        run: an opened run, or `Rollouts` (a list is read twice, so not a generator).
        c_bar, rho_bar: caps of the trace and of the residual weight.
        gamma, lam: discount and trace decay per policy token.
        level: level of the intervals, and of the forecasts.
        by: `step` or `staleness`: the figures of each key too; staleness: of the `first` or the
            `last` token.
        eps: return weight at which a horizon counts as used up (eq 45).
        lag: of the long-run variance; by the rule of Newey & West (1994) if None.
        threads: threads of the sums; all cores by default. The result does not depend on it.
        progress: called with rows done and rows in all.

    Raises:
        SchemaError: a needed column is missing, or no rollout holds a policy token.
        InputError: a setting out of its range.
    """
    settings = ImportanceSettings(c_bar, rho_bar, gamma, lam, level, by, staleness, eps, lag)
    needs = ("mu_logprobs", "pi_logprobs")
    reading = Reading.open(run, "measuring importance products", needs, ("token_ids",))
    state = ImportanceState(c_bar, rho_bar, lag)
    keys = keyed(
        reading.keys(by, staleness),
        lambda: ImportanceState(c_bar, rho_bar, lag, full=False),
        lambda key, own: estimate_key(key, own, settings),
    )
    n_threads = threads or os.cpu_count() or 1
    for batch, info in reading.batches(progress):
        state.update(batch, info, threads=n_threads)
        if keys is not None:
            keys.update(batch, info, n_threads)
    return _result(settings, reading, state, () if keys is None else keys.results())


def _result(
    settings: ImportanceSettings,
    reading: Reading,
    state: ImportanceState,
    by: tuple[KeyedWeights, ...],
) -> ImportanceProducts:
    own = estimate_products(state, settings)
    ratio = ratio_check(own, reading.signs)
    own, invalid = believed(own, ratio)
    notes = importance_notes(settings, reading.quality, own, ratio, reading.signs, invalid)
    return ImportanceProducts(
        source=reading.run.source,
        settings=settings,
        quality=reading.quality,
        figures=own.figures,
        log_products=own.log_products,
        log_products_uncapped=own.log_products_uncapped,
        half_life=own.half_life,
        half_life_one=own.half_life_one,
        half_life_rule=own.half_life_rule,
        pareto_k=own.pareto_k,
        pareto_k_limit=own.pareto_k_limit,
        ratio=ratio,
        tails=own.tails,
        noise_floor=own.noise_floor,
        stale_abs_log_w=own.stale_abs_log_w,
        excess_abs_log_w=own.excess_abs_log_w,
        abs_by_position=own.abs_by_position,
        abs_by_horizon=own.abs_by_horizon,
        invalid=invalid,
        by=believed_keys(by, ratio),
        notes=(*notes, *reading.key_notes(settings.by, settings.staleness)),
    )
