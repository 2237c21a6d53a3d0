"""Differences of two runs: against leaving prompts out by hand, against exact truth."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from brace_diag import InputError, Rollouts, compare, value_gap
from brace_diag.results_trend import SERIES
from brace_diag.settings import N_GROUPS
from brace_diag.tabular import LatentFamily, exact_truth, sample_log

Columns = Callable[..., dict[str, Any]]


def rollouts(made: dict[str, Any], **changes: Any) -> Rollouts:
    return Rollouts.from_lists(**{k: v for k, v in (made | changes).items() if v is not None})


def without(made: dict[str, Any], group: int) -> Rollouts:
    """The log less the rollouts of one hash group of prompts."""
    groups = rollouts(made).group
    keep = np.flatnonzero(groups != group)
    return Rollouts.from_lists(**{k: [v[i] for i in keep] for k, v in made.items()})


def test_errors_are_those_of_leaving_prompts_out_of_both(columns: Columns) -> None:
    """The same prompts in both logs: the jackknife of b - a itself, done by hand."""
    one, two = columns(1, drift=0.1), columns(2, drift=0.2)
    found = compare(rollouts(one), rollouts(two), baseline="critic")
    assert found.paired and found.n_shared_prompts == 24
    groups = sorted(set(rollouts(one).group.tolist()))
    for name in ("b_hat", "g_pi_signed", "reward_mu"):
        replicates = []
        for g in groups:
            a = value_gap(without(one, g), baseline="critic").batch
            b = value_gap(without(two, g), baseline="critic").batch
            replicates.append(getattr(b, name).value - getattr(a, name).value)
        n = len(groups)
        se = math.sqrt((n - 1) / n * float(np.sum((replicates - np.mean(replicates)) ** 2)))
        own = found.figure(name.replace("_signed", "")).difference
        assert own.se == pytest.approx(se, rel=1e-9)
        assert own.n_clusters == n
    first = found.cells[0]
    assert (first.low, first.high) == (0, 0)
    assert first.difference.se == pytest.approx(found.figure("b_hat").difference.se)


def test_a_run_does_not_differ_from_itself(columns: Columns) -> None:
    log = rollouts(columns(3))
    found = compare(log, log)
    for own in (*found.figures, *found.cells):
        assert own.difference.value == pytest.approx(0.0, abs=1e-12)
        assert own.difference.se == pytest.approx(0.0, abs=1e-12)
        assert own.p_value is None or own.p_value == pytest.approx(1.0)


def test_logs_without_a_common_prompt_add_their_variances(columns: Columns) -> None:
    one, two = columns(4), columns(5)
    two["prompt_id"] = [1000 + p for p in two["prompt_id"]]
    found = compare(rollouts(one), rollouts(two))
    assert not found.paired and found.n_shared_prompts == 0
    assert found.notes[0].startswith("the runs share no prompt")
    for own in found.figures:
        assert own.difference.se == pytest.approx(
            math.hypot(own.a.se or 0.0, own.b.se or 0.0), rel=1e-9
        ), own.name
    assert found.figure("b_hat").difference.method == "b - a, as independent logs"


def test_without_prompt_ids_runs_are_independent(columns: Columns) -> None:
    found = compare(rollouts(columns(4), prompt_id=None), rollouts(columns(4), prompt_id=None))
    assert not found.paired
    assert "without a prompt id" in found.notes[0]


def test_some_common_prompts_are_told(columns: Columns) -> None:
    two = columns(6)
    two["prompt_id"] = [p + 12 for p in two["prompt_id"]]
    found = compare(rollouts(columns(5)), rollouts(two))
    assert found.paired and found.n_shared_prompts == 12
    assert found.notes[0].startswith("12 prompts are in both runs (24 in a, 24 in b)")


def test_intervals_hold_the_exact_difference() -> None:
    """40 pairs of logs over the same 48 prompts, two drifts; fewer than 33 has probability 1e-3 at
    a coverage of 93 %. Pairing must narrow the difference of E_mu[R], which prompts dominate."""
    rng = np.random.default_rng(5)
    families = [LatentFamily(n_prompts=48, horizon=48, drift=d, alignment=0.8) for d in (0.02, 0.1)]
    mdps = [family.build(np.random.default_rng(9)) for family in families]
    exact = exact_truth(mdps[1]).gap - exact_truth(mdps[0]).gap
    held, narrower = 0, 0
    for _ in range(40):
        a, b = (Rollouts.from_arrow(sample_log(m, 48, 8, rng).to_table()) for m in mdps)
        found = compare(a, b, threads=1)
        own = found.figure("b_hat").difference
        assert own.ci_low is not None and own.ci_high is not None
        held += own.ci_low <= exact <= own.ci_high
        reward = found.figure("reward_mu")
        apart = math.hypot(reward.a.se or 0.0, reward.b.se or 0.0)
        narrower += (reward.difference.se or 0.0) < 0.8 * apart
    assert held >= 33
    assert narrower == 40


def test_p_values_are_adjusted_after_holm(columns: Columns) -> None:
    found = compare(rollouts(columns(1, drift=0.05)), rollouts(columns(2, drift=0.4)))
    for family in (found.figures, found.cells):
        raw = sorted((own for own in family if own.p_value is not None), key=lambda o: o.p_value)
        largest = 0.0
        for i, own in enumerate(raw):
            largest = max(largest, min(1.0, (len(raw) - i) * (own.p_value or 0.0)))
            assert own.p_holm == pytest.approx(largest, rel=1e-12)
    assert [own.name for own in found.figures] == list(SERIES)


def test_what_one_run_lacks_is_null_and_the_rest_stands(columns: Columns) -> None:
    found = compare(rollouts(columns(1)), rollouts(columns(2), pi_logprobs=None))
    gap = found.figure("b_hat")
    assert gap.difference.value is None and gap.p_value is None
    assert gap.difference.reason == "b: the log has no pi_logprobs"
    assert found.figure("reward_mu").difference.value is not None
    assert found.figure("explained_variance").difference.value is not None
    assert found.cells == ()
    found = compare(rollouts(columns(1), values=None), rollouts(columns(2)))
    assert found.figure("b_hat").difference.value is not None
    assert found.figure("critic_mean").difference.reason == "a: the log has no critic values"


def test_a_run_that_cannot_be_believed_is_named(columns: Columns) -> None:
    made = columns(1)
    shifted = [np.roll(row, 1) for row in made["mu_logprobs"]]
    found = compare(rollouts(made), rollouts(made, pi_logprobs=shifted))
    assert found.a.invalid is None
    assert found.b.invalid is not None and found.b.invalid.startswith("MISALIGNED")
    assert not found.figure("b_hat").difference.reliable
    assert not any(cell.difference.reliable for cell in found.cells)


def test_threads_do_not_change_the_answer(columns: Columns) -> None:
    one, two = rollouts(columns(1)), rollouts(columns(2))
    assert compare(one, two, threads=1).to_dict() == compare(one, two, threads=2).to_dict()
    assert N_GROUPS > 24  # prompts of these logs have groups of their own, but for hash accidents


def test_the_frame_holds_figures_and_cells(columns: Columns) -> None:
    found = compare(rollouts(columns(1)), rollouts(columns(2)))
    frame = found.to_frame()
    assert frame.height == len(found.figures) + len(found.cells)
    assert frame["p_holm"].to_list() == [own.p_holm for own in (*found.figures, *found.cells)]
    with pytest.raises(InputError, match=r"rho_bar is 0"):
        compare(rollouts(columns(1)), rollouts(columns(2)), rho_bar=0)
