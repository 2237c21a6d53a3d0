"""Look at a log before believing it: one pass, no estimates."""

from __future__ import annotations

from collections.abc import Iterable

from brace_diag.engines.reading import Reading
from brace_diag.engines.runs import Progress, RunLike, as_run
from brace_diag.estimators.inspection import InspectionSums, summary
from brace_diag.estimators.inspection_checks import checks
from brace_diag.results import Inspection
from brace_diag.rollouts import Rollouts


def inspect_run(
    run: RunLike | Iterable[Rollouts], *, progress: Progress | None = None
) -> Inspection:
    """What a log holds, what was set aside, and whether its columns are what their names say.

    Raises: SchemaError where the log has no policy token.
    """
    source = as_run(run)
    reading = Reading.open(source, "inspect", wants=tuple(source.columns))
    sums = InspectionSums()
    for batch, info in reading.batches(progress):
        sums.update(batch, info.counted)
    sums.quality = reading.quality
    values = reading.signs.values if reading.has_values else None
    return Inspection(
        source=source.source,
        columns=dict(source.columns),
        unused=tuple(getattr(source, "unused", ())),
        quality=reading.quality,
        summary=summary(sums, reading.index.total_reward),
        checks=checks(sums, values),
    )
