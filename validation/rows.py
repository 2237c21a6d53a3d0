"""What is simulated: one row of the table each, the rule's own study first, then held-out ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from brace_diag.tabular import LatentFamily, RatioNoise

POOL = 256
"""Prompts of a family; every replicate draws its own from them, so the truth is the pool's."""


@dataclass(frozen=True, slots=True)
class Row:
    """One setting of the simulation.

    Attributes:
        name: as it stands in the table.
        kind: `null` (nothing is stale, or the drift changes no return), `drift`, or `held-out`.
        family: the token MDPs; noise: an error of the logged log-probs, or None.
        n_prompts, group_size: of each replicate.
        limits: verdict -> least and largest share that the rule promises.
    """

    name: str
    kind: str
    family: LatentFamily
    noise: RatioNoise | None = None
    n_prompts: int = 64
    group_size: int = 8
    limits: tuple[tuple[str, float, float], ...] = ()


NEVER = (("needs_correction", 0.0, 0.0),)
RARELY = (("needs_correction", 0.0, 0.05),)


def _family(
    drift: float, alignment: float = 0.3, horizon: int = 512, **changes: Any
) -> LatentFamily:
    return LatentFamily(
        n_prompts=POOL, horizon=horizon, drift=drift, alignment=alignment, **changes
    )


STILL = _family(0.0, 0.0)

ROWS: tuple[Row, ...] = (
    Row("pi = mu", "null", STILL, limits=(("no_staleness", 1.0, 1.0),)),
    Row("pi = mu, log noise sd .02", "null", STILL, RatioNoise(0.02), limits=NEVER),
    Row("pi = mu, log noise sd .05", "null", STILL, RatioNoise(0.05), limits=NEVER),
    Row("pi = mu, log noise t3 sd .02", "null", STILL, RatioNoise(0.02, "student_t"), limits=NEVER),
    Row("value-neutral drift .02", "null", _family(0.02, 0.0, neutral=True), limits=NEVER),
    Row("drift .005, a .25", "drift", _family(0.005, 0.25), n_prompts=256,
        limits=(("negligible", 0.95, 1.0), *NEVER)),
    Row("drift .02, a .2", "drift", _family(0.02, 0.2), limits=RARELY),
    Row("drift .02, a .35", "drift", _family(0.02, 0.35), limits=RARELY),
    Row("drift .02, a .35", "drift", _family(0.02, 0.35), n_prompts=256, limits=RARELY),
    Row("drift .02, a .55", "drift", _family(0.02, 0.55)),
    Row("drift .02, a .55", "drift", _family(0.02, 0.55), n_prompts=256),
    Row("drift .02, a .72", "drift", _family(0.02, 0.72),
        limits=(("needs_correction", 0.85, 1.0),)),
    Row("drift .02, a .72", "drift", _family(0.02, 0.72), n_prompts=128,
        limits=(("needs_correction", 0.97, 1.0),)),
    Row("drift .02, a .8", "drift", _family(0.02, 0.8), limits=(("needs_correction", 0.97, 1.0),)),
    Row("drift .02, a 1", "drift", _family(0.02, 1.0), limits=(("needs_correction", 0.97, 1.0),)),
    Row("drift .08, a .3", "drift", _family(0.08), limits=(("needs_probe", 0.99, 1.0),)),
    Row("T 256, drift .01, a .2", "held-out", _family(0.01, 0.2, 256), limits=RARELY),
    Row("T 256, drift .03, a .7", "held-out", _family(0.03, 0.7, 256)),
    Row("T 768, drift .01, a .5", "held-out", _family(0.01, 0.5, 768)),
    Row("T 768, drift .02, a 0, critic error x 2", "held-out",
        _family(0.02, 0.0, 768, critic_noise=0.16, critic_prompt_noise=0.08), limits=RARELY),
    Row("T 256, drift .05, a .8, critic error x 2", "held-out",
        _family(0.05, 0.8, 256, critic_noise=0.16, critic_prompt_noise=0.08)),
)  # fmt: skip
