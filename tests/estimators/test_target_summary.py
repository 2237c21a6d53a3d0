"""How targets differ: against numpy on the tokens themselves, and by adding up."""

from __future__ import annotations

import numpy as np
import pytest

from brace_diag import Rollouts
from brace_diag.estimators.target_summary import TargetSums, compare, correlations_of


def made(n: int = 200, seed: int = 0, prompts: int = 40) -> tuple[Rollouts, np.ndarray]:
    """A batch, and two targets with the return below them; some numbers are missing."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 9, n)
    prompt = rng.integers(0, prompts, n)
    batch = Rollouts.from_lists(
        mu_logprobs=[-np.ones(m) for m in lengths],
        values=[rng.random(m) + 0.1 * p for m, p in zip(lengths, prompt, strict=True)],
        reward=rng.random(n),
        prompt_id=prompt.tolist(),
    )
    columns = rng.normal(0.4, 0.5, (3, batch.n_tokens)) + 0.3 * np.asarray(batch.values)
    columns[0, ::17] = np.nan
    columns[2, ::29] = np.nan
    return batch, columns


def sums_of(batch: Rollouts, columns: np.ndarray, counted: np.ndarray | None = None) -> TargetSums:
    sums = TargetSums(2, True, 0.0, 1.0)
    sums.update(batch, columns, np.ones(batch.n_rollouts, bool) if counted is None else counted)
    return sums


def test_figures_are_those_of_the_tokens() -> None:
    batch, columns = made()
    counted = np.arange(200) % 7 != 0
    found = compare(sums_of(batch, columns, counted), 0.95)
    x = np.vstack([columns, np.asarray(batch.values, np.float64)])
    use = np.isfinite(x).all(axis=0) & np.repeat(counted, batch.lengths)
    x = x[:, use]
    assert found.n_tokens == use.sum() == found.mean[0].n_tokens

    def value(estimates: object) -> list[float]:
        return [e.value for e in estimates]  # type: ignore[attr-defined]

    # float64 sums of some 600 numbers, in another order.
    np.testing.assert_allclose(value(found.mean), x.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(value(found.variance), x.var(axis=1), rtol=1e-11)
    np.testing.assert_allclose(
        value(found.minus_return), (x - x[2]).mean(axis=1), rtol=1e-11, atol=1e-13
    )
    matrix = np.corrcoef(x)
    for (c, d), estimate in found.correlation.items():
        assert estimate.value == pytest.approx(matrix[c, d], rel=1e-10)
    assert found.distance is not None and found.outside is not None
    np.testing.assert_allclose(value(found.distance), np.abs(x[:2] - x[3]).mean(axis=1))
    np.testing.assert_allclose(value(found.outside), ((x[:2] < 0) | (x[:2] > 1)).mean(axis=1))
    assert found.outside[0].value != found.outside[1].value


def test_errors_are_by_prompt() -> None:
    """The delete-one-prompt jackknife of the mean, done by hand on the tokens."""
    batch, columns = made(prompts=12)
    found = compare(sums_of(batch, columns), 0.95)
    x = np.vstack([columns, np.asarray(batch.values, np.float64)])
    use = np.isfinite(x).all(axis=0)
    group = np.repeat(batch.group, batch.lengths)
    groups = np.unique(group[use])
    left = np.array([x[1, use & (group != g)].mean() for g in groups])
    se = np.sqrt((len(groups) - 1) / len(groups) * ((left - left.mean()) ** 2).sum())
    assert found.mean[1].se == pytest.approx(se, rel=1e-9)
    assert found.mean[1].n_clusters == len(groups)


def test_shards_add_up() -> None:
    batch, columns = made()
    whole = sums_of(batch, columns)
    early = np.arange(200) < 90
    parts = sums_of(batch, columns, early)
    parts.merge(sums_of(batch, columns, ~early))
    np.testing.assert_allclose(parts.sums.array, whole.sums.array, rtol=1e-12)


def test_what_does_not_exist_says_why() -> None:
    batch, columns = made()
    columns[1] = 0.25
    found = compare(sums_of(batch, columns), 0.95)
    flat = found.correlation[1, 0]
    assert flat.value is None and flat.reason == "zero variance"
    assert found.variance[1].value == 0.0
    columns[:] = np.nan
    nothing = compare(sums_of(batch, columns), 0.95)
    assert nothing.n_tokens == 0 and nothing.mean[0].value is None
    assert "no token where every target" in str(nothing.mean[0].reason)
    alike = TargetSums(2, True, 1.0, 1.0)
    alike.update(batch, made()[1], np.ones(200, bool))
    assert compare(alike, 0.95).outside is None, "one return alone is no range"


def test_correlations_by_label_are_symmetric() -> None:
    batch, columns = made()
    found = correlations_of(["a", "b", "return", "values"], compare(sums_of(batch, columns), 0.9))
    assert list(found["b"]) == ["a", "return", "values"]
    assert found["a"]["values"] is found["values"]["a"]
    assert found["a"]["b"].level == 0.9
