"""Ranges of steps: what is kept of a column, and what may be skipped by its least and greatest."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from brace_diag.readers.selection import Steps, parse_steps
from brace_diag.rollouts import UNKNOWN

bound = st.one_of(st.none(), st.integers(0, 12))


@given(bound, bound, st.integers(1, 5), st.lists(st.integers(0, 15)))
def test_steps_keep_what_a_python_range_holds(
    start: int | None, stop: int | None, stride: int, steps: list[int]
) -> None:
    wanted = range(start or 0, 100 if stop is None else stop, stride)
    kept = Steps(start, stop, stride).keeps(np.array(steps, dtype=np.int64))
    assert kept.tolist() == [step in wanted for step in steps]


@given(bound, bound, st.integers(1, 5), st.integers(0, 15), st.integers(0, 6))
def test_a_row_group_is_skipped_only_if_nothing_in_it_is_wanted(
    start: int | None, stop: int | None, stride: int, low: int, width: int
) -> None:
    steps, inside = Steps(start, stop, stride), np.arange(low, low + width + 1)
    may = steps.may_keep(low, low + width)
    assert may or not steps.keeps(inside).any()
    if width == 0:  # one step tells all
        assert may == steps.keeps(inside)[0]


def test_an_unknown_step_is_never_kept() -> None:
    assert not Steps(None, None, 1).keeps(np.array([UNKNOWN])).any()


def test_words_of_a_range() -> None:
    for text in ("1:5", "1:", ":5", "1:5:2"):
        assert str(parse_steps(text)) == text
    assert parse_steps(" 1 : 5 ") == Steps(1, 5, 1)
    assert parse_steps(None) is None
    assert parse_steps(4) == Steps(4, 5, 1)
