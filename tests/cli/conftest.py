"""A `ValueGap` whose every number is known, small logs, and a way to run the command line."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from brace_diag.quality import DataQuality
from brace_diag.results import BATCH_NAMES, BatchFigures, Cell, Curve, Estimate, ValueGap
from brace_diag.settings import GapSettings
from brace_diag_cli.main import main

GapFactory = Callable[..., ValueGap]


def an_estimate(value: float | None, se: float | None = None, **changes: Any) -> Estimate:
    half = None if se is None or value is None else 2.0 * se
    made = Estimate(
        value=value,
        se=se,
        ci_low=None if half is None or value is None else value - half,
        ci_high=None if half is None or value is None else value + half,
        level=0.95,
        n_tokens=4096,
        n_rollouts=1234,
        n_clusters=32,
        method="by hand",
        reliable=value is not None,
        reason=None if value is not None else "made to be missing",
    )
    return replace(made, **changes)


def a_cell(low: int, high: int, b: float | None, gate: str = "good") -> Cell:
    return Cell(
        low,
        high,
        an_estimate(b, 0.0123),
        {
            "first_order": an_estimate(0.041, 0.011),
            "doubly_robust": an_estimate(0.029, 0.031),
            "within_var_log_product": 0.42,
            "gate": gate,
            "ess_fraction": 0.83,
            "pareto_k": None,
            "pareto_k_limit": 0.67,
            "mean_log_product": -0.2,
        },
    )


def a_gap(**changes: Any) -> ValueGap:
    figures = dict.fromkeys(BATCH_NAMES, an_estimate(0.25, 0.02))
    figures["b_hat"] = an_estimate(0.0313, 0.0123)
    made = ValueGap(
        source="run.parquet",
        settings=GapSettings(),
        quality=DataQuality(n_rows=1300, n_rollouts=1234, n_tokens=4096, n_empty=66),
        batch=BatchFigures(**figures),
        gap=Curve("position", (a_cell(0, 0, 0.0313), a_cell(1, 1023, -0.002, "direction"))),
        critic_bias=Curve(
            "position",
            (Cell(0, 0, an_estimate(-0.05, 0.02)), Cell(1, 1023, an_estimate(0.01, 0.02))),
        ),
        saturation_z=an_estimate(-0.8),
        mean_weight=an_estimate(1.0005, 0.001),
        u_control=an_estimate(0.01, 0.02),
        gate="good",
        whitening={
            "prompt_second_moment": None,
            "share_over_prompts": 0.45,
            "share_over_positions": None,
        },
        probe_rollouts=550,
        invalid=None,
        by=(),
        notes=("the first note", "the second note"),
    )
    return replace(made, **changes)


@pytest.fixture
def gap_of() -> GapFactory:
    """`gap_of(field=value)`: the known gap with some fields changed."""
    return a_gap


@pytest.fixture
def estimate_of() -> Callable[..., Estimate]:
    """`estimate_of(value, se, field=value)`: an estimate whose interval is two errors wide."""
    return an_estimate


@dataclass(frozen=True)
class Outcome:
    """What a run of the command line left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """`cli("bias", path, "--json")`: run the command line as a shell would."""

    def run(*words: str | Path) -> Outcome:
        capsys.readouterr()
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


def a_log(n_prompts: int = 24, per_prompt: int = 4, steps: int = 2, **changes: Any) -> pa.Table:
    """A log of rollouts of 5 to 20 tokens; `changes` replace columns, None removes one."""
    rng = np.random.default_rng(7)
    n = n_prompts * per_prompt * steps
    lengths = rng.integers(5, 21, n)
    mu = [rng.uniform(-3.0, -0.6, k).astype(np.float32) for k in lengths]
    columns: dict[str, Any] = {
        "step": pa.array(np.repeat(np.arange(steps) * 10, n // steps)),
        "prompt_id": pa.array(np.tile(np.repeat(np.arange(n_prompts), per_prompt), steps)),
        "rollout_id": pa.array([f"r{i}" for i in range(n)]),
        "mu_logprobs": mu,
        "pi_logprobs": [x + rng.normal(-0.005, 0.1, len(x)).astype(np.float32) for x in mu],
        "values": [rng.uniform(0.2, 0.8, k).astype(np.float32) for k in lengths],
        "reward": rng.integers(0, 2, n).astype(np.float64),
        "trainer_version": pa.array(np.full(n, 9)),
        "behavior_version": pa.array(np.tile([5, 9], n // 2)),
    }
    columns |= changes
    return pa.table(
        {
            name: pa.array(column, pa.list_(pa.float32())) if name in LISTS else column
            for name, column in columns.items()
            if column is not None
        }
    )


LISTS = ("mu_logprobs", "pi_logprobs", "values")


@pytest.fixture
def log_of(tmp_path: Path) -> Callable[..., Path]:
    """`log_of(values=None)`: write a log, some columns changed, and return its path."""

    def write(name: str = "run.parquet", **changes: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(a_log(**changes), path, row_group_size=50)
        return path

    return write
