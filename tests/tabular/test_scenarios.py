"""Every preset runs and says what its name promises; runs are reproducible."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from brace_diag.errors import InputError
from brace_diag.rollouts import Rollouts
from brace_diag.tabular import PRESETS, LatentFamily, Scenario, exact_truth, simulate

NAMES = (
    "null",
    "noise",
    "drift-small",
    "drift",
    "drift-large",
    "aligned",
    "unaligned",
    "value-neutral",
    "random-length",
    "tool-holes",
)


def one(name):
    (step,) = simulate(PRESETS[name], np.random.default_rng(0))
    return step


@pytest.fixture(scope="module")
def steps():
    return {name: one(name) for name in NAMES}


def test_presets_are_these():
    assert tuple(PRESETS) == NAMES
    assert all(scenario.about for scenario in PRESETS.values())


@pytest.mark.parametrize("name", NAMES)
def test_preset_gives_a_readable_log_and_a_strict_truth(steps, name):
    step = steps[name]
    rollouts = Rollouts.from_arrow(step.log.to_table())
    assert rollouts.n_rollouts == 64 * 8
    assert rollouts.n_tokens == step.log.n_tokens
    said = json.loads(json.dumps(step.truth_dict(), allow_nan=False))
    assert said["step"] == 0
    assert said["gap"] == pytest.approx(said["gap_by_position"][0])
    assert said["reward_pi"] - said["reward_mu"] == pytest.approx(said["gap"])


def test_presets_are_what_they_are_called(steps):
    truth = {name: step.truth for name, step in steps.items()}
    size = {name: t.mean_abs_log_w for name, t in truth.items()}
    log_w = {n: np.float64(s.log.pi_logprobs) - s.log.mu_logprobs for n, s in steps.items()}
    assert size["null"] == size["noise"] == truth["null"].gap == truth["noise"].gap == 0.0
    assert not log_w["null"].any()
    assert log_w["noise"].std() == pytest.approx(0.02, rel=0.02)
    assert size["drift-small"] == pytest.approx(0.005)
    assert size["drift-large"] == pytest.approx(0.08)
    for name in ("drift", "aligned", "unaligned", "value-neutral", "tool-holes"):
        assert size[name] == pytest.approx(0.02)
    assert abs(truth["unaligned"].gap) < truth["drift"].gap < truth["aligned"].gap
    assert truth["value-neutral"].gap_by_position == pytest.approx(np.zeros(128), abs=1e-13)
    assert log_w["value-neutral"].std() > 0.01
    lengths = steps["random-length"].log.lengths
    assert lengths.min() < 20 and lengths.max() > 200
    assert "policy_mask" in steps["tool-holes"].log.to_columns()


def test_a_run_drifts_away_step_by_step():
    scenario = replace(PRESETS["drift"], n_steps=4, n_prompts=8)
    steps = list(simulate(scenario, np.random.default_rng(1)))
    assert [s.step for s in steps] == [0, 1, 2, 3]
    for i, step in enumerate(steps):
        assert step.truth.mean_abs_log_w == pytest.approx(
            exact_truth(step.mdp.take(np.arange(8))).mean_abs_log_w
        )
        assert (step.log.step == i).all() and (step.log.trainer_version == i + 1).all()
        assert (step.log.behavior_version == 0).all()
    sizes = [exact_truth(s.mdp).mean_abs_log_w for s in steps]
    np.testing.assert_allclose(sizes, [0.005, 0.01, 0.015, 0.02], rtol=1e-9)
    assert (np.diff([s.truth.gap for s in steps]) > 0).all()


def test_pool_and_fixed_prompts_have_their_own_truth():
    family = LatentFamily(n_prompts=20, horizon=16)
    fixed = Scenario(family, n_prompts=5, group_size=2)
    (step,) = simulate(fixed, np.random.default_rng(2))
    assert step.truth.n_prompts == 5
    assert set(step.log.prompt_index) == set(range(5))
    (step,) = simulate(replace(fixed, pool=True, n_prompts=50), np.random.default_rng(2))
    assert step.truth.n_prompts == 20
    assert step.log.n_rollouts == 100


def test_same_seed_same_run():
    scenario = replace(PRESETS["tool-holes"], n_steps=2, n_prompts=4)
    runs = [list(simulate(scenario, np.random.default_rng(s))) for s in (3, 3, 4)]
    for a, b, c in zip(*runs, strict=True):
        assert a.log.to_table().equals(b.log.to_table()) is False  # NaN poison is not equal
        for name, column in a.log.to_columns().items():
            np.testing.assert_array_equal(column, b.log.to_columns()[name])
        assert a.truth_dict() == b.truth_dict()
        assert a.truth.gap != c.truth.gap


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"n_steps": 0}, "n_steps"), ({"group_size": 0}, "group_size"), ({"n_prompts": 65}, "pool")],
)
def test_wrong_scenarios_are_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        replace(PRESETS["drift"], **wrong)
