"""The value gap by its definition, in float64 loops: what the fast sums are tested against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Weight = Literal["first_order", "doubly_robust", "wdr"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One rollout: log w, critic values and returns to go, each (length,), and its prompt."""

    log_w: Array
    values: Array
    returns: Array
    prompt: int


def doubly_robust_return(sample: Sample, rewards: Array, bootstrap: float, gamma: float) -> Array:
    """DR_t = V_t + w_t (r_t + γ DR_{t+1} - V_t), DR_T = bootstrap; (length,)."""
    out = np.empty(len(sample.log_w))
    after = bootstrap
    for t in range(len(out) - 1, -1, -1):
        w = math.exp(sample.log_w[t])
        after = sample.values[t] + w * (rewards[t] + gamma * after - sample.values[t])
        out[t] = after
    return out


def state_weights(
    sample: Sample, start: int, weight: Weight, tau: float, until: int | None = None
) -> Array:
    """h_l for l = start .. until-1: 1, C or min(C, tau) with C = Π_{start<=i<l} w_i.

    `until` is the length unless given; beyond the length C stays what it was at the end.
    """
    stop = len(sample.log_w) if until is None else until
    out = np.empty(stop - start)
    log_c = 0.0
    for j in range(stop - start):
        c = math.exp(min(log_c, 709.0))
        out[j] = {"first_order": 1.0, "doubly_robust": c, "wdr": min(c, tau)}[weight]
        log_c += sample.log_w[start + j] if start + j < len(sample.log_w) else 0.0
    return out


def gap_at(
    samples: Sequence[Sample],
    start: int,
    weight: Weight = "wdr",
    tau: float = 2.0,
    gamma: float = 1.0,
) -> tuple[float, Array]:
    """b(start) with per-token normalisers and the baseline of the OTHER prompts.

    b = mean over rollouts alive at `start` of Σ_{l>=start} γ^(l-start) h_l u_l A_l, where h_l is
    divided (wdr only) by its mean over all rollouts alive at `start`, with products frozen where a
    response has ended, and A_l = D_l - mean of D_l over the
    other prompts' rollouts alive at l, D = G - V.

    Returns: the gap and every alive rollout's contribution, in order.
    """
    alive = [s for s in samples if len(s.log_w) > start]
    longest = max(len(s.log_w) for s in alive)
    weights = [state_weights(s, start, weight, tau, longest) for s in alive]
    contributions = np.zeros(len(alive))
    for at in range(start, longest):
        there = [i for i, s in enumerate(alive) if len(s.log_w) > at]
        mean_h = float(np.mean([h[at - start] for h in weights])) if weight == "wdr" else 1.0
        prompts = np.array([alive[i].prompt for i in there])
        differences = np.array([alive[i].returns[at] - alive[i].values[at] for i in there])
        others = {p: differences[prompts != p] for p in set(prompts.tolist())}
        baseline = {p: float(d.mean()) if len(d) else 0.0 for p, d in others.items()}
        for i, difference in zip(there, differences, strict=True):
            s = alive[i]
            a = difference - baseline[s.prompt]
            u = math.exp(s.log_w[at]) - 1.0
            contributions[i] += gamma ** (at - start) * weights[i][at - start] / mean_h * u * a
    return float(contributions.mean()), contributions


def gap_in_cells(
    samples: Sequence[Sample],
    start: int,
    edges: npt.NDArray[np.int64],
    weight: Weight = "wdr",
    tau: float = 2.0,
    gamma: float = 1.0,
) -> float:
    """The same with one normaliser and one baseline for each later cell, as the sums have it."""
    alive = [s for s in samples if len(s.log_w) > start]
    longest = max(len(s.log_w) for s in samples)
    weights = [state_weights(s, start, weight, tau, longest) for s in alive]
    total = 0.0
    for low, end in pairwise(edges.tolist()):
        high = min(end, longest)
        if low < start or low >= high:
            continue
        mean_h = float(np.mean([h[low - start : high - start] for h in weights]))
        hu, hud, d = [], [], []
        for s, h in zip(alive, weights, strict=True):
            for at in range(low, min(high, len(s.log_w))):
                difference = s.returns[at] - s.values[at]
                discounted = gamma ** (at - start) * h[at - start] * math.expm1(s.log_w[at])
                hu.append(discounted)
                hud.append(discounted * difference)
                d.append(difference)
        if d:
            norm = 1.0 / mean_h if weight == "wdr" else 1.0
            total += norm * (sum(hud) - sum(d) / len(d) * sum(hu))
    return total / len(alive)
