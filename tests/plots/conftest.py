"""Value gaps as an estimator would return them, made by formula: no log, no estimator."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import t as student

from brace_diag.quality import DataQuality
from brace_diag.results import (
    BatchFigures,
    Cell,
    Companion,
    Curve,
    Estimate,
    Gate,
    KeyedGap,
    ValueGap,
)
from brace_diag.settings import By, GapSettings, GateThresholds, cell_edges

GATES = GateThresholds()
METHOD = "wdr(tau=2), critic baseline"
MakeGap = Callable[..., ValueGap]


def estimate(
    value: float | None,
    se: float | None,
    *,
    clusters: int = 32,
    rollouts: int = 512,
    reason: str | None = None,
) -> Estimate:
    """An estimate with its t interval at 95 %."""
    low = high = None
    if value is not None and se is not None:
        half = float(student.ppf(0.975, clusters - 1)) * se
        low, high = value - half, value + half
    return Estimate(
        value, se, low, high, 0.95, 20 * rollouts, rollouts, clusters, METHOD,
        reason is None and clusters >= 10, reason,
    )  # fmt: skip


def gate_of(v: float | None) -> Gate:
    if v is None:
        return "unknown"
    limits = ((GATES.good, "good"), (GATES.limit, "fair"), (GATES.refuse, "direction"))
    return next((name for limit, name in limits if v <= limit), "refused")  # type: ignore[return-value]


def batch(b: Estimate, *, critic: bool = True, spread: float | None = 0.47) -> BatchFigures:
    mu = estimate(0.412, 0.021)
    pi = estimate(None if b.value is None else 0.412 + b.value, b.se, reason=b.reason)
    v = estimate(0.42, 0.013) if critic else estimate(None, None, reason="no critic values")
    return BatchFigures(
        b_hat=b, reward_mu=mu, reward_pi=pi, critic_mean=v, critic_token_mean=v, g_pi_hat=b,
        g_mu_hat=mu, g_pi_signed=b, g_mu_signed=mu, return_sd=estimate(spread, 0.01),
    )  # fmt: skip


def make_cells(
    length: int, *, top: float, v_first: float, clusters: int, rollouts: int, wild: float
) -> tuple[Cell, ...]:
    """b rises, then falls to 0 at the end; errors grow as rollouts end and with v."""
    rng = np.random.default_rng(7)
    edges = cell_edges(length)
    cells = []
    noise = 0.0
    for low, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        share = low / length
        alive = max(int(rollouts * math.exp(-3.0 * share**1.5)), 3)
        v = max(v_first * (1.0 - share) ** 1.3, 0.01)
        se = 0.028 * math.sqrt(512 / rollouts) * math.sqrt((1 + v) * rollouts / alive)
        # Neighbouring cells share most of their data, so their errors move together.
        noise = 0.85 * noise + 0.3 * float(rng.normal()) * se
        b = top * (0.75 + 1.2 * share) * (1.0 - share) ** 0.8 + noise
        gate = gate_of(v)
        reason = f"within-prompt variance of the log product is {v:.3g}, above 10: fresh rollouts"
        own = (
            estimate(None, None, clusters=clusters, rollouts=alive, reason=f"{reason} from pi")
            if gate == "refused"
            else estimate(b, se, clusters=clusters, rollouts=alive)
        )
        refused = own.value is None
        first_order = None if refused else b * (1 + 0.09 * v) + 0.3 * se
        robust = None if refused else b + 0.4 * se + wild * 0.02 * math.expm1(v / 2)
        companions: dict[str, Companion] = {
            "first_order": estimate(first_order, None if refused else se),
            "doubly_robust": estimate(robust, None if refused else se),
            "within_var_log_product": v,
            "gate": gate,
            "ess_fraction": math.exp(-v),
            "pareto_k": 0.3,
        }
        cells.append(Cell(low, end - 1, own, companions))
    return tuple(cells)


def build(
    length: int = 64,
    *,
    top: float = 0.1,
    v_first: float = 3.0,
    clusters: int = 32,
    rollouts: int = 512,
    wild: float = 0.0,
    spread: float | None = 0.47,
    simultaneous: float | None = 2.86,
    source: str = "run.parquet",
    notes: tuple[str, ...] = (),
    cells: tuple[Cell, ...] | None = None,
    key: By | None = None,
    by: tuple[KeyedGap, ...] = (),
    invalid: str | None = None,
    **settings: Any,
) -> ValueGap:
    """A value gap over responses of `length` tokens, with entries `by` a `key`."""
    if cells is None:
        cells = make_cells(
            length, top=top, v_first=v_first, clusters=clusters, rollouts=rollouts, wild=wild
        )
    chosen = GapSettings(by=key, **settings)
    b = cells[0].estimate if cells else estimate(None, None, rollouts=0, reason="no rollout")
    one = estimate(1.0, 0.01)
    return ValueGap(
        source=source,
        settings=chosen,
        quality=DataQuality(n_rows=rollouts, n_rollouts=rollouts, n_tokens=20 * rollouts),
        batch=batch(b, spread=spread),
        gap=Curve(chosen.axis, cells, simultaneous),
        critic_bias=Curve(chosen.axis, ()),
        saturation_z=one,
        mean_weight=one,
        u_control=one,
        gate=gate_of(v_first),
        whitening={},
        probe_rollouts=600,
        invalid=invalid,
        by=by,
        notes=notes,
    )


def make_keys(
    keys: range, *, critic: bool = True, null_at: tuple[int, ...] = ()
) -> tuple[KeyedGap, ...]:
    """Gaps that grow with the key, some refused."""
    rng = np.random.default_rng(3)
    entries = []
    for i, key in enumerate(keys):
        v = 0.3 + 8.0 * i / max(len(keys) - 1, 1)
        if i in null_at:
            v, b = 14.0, estimate(None, None, reason="refused: fresh rollouts needed")
        else:
            b = estimate(0.15 * i / len(keys) + 0.03 * float(rng.normal()), 0.025 + 0.004 * v)
        entries.append(KeyedGap(key, batch(b, critic=critic), Curve("position", ()), gate_of(v), v))
    return tuple(entries)


@pytest.fixture
def make_gap() -> MakeGap:
    return build


@pytest.fixture
def make_by() -> Callable[..., tuple[KeyedGap, ...]]:
    return make_keys


@pytest.fixture
def make_estimate() -> Callable[..., Estimate]:
    return estimate


@pytest.fixture
def fits() -> Callable[[Figure], None]:
    """`fits(figure)`: texts, legends and panels lie inside the page and not over each other."""
    return assert_fits


def assert_fits(figure: Figure) -> None:
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    page = figure.bbox
    boxes = [text.get_window_extent(renderer) for text in figure.texts]
    boxes += [legend.get_window_extent(renderer) for legend in figure.legends]
    boxes += [axes.get_tightbbox(renderer) for axes in figure.axes]
    for box in boxes:
        # Half a pixel: extents are rounded to whole ones.
        assert page.x0 - 0.5 <= box.x0 and box.x1 <= page.x1 + 0.5
        assert page.y0 - 0.5 <= box.y0 and box.y1 <= page.y1 + 0.5
    for one, other in combinations(boxes, 2):
        width = min(one.x1, other.x1) - max(one.x0, other.x0)
        height = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert width <= 0.5 or height <= 1.5, (one, other)
