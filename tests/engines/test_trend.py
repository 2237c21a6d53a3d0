"""Trends of logs whose truth is known, and what they say where something is missing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brace_diag import (
    InputError,
    Rollouts,
    SchemaError,
    critic_fit,
    importance_products,
    open_run,
    trend,
    value_gap,
)
from brace_diag.results_trend import SERIES
from brace_diag.tabular import LatentFamily, Scenario, concatenate, simulate

DATA = Path(__file__).parents[1] / "data"
Columns = Callable[..., dict[str, Any]]


def drifting(n_steps: int = 10, alignment: float = 0.8) -> tuple[Rollouts, list[float]]:
    """A run whose policy moves on from step to step, and its exact gaps."""
    family = LatentFamily(n_prompts=64, horizon=64, drift=0.06, alignment=alignment)
    made = list(simulate(Scenario(family, n_steps=n_steps), np.random.default_rng(3)))
    table = concatenate([step.log for step in made]).to_table()
    return Rollouts.from_arrow(table), [step.truth.gap for step in made]


@pytest.fixture
def steps(columns: Columns) -> Callable[..., Rollouts]:
    """`steps(n, column=replacement)`: a log of n steps of 96 rollouts; None drops a column."""

    def make(n: int = 5, **changes: Any) -> Rollouts:
        made = columns(1, n_prompts=24 * n)
        made["prompt_id"] = np.tile(np.repeat(np.arange(24), 4), n).tolist()
        made["step"] = np.repeat(10 * np.arange(n), 96).tolist()
        made["trainer_version"] = made["step"]
        made["behavior_version"] = (np.array(made["step"]) - np.tile([0, 2], 48 * n)).tolist()
        made |= changes
        return Rollouts.from_lists(**{k: v for k, v in made.items() if v is not None})

    return make


def test_the_gap_that_grows_is_followed_within_its_intervals() -> None:
    log, truth = drifting()
    found = trend(log, margin=0.05)
    assert [point.key for point in found.points] == list(range(10))
    held = 0
    for point, exact in zip(found.points, truth, strict=True):
        b = point.figures["b_hat"]
        assert b.ci_low is not None and b.ci_high is not None
        held += b.ci_low <= exact <= b.ci_high
    assert held >= 8  # nominal .95 of 10; fewer than 8 has probability .01
    line = float(np.polyfit(np.arange(10), truth, 1)[0])
    test = found.tests["b_hat"]
    assert test.p_value is not None and test.p_value < 0.05
    assert test.slope.ci_low is not None and test.slope.ci_high is not None
    assert test.slope.ci_low < line < test.slope.ci_high
    beyond = [point.key for point in found.points if point.beyond]
    assert (found.first_beyond, found.n_beyond) == (beyond[0], len(beyond))
    assert found.first_beyond is not None and 2 <= found.first_beyond <= 9


def test_a_real_run_is_followed_within_its_intervals() -> None:
    """Three steps whose gaps were measured by fresh continuations from both policies. An |z| above
    2.6 has probability .03 among three."""
    truth = json.loads((DATA / "async_run.truth.json").read_text())
    probes = {p["step"]: p for p in truth["probes"] if p["position"] == 0}
    found = trend(open_run(DATA / "async_run.parquet"))
    shared = [point for point in found.points if point.key in probes]
    assert len(shared) >= 3
    z = []
    for point in shared:
        b, probe = point.figures["b_hat"], probes[point.key]
        assert b.value is not None and b.se is not None
        z.append((b.value - probe["b"]) / np.hypot(b.se, probe["b_se"]))
    assert max(map(abs, z)) < 2.6
    assert float(np.sqrt(np.mean(np.square(z)))) < 1.5


@pytest.mark.parametrize("by", ["step", "staleness"])
def test_every_figure_is_that_of_its_own_question(steps: Callable[..., Rollouts], by: Any) -> None:
    log = steps()
    found = trend(log, by=by)
    gaps = {entry.key: entry for entry in value_gap(log, by=by).by}
    fits = {entry.key: entry for entry in critic_fit(log, by=by).by}
    weights = {entry.key: entry for entry in importance_products(log, by=by).by}
    assert [point.key for point in found.points] == sorted(gaps)
    for point in found.points:
        batch, own = gaps[point.key].batch, weights[point.key].figures
        assert point.figures["b_hat"] == batch.b_hat
        assert point.figures["g_pi"] == batch.g_pi_signed
        assert point.figures["reward_pi"] == batch.reward_pi
        fit = fits[point.key].fit.explained_variance
        assert point.figures["explained_variance"] == fit
        assert point.figures["m"] == own.m
        kept = point.figures["kept_c_bar"]
        assert kept.value == pytest.approx(1.0 - (own.clip_c_bar.value or 0.0))
        assert kept.ci_low == pytest.approx(1.0 - (own.clip_c_bar.ci_high or 0.0))
        assert point.margin == pytest.approx(0.1 * (batch.return_sd.value or 0.0))


def test_what_the_log_lacks_is_null_with_its_reason(steps: Callable[..., Rollouts]) -> None:
    no_pi = trend(steps(pi_logprobs=None))
    for point in no_pi.points:
        for name in ("b_hat", "g_pi", "reward_pi", "m", "ess_rollout", "kept_c_bar"):
            assert point.figures[name].value is None
            assert point.figures[name].reason == "the log has no pi_logprobs"
        assert point.figures["reward_mu"].value is not None
        assert point.figures["explained_variance"].value is not None
        assert point.beyond is None
    assert no_pi.notes[0].startswith("the log lacks one policy's log-probs")
    no_values = trend(steps(values=None))
    for point in no_values.points:
        assert point.figures["b_hat"].value is not None
        assert point.figures["explained_variance"].reason == "the log has no critic values"
    with pytest.raises(SchemaError, match="--by step needs a step column"):
        trend(steps(step=None))


def test_a_log_that_cannot_be_believed_judges_no_step(
    steps: Callable[..., Rollouts], columns: Columns
) -> None:
    shifted = [np.roll(row, 1) for row in columns(1, n_prompts=120)["mu_logprobs"]]
    found = trend(steps(pi_logprobs=shifted))
    assert found.invalid is not None and found.invalid.startswith("MISALIGNED")
    assert found.n_judged == 0
    assert not any(point.figures["b_hat"].reliable for point in found.points)


def test_threads_and_order_of_keys_do_not_change_the_answer(
    steps: Callable[..., Rollouts],
) -> None:
    log = steps()
    assert trend(log, threads=1).to_dict() == trend(log, threads=2).to_dict()


def test_the_frame_has_a_row_for_every_key(steps: Callable[..., Rollouts]) -> None:
    found = trend(steps())
    frame = found.to_frame()
    assert frame["step"].to_list() == [0, 10, 20, 30, 40]
    assert {name for name in SERIES} <= set(frame.columns)
    assert frame["b_hat_se"].to_list() == [p.figures["b_hat"].se for p in found.points]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"by": None}, "by is None"),
        ({"margin": 0.0}, r"margin is 0\.0"),
        ({"c_bar": -1.0}, r"c_bar is -1\.0"),
        ({"gamma": 2.0}, r"gamma is 2\.0"),
    ],
)
def test_settings_out_of_range(
    steps: Callable[..., Rollouts], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        trend(steps(), **changes)
