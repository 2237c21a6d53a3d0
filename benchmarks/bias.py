"""`bias` end to end against decoding the same columns, and its peak memory.

    python benchmarks/bias.py [--tokens 20000000] [--rounds 5]

Writes a synthetic log to a temporary folder, then runs in turn, in one interleaved run:

- decode: pyarrow reads the columns that `bias` reads into memory;
- gap: `value_gap(open_run(...))` in a warm process, kernels compiled;
- and as whole processes, start-up included: a process that decodes, and `brace-diag bias --json`.

Prints medians with their range, the ratio of each round, and the peak memory of the process that
runs `bias`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from brace_diag.engines.local import value_gap
from brace_diag.readers import open_run
from brace_diag.writer import CanonicalWriter

COLUMNS = ["mu_logprobs", "pi_logprobs", "values", "reward", "prompt_id", "rollout_id", "step"]
DECODE = f"import pyarrow.parquet as pq, sys; pq.read_table(sys.argv[1], columns={COLUMNS!r})"


def step_table(rng: np.random.Generator, step: int) -> pa.Table:
    """512 rollouts of 64 prompts, lengths log-normal around 1,000 tokens, drift .02."""
    lengths = np.clip(rng.lognormal(6.9, 0.7, 512).astype(np.int64), 16, 8192)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    n = int(lengths.sum())
    mu = -rng.exponential(0.6, n)
    columns = {
        "mu_logprobs": mu,
        "pi_logprobs": np.minimum(mu + rng.normal(-0.0002, 0.02, n), 0.0),
        "values": rng.uniform(0.2, 0.7, n),
    }
    lists = {
        name: pa.ListArray.from_arrays(offsets, pa.array(x.astype(np.float32)))
        for name, x in columns.items()
    }
    ids = np.arange(512)
    return pa.table(
        {
            "step": np.full(512, step),
            "prompt_id": np.repeat(np.arange(64), 8) + 64 * (step % 50),
            "rollout_id": [f"{step}-{i}" for i in ids],
            **lists,
            "reward": rng.integers(0, 2, 512).astype(np.float64),
        }
    )


def write_log(path: Path, n_tokens: int) -> int:
    """Write a canonical log of at least n_tokens tokens; returns how many."""
    rng = np.random.default_rng(0)
    written, step = 0, 0
    with CanonicalWriter(path) as out:
        while written < n_tokens:
            table = step_table(rng, step)
            out.write(table)
            written += len(table["values"].combine_chunks().values)
            step += 1
    return written


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def process(*words: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)


def contenders(path: str) -> dict[str, Callable[[], object]]:
    return {
        "decode": lambda: pq.read_table(path, columns=COLUMNS),
        "gap": lambda: value_gap(open_run(path)),
        "decode, process": process("-c", DECODE, path),
        "bias, process": process("-m", "brace_diag_cli", "bias", path, "--json"),
    }


def measured(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every contender in every round, in turn, once all have run to warm up."""
    for run in work.values():
        run()  # compiled kernels, warm page cache
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, run in work.items():
            times[name].append(timed(run))
    return times


def report(times: dict[str, list[float]], n_tokens: int, pairs: Iterable[tuple[str, str]]) -> None:
    """Medians with their range, and for each pair the ratio of every round."""
    rounds = len(next(iter(times.values())))
    print(f"{n_tokens:,} tokens, {rounds} rounds, seconds: median (least .. most)")
    for name, seconds in times.items():
        spread = f"{min(seconds):.3f} .. {max(seconds):.3f}"
        print(f"  {name:16} {statistics.median(seconds):7.3f}  ({spread})")
    for name, base in pairs:
        ratios = [a / b for a, b in zip(times[name], times[base], strict=True)]
        print(
            f"  {name} / {base}: median {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} .. {max(ratios):.2f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "run.parquet")
        n_tokens = write_log(Path(path), asked.tokens)
        times = measured(contenders(path), asked.rounds)
        report(times, n_tokens, (("gap", "decode"), ("bias, process", "decode, process")))
        print(f"peak memory of bias: {peak_of_bias(path):.2f} GB")


def peak_of_bias(path: str) -> float:
    """Peak resident memory of one `bias` process, in GB, asked of the process itself."""
    code = (
        "import resource, sys; from brace_diag_cli.main import main; "
        "code = main(['bias', sys.argv[1], '--json']); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], check=True, capture_output=True, text=True
    )
    unit = 1.0 if sys.platform == "darwin" else 1024.0
    return float(done.stderr.split()[-1]) * unit / 1e9


if __name__ == "__main__":
    main()
