"""The vector exp against the platform's."""

import numpy as np

from brace_diag.vectorexp import exp_into


def test_agrees_with_numpy_to_the_last_places() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-700, 700, 20_000), rng.normal(0, 0.1, 20_000), [0.0, -0.0]])
    out = np.empty_like(x)
    exp_into(x, out, len(x))
    # Taylor remainder 4e-18 and a dozen roundings: within 2 units in the last place of numpy's,
    # which is itself within one of the truth.
    np.testing.assert_allclose(out, np.exp(x), rtol=2 * np.finfo(np.float64).eps)


def test_ends() -> None:
    x = np.array([-1e9, -800.0, -708.5, 709.0, 1e9])
    out = np.empty_like(x)
    exp_into(x, out, len(x))
    assert out[:3].tolist() == [0.0, 0.0, 0.0]
    assert out[3] > 8e307
    assert out[4] > 1e308


def test_touches_only_what_it_is_asked_for() -> None:
    for n in (0, 1, 255, 256, 257, 600):
        x, out = np.zeros(700), np.full(700, 7.0)
        exp_into(x, out, n)
        assert (out[:n] == 1.0).all()
        assert (out[n:] == 7.0).all()
