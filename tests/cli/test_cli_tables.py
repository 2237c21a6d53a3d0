"""Numbers as text and columns that stand straight."""

import re

import pytest

from brace_diag.number_words import counted, interval, number, places, share, short
from brace_diag_cli.tables import Column, on_the_point, table
from brace_diag_cli.terminal import Terminal


@pytest.mark.parametrize(
    ("se", "expected"),
    [(0.034, 3), (0.34, 2), (3.4, 1), (34.0, 0), (3400.0, 0), (0.1, 2), (0.099, 3), (None, None),
     (0.0, None), (float("nan"), None), (float("inf"), None)],
)  # fmt: skip
def test_places_keep_two_digits_of_the_error(se: float | None, expected: int | None) -> None:
    assert places(se) == expected


@pytest.mark.parametrize(
    ("value", "se", "sign", "expected"),
    [
        (0.03147, 0.0123, True, "+0.031"),
        (-0.03147, 0.0123, True, "-0.031"),
        (-0.00001, 0.0123, True, "+0.000"),
        (12345.678, 120.0, False, "12,346"),
        (0.5, None, False, "0.500"),
        (0.0, None, True, "+0.000"),
        (1234.5, None, False, "1,234"),
        (3.2e-9, 1e-10, True, "+3.20e-09"),
        (None, 0.1, True, "-"),
        (float("nan"), 0.1, True, "-"),
        (float("inf"), 0.1, True, "-"),
    ],
)
def test_number(value: float | None, se: float | None, sign: bool, expected: str) -> None:
    assert number(value, se, sign=sign) == expected


def test_interval_needs_both_ends() -> None:
    assert interval(-0.1, 0.25, 0.05, sign=True) == "-0.100 .. +0.250"
    assert interval(None, 0.25, 0.05) == "-"
    assert interval(-0.1, None, 0.05) == "-"


def test_counts_agree_with_their_noun() -> None:
    assert [counted(n, "row") for n in (0, 1, 2, 1200)] == [
        "0 rows",
        "1 row",
        "2 rows",
        "1,200 rows",
    ]


def test_companion_numbers() -> None:
    assert [short(x) for x in (None, 0.0, 0.512, 5.61, 123.4, -1e-5)] == [
        "-", "0.00", "0.51", "5.61", "123", "0.00",
    ]  # fmt: skip
    assert [share(x) for x in (None, 0.0, 0.834, 1.0)] == ["-", "0%", "83%", "100%"]


def test_points_stand_below_each_other() -> None:
    padded = on_the_point(["+0.031", "-12.5", "3", "-"])
    width = max(map(len, padded))
    points = {text.rjust(width).index(".") for text in padded if "." in text}
    assert len(points) == 1
    assert on_the_point([]) == []


def columns() -> list[Column]:
    return [
        Column("position", ["0", "1,024"]),
        Column("gate", ["good", "refused"], left=True, style={"good": "green"}.get),
        Column("first order", ["+0.1", "-0.1"], rank=1),
        Column("k-hat", ["0.1", "0.2"], rank=2),
    ]


def test_table_off_a_terminal_shows_everything_plain() -> None:
    lines = table(columns(), Terminal(None, False))
    assert [line.split() for line in lines] == [
        ["position", "gate", "first", "order", "k-hat"],
        ["0", "good", "+0.1", "0.1"],
        ["1,024", "refused", "-0.1", "0.2"],
    ]
    assert lines[1].index("+0.1") == lines[2].index("-0.1")


def test_table_leaves_columns_out_by_rank_and_says_so() -> None:
    full = max(map(len, table(columns(), Terminal(None, False))))
    lines = table(columns(), Terminal(full - 1, False))
    assert "k-hat" not in lines[0]
    assert "first order" in lines[0]
    assert lines[-1].strip() == "(a wider terminal also shows: k-hat)"
    narrow = table(columns(), Terminal(5, False))
    assert narrow[0].split() == ["position", "gate"]
    assert narrow[-1].strip() == "(a wider terminal also shows: first order, k-hat)"


def test_colour_takes_no_room() -> None:
    plain = table(columns(), Terminal(100, False))
    painted = table(columns(), Terminal(100, True))
    assert "\033[32mgood\033[0m" in painted[1]
    assert [re.sub("\033\\[[0-9]*m", "", line) for line in painted] == plain


def test_table_without_rows() -> None:
    assert table([Column("b", [])], Terminal(None, False)) == ["  b"]
