"""Random batches, and the oracle applied to them one rollout at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pytest

from brace_diag.settings import TargetName
from brace_diag.targets import reference

TARGETS = get_args(TargetName)
LENGTHS = (0, 1, 2, 3, 63, 64, 65, 130)
WINDOWS = (0, 1, 2, 3, 62, 63, 64, 65, 66, 129, 130, 131, math.inf)
FLAVOURS: dict[str, dict[str, float]] = {
    "plain": {},
    "discounted": {"gamma": 0.97, "lam": 0.9},
    "tight caps": {"gamma": 0.9, "rho_bar": 0.7, "c_bar": 0.4},
    "no caps": {"rho_bar": math.inf, "c_bar": math.inf},
    "no trace": {"lam": 0.0},
}
KNOWN = {"mc": {"gamma"}, "gae": {"gamma", "lam"}}
DEFAULT_CAPS = {
    "vtrace": {"rho_bar": 1.0, "c_bar": 1.0},
    "capped": {"rho_bar": 1.2, "c_bar": 1.1},
    "brace": {"rho_bar": 1.2, "c_bar": 1.1},
}


@dataclass
class Batch:
    """Packed arrays of a batch; `rewards` per token, `terminal` one per rollout."""

    offsets: np.ndarray
    mu: np.ndarray
    pi: np.ndarray
    values: np.ndarray
    rewards: np.ndarray
    terminal: np.ndarray
    bootstrap: np.ndarray

    def rollouts(self):
        for i in range(len(self.offsets) - 1):
            yield i, slice(self.offsets[i], self.offsets[i + 1])

    def terminal_per_token(self) -> np.ndarray:
        out = np.zeros(len(self.values))
        for i, cells in self.rollouts():
            if cells.stop > cells.start:
                out[cells.stop - 1] = self.terminal[i]
        return out

    def arguments(self, target: str, rewards: Any) -> tuple[Any, ...]:
        if target == "mc":
            return (rewards,)
        if target == "gae":
            return (self.values, rewards)
        return (self.mu, self.pi, self.values, rewards)


def random_batch(lengths, rng: np.random.Generator, *, drift=0.3, dtype=np.float64) -> Batch:
    """A batch of rollouts of these lengths; log w ~ N(0, drift)."""
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    n = int(offsets[-1])
    mu = -rng.exponential(1.0, n)
    pi = mu + drift * rng.standard_normal(n)
    return Batch(
        offsets=offsets,
        mu=mu.astype(dtype),
        pi=pi.astype(dtype),
        values=rng.standard_normal(n).astype(dtype),
        rewards=rng.standard_normal(n).astype(dtype),
        terminal=rng.standard_normal(len(lengths)).astype(dtype),
        bootstrap=rng.standard_normal(len(lengths)),
    )


def oracle(batch: Batch, target: str, rewards: np.ndarray | None = None, **parameters: Any):
    """`reference`'s target of every rollout, packed; per-token rewards unless others are given."""
    r = np.asarray(batch.rewards if rewards is None else rewards, dtype=np.float64)
    out = np.empty(len(batch.values))
    for i, cells in batch.rollouts():
        arrays = [np.asarray(x[cells], np.float64) for x in (batch.mu, batch.pi, batch.values)]
        given = {"mc": [], "gae": arrays[2:]}.get(target, arrays)
        function = getattr(reference, target)
        out[cells] = function(*given, r[cells], bootstrap=float(batch.bootstrap[i]), **parameters)
    return out


def oracle_kappa(batch: Batch, target: str, **parameters: Any):
    out = np.empty(len(batch.values))
    for _, cells in batch.rollouts():
        mu, pi = (np.asarray(x[cells], np.float64) for x in (batch.mu, batch.pi))
        out[cells] = reference.log10_kappa(target, mu, pi, **parameters)
    return out


def parameters_of(target: str, window: float, flavour: str) -> dict[str, float]:
    """The keyword arguments of a flavour that the target knows, with its window and caps."""
    given = FLAVOURS[flavour]
    if target in KNOWN:
        return {name: x for name, x in given.items() if name in KNOWN[target]}
    name, lowest = ("n", 1) if target == "vtrace" else ("k", 0)
    return {**DEFAULT_CAPS[target], **given, name: max(window, lowest)}


@pytest.fixture(params=TARGETS)
def target(request) -> str:
    return request.param


@pytest.fixture(params=FLAVOURS)
def flavour(request) -> str:
    return request.param


@pytest.fixture
def lengths() -> tuple[int, ...]:
    return LENGTHS


@pytest.fixture
def windows() -> tuple[float, ...]:
    return WINDOWS


@pytest.fixture
def parameters():
    return parameters_of


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260913)


@pytest.fixture
def make_batch():
    return random_batch


@pytest.fixture
def expected():
    return oracle


@pytest.fixture
def expected_kappa():
    return oracle_kappa
