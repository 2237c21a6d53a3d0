"""Slopes against their definition, and the laws of an additive state."""

import pickle
from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import brace_diag as bd
from brace_diag.estimators import slope_estimates as se
from brace_diag.estimators import slope_kernels as kernels
from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.estimators.slope_state import SlopeState
from brace_diag.estimators.slope_targets import with_targets
from brace_diag.rollouts import Rollouts
from brace_diag.settings import TargetSpec, cell_edges, parse_targets

TARGETS = (
    "mc",
    "gae:lam=.9",
    "vtrace",
    "vtrace:n=6,rho_bar=1.3,c_bar=inf",
    "capped:k=4",
    "brace",
    "brace:k=7,c_bar=1,lam=.97",
)


def info_of(batch: Rollouts, expected: int = 0) -> RolloutInfo:
    n = batch.n_rollouts
    return RolloutInfo(
        use=batch.has_w & batch.has_values & batch.has_reward & (batch.lengths > 0),
        counted=np.ones(n, np.bool_),
        z=np.zeros(n),
        siblings=batch.prompt,
        expected=np.full(n, expected),
    )


def state_of(
    batches: list[Rollouts], specs: tuple[TargetSpec, ...], expected: int = 0, threads: int = 1
) -> SlopeState:
    state = SlopeState(specs)
    for batch in batches:
        info = with_targets(batch, info_of(batch, expected), specs, threads)
        state.update(batch, info, threads=threads)
    return state


def target_of(spec: TargetSpec, log: Any, i: int) -> Any:
    """One rollout's target by the public function of that name."""
    own = spec.parameters
    arrays: dict[str, Any] = {"rewards": log.rewards[i], "bootstrap": log.bootstrap[i]}
    if spec.name == "mc":
        return bd.mc_targets(log.rewards[i], bootstrap=log.bootstrap[i], **own)
    if spec.name == "gae":
        return bd.gae_targets(log.values[i], **arrays, **own)
    function = {"vtrace": bd.vtrace_targets, "capped": bd.capped_targets, "brace": bd.brace_targets}
    return function[spec.name](log.mu[i], log.pi[i], log.values[i], **arrays, **own)


def tokens_of(spec: TargetSpec, log: Any) -> dict[str, Any]:
    """X, Y, return weight, κ, horizon and prompt of every token, written out rollout by rollout."""
    made: dict[str, list[Any]] = {name: [] for name in ("x", "y", "g", "weight", "kappa", "h", "p")}
    for i, values in enumerate(log.values):
        length = len(values)
        returns = np.asarray(
            bd.mc_targets(log.rewards[i], bootstrap=log.bootstrap[i], gamma=spec.gamma)
        )
        horizon = np.arange(length)[::-1]
        c = spec.lam * np.minimum(spec.c_bar, np.exp(log.pi[i] - log.mu[i]))
        if not spec.reads_weights:
            c = np.full(length, spec.lam if spec.name == "gae" else 1.0)
        window = spec.k if spec.name in ("capped", "brace") else np.inf
        weight = np.array(
            [
                spec.gamma ** horizon[t] * np.prod(c[t : int(min(t + window, length - 1))])
                for t in range(length)
            ]
        )
        weight[horizon >= spec.n] = 0.0
        parameters = spec.parameters
        kappa = 10.0 ** np.asarray(
            bd.log10_kappa(log.mu[i], log.pi[i], target=spec.name, **parameters)
        )
        made["x"].append(returns - values)
        made["y"].append(np.asarray(target_of(spec, log, i)) - values)
        made["g"].append(returns)
        made["weight"].append(weight)
        made["kappa"].append(kappa)
        made["h"].append(horizon)
        made["p"].append(np.full(length, log.prompts[i]))
    return {name: np.concatenate(parts) for name, parts in made.items()}


def slope(x: Any, y: Any) -> float:
    return float(np.sum((x - x.mean()) * (y - y.mean())) / np.sum((x - x.mean()) ** 2))


@pytest.mark.parametrize("text", TARGETS)
@pytest.mark.parametrize(("gamma", "dense"), [(1.0, False), (0.95, True)])
def test_every_figure_equals_its_definition(
    ragged: Callable[..., Any], text: str, gamma: float, dense: bool
) -> None:
    log = ragged(np.random.default_rng(1), longest=40, drift=0.3, dense=dense, bootstrap=True)
    spec = TargetSpec.parse(text, gamma=gamma)
    state = state_of([log.rollouts()], (spec,))
    state.finish()
    jack = se.slope_jackknife(state, 0)
    data = tokens_of(spec, log)
    edges = cell_edges(40)
    for c, (low, end) in enumerate(pairwise(edges.tolist())):
        at = (data["h"] >= low) & (data["h"] < end)
        x, y, g, p = (data[name][at] for name in ("x", "y", "g", "p"))
        got = {name: jack.jack.value[jack.cell(name, c)] for name in se.BY_CELL}
        # float64 sums of a few hundred terms in another order.
        assert got["pooled"] == pytest.approx(slope(x, y), rel=1e-9, abs=1e-12)
        assert got["return_weight"] == pytest.approx(data["weight"][at].mean(), rel=1e-10)
        assert got["kappa"] == pytest.approx(data["kappa"][at].mean(), rel=1e-10)
        target, critic = y + g - x, g - x
        assert got["target_on_return"] == pytest.approx(slope(g, target), rel=1e-9, abs=1e-11)
        assert got["critic_on_return"] == pytest.approx(slope(g, critic), rel=1e-9, abs=1e-11)
        zero = state.cells.array[:, c, kernels.N_COMMON + kernels.ZERO].sum()
        assert zero == np.sum(data["kappa"][at] == 0.0)
        over, under = 0.0, 0.0
        for prompt in np.unique(p):
            own = p == prompt
            n_rollouts = sum(
                len(v) > low for v, q in zip(log.values, log.prompts, strict=True) if q == prompt
            )
            if n_rollouts > 1:
                over += np.sum((x[own] - x[own].mean()) * (y[own] - y[own].mean()))
                under += np.sum((x[own] - x[own].mean()) ** 2)
        assert got["within"] == pytest.approx(over / under, rel=1e-9, abs=1e-12)


def test_the_slope_of_the_return_is_exactly_one(ragged: Callable[..., Any]) -> None:
    log = ragged(np.random.default_rng(2), longest=50, dense=True, bootstrap=True)
    specs = parse_targets(["mc", "brace:k=0", "gae"], gamma=1.0)
    state = state_of([log.rollouts()], specs)
    state.finish()
    for k in range(2):
        jack = se.slope_jackknife(state, k)
        for name in ("within", "pooled", "return_weight", "kappa"):
            # In the last cell no prompt has two rollouts of that length.
            cells = state.cells.n_cells - (name == "within")
            got = [jack.jack.value[jack.cell(name, c)] for c in range(cells)]
            assert got == [1.0] * len(got), name
    # gae with lam = 1 is the return by another sum: equal to rounding.
    jack = se.slope_jackknife(state, 2)
    slopes = jack.jack.value[: 2 * state.cells.n_cells]
    np.testing.assert_allclose(slopes[np.isfinite(slopes)], 1.0, rtol=1e-12)


def test_tokens_beyond_a_window_have_kappa_zero(ragged: Callable[..., Any]) -> None:
    log = ragged(np.random.default_rng(3), longest=60)
    spec = TargetSpec.parse("vtrace:n=13")
    state = state_of([log.rollouts()], (spec,))
    total = state.cells.array.sum(axis=0)
    tokens, zero = total[:, kernels.TOKENS], total[:, kernels.N_COMMON + kernels.ZERO]
    edges = cell_edges(60)
    inside = edges[1:] <= 13
    assert (zero[inside] == 0).all()
    assert (zero[edges[:-1] >= 13] == tokens[edges[:-1] >= 13]).all()
    straddling = int(np.flatnonzero((edges[:-1] < 13) & (edges[1:] > 13))[0])  # cell 12-13
    longer = sum(len(v) > 13 for v in log.values)
    assert zero[straddling] == longer
    assert state.bins[0].sum(axis=1).tolist() == (tokens - zero).tolist()


def assert_same(a: SlopeState, b: SlopeState, rtol: float) -> None:
    a, b = deepcopy(a), deepcopy(b)
    a.finish()
    b.finish()
    for name in ("cells", "within"):
        x, y = getattr(a, name).array, getattr(b, name).array
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * np.abs(y).max())
    for name in ("bins", "ranges", "reward", "length", "n_moved"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.fixture
def specs() -> tuple[TargetSpec, ...]:
    return parse_targets(TARGETS)


def test_batches_give_the_same_bits_as_the_whole(
    ragged: Callable[..., Any], specs: tuple[TargetSpec, ...]
) -> None:
    log = ragged(np.random.default_rng(5), n_prompts=10, longest=50)
    whole = state_of([log.rollouts()], specs)
    for cuts in ([7], [1, 2, 3, 30], list(range(1, 40))):
        parts = [log.rollouts(range(a, b)) for a, b in pairwise([0, *cuts, 40])]
        assert_same(state_of(parts, specs), whole, rtol=0.0)


def test_threads_give_the_same_bits(
    ragged: Callable[..., Any], specs: tuple[TargetSpec, ...]
) -> None:
    batch = ragged(np.random.default_rng(6), n_prompts=10, longest=50).rollouts()
    one = state_of([batch], specs, threads=1)
    for threads in (2, 3, 50):
        assert_same(state_of([batch], specs, threads=threads), one, rtol=0.0)


def test_merged_shards_equal_the_whole(
    ragged: Callable[..., Any], specs: tuple[TargetSpec, ...]
) -> None:
    """Any split, any order, siblings torn apart: equal to the rounding of float64 sums."""
    rng = np.random.default_rng(7)
    log = ragged(rng, n_prompts=10, longest=50)
    whole = state_of([log.rollouts()], specs)
    for n_shards in (2, 3, 7):
        order = rng.permutation(40)
        shards = [state_of([log.rollouts(p)], specs) for p in np.array_split(order, n_shards)]
        total = pickle.loads(pickle.dumps(shards[0]))
        for shard in shards[1:]:
            total.merge(shard)
        # A few dozen additions in another order, less than 1e-15 each relative to the largest.
        assert_same(total, whole, rtol=1e-13)


def test_merging_an_empty_state_changes_nothing(
    ragged: Callable[..., Any], specs: tuple[TargetSpec, ...]
) -> None:
    state = state_of([ragged(np.random.default_rng(8)).rollouts()], specs)
    into_it, from_it = deepcopy(state), SlopeState(specs)
    into_it.merge(SlopeState(specs))
    from_it.merge(state)
    assert_same(into_it, state, rtol=0.0)
    assert_same(from_it, state, rtol=0.0)


def test_states_of_other_targets_are_not_added(specs: tuple[TargetSpec, ...]) -> None:
    with pytest.raises(bd.InputError, match="different targets"):
        SlopeState(specs).merge(SlopeState(specs[:2]))


def test_closing_complete_sets_early_changes_nothing(
    ragged: Callable[..., Any], specs: tuple[TargetSpec, ...]
) -> None:
    log = ragged(np.random.default_rng(9), n_prompts=8, group=4)
    late = state_of([log.rollouts()], specs)
    early = state_of([log.rollouts(range(i, i + 2)) for i in range(0, 32, 2)], specs, expected=4)
    assert not early.sets.slot_of  # every set was complete and is forgotten
    assert len(early.opened) <= 2
    # Equal but for the order in which sets are folded.
    assert_same(early, late, rtol=1e-14)


def test_a_subset_is_the_log_of_its_rollouts(
    ragged: Callable[..., Any], specs: tuple[TargetSpec, ...]
) -> None:
    log = ragged(np.random.default_rng(10), n_prompts=8, longest=40)
    batch, chosen = log.rollouts(), np.array([0, 3, 4, 11, 12, 13, 30])
    state = SlopeState(specs)
    state.update(batch, with_targets(batch, info_of(batch), specs, 2), subset=chosen, threads=2)
    assert_same(state, state_of([log.rollouts(chosen)], specs), rtol=0.0)
    empty = SlopeState(specs)
    empty.update(batch, with_targets(batch, info_of(batch), specs, 1), subset=chosen[:0])
    assert empty.cells.n_cells == 0
    assert not empty.sets.slot_of


def test_quantiles_of_the_histogram_are_those_of_the_values() -> None:
    """A bin is at most 1.6 % of the value in it wide, or .01 near 0."""
    rng = np.random.default_rng(11)
    values = np.concatenate([rng.normal(-2.0, 1.0, 4000), -rng.exponential(400.0, 4000), [0.0]])
    bins = np.bincount([kernels.bin_of(v) for v in values], minlength=kernels.N_BINS)
    for p in (0.0, 0.05, 0.3, 0.5, 0.95, 1.0):
        got = se.log_kappa_quantile(bins, values.min(), values.max(), 0, p)
        wanted = np.quantile(values, p, method="inverted_cdf")
        assert abs(got - wanted) <= max(0.01, 0.016 * abs(wanted)), p


def test_bins_lie_between_their_edges() -> None:
    edges = se.bin_edges()
    assert len(edges) == kernels.N_BINS - 1
    assert (np.diff(edges) > 0).all()
    rng = np.random.default_rng(12)
    for x in [*rng.normal(0, 1, 500), *rng.normal(0, 2000, 500), 0.0, 1e9, -1e9, 308.0]:
        b = kernels.bin_of(x)
        assert (b == 0 or edges[b - 1] <= x) and (b == len(edges) or x <= edges[b])


def test_exact_zeros_are_the_lowest_values() -> None:
    bins = np.zeros(kernels.N_BINS, np.int64)
    bins[kernels.bin_of(-0.5)] = 60
    quantile = lambda p: se.log_kappa_quantile(bins, -0.5, -0.5, 40, p)  # noqa: E731
    assert quantile(0.05) == -np.inf
    assert quantile(0.4) == -np.inf
    assert quantile(0.41) == -0.5
    assert quantile(0.95) == -0.5
    assert np.isnan(se.log_kappa_quantile(bins * 0, np.inf, -np.inf, 0, 0.5))
