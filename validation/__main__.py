"""`python -m validation`: measure every row, write docs/validation.md, fail on a broken promise."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .measure import Measured, broken_promises, measure
from .rows import ROWS
from .write import figure, page

DOCS = Path(__file__).parents[1] / "docs"


def measured(replicates: int, workers: int) -> list[Measured]:
    """Every row, in order; the rows are shared out among processes."""
    work = [(row, index, replicates) for index, row in enumerate(ROWS)]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        return pool.starmap(measure, work, chunksize=1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 where a row breaks its promise."""
    parser = argparse.ArgumentParser(prog="python -m validation", description=__doc__)
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder that the page goes to")
    chosen = parser.parse_args(arguments)
    began = time.perf_counter()
    found = measured(chosen.replicates, chosen.workers)
    (chosen.docs / "figures").mkdir(parents=True, exist_ok=True)
    (chosen.docs / "validation.md").write_text(page(found), encoding="utf-8")
    figure(found, chosen.docs / "figures" / "validation.png")
    print(f"wrote {chosen.docs / 'validation.md'} in {time.perf_counter() - began:.0f} s")
    broken = [line for m in found for line in broken_promises(m)]
    print(*broken, sep="\n", end="\n" if broken else "")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
