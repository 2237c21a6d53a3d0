"""What every question costs beside the gap alone, on one log.

    python benchmarks/questions.py [--tokens 4000000] [--rounds 5]

Writes a synthetic log (see bias.py) to a temporary folder, then asks in turn, in one interleaved
run and a warm process: the gap, the audit, the sweep (its default grid of 40 settings), the trend
by step, and the report (every question, and its page). Prints medians with their range, and the
ratio of each round to the gap of the same round.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from bias import timed, write_log

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


def report(times: dict[str, list[float]], n_tokens: int) -> None:
    print(f"{n_tokens:,} tokens, {len(times['gap'])} rounds, seconds: median (least .. most)")
    for name, seconds in times.items():
        spread = f"{min(seconds):.2f} .. {max(seconds):.2f}"
        ratios = [a / b for a, b in zip(seconds, times["gap"], strict=True)]
        print(
            f"  {name:7} {statistics.median(seconds):7.2f}  ({spread});  to the gap: "
            f"{statistics.median(ratios):.1f} ({min(ratios):.1f} .. {max(ratios):.1f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "run.parquet")
        n_tokens = write_log(Path(path), asked.tokens)
        ask = questions(path)
        for work in ask.values():
            work()  # compiled kernels, warm page cache
        times: dict[str, list[float]] = {name: [] for name in ask}
        for _ in range(asked.rounds):
            for name, work in ask.items():
                times[name].append(timed(work))
        report(times, n_tokens)


if __name__ == "__main__":
    main()
