"""From a log on disk, or a table in memory, to a stream of `Rollouts`.

`open_run` is the one door. A run is never loaded whole: row groups and blocks of lines are decoded
ahead of the consumer by a few threads, a few chunks at a time.
"""

from __future__ import annotations

from brace_diag.readers.index import RunIndex
from brace_diag.readers.run import Run, open_run

__all__ = ["Run", "RunIndex", "open_run"]
