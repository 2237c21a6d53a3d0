"""Share of the gap that the fixed point of a corrected target recovers: pure functions of sums.

A critic fitted on brace targets until nothing changes has the gap e(s) = V_k(s) - V^mu(s), e = 0
where the response has ended, with

    0 = E[ Σ_{l=s}^{j-1} C_{s:l} (ρ_l D_l + ρ_l (γ e_{l+1} - e_l)) - C_{s:j} e_j ],

D = G - V centred, ρ = min(w, ρ̄), C the product of γ λ min(w, c̄), j the end of the window, and
weight 1 on a response's last residual. The mean field puts e(position) for e(state), piecewise
linear between the positions of `nodes`: an upper triangular system in the values at the nodes.

    share(k, ρ̄, c̄) = s(ρ̄) e_0(k) / e_0(∞),

s(ρ̄) = share at k = ∞: the gap of π_ρ̄ ∝ min(ρ̄ μ, π) over that of π, both as wdr with
h = min(Π .., 2) normalised by cell. π_ρ̄ goes the part λ = s of the way from μ to π, so its states
are weighted by Π (1 + λ (w - 1)), which has mean 1 at every state; Π min(w, ρ̄) has not, and would
favour states where the policies agree. The mean field sets how the share grows with k; s sets
where it ends. Within .1 of the exact fixed point on the processes of `tests/engines/test_sweep.py`
(v <= 4); where pi has moved far along the value (b above .7 s_A) low by up to .15 at ρ̄ = 1.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from brace_diag.estimators import sweep_kernels as kernels
from brace_diag.results_sweep import SweepSettings

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
ROUNDS = 40
"""Of the damped iteration for s: what is left of a first error is below 1e-6 at slope 1/2."""


def recovered(
    settings: SweepSettings, nodes: Ints, starts: Array, cells: Array, windows: Array, shares: Array
) -> Array:
    """Share of every point, (replicates, caps · k), by caps and then k.

    Args:
        nodes: (S + 1,) positions; starts, cells, windows, shares: sums with replicates first, see
            `sweep_kernels`.
    """
    limits = _limits(settings, shares)
    finite = [k for k in settings.windows if math.isfinite(k)]
    columns = []
    for q, (rho_bar, _) in enumerate(settings.caps):
        field = _Field(
            nodes,
            starts[:, :, 0],
            cells[:, :, q * kernels.N_CELL : (q + 1) * kernels.N_CELL],
        )
        whole = field.solve(None, None)
        for k in settings.windows:
            if not math.isfinite(k):
                columns.append(limits[rho_bar])
                continue
            at = windows[:, finite.index(k) :: len(finite)]
            own = at[:, :, q * kernels.N_WINDOW : (q + 1) * kernels.N_WINDOW]
            columns.append(limits[rho_bar] * field.solve(int(k), own) / whole)
    return np.stack(columns, axis=1)


def _limits(settings: SweepSettings, shares: Array) -> dict[float, Array]:
    """s(ρ̄) of every cap, each (replicates,)."""
    n, n_inner, *whole = np.moveaxis(shares[:, :, : kernels.N_SHARE], 2, 0)
    gap = _gap(n, *whole)
    rho_bars = sorted({rho for rho, _ in settings.caps})
    width = 2 + 2 * len(rho_bars)
    out = {}
    for q, rho_bar in enumerate(rho_bars):
        along = []
        for m in range(len(kernels.PATHS)):
            own = shares[:, :, kernels.N_SHARE + m * width :]
            along.append(
                _gap(n_inner, own[..., 2 + 2 * q], own[..., 3 + 2 * q], own[..., 0], own[..., 1])
            )
        out[rho_bar] = _consistent(np.stack(along, axis=1) / gap[:, None])
    return out


def _consistent(along: Array) -> Array:
    """s = along(λ = s), λ kept in 0 .. 1: the policy of a cap meets the states that it leads to.

    along: (replicates, M) at the λ of `PATHS`, linear between them. Damped, since the slope may
    be steep where the gap is small.
    """
    steps = len(kernels.PATHS) - 1
    rows = np.arange(len(along))
    s = along[:, steps // 2]
    for _ in range(ROUNDS):
        at = np.clip(np.nan_to_num(s), 0.0, 1.0) * steps
        left = np.minimum(at.astype(np.int64), steps - 1)
        here = along[rows, left] + (at - left) * (along[rows, left + 1] - along[rows, left])
        s = 0.5 * (s + here)
    return s


def _gap(n: Array, hrd: Array, hr: Array, hd: Array, h: Array) -> Array:
    """Σ over cells of n · (covariance of r and D under weights h)."""
    inside = np.where(h > 0, h, 1.0)
    own = np.where(h > 0, n * (hrd / inside - (hr / inside) * (hd / inside)), 0.0)
    return np.asarray(own.sum(axis=1))


class _Field:
    """The mean field of one pair of caps."""

    def __init__(self, nodes: Ints, n: Array, cells: Array) -> None:
        """Take the nodes, rollouts by start (R, S), and sums by start and cell (R, S(S+1)/2, .)."""
        self.nodes, self.n = nodes, n
        size = n.shape[1]
        self.sums = np.zeros((len(n), size, size, kernels.N_CELL))
        for c in range(size):
            row = c * (c + 1) // 2
            self.sums[:, : c + 1, c] = cells[:, row : row + c + 1]
        self.source = _source(self.sums)

    def solve(self, k: int | None, windows: Array | None) -> Array:
        """e at the first token, (R,); k None: the window is the rest of the response."""
        size = self.n.shape[1]
        matrix = np.zeros((*self.n.shape, size + 1))
        end = np.full(size, size)
        if k is not None:
            end = np.minimum(np.searchsorted(self.nodes, self.nodes[:-1] + k, "right") - 1, size)
        whole = np.arange(size)[None, :] < end[:, None]
        matrix[:, :, :-1] += np.where(whole, self.sums[..., kernels.LEFT], 0.0)
        matrix[:, :, 1:] += np.where(whole, self.sums[..., kernels.RIGHT], 0.0)
        source = np.where(whole, self.source, 0.0).sum(axis=2)
        cut = np.flatnonzero(end < size)
        if windows is not None and len(cut):
            own, last = windows[:, cut], end[cut]
            stop = own[..., kernels.N_CELL :]
            matrix[:, cut, last] += own[..., kernels.LEFT] - stop[..., 0]
            matrix[:, cut, last + 1] += own[..., kernels.RIGHT] - stop[..., 1]
            source[:, cut] += _source(own)
        return _back_substituted(matrix, source)


def _source(sums: Array) -> Array:
    """Σ C ρ D less Σ C ρ times the C-weighted mean of D."""
    trace = sums[..., kernels.TRACE]
    mean = sums[..., kernels.TRACE_D] / np.where(trace > 0, trace, 1.0)
    return np.asarray(sums[..., kernels.RHO_D] - sums[..., kernels.RHO] * mean)


def _back_substituted(matrix: Array, source: Array) -> Array:
    """e_0 of source + matrix · e = 0, e = 0 at the last node; matrix (R, S, S + 1), row sums."""
    size = source.shape[1]
    e = np.zeros((len(source), size + 1))
    for a in range(size - 1, -1, -1):
        rest = np.einsum("rc,rc->r", matrix[:, a, a + 1 :], e[:, a + 1 :])
        own = -matrix[:, a, a]
        # Nobody of a replicate has come so far, or pi rules every token out: nothing is recovered.
        e[:, a] = np.where(own > 0, (source[:, a] + rest) / np.where(own > 0, own, 1.0), 0.0)
    return e[:, 0]
