"""Named scenarios: a family, the size of a log, what disturbs it; each with its exact truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from brace_diag.errors import InputError
from brace_diag.tabular.disturb import RatioNoise, ToolHoles
from brace_diag.tabular.latent import LatentFamily
from brace_diag.tabular.log import SimulatedLog
from brace_diag.tabular.mdp import TokenMDP
from brace_diag.tabular.sample import sample_log
from brace_diag.tabular.truth import Truth, exact_truth


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run to simulate: `n_steps` logs of n_prompts x group_size rollouts.

    mu is version 0 at every step. At step i (from 0) the trainer is at version i + 1 and pi has
    gone (i + 1) / n_steps of the family's drift; the critic stays fitted to mu.

    Attributes:
        family: the token MDPs; its `n_prompts` is the size of the pool.
        about: one line for a list of scenarios.
        n_prompts, group_size: prompts and rollouts of each in a step.
        n_steps: steps of the run.
        pool: whether each step draws its prompts from the pool (truth: the pool's), or every step
            has the pool's first prompts (truth: theirs).
        noise, holes: what disturbs the log.
    """

    family: LatentFamily
    about: str = ""
    n_prompts: int = 64
    group_size: int = 8
    n_steps: int = 1
    pool: bool = False
    noise: RatioNoise | None = None
    holes: ToolHoles | None = None

    def __post_init__(self) -> None:
        for name in ("n_prompts", "group_size", "n_steps"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not self.pool and self.n_prompts > self.family.n_prompts:
            raise InputError(
                f"{self.n_prompts} prompts a step from a family of {self.family.n_prompts}; "
                "raise family.n_prompts, or draw with pool=True"
            )


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedStep:
    """One step of a simulated run: its log and what the log should tell.

    Attributes:
        step: from 0.
        mdp: what the log was sampled from, with the whole pool of prompts; `log.along` reads its
            tables, such as `policy_value(mdp)`, along the rollouts.
        log, truth: the step's.
    """

    step: int
    mdp: TokenMDP
    log: SimulatedLog
    truth: Truth

    def truth_dict(self) -> dict[str, Any]:
        """The truth as plain numbers, with its step."""
        return {"step": self.step, **self.truth.to_dict()}


def simulate(scenario: Scenario, rng: np.random.Generator) -> Iterator[SimulatedStep]:
    """Simulate a run step by step; the same generator state gives the same run."""
    n = scenario.n_steps
    drifts = [scenario.family.drift * (i + 1) / n for i in range(n)]
    mdps = scenario.family.build_at(drifts, rng)
    for i, mdp in enumerate(mdps):
        log = sample_log(
            mdp,
            scenario.n_prompts,
            scenario.group_size,
            rng,
            pool=scenario.pool,
            noise=scenario.noise,
            holes=scenario.holes,
            step=i,
            trainer_version=i + 1,
        )
        known = mdp if scenario.pool else mdp.take(np.arange(scenario.n_prompts))
        yield SimulatedStep(step=i, mdp=mdp, log=log, truth=exact_truth(known))


_BASE = Scenario(LatentFamily())


def _preset(about: str, scenario: Scenario = _BASE, **family: Any) -> Scenario:
    return replace(scenario, about=about, family=replace(scenario.family, **family))


PRESETS: dict[str, Scenario] = {
    "null": _preset("pi = mu: nothing is stale", drift=0.0, alignment=0.0),
    "noise": _preset(
        "pi = mu, but the logged log-probs of pi carry noise of .02",
        replace(_BASE, noise=RatioNoise(0.02)),
        drift=0.0,
        alignment=0.0,
    ),
    "drift-small": _preset("E|log w| = .005, partly towards the value", drift=0.005),
    "drift": _preset("E|log w| = .02, partly towards the value"),
    "drift-large": _preset("E|log w| = .08: too far for logged rollouts alone", drift=0.08),
    "aligned": _preset("E|log w| = .02, all of it towards the value", alignment=1.0),
    "unaligned": _preset("E|log w| = .02 in random directions", alignment=0.0),
    "value-neutral": _preset(
        "E|log w| = .02 among tokens that lead to the same state: the gap is 0",
        alignment=0.0,
        neutral=True,
    ),
    "random-length": _preset(
        "E|log w| = .02; responses end at random, sooner where the reward is there",
        horizon=512,
        n_levels=10,
        hazard=0.01,
        hazard_slope=2.0,
    ),
    "tool-holes": _preset(
        "E|log w| = .02; tool answers between the policy's tokens, garbage in their cells",
        replace(_BASE, holes=ToolHoles()),
    ),
}
"""Scenarios of `brace-diag simulate`, by name; `dataclasses.replace` changes their parameters."""
