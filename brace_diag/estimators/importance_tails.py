"""Both tails of log w, and what carries them: token ids, positions, distances to the end."""

from __future__ import annotations

import math

import numpy as np

from brace_diag.estimators import importance_bins as bins
from brace_diag.estimators.importance_kernels import EXTREME, N_ZERO
from brace_diag.estimators.importance_state import ImportanceState
from brace_diag.results_importance import Carrier, Tails
from brace_diag.settings import cell_edges

PROBABILITIES = (0.0001, 0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999, 0.9999)
SHOWN = 5
"""Token ids, and cells of positions, that are listed."""
MOST = 0.5
"""Share of the extremes that makes one token id or place suspect."""
ENOUGH = 10
"""Fewer extremes than this say nothing about where they come from."""


def tails_of(state: ImportanceState) -> Tails:
    """Tails of a finished state."""
    n = int(state.token_counts.sum())
    # Sums hold log 0 at a finite floor; here it is what it is.
    lowest = -math.inf if state.sums.array[:, 0, N_ZERO].any() else state.lowest
    carriers = _carriers(state)
    n_extreme = round(float(state.positions.array[:, :, 2].sum()))
    q = {p: bins.quantile(state.token_counts, p) if n else None for p in PROBABILITIES}
    return Tails(
        lowest=lowest if n else None,
        highest=state.highest if n else None,
        quantiles=q,
        magnitude=tuple(bins.magnitudes().tolist()),
        above=tuple(bins.survival(state.token_counts, 1).tolist()),
        below=tuple(bins.survival(state.token_counts, -1).tolist()),
        n_extreme=n_extreme,
        carriers=carriers,
        concentrated=_concentrated(carriers, n_extreme),
    )


def _carriers(state: ImportanceState) -> tuple[Carrier, ...]:
    """The ids and cells with most extremes, by kind and then by count."""
    found: list[Carrier] = []
    total = float(state.positions.array[:, :, 2].sum())
    ids = sorted((state.ids or {}).items(), key=lambda item: (-item[1], item[0]))
    found += [Carrier("token_id", id_, id_, n, n / total) for id_, n in ids[:SHOWN]]
    edges = cell_edges(2**40)
    for kind, sums in (("position", state.positions), ("horizon", state.horizons)):
        counts = np.rint(sums.array[:, :, 2].sum(axis=0)).astype(int)
        for cell in np.argsort(-counts, kind="stable")[:SHOWN].tolist():
            if counts[cell]:
                low, high, n = int(edges[cell]), int(edges[cell + 1]) - 1, int(counts[cell])
                found.append(Carrier(kind, low, high, n, n / total))  # type: ignore[arg-type]
    return tuple(found)


def _concentrated(carriers: tuple[Carrier, ...], n_extreme: int) -> str | None:
    """A sentence where one token id, or one place at an end, carries most of the extremes."""
    if n_extreme < ENOUGH:
        return None
    for carrier in carriers:
        if carrier.share < MOST:
            continue
        share = f"{100 * carrier.share:.0f} % of |log w| > {EXTREME:g}"
        if carrier.kind == "token_id":
            return f"{share} on one id ({carrier.low}): likely a mask bug, not drift"
        if carrier.low == carrier.high == 0:
            where = "first" if carrier.kind == "position" else "last"
            return f"{share} on the {where} policy token: likely a mask bug, not drift"
    return None
