"""The gap from returns alone: against sums by hand, exact truth, and logs that mislead."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from brace_diag import Rollouts, audit, value_gap
from brace_diag.tabular import LatentFamily, TokenMDP, exact_truth, sample_log

Columns = Callable[..., dict[str, Any]]


def family(drift: float = 0.05, alignment: float = 0.8, n: int = 64, horizon: int = 64) -> TokenMDP:
    made = LatentFamily(n_prompts=n, horizon=horizon, drift=drift, alignment=alignment)
    return made.build(np.random.default_rng(9))


def both(
    mdp: TokenMDP, rng: np.random.Generator, n: int = 64, fresh: int = 8
) -> tuple[Rollouts, Rollouts]:
    """A log of mu, and rollouts of the same prompts that pi drew."""
    logged = sample_log(mdp, n, 8, rng).to_table()
    drawn = sample_log(replace(mdp, mu=mdp.pi), n, fresh, rng).to_table()
    return Rollouts.from_arrow(logged), Rollouts.from_arrow(drawn)


def test_the_estimate_is_the_paired_difference_and_its_jackknife(columns: Columns) -> None:
    one, two = columns(1), columns(2, n_prompts=24, group=3)
    two["prompt_id"] = [p + 6 for p in two["prompt_id"]]  # 18 prompts are in both
    log = Rollouts.from_lists(**one)
    (found,) = value_gap(log, fresh=Rollouts.from_lists(**two)).direct

    def by_prompt(made: dict[str, Any]) -> dict[int, list[float]]:
        out: dict[int, list[float]] = {}
        for p, r in zip(made["prompt_id"], made["reward"], strict=True):
            out.setdefault(p, []).append(r)
        return out

    mine, theirs = by_prompt(one), by_prompt(two)
    shared = sorted(mine.keys() & theirs.keys())
    n = np.array([len(mine[p]) for p in shared])
    d = np.array([np.mean(theirs[p]) - np.mean(mine[p]) for p in shared])
    assert (found.kind, found.n_prompts, found.n_drawn, found.n_logged) == ("fresh", 18, 54, 72)
    assert found.b.value == pytest.approx(float(np.sum(n * d) / n.sum()))
    group_of = dict(zip(one["prompt_id"], log.group.tolist(), strict=True))
    groups = np.array([group_of[p] for p in shared])
    left = [np.sum((n * d)[groups != g]) / n[groups != g].sum() for g in np.unique(groups)]
    k = len(left)
    se = math.sqrt((k - 1) / k * float(np.sum((np.array(left) - np.mean(left)) ** 2)))
    assert found.b.se == pytest.approx(se)
    assert found.b.reliable


def test_intervals_hold_the_exact_gap_and_agree_with_the_weights() -> None:
    """40 logs; fewer than 33 of nominal .95 has probability 1e-3 at .93."""
    mdp, rng = family(), np.random.default_rng(1)
    truth = exact_truth(mdp).gap
    held, z = 0, []
    for _ in range(40):
        log, drawn = both(mdp, rng)
        (found,) = value_gap(log, fresh=drawn, threads=1).direct
        assert found.b.ci_low is not None and found.b.ci_high is not None
        held += found.b.ci_low <= truth <= found.b.ci_high
        z.append(found.z)
    assert held >= 33
    assert abs(np.mean(z)) < 0.6 and 0.6 < np.std(z) < 1.4


def test_rollouts_of_staleness_0_serve_within_their_step() -> None:
    """Half of each prompt's rollouts are pi's own: they are the direct evidence on the rest."""
    mdp, rng = family(), np.random.default_rng(2)
    truth, held = exact_truth(mdp).gap, 0
    for _ in range(20):
        old = sample_log(mdp, 64, 8, rng, trainer_version=5, behavior_version=3).to_table()
        young = sample_log(
            replace(mdp, mu=mdp.pi), 64, 8, rng, trainer_version=5, behavior_version=5
        ).to_table()
        log = Rollouts.from_arrow(pa.concat_tables([old, young.select(old.column_names)]))
        (found,) = value_gap(log, threads=1).direct
        assert (found.kind, found.n_prompts) == ("staleness_0", 64)
        assert found.b.ci_low is not None and found.b.ci_high is not None
        held += found.b.ci_low <= truth <= found.b.ci_high
    assert held >= 16  # nominal .95 of 20; fewer than 16 has probability 3e-3


def test_prompts_that_only_one_kind_has_do_not_pair(columns: Columns) -> None:
    made = columns(3)
    n = len(made["reward"])
    made |= {"step": [0] * n, "trainer_version": [5] * n}
    # The first half of the prompts is fresh, the other stale: no prompt tells both.
    made["behavior_version"] = [5] * (n // 2) + [3] * (n - n // 2)
    assert value_gap(Rollouts.from_lists(**made)).direct == ()


def test_without_a_common_prompt_the_difference_is_marked(columns: Columns) -> None:
    one, two = columns(1), columns(2)
    two["prompt_id"] = [p + 1000 for p in two["prompt_id"]]
    (found,) = value_gap(Rollouts.from_lists(**one), fresh=Rollouts.from_lists(**two)).direct
    assert found.b.value == pytest.approx(np.mean(two["reward"]) - np.mean(one["reward"]))
    assert not found.b.reliable and found.n_prompts == 0
    assert found.b.reason is not None and found.b.reason.startswith("no prompt is in both")


def test_rollouts_without_prompt_ids_never_pair(columns: Columns) -> None:
    """Each counts as a prompt of its own by its row: rows of two files are no pairs."""
    bare = {k: v for k, v in columns(1).items() if k != "prompt_id"}
    (found,) = value_gap(Rollouts.from_lists(**bare), fresh=Rollouts.from_lists(**bare)).direct
    assert found.n_prompts == 0 and not found.b.reliable


def test_returns_are_discounted_as_asked(columns: Columns) -> None:
    one, two = columns(1), columns(2)
    (found,) = value_gap(
        Rollouts.from_lists(**one), fresh=Rollouts.from_lists(**two), gamma=0.9
    ).direct
    expected = 0.9**23 * (np.mean(two["reward"]) - np.mean(one["reward"]))
    assert found.b.value == pytest.approx(expected, rel=1e-6)


def test_copies_count_once(columns: Columns) -> None:
    one = columns(1)
    doubled = {k: [*v, v[0]] for k, v in columns(2).items()}
    (found,) = value_gap(Rollouts.from_lists(**one), fresh=Rollouts.from_lists(**doubled)).direct
    assert found.n_drawn == 96


def test_fresh_rollouts_settle_what_the_weights_cannot() -> None:
    rng = np.random.default_rng(3)
    far = family(drift=0.3, alignment=0.8)
    log, drawn = both(far, rng, fresh=16)
    alone, found = audit(log), audit(log, fresh=drawn)
    assert alone.verdict == "needs_probe" and alone.overall.gate == "refused"
    assert found.verdict == "needs_correction"
    assert found.overall.reason.startswith(
        "by 1,024 fresh rollouts from pi on 64 prompts: pi earns"
    )
    check = next(c for c in found.checks if c.id == "fresh_rollouts")
    assert check.status == "ok" and check.value == found.direct[0].b.value
    still = family(drift=0.3, alignment=0.0, n=256)
    log, drawn = both(still, rng, n=256, fresh=32)
    assert audit(log).verdict == "needs_probe"
    truth = exact_truth(still)
    assert abs(truth.gap) < 0.05 * truth.s_within
    assert audit(log, fresh=drawn).verdict == "negligible"


def test_fresh_rollouts_that_decide_nothing_say_so() -> None:
    log, drawn = both(family(drift=0.3, alignment=0.1), np.random.default_rng(4), fresh=1)
    few = Rollouts.from_lists(**{k: v[:12] for k, v in _lists(drawn).items()})
    found = audit(log, fresh=few)
    assert found.verdict == "needs_probe"
    assert "do not decide it either" in found.overall.reason


def _lists(batch: Rollouts) -> dict[str, Any]:
    assert batch.mu_logprobs is not None
    return {
        "mu_logprobs": np.split(batch.mu_logprobs, batch.offsets[1:-1]),
        "reward": batch.rewards.tolist(),
        "prompt_id": [int(i) for i in range(batch.n_rollouts)],
    }


def test_fresh_rollouts_of_another_policy_make_the_log_invalid() -> None:
    """The weights tell +.1 with certainty; rollouts that earn nothing are not of that pi."""
    mdp, rng = family(), np.random.default_rng(5)
    log, drawn = both(mdp, rng)
    wrong = replace(drawn, rewards=np.zeros_like(drawn.rewards))
    found = audit(log, fresh=wrong)
    assert found.verdict == "invalid"
    assert found.overall.reason.startswith("fresh rollouts give a gap of -")
    assert "check that pi_logprobs are those of the policy" in (found.overall.next or "")
