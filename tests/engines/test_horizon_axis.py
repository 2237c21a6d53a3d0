"""Why the gap is read by position: by realised horizon it conditions on the future.

`EosMDP` has one state and a random length, so the gap is the same number b at every token, whatever
came before and whatever comes after. By position wdr and doubly_robust have that mean. By realised
horizon h the log shows only rollouts that end h tokens later, and knowing the end is knowing
something of w: there doubly_robust has mean b hazard_pi/hazard_mu w_continue^h, and first_order and
wdr (all products of one h are equal, so that relative weights are 1) the same without the last
factor.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from brace_diag import open_run, value_gap
from brace_diag.results import Cell, ValueGap
from brace_diag.tabular import EosMDP, sample_log

EOS = EosMDP(hazard_mu=0.05, hazard_pi=0.08, right_mu=0.5, right_pi=0.35)
LONGEST = 400
"""A response that long has probability .95^400 = 1e-9: the cap changes no digit below."""


@pytest.fixture(scope="module")
def log() -> Any:
    """512 prompts of 24 rollouts, with the true critic V^mu = .5 at every token."""
    rng = np.random.default_rng(20)
    mdp = EOS.build(LONGEST, 512).with_critic(EOS.right_mu)
    return sample_log(mdp, 512, 24, rng).to_table()


@pytest.fixture(scope="module")
def by_position(log: Any) -> ValueGap:
    return value_gap(open_run(log))


@pytest.fixture(scope="module")
def by_horizon(log: Any) -> ValueGap:
    return value_gap(open_run(log), axis="horizon")


def z(cell: Cell, truth: float) -> float:
    assert cell.estimate.value is not None and cell.estimate.se is not None
    return (cell.estimate.value - truth) / cell.estimate.se


@pytest.mark.parametrize("name", ["wdr", "doubly_robust"])
def test_by_position_the_intervals_cover_the_gap(by_position: ValueGap, name: str) -> None:
    """Though pi ends responses 1.6 times as soon as mu.

    wdr holds because its weights are divided by their mean over every rollout that reached the
    start; divided by the mean over those still alive it would read b hazard_pi/hazard_mu.
    """
    cells = [c for c in by_position.gap.cells if c.high < 64]
    found: list[Any] = [c.estimate if name == "wdr" else c.companions[name] for c in cells]
    assert len(found) == 20
    scores = [(other.value - EOS.gap) / other.se for other in found]
    # Twenty statements at once: the largest of as many independent z passes 3.3 in 1 of 50 logs.
    assert max(map(abs, scores)) < 3.3
    # Cells share rollouts, so misses come in rows; a quarter of them missing would be no accident.
    assert np.mean([abs(score) < 1.96 for score in scores]) >= 0.75
    assert not any("conditions on" in note for note in by_position.notes)


def test_by_realised_horizon_every_cell_is_wrong(by_horizon: ValueGap) -> None:
    """Off by the factor hazard_pi/hazard_mu = 1.6 that knowing the end brings, in every cell."""
    read = EOS.gap * EOS.hazard_pi / EOS.hazard_mu
    cells = [c for c in by_horizon.gap.cells if c.high < 8]
    assert [cell.low for cell in cells] == list(range(8))
    for cell in cells:
        assert z(cell, EOS.gap) < -5.0, "no chance: the interval excludes the true gap by far"
        # Eight strongly dependent statements about one number: 3.3 as above.
        assert abs(z(cell, read)) < 3.3


def test_the_bias_of_doubly_robust_turns_with_the_horizon(
    by_horizon: ValueGap,
) -> None:
    """b hazard_pi/hazard_mu w_continue^h: beyond b for a near end, short of it for a far one."""
    on = (1.0 - EOS.hazard_pi) / (1.0 - EOS.hazard_mu)
    cells = {int(c.low): c.companions["doubly_robust"] for c in by_horizon.gap.cells if c.low < 40}
    for h in (0, 4, 7, 32):
        other: Any = cells[h]
        # A cell starts at its farthest token; its tokens count from there.
        high = next(int(c.high) for c in by_horizon.gap.cells if c.low == h)
        read = EOS.gap * EOS.hazard_pi / EOS.hazard_mu * on**high
        assert abs(other.value - read) < 3.3 * other.se, h
    near, far = cells[0], cells[32]
    assert near.value + 3 * near.se < EOS.gap < far.value - 3 * far.se


def test_by_horizon_it_averages_to_the_gap(log: Any) -> None:
    """Nothing is lost, only misplaced: over all tokens the biased cells have the right mean."""
    h = np.arange(4000)
    on = (1.0 - EOS.hazard_pi) / (1.0 - EOS.hazard_mu)
    read = EOS.gap * EOS.hazard_pi / EOS.hazard_mu * on**h
    assert (EOS.horizon_probability(h) * read).sum() == pytest.approx(EOS.gap, abs=1e-12)


def test_the_note_is_there_and_printed(
    by_horizon: ValueGap, log: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from brace_diag_cli.main import main

    (note,) = [note for note in by_horizon.notes if "conditions on" in note]
    assert note.startswith("--axis horizon conditions on the realised length, which is the future")
    assert "read the gap by position" in note
    pq.write_table(log.slice(0, 480), tmp_path / "eos.parquet")
    say: Callable[..., int] = main
    assert say(["bias", str(tmp_path / "eos.parquet"), "--axis", "horizon"]) == 0
    assert note in capsys.readouterr().out
    assert say(["bias", str(tmp_path / "eos.parquet")]) == 0
    assert "conditions on the realised length" not in capsys.readouterr().out
