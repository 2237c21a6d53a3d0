"""The figures of the importance products: what they draw is what the result says."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from brace_diag import importance_products
from brace_diag.errors import InputError
from brace_diag.plots import (
    SINGLE_COLUMN,
    place_data,
    place_figure,
    products_data,
    products_figure,
    save_figure,
    tails_data,
    tails_figure,
)
from brace_diag.plots.layout import renderer
from brace_diag.results import Estimate
from brace_diag.results_importance import ImportanceProducts
from brace_diag.rollouts import Rollouts

FIGURES = (products_figure, tails_figure, place_figure)
Make = Callable[..., ImportanceProducts]


@pytest.fixture
def products() -> Make:
    """`products(extreme=True, ...)`: result of a small log with fresh and stale rollouts."""

    def make(
        *, drift: float = 0.2, extreme: bool = False, fresh: bool = True, prompts: int = 24
    ) -> ImportanceProducts:
        rng = np.random.default_rng(4)
        n = prompts * 4
        lengths = rng.integers(20, 80, n)
        mu = [-1.0 - rng.exponential(0.5, k) for k in lengths]
        old = np.arange(n) % 3 > 0
        sizes = np.where(old, drift * np.repeat(rng.uniform(0.2, 2.0, prompts), 4), 0.01)
        pi = [
            m + rng.normal(-s * s / 2, s, len(m)) if s else m
            for m, s in zip(mu, sizes, strict=True)
        ]
        if extreme:
            for row in pi[::4]:
                row[-1] -= 14.0
        versions = {"trainer_version": [5] * n, "behavior_version": np.where(old, 2, 5).tolist()}
        return importance_products(
            Rollouts.from_lists(
                mu_logprobs=mu,
                pi_logprobs=pi,
                reward=np.zeros(n),
                prompt_id=np.repeat(np.arange(prompts), 4),
                **(versions if fresh else {}),
            )
        )

    return make


def lines(axes: Axes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for line in axes.get_lines():
        found.setdefault(str(line.get_label()), []).append(line)
    return found


def texts(figure: Figure) -> str:
    return " ".join(t.get_text() for t in figure.texts)


def test_products_data_is_the_result(products: Make) -> None:
    result = products()
    data = products_data(result)
    cells = result.log_products.cells
    assert data.n.tolist() == [1, 2, 4, 8, 16, 32, 64]
    assert data.mean.tolist() == [c.estimate.value for c in cells]
    assert data.mean_low.tolist() == [c.estimate.ci_low for c in cells]
    assert data.spread["prompt"].tolist() == [c.companions["spread_prompt"] for c in cells]
    sds = [c.companions["observed_sd"] for c in cells]
    assert data.observed_sd.tolist() == [s.value for s in sds if isinstance(s, Estimate)]
    assert data.z == pytest.approx(1.959964, abs=1e-6)
    assert data.reason is None


def test_products_are_drawn_as_they_are(products: Make) -> None:
    result = products()
    data, figure = products_data(result), products_figure(result)
    main, spread, coverage = figure.axes
    drawn = lines(main)
    np.testing.assert_array_equal(drawn["mean"][0].get_ydata(), data.mean)
    np.testing.assert_array_equal(drawn["n m"][0].get_ydata(), data.forecast)
    for name in ("naive", "hac", "prompt"):
        low, high = (line.get_ydata() for line in drawn[f"{name} edge"])
        np.testing.assert_allclose((high - low) / 2, data.z * data.spread[name], rtol=1e-12)
        np.testing.assert_array_equal(lines(spread)[name][0].get_ydata(), data.spread[name])
        np.testing.assert_array_equal(lines(coverage)[name][0].get_ydata(), data.coverage[name])
    assert main.get_xscale() == "log"
    assert spread.get_yscale() == "log"
    assert lines(coverage)["level"][0].get_ydata()[0] == 0.95
    for words in ("c̄ = 1.1", "ρ̄ = 1.2", "γ = 1", "96 rollouts"):
        assert words.replace(" ", "\N{NO-BREAK SPACE}") in texts(figure)


def test_tails_are_cut_to_what_is_seen(products: Make) -> None:
    result = products(extreme=True)
    data = tails_data(result)
    beyond = data.above + data.below
    assert (beyond[:-1] > 0).all()
    assert beyond[0] > 0.9
    assert data.x[-1] >= abs(result.tails.lowest or 0.0) > data.x[-3]
    assert [name for name, _, _ in data.caps] == ["c", "ρ"]
    assert data.caps[0][1] == pytest.approx(np.log(1.1))
    assert data.caps[0][2] == result.figures.clip_c_bar
    (axes,) = tails_figure(result).axes
    drawn = lines(axes)
    up = drawn["above"][0].get_ydata()
    np.testing.assert_array_equal(up[np.isfinite(up)], data.above[data.above > 0])
    assert drawn["floor"][0].get_xdata()[0] == result.noise_floor.value
    assert drawn["c bar"][0].get_xdata()[0] == pytest.approx(np.log(1.1))
    assert "extreme" in drawn
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert "floor" not in lines(tails_figure(products(fresh=False)).axes[0])


def test_places_are_drawn_from_both_ends(products: Make) -> None:
    result = products(extreme=True)
    figure = place_figure(result)
    mean, share = figure.axes
    for name, curve in (("position", result.abs_by_position), ("horizon", result.abs_by_horizon)):
        data = place_data(curve)
        np.testing.assert_array_equal(lines(mean)[name][0].get_ydata(), data.mean)
        np.testing.assert_array_equal(lines(share)[name][0].get_ydata(), data.share)
        assert data.x[:9].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert place_data(result.abs_by_horizon).share[0] == 0.25
    assert "on the last policy token: likely a mask bug" in texts(figure)
    # Without extremes there is no panel for them.
    calm = place_figure(products())
    assert len(calm.axes) == 1


def test_a_title_names_a_place_only_where_intervals_part(products: Make) -> None:
    result = products()
    assert "alike at all positions" in texts(place_figure(result))
    cells = list(result.abs_by_position.cells)
    first = replace(cells[0].estimate, value=0.9, ci_low=0.8, ci_high=1.0)
    cells[0] = replace(cells[0], estimate=first)
    steep = replace(result, abs_by_position=replace(result.abs_by_position, cells=tuple(cells)))
    assert "to 0.9 at position 0" in texts(place_figure(steep))


def test_caps_beyond_every_token_are_still_seen(products: Make) -> None:
    result = products(drift=0.01)
    assert result.figures.clip_rho_bar.value == 0.0
    (axes,) = tails_figure(result).axes
    assert axes.get_xlim()[1] > np.log(1.2)


@pytest.mark.parametrize("make", FIGURES)
@pytest.mark.parametrize("size", [(7.0, 5.0), SINGLE_COLUMN])
@pytest.mark.parametrize("extreme", [False, True])
def test_nothing_is_cut_off(
    products: Make, make: Any, size: tuple[float, float], extreme: bool, tmp_path: Path
) -> None:
    figure = make(products(extreme=extreme), size=size)
    save_figure(figure, tmp_path / "f.png")
    frame = figure.bbox
    for artist in [*figure.texts, *figure.legends, *figure.axes]:
        box = artist.get_tightbbox(renderer(figure))
        assert box is not None
        assert box.x0 >= frame.x0 - 1 and box.x1 <= frame.x1 + 1, artist
        assert box.y0 >= frame.y0 - 1 and box.y1 <= frame.y1 + 1, artist
    tops = [legend.get_window_extent(renderer(figure)).y0 for legend in figure.legends]
    for axes in figure.axes:
        assert axes.get_window_extent().y1 <= min(tops, default=np.inf) + 1


@pytest.mark.parametrize("make", FIGURES)
def test_a_log_that_cannot_tell_says_so(products: Make, make: Any) -> None:
    result = products(drift=0.0, fresh=False)
    for broken in (
        replace(result, invalid="engine mismatch: mean pi/mu is 1.2"),
        replace(
            products(),
            invalid="engine mismatch: mean pi/mu is 1.2",
        ),
    ):
        shown = texts(make(broken))
        assert "This log cannot tell how the weights behave" in shown or "No " in shown
        assert "engine mismatch" in shown


@pytest.mark.parametrize("make", FIGURES)
def test_no_weights_give_a_reason_in_place_of_lines(make: Any) -> None:
    nan = [[np.nan] * 5] * 4
    result = importance_products(
        Rollouts.from_lists(
            mu_logprobs=[[-1.0] * 5] * 4, pi_logprobs=nan, reward=[0.0] * 4, prompt_id=[0, 0, 1, 1]
        )
    )
    figure = make(result)
    (axes,) = figure.axes
    assert any(t.get_text().startswith("No ") for t in axes.texts)
    with pytest.raises(InputError, match="too small"):
        make(result, size=(1.0, 1.0))


def test_a_miscalibrated_log_carries_its_warning(products: Make) -> None:
    result = products()
    ratio = replace(result.ratio, verdict="miscalibrated", cause="noise")
    shown = texts(products_figure(replace(result, ratio=ratio)))
    assert "Miscalibrated" in shown
