"""How a run's figures move over trainer steps or staleness: one pass, a state for each key."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from brace_diag.engines.figures import (
    WANTS,
    SetFigures,
    believed,
    close,
    info_of,
    maker,
    ratio_of,
)
from brace_diag.engines.keyed import keyed
from brace_diag.engines.reading import Reading
from brace_diag.engines.runs import Progress, RunLike
from brace_diag.estimators.gap_notes import gap_notes, invalidating, no_staleness
from brace_diag.estimators.trend_test import trend_test
from brace_diag.estimators.value_gap import GapEstimates
from brace_diag.results import Estimate
from brace_diag.results_importance import RatioCheck
from brace_diag.results_trend import SERIES, Trend, TrendPoint, TrendSettings
from brace_diag.rollouts import Rollouts
from brace_diag.settings import GateThresholds
from brace_diag.sums import t_quantile

ONE_SIDED = 0.95


def trend(
    run: RunLike | Iterable[Rollouts],
    settings: TrendSettings | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> Trend:
    """Gap, critic and weights at every trainer step (or staleness), and whether each one moves.

    Every figure has its own clustered interval at every key. A trend test fits a line through the
    values with a HAC error (see `estimators.trend_test`); `first_beyond` is the first key at which
    |b| - t_.95 SE exceeds the margin, .1 s_A of that key. What the log cannot tell (no pi_logprobs,
    no values) is null with its reason; the rest stands.

    Args:
        run: an opened run, or `Rollouts` (a list is read twice, so not a generator).
        settings: what to ask; `changes` override single fields, e.g. `by="staleness"`.
        threads: threads of the sums; all cores by default. The result does not depend on it.
        progress: called with rows done and rows in all.

    Raises:
        SchemaError: the log does not tell the key or any return, or holds no policy token.
        InputError: a setting out of its range.
    """
    chosen = replace(settings or TrendSettings(), **changes)
    reading = Reading.open(run, "a trend", (), WANTS)
    make = maker(reading, chosen)
    states = keyed(
        reading.keys(chosen.by, chosen.staleness),
        make,
        lambda key, state: (key, close(state, reading, chosen)),
    )
    assert states is not None
    whole = make()
    whole.critic = None  # only what tells whether the log is sound
    n_threads = threads or os.cpu_count() or 1
    for batch, info in reading.batches(progress):
        own = info_of(reading, batch, info)
        whole.update(batch, own, threads=n_threads)
        states.update(batch, own, n_threads)
    found: tuple[tuple[int, SetFigures], ...] = states.results()
    ratio = ratio_of(whole.weights, reading, chosen)
    return _result(chosen, reading, found, close(whole, reading, chosen).gap, ratio)


def _result(
    settings: TrendSettings,
    reading: Reading,
    found: tuple[tuple[int, SetFigures], ...],
    whole: GapEstimates,
    ratio: RatioCheck | None,
) -> Trend:
    grave = invalidating(whole, reading.signs) if reading.has_w else []
    why = grave[0].split(":")[0] if grave else None
    points = tuple(
        _point(key, believed(own, reading, why, ratio), settings, sound=why is None)
        for key, own in found
    )
    keys = np.array([point.key for point in points], np.int64)
    tests = {
        name: trend_test(keys, [point.figures[name] for point in points], settings.level)
        for name in SERIES
    }
    beyond = [point.key for point in points if point.beyond]
    notes = gap_notes(settings.gap(), reading.quality, whole, reading.signs)
    if ratio is not None and ratio.verdict == "miscalibrated":
        notes = (*notes, "miscalibrated: m and ESS are products of weights that are no ratios")
    if not reading.has_w:
        notes = ("the log lacks one policy's log-probs: no gap, no weights", *notes)
    return Trend(
        source=reading.run.source,
        settings=settings,
        quality=reading.quality,
        points=points,
        tests=tests,
        first_beyond=next(iter(beyond), None),
        n_beyond=len(beyond),
        n_judged=sum(point.beyond is not None for point in points),
        invalid=next(iter([*grave, *no_staleness(whole)]), None),
        notes=(*notes, *reading.key_notes(settings.by, settings.staleness)),
    )


def _point(key: int, own: SetFigures, settings: TrendSettings, *, sound: bool) -> TrendPoint:
    b = own.figures["b_hat"]
    s_a = own.gap.batch.return_sd.value
    margin = settings.margin * s_a if s_a is not None and s_a > 0.0 else None
    return TrendPoint(
        key=key,
        figures=own.figures,
        margin=margin,
        beyond=_beyond(b, margin, own.gap.within_variance) if sound else None,
        gate=own.gap.gate,
        within_var_log_product=own.gap.within_variance,
    )


def _beyond(b: Estimate, margin: float | None, v: float | None) -> bool | None:
    """Whether |b| - t SE exceeds the margin; None where the log cannot tell, e.g. v > 10."""
    if margin is None or b.value is None or b.se is None or b.n_clusters < 2:
        return None
    if v is not None and v > GateThresholds().refuse:
        return None
    return abs(b.value) - float(t_quantile(ONE_SIDED, b.n_clusters)) * b.se > margin
