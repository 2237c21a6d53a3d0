"""The gap and the critic's bias along an axis, with what is printed beside each cell."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from brace_diag.estimators import gap_estimates as ge
from brace_diag.estimators.gap_state import GapState
from brace_diag.estimators.intervals import GapContext, gate_of, or_none, unit
from brace_diag.estimators.pareto import pareto_k, pareto_k_limit
from brace_diag.results import Cell, Companion, Curve, Estimate, Gate
from brace_diag.settings import cell_edges
from brace_diag.sums import Jackknife, sup_t_critical

Array = npt.NDArray[np.float64]


def gap_curves(context: GapContext, state: GapState, jack: ge.GapJackknife) -> tuple[Curve, Curve]:
    v, _ = ge.within_variance(state)
    cells, biases, shown = [], [], []
    size = len(jack.jack.value)
    for i, cell in enumerate(jack.starts):
        at = jack.column(i, "wdr", context.baseline)
        gate = gate_of(float(v[cell]))
        low, high = _bounds(state.axis, int(cell))
        counts = {"n_tokens": int(jack.n_tokens[i]), "n_rollouts": int(jack.n_rollouts[i])}
        make = _cell_maker(context, jack, gate, float(v[cell]), counts)
        cells.append(
            Cell(
                low,
                high,
                make(unit(size, at), context.method, None),
                _companions(context, state, jack, i, int(cell), float(v[cell]), gate, make),
            )
        )
        weights = unit(size, i * ge.N_OUT + ge.V_OUT)
        weights[i * ge.N_OUT + ge.G_OUT] = -1.0
        weights[at] = -1.0
        missing = None if context.has_values else "the log has no critic values"
        biases.append(Cell(low, high, make(weights, f"V - V^pi, {context.method}", missing)))
        if gate != "refused":
            shown.append(at)
    axis = state.axis
    band = _band(jack.jack, shown, context.maker.level)
    return Curve(axis, tuple(cells), band), Curve(axis, tuple(biases), None)


def _cell_maker(
    context: GapContext, jack: ge.GapJackknife, gate: Gate, v: float, counts: dict[str, int]
) -> Callable[[Array, str, str | None], Estimate]:
    def make(weights: Array, method: str, missing: str | None) -> Estimate:
        return context.maker.estimate(
            jack.jack.contrast(weights), 0, method=method, gate=gate, v=v, missing=missing, **counts
        )

    return make


def _companions(
    context: GapContext,
    state: GapState,
    jack: ge.GapJackknife,
    i: int,
    cell: int,
    v: float,
    gate: Gate,
    make: Callable[[Array, str, str | None], Estimate],
) -> dict[str, Companion]:
    size = len(jack.jack.value)
    n = int(jack.n_rollouts[i])
    starts = state.starts.array[:, cell].sum(axis=0)
    ess = float(state.weights.ess()[cell]) / n
    return {
        "first_order": make(
            unit(size, jack.column(i, "first_order", context.baseline)), "first_order", None
        ),
        "doubly_robust": make(
            unit(size, jack.column(i, "doubly_robust", context.baseline)), "doubly_robust", None
        ),
        "within_var_log_product": or_none(v),
        "gate": gate,
        "ess_fraction": or_none(ess),
        "pareto_k": pareto_k(state.tails.largest(cell), n),
        "pareto_k_limit": pareto_k_limit(n),
        "mean_log_product": or_none(float(starts[3] / n)),
    }


def _band(jack: Jackknife, columns: list[int], level: float) -> float | None:
    if not columns:
        return None
    part = Jackknife(jack.value[columns], jack.deviations[:, columns], jack.n_groups[columns])
    # A fixed seed: the band is part of the result and must not change from run to run.
    return sup_t_critical(part, level, np.random.default_rng(0))


def _bounds(axis: str, cell: int) -> tuple[float, float]:
    """First and last index of a cell, both inclusive; relative cells in shares of the length."""
    if axis == "relative":
        return cell / 20, (cell + 1) / 20
    edges = cell_edges(2**40)
    return int(edges[cell]), int(edges[cell + 1]) - 1
