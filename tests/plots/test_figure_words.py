"""The sentences on a figure say what the numbers say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from brace_diag.plots.words import basis, cautions, decimals, elide, finding, plain, signed


def said(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def with_first(make_gap: Any, b: Any, gate: str = "good", **options: Any) -> Any:
    result = make_gap(**options)
    return replace(result, batch=replace(result.batch, b_hat=b), gate=gate)


def test_a_gap_that_is_there(make_gap: Any, make_estimate: Any) -> None:
    text = said(finding(with_first(make_gap, make_estimate(0.1024, 0.0441, clusters=32))))
    # t(31, .975) = 2.0395, times .0441 = .0899.
    assert text.endswith("= +0.102 ± 0.090 (95 %)")
    assert "lies above" in text and "sign only" not in text


def test_its_sign_and_its_gate(make_gap: Any, make_estimate: Any) -> None:
    text = said(finding(with_first(make_gap, make_estimate(-0.2, 0.01), "direction")))
    assert "lies below" in text and "(read the sign only)" in text
    assert "= −0.200 ± 0.020 (95 %)" in text


def test_a_gap_that_cannot_be_told(make_gap: Any, make_estimate: Any) -> None:
    text = finding(with_first(make_gap, make_estimate(0.01, 0.1)))
    assert text.startswith("The gap at the first token cannot be told from 0")


def test_refused_and_null(make_gap: Any, make_estimate: Any) -> None:
    null = make_estimate(None, None, reason="the products overflow float64")
    text = finding(with_first(make_gap, null, "refused"))
    assert "v is above 10" in text and "600 fresh rollouts" in text
    assert finding(with_first(make_gap, null)).endswith("the products overflow float64")


def test_one_prompt_has_no_interval(make_gap: Any, make_estimate: Any) -> None:
    one = replace(make_estimate(0.2, None, clusters=1), reason="one prompt only")
    assert "+0.200 (no interval: one prompt only)" in said(finding(with_first(make_gap, one)))


@pytest.mark.parametrize(
    "note",
    [
        "MISALIGNED lag=+1: pi fits mu shifted",
        "no staleness logged: pi equals mu on every token",
        "pi is bit-identical to mu while 90 % of the rollouts are stale",
        "engine mismatch: mean pi/mu is 1.0400, not 1",
    ],
)
def test_what_invalidates_replaces_the_finding(make_gap: Any, note: str) -> None:
    result = make_gap(notes=("some other note", note), invalid=note)
    assert finding(result) == "This log cannot tell the gap"
    assert cautions(result) == [note]


def test_an_ordinary_note_does_not(make_gap: Any) -> None:
    result = make_gap(notes=("12 rows repeat an earlier row and are used once",))
    assert "cannot tell the gap" not in finding(result)
    assert cautions(result) == []


def test_basis_counts(make_gap: Any) -> None:
    text = said(basis(make_gap(rollouts=4096, clusters=128, gamma=0.99)))
    assert text == (
        "run.parquet · 4,096 rollouts · 128 clusters of prompts · γ = 0.99 · "
        "wdr(τ = 2), critic baseline"
    )


def test_cautions_for_biased_axes_and_few_clusters(make_gap: Any) -> None:
    few = make_gap(clusters=4)
    assert cautions(few) == ["4 clusters of prompts: intervals are rough below 10."]
    for axis in ("horizon", "relative"):
        (caution,) = cautions(make_gap(axis=axis), axis=axis)
        assert caution.startswith("Biased where lengths vary")


def test_foreign_text_starts_no_mathematics() -> None:
    assert plain("a$b$c") == r"a\$b\$c"


def test_long_sources_keep_both_ends() -> None:
    path = "/data/" + "x" * 200 + "/rollouts.parquet"
    short = elide(path)
    assert len(short) == 60
    assert short.startswith("/data/") and short.endswith("/rollouts.parquet") and "…" in short
    assert elide("run.parquet") == "run.parquet"


def test_numbers() -> None:
    assert signed(-0.0004, 2) == "+0.00"
    assert signed(0.0) == "+0.000"
    assert signed(123.4) == "+123"
    assert [decimals(h) for h in (0.09, 0.9, 9.0, 90.0, 0.0)] == [3, 2, 1, 0, 3]
