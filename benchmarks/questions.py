"""What every question costs beside the gap alone, on one log.

    python benchmarks/questions.py [--tokens 4000000] [--rounds 5]

Writes a synthetic log (see bias.py) to a temporary folder, then asks in turn, in one interleaved
run and a warm process: the gap, the audit, the sweep (its default grid of 40 settings), the trend
by step, and the report (every question, and its page). Prints medians with their range, and the
ratio of each round to the gap of the same round.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from bias import measured, report, write_log

from brace_diag import (
    audit,
    gather_findings,
    open_run,
    render_report,
    sweep,
    trend,
    value_gap,
)


def questions(path: str) -> dict[str, Callable[[], object]]:
    return {
        "gap": lambda: value_gap(open_run(path)),
        "audit": lambda: audit(open_run(path), advice=False),
        "sweep": lambda: sweep(open_run(path)),
        "trend": lambda: trend(open_run(path)),
        "report": lambda: render_report(gather_findings(open_run(path))),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "run.parquet")
        n_tokens = write_log(Path(path), asked.tokens)
        times = measured(questions(path), asked.rounds)
        report(times, n_tokens, [(name, "gap") for name in times if name != "gap"])


if __name__ == "__main__":
    main()
