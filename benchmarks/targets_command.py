"""`write_targets` on a big log against pyarrow writing the same columns: time, and peak memory.

The log is made here. Each round runs, in processes of their own and in turn: pyarrow decoding the
log's columns, pyarrow writing the result's columns from memory (with the same encodings), and
write_targets from file to file with three targets. No program that writes those columns can be
faster than the second.

    python benchmarks/targets_command.py --tokens 20000000 --rounds 3
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from brace_diag.writer import CanonicalWriter

TARGETS = ("brace", "vtrace:n=64", "brace:k=20,c_bar=1")
LIMIT_GB = 1.5


def make_log(path: Path, n_tokens: int) -> None:
    """Ragged float32 rollouts of 16 to 8,192 tokens with log w ~ N(0, .02), 64 prompts a step."""
    rng = np.random.default_rng(0)
    done, step = 0, 0
    with CanonicalWriter(path, force=True) as writer:
        while done < n_tokens:
            lengths = np.clip(rng.lognormal(6.9, 0.7, 512).astype(np.int64), 16, 8192)
            offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
            n = int(lengths.sum())
            mu = -rng.exponential(0.6, n).astype(np.float32)
            lists = {
                "mu_logprobs": mu,
                "pi_logprobs": mu + np.float32(0.02) * rng.standard_normal(n, dtype=np.float32),
                "values": rng.random(n, dtype=np.float32),
            }
            columns = {
                "step": np.full(512, step),
                "prompt_id": np.repeat(np.arange(64), 8),
                "rollout_id": [f"{step}-{i}" for i in range(512)],
                "reward": rng.integers(0, 2, 512).astype(np.float64),
            }
            columns |= {k: pa.ListArray.from_arrays(offsets, x) for k, x in lists.items()}
            writer.write(pa.table(columns))
            done, step = done + n, step + 1


def decode(log: Path, out: Path) -> float:
    start = time.perf_counter()
    pq.read_table(log, use_threads=False)
    return time.perf_counter() - start


def write_only(log: Path, out: Path) -> float:
    """Writes what is in `out` already, from memory."""
    file = pq.ParquetFile(out)
    groups = [file.read_row_group(i) for i in range(file.num_row_groups)]
    copy = out.with_name("copy.parquet")
    start = time.perf_counter()
    with CanonicalWriter(copy, force=True) as writer:
        for group in groups:
            writer.write(group)
    return time.perf_counter() - start


def targets(log: Path, out: Path) -> float:
    from brace_diag import open_run, write_targets

    start = time.perf_counter()
    write_targets(open_run(str(log)), out, TARGETS, device="cpu", force=True)
    return time.perf_counter() - start


CONTENDERS: dict[str, Callable[[Path, Path], float]] = {
    "write_targets": targets,
    "pyarrow writes": write_only,
    "pyarrow decodes": decode,
}


def measure(name: str, log: Path, out: Path) -> tuple[float, float]:
    """Seconds and peak GB of one contender in a process of its own."""
    words = [sys.executable, __file__, "--only", name, str(log), str(out)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return found["seconds"], found["peak_gb"]


def table(found: dict[str, list[tuple[float, float]]], n_tokens: int) -> str:
    bound = min(seconds for seconds, _ in found["pyarrow writes"])
    lines = [f"{'':<16} {'seconds':>8} {'of writing':>11} {'Mtokens/s':>10} {'peak GB':>8}"]
    for name, runs in found.items():
        best, peak = min(s for s, _ in runs), max(p for _, p in runs)
        rate = n_tokens / best / 1e6
        lines.append(f"{name:<16} {best:8.2f} {best / bound:11.2f} {rate:10.1f} {peak:8.2f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs=3, metavar=("NAME", "LOG", "OUT"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.only:
        name, log, out = asked.only
        seconds = CONTENDERS[name](Path(log), Path(out))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        print(json.dumps({"seconds": seconds, "peak_gb": peak}))
        return
    with tempfile.TemporaryDirectory() as folder:
        log, out = Path(folder) / "log.parquet", Path(folder) / "out.parquet"
        make_log(log, asked.tokens)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTENDERS}
        measure("write_targets", log, out)  # compiles
        for _ in range(asked.rounds):
            for name, runs in found.items():
                runs.append(measure(name, log, out))
        print(f"{asked.tokens:,} tokens, {len(TARGETS)} targets, {os.cpu_count()} cores")
        print(table(found, asked.tokens))
    peak = max(gb for _, gb in found["write_targets"])
    if peak > LIMIT_GB:
        sys.exit(f"write_targets took {peak:.2f} GB, more than {LIMIT_GB} GB")


if __name__ == "__main__":
    main()
