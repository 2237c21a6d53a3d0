"""What `bias` prints for people: the sentence, the figures, the table, the caveats."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from brace_diag.quality import DataQuality
from brace_diag.results import BATCH_NAMES, BatchFigures, Curve, Estimate, KeyedGap, ValueGap
from brace_diag.settings import GapSettings
from brace_diag_cli.gap_text import gap_text, headline
from brace_diag_cli.terminal import Terminal

PLAIN = Terminal(None, False)
GapOf = Callable[..., ValueGap]
EstimateOf = Callable[..., Estimate]


def sentence(gap: ValueGap) -> str:
    return " ".join(headline(gap, PLAIN))


def with_b(gap: ValueGap, b: Estimate, **changes: Any) -> ValueGap:
    return replace(gap, batch=replace(gap.batch, b_hat=b), **changes)


def test_a_gap_above_zero(gap_of: GapOf) -> None:
    assert sentence(gap_of()) == (
        "From the first token pi earns more than mu: b = +0.031 (95% interval +0.007 .. +0.056). "
        "A critic fitted to this log is too low there by that much."
    )


def test_a_gap_below_zero(gap_of: GapOf, estimate_of: EstimateOf) -> None:
    text = sentence(with_b(gap_of(), estimate_of(-0.0313, 0.0123)))
    assert "pi earns less than mu: b = -0.031" in text
    assert "is too high there by that much" in text


def test_only_the_direction(gap_of: GapOf) -> None:
    text = sentence(gap_of(gate="direction"))
    assert "read the sign, not the size" in text
    assert "by that much" not in text


def test_no_gap_that_can_be_told_from_zero(gap_of: GapOf, estimate_of: EstimateOf) -> None:
    text = sentence(with_b(gap_of(), estimate_of(0.0113, 0.0123)))
    assert text.startswith("At the first token no gap between pi and mu can be told from 0: b = +0")
    assert "critic fitted" not in text


def test_a_refused_gap_gives_its_reason(gap_of: GapOf, estimate_of: EstimateOf) -> None:
    b = estimate_of(None, reason="fresh rollouts from pi are needed (about 550)")
    text = gap_text(with_b(gap_of(), b, gate="refused"), PLAIN)
    assert text.startswith(
        "No gap at the first token: fresh rollouts from pi are needed (about 550)."
    )


def test_a_gap_without_interval_claims_nothing(gap_of: GapOf, estimate_of: EstimateOf) -> None:
    b = estimate_of(0.5, None, reliable=False, reason="one prompt only: no standard error")
    text = sentence(with_b(gap_of(), b))
    assert (
        "can be told from 0: b = +0.500 (no interval: one prompt only: no standard error)" in text
    )


def test_a_log_that_says_nothing_gets_no_claim(gap_of: GapOf) -> None:
    text = sentence(gap_of(invalid="MISALIGNED lag=+1: such and such"))
    assert text.startswith("This log cannot tell the gap:")
    assert "MISALIGNED lag=+1: such and such" in text
    assert "earns" not in text


def test_batch_figures_are_all_there(gap_of: GapOf) -> None:
    lines = gap_text(gap_of(), PLAIN).splitlines()
    figures = {line.strip().split("  ")[0]: line for line in lines}
    for name in ("b", "E_mu[R]", "E_pi[R]", "V", "V - E_pi[R]", "V - E_mu[R]", "s_A"):
        assert name in figures
    assert "+0.031" in figures["b"]
    assert "+0.250" in figures["V - E_pi[R]"]
    assert " 0.250 " in figures["E_mu[R]"]
    assert "0.210 .. 0.290" in figures["E_mu[R]"]


def test_without_a_critic_its_rows_are_left_out(gap_of: GapOf, estimate_of: EstimateOf) -> None:
    gap = gap_of()
    none = estimate_of(None, reason="the log has no critic values")
    figures = {
        name: none if name[:2] in ("cr", "g_") else getattr(gap.batch, name) for name in BATCH_NAMES
    }
    cells = tuple(replace(cell, estimate=none) for cell in gap.critic_bias.cells)
    text = gap_text(
        replace(gap, batch=BatchFigures(**figures), critic_bias=Curve("position", cells)), PLAIN
    )
    assert "V - E_pi[R]" not in text
    assert "V-V^pi" not in text
    assert "E_pi[R]" in text


def test_unreliable_figures_are_marked(gap_of: GapOf, estimate_of: EstimateOf) -> None:
    gap = gap_of()
    rough = estimate_of(0.25, 0.02, reliable=False, reason="few clusters")
    text = gap_text(replace(gap, batch=replace(gap.batch, reward_mu=rough)), PLAIN)
    assert "mean return in the log (unreliable)" in text


def test_table_row_by_row(gap_of: GapOf) -> None:
    lines = gap_text(gap_of(), PLAIN).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("Gap b(t)"))
    head, first, second = (
        re.split(r"\s{2,}", line.strip()) for line in lines[start + 1 : start + 4]
    )
    assert head == [
        "position", "rollouts", "b", "95% interval", "first order", "doubly robust", "v", "gate",
        "ESS", "k-hat", "V-V^pi", "se",
    ]  # fmt: skip
    assert first == [
        "0", "1,234", "+0.031", "+0.007 .. +0.056", "+0.041", "+0.029", "0.42", "good", "83%", "-",
        "-0.050", "+- 0.020",
    ]  # fmt: skip
    assert second[0] == "1-1,023"
    assert second[2] == "-0.002"
    assert "direction" in second


def test_relative_cells_are_shares(gap_of: GapOf) -> None:
    gap = gap_of()
    cells = (replace(gap.gap.cells[0], low=0.05, high=0.1),)
    text = gap_text(
        replace(gap, gap=Curve("relative", cells), settings=GapSettings(axis="relative")), PLAIN
    )
    assert "5-10%" in text
    assert "by relative position" in text


def test_notes_and_data(gap_of: GapOf) -> None:
    text = gap_text(gap_of(), PLAIN)
    assert "Notes\n  - the first note\n  - the second note\n" in text
    assert "1,300 rows, 1,234 rollouts, 4,096 policy tokens\n" in text
    assert "  - 66 rows without a policy token\n" in text
    clean = gap_text(gap_of(quality=DataQuality(2, 2, 8), notes=()), PLAIN)
    assert "Notes" not in clean
    assert "nothing was set aside" in clean


def test_a_note_is_one_line_off_a_terminal_and_wrapped_on_one(gap_of: GapOf) -> None:
    note = "word " * 60
    gap = gap_of(notes=(note.strip(),))
    assert f"  - {note.strip()}\n" in gap_text(gap, PLAIN)
    narrow = gap_text(gap, Terminal(60, False)).splitlines()
    wrapped = [line for line in narrow if "word" in line]
    assert len(wrapped) > 4
    assert max(map(len, wrapped)) <= 60


def keyed(gap: ValueGap, key: int) -> KeyedGap:
    return KeyedGap(key, gap.batch, gap.gap, "fair", 1.5)


def test_by_step(gap_of: GapOf) -> None:
    gap = gap_of(settings=GapSettings(by="step"))
    gap = replace(gap, by=(keyed(gap, 100), keyed(gap, 120)))
    lines = gap_text(gap, PLAIN).splitlines()
    start = lines.index("By step, at the first token")
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines[start + 1 : start + 4]]
    assert rows[0][:4] == ["step", "rollouts", "b", "95% interval"]
    assert [row[0] for row in rows[1:]] == ["100", "120"]
    assert rows[1][2:4] == ["+0.031", "+0.007 .. +0.056"]
    assert "step 100: gap by token position" not in lines


def test_by_step_and_position(gap_of: GapOf) -> None:
    gap = gap_of(settings=GapSettings(by="step", by_positions=True))
    text = gap_text(replace(gap, by=(keyed(gap, 100),)), PLAIN)
    assert "step 100: gap by token position" in text
    assert text.count("1-1,023") == 2


def test_by_a_key_that_no_rollout_has(gap_of: GapOf) -> None:
    text = gap_text(gap_of(settings=GapSettings(by="staleness")), PLAIN)
    assert "By staleness: the log tells no staleness for any rollout" in text


def test_colour_only_where_asked_for(gap_of: GapOf) -> None:
    assert "\033[" not in gap_text(gap_of(), PLAIN)
    painted = gap_text(gap_of(), Terminal(200, True))
    assert "\033[32mgood\033[0m" in painted
    assert "\033[33mdirection\033[0m" in painted


def test_a_narrow_terminal_loses_columns_not_truth(gap_of: GapOf) -> None:
    text = gap_text(gap_of(), Terminal(80, False))
    table = text[text.index("Gap b(t)") :]
    rows = table.splitlines()[1:4]
    assert max(map(len, rows)) <= 80
    assert "a wider terminal also shows:" in table
    assert all(word in rows[0] for word in ("position", "95% interval", "gate"))


def test_one_rollout_is_told_without_numbers_that_do_not_exist(
    gap_of: GapOf, estimate_of: EstimateOf
) -> None:
    gap = gap_of(
        gate="unknown",
        mean_weight=estimate_of(1.32),
        quality=DataQuality(1, 1, 1),
        gap=Curve("position", ()),
        saturation_z=estimate_of(None),
    )
    text = gap_text(gap, PLAIN)
    assert "gate unknown: the within-prompt variance of the log product cannot be measured" in text
    assert "mean pi/mu per token 1.32 (1 for a true ratio)" in text
    assert "saturation z" not in text
    assert "1 row, 1 rollout, 1 policy token;" in text
