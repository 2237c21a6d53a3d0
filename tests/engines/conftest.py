"""Small logs with a known drift, as column dictionaries that tests may break."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brace_diag.rollouts import Rollouts

DATA = Path(__file__).parents[1] / "data"
DEMO = Path(__file__).parents[2] / "brace_diag" / "data"


@pytest.fixture
def columns() -> Callable[..., dict[str, Any]]:
    """`columns(seed, ...)`: canonical columns of a log of fixed length, as lists by rollout."""

    def make(
        seed: int = 0, n_prompts: int = 24, group: int = 4, length: int = 24, drift: float = 0.1
    ) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        n = n_prompts * group
        mu = -rng.exponential(0.9, (n, length)) - 1e-3
        noise = rng.normal(-(drift**2) / 2, drift, (n, length))
        skill = np.repeat(rng.uniform(0.2, 0.8, n_prompts), group)
        return {
            "mu_logprobs": list(mu.astype(np.float32)),
            "pi_logprobs": list(np.minimum(mu + noise, -1e-4).astype(np.float32)),
            "values": list((skill[:, None] + rng.normal(0, 0.1, mu.shape)).astype(np.float32)),
            "reward": (rng.random(n) < skill).astype(float).tolist(),
            "prompt_id": np.repeat(np.arange(n_prompts), group).tolist(),
            "rollout_id": [f"r{i}" for i in range(n)],
        }

    return make


@pytest.fixture
def rollouts(columns: Callable[..., dict[str, Any]]) -> Callable[..., Rollouts]:
    """`rollouts(seed, column=replacement, ...)`: the same as `Rollouts`; None drops a column."""

    def make(seed: int = 0, size: dict[str, Any] | None = None, **changes: Any) -> Rollouts:
        made = columns(seed, **(size or {})) | changes
        return Rollouts.from_lists(**{k: v for k, v in made.items() if v is not None})

    return make
