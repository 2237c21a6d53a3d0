"""Look at a log before believing it: one pass, no estimates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from brace_diag.engines.runs import Progress, RunLike, as_run
from brace_diag.errors import SchemaError
from brace_diag.estimators.duplicates import DuplicateFilter
from brace_diag.estimators.inspection import InspectionSums, summary
from brace_diag.estimators.inspection_checks import checks
from brace_diag.estimators.value_range import ValueRange, returns_range
from brace_diag.results import Inspection
from brace_diag.rollouts import Rollouts


def inspect_run(
    run: RunLike | Iterable[Rollouts], *, progress: Progress | None = None
) -> Inspection:
    """What a log holds, what was set aside, and whether its columns are what their names say.

    Raises: SchemaError where the log has no policy token.
    """
    source = as_run(run)
    index = source.index()
    low, high = returns_range(index.total_reward)
    values = ValueRange(low, high) if "values" in source.columns else None
    sums, seen, done = InspectionSums(), DuplicateFilter(), 0
    for batch in source.rollouts():
        first = seen.first_seen(batch)
        sums.update(batch, first)
        if values is not None:
            values.update(batch)
        sums.quality += replace(
            batch.quality,
            n_duplicates=batch.quality.n_duplicates + int((~first).sum()),
            rollouts_without_w=int(((batch.lengths > 0) & ~batch.has_w).sum()),
        )
        done += batch.n_rollouts
        if progress is not None:
            progress(done, len(index.prompt))
    if sums.quality.n_tokens == 0:
        raise SchemaError(
            f"{source.source}: no policy tokens in {sums.quality.n_rows} rows; "
            "check policy_mask and the log-prob columns"
        )
    sums.quality = replace(sums.quality, n_repeats_kept=seen.n_repeats_kept)
    return Inspection(
        source=source.source,
        columns=dict(source.columns),
        unused=tuple(getattr(source, "unused", ())),
        quality=sums.quality,
        summary=summary(sums, np.asarray(index.total_reward)),
        checks=checks(sums, values),
    )
