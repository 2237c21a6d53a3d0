"""Random ragged logs, as `Rollouts` and as the literal samples of the reference."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from brace_diag.estimators.gap_reference import Sample
from brace_diag.rollouts import Rollouts


@dataclass
class RaggedLog:
    """Lists by rollout; `rollouts()` and `samples()` show the same log to both sides of a test."""

    mu: list[npt.NDArray[Any]]
    pi: list[npt.NDArray[Any]]
    values: list[npt.NDArray[Any]]
    rewards: list[npt.NDArray[Any]]
    prompts: list[int]
    bootstrap: list[float]
    gamma: float = 1.0

    def rollouts(self, chosen: Any = None, first_row: int = 0, **extra: Any) -> Rollouts:
        index = range(len(self.mu)) if chosen is None else chosen
        columns: dict[str, Any] = {
            "mu_logprobs": [self.mu[i] for i in index],
            "pi_logprobs": [self.pi[i] for i in index],
            "values": [self.values[i] for i in index],
            "rewards": [self.rewards[i] for i in index],
            "prompt_id": [self.prompts[i] for i in index],
            "truncated": [self.bootstrap[i] != 0.0 for i in index],
            "bootstrap_value": [self.bootstrap[i] for i in index],
        }
        return Rollouts.from_lists(first_row=first_row, **(columns | extra))

    def samples(self) -> list[Sample]:
        made = []
        for mu, pi, v, r, p, last in zip(
            self.mu, self.pi, self.values, self.rewards, self.prompts, self.bootstrap, strict=True
        ):
            returns = np.empty(len(r))
            after = last
            for t in range(len(r) - 1, -1, -1):
                after = r[t] + self.gamma * after
                returns[t] = after
            made.append(Sample(pi - mu, v, returns, p))
        return made


@pytest.fixture
def ragged() -> Callable[..., RaggedLog]:
    """`ragged(rng, ...)`: rollouts of random length with correlated critic, drift and rewards."""

    def make(
        rng: np.random.Generator,
        n_prompts: int = 6,
        group: int = 4,
        longest: int = 30,
        drift: float = 0.15,
        gamma: float = 1.0,
        dense: bool = False,
        bootstrap: bool = False,
    ) -> RaggedLog:
        log = RaggedLog([], [], [], [], [], [], gamma)
        for prompt in range(n_prompts):
            level = rng.uniform(0.2, 0.8)
            for _ in range(group):
                length = int(rng.integers(1, longest + 1))
                mu = -rng.exponential(0.8, length)
                log.mu.append(mu)
                log.pi.append(np.minimum(mu + rng.normal(-(drift**2) / 2, drift, length), -1e-3))
                log.values.append(level + rng.normal(0, 0.1, length))
                rewards = rng.normal(0, 0.2, length) if dense else np.zeros(length)
                rewards[-1] += float(rng.random() < level)
                log.rewards.append(rewards)
                log.prompts.append(prompt)
                log.bootstrap.append(
                    float(rng.normal()) if bootstrap and rng.random() < 0.3 else 0.0
                )
        return log

    return make
