"""Value targets on the CPU against this machine's memory bound, in one interleaved run.

The bound is what no implementation can beat: a kernel on the same threads that only reads three
float32 arrays and writes one (16 bytes a token). Every contender runs once per round, in turn, so
that whatever else the machine does meanwhile falls on all of them alike.

    python benchmarks/targets.py --tokens 20000000 --rounds 9
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numba
import numpy as np
from numba import njit, prange

from brace_diag.targets import brace_targets, cpu
from brace_diag.targets.recursion import recursion

BYTES_PER_TOKEN = 16


@njit(parallel=True, nogil=True)
def stream(a, b, c, out):
    for i in prange(len(out)):
        out[i] = a[i] + b[i] * c[i]


def log_of(n_tokens: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Ragged float32 rollouts of 256 to 16,384 tokens with log w ~ N(0, .05)."""
    lengths = rng.integers(256, 16_384, size=max(1, n_tokens // 8320))
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    n = int(offsets[-1])
    mu = -rng.exponential(0.5, n).astype(np.float32)
    pi = mu + np.float32(0.05) * rng.standard_normal(n, dtype=np.float32)
    values = rng.random(n, dtype=np.float32)
    rewards = rng.integers(0, 2, size=(len(lengths), 1)).astype(np.float64)
    return offsets, mu, pi, values, rewards


def contenders(
    offsets: np.ndarray, mu: np.ndarray, pi: np.ndarray, values: np.ndarray, rewards: np.ndarray
) -> dict[str, Callable[[], object]]:
    """The bound; every target written to an array that is there; the call as users make it."""
    bootstrap, out = np.zeros(len(rewards)), np.empty_like(mu)

    def kernel(target: str, **parameters: float) -> Callable[[], object]:
        rec = recursion(target, **parameters)
        return lambda: cpu.targets(rec, mu, pi, values, rewards, bootstrap, offsets, out)

    brace = recursion("brace", k=64)
    return {
        "bound": lambda: stream(mu, pi, values, out),
        **{f"brace k={k}": kernel("brace", k=k) for k in (0, 1, 4, 8, 64, 1024, math.inf)},
        "capped k=64": kernel("capped", k=64),
        "vtrace": kernel("vtrace"),
        "vtrace n=64": kernel("vtrace", n=64),
        "gae lam=.95": kernel("gae", lam=0.95),
        "mc": kernel("mc"),
        "log10_kappa k=64": lambda: cpu.log10_kappa(brace, mu, pi, offsets, out),
        "brace_targets k=64": lambda: brace_targets(mu, pi, values, rewards, offsets=offsets, k=64),
    }


def measure(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, np.ndarray]:
    """Seconds of every contender in every round; the first round compiles and is dropped."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: np.array(times[1:]) for name, times in seconds.items()}


def table(seconds: dict[str, np.ndarray], n_tokens: int) -> str:
    """Median, least and greatest time, and ratios of medians to the bound's."""
    bound = float(np.median(seconds["bound"]))
    lines = [
        f"{n_tokens / 1e6:.1f}M tokens, {numba.get_num_threads()} threads; bound "
        f"{1e3 * bound:.1f} ms = {n_tokens * BYTES_PER_TOKEN / bound / 1e9:.1f} GB/s",
        f"{'':20}{'median ms':>10}{'min':>8}{'max':>8}{'ns/token':>10}{'x bound':>9}",
    ]
    for name, times in seconds.items():
        low, middle, high = 1e3 * times.min(), 1e3 * float(np.median(times)), 1e3 * times.max()
        lines.append(
            f"{name:20}{middle:10.1f}{low:8.1f}{high:8.1f}{1e6 * middle / n_tokens:10.2f}"
            f"{middle / 1e3 / bound:9.2f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=20_000_000, help="about this many")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    offsets, *log = log_of(args.tokens, np.random.default_rng(args.seed))
    print(table(measure(contenders(offsets, *log), args.rounds), int(offsets[-1])))


if __name__ == "__main__":
    main()
